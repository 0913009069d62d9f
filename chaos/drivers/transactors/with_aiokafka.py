"""Drives transactions of aiokafka, which speaks transaction version 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaConnectionError

from squall.broker.overriding import override
from squall.chaos.drivers.library import FAIL, INFO, DriverConfig, OutcomeCallback, Place
from squall.chaos.drivers.transactors.outcomes import (
    ABORT,
    BEGIN,
    COMMIT,
    HAND,
    IN_DOUBT,
    INIT,
    OFFSETS,
    REFUSED,
    SEND,
    TIMED_OUT,
    UNSENT,
    ErrorFollowUp,
    ErrorMeaning,
    TransactionalAdapter,
)
from squall.chaos.drivers.with_aiokafka import NO_ROOM, AiokafkaSender, settings, version

__all__ = ["transactor", "version"]

LOCAL = (IllegalOperation, AssertionError)
"""Lists errors with which aiokafka's state machine refuses a call or a record (it asserts); nothing was sent."""
UNASKED = (FAIL, ErrorFollowUp.AGAIN)
"""Is the meaning of an error if no broker could be reached: nothing was sent, and the same call can be made again."""


class _AiokafkaTransactor(AiokafkaSender, TransactionalAdapter):
    """Drives aiokafka's transactional producer. aiokafka never bumps the producer epoch. So a record that fails after
    aiokafka has taken it leaves a gap in the sequence numbers, and no later transaction can succeed (`spent`).
    """

    def __init__(self, config: DriverConfig, answer: OutcomeCallback) -> None:
        super().__init__(answer)
        self._config = config
        self._producer: AIOKafkaProducer | None = None
        self.spent = ""
        self.offsets: tuple[Mapping[Place, int], Any] = ({}, None)

    async def _make(self) -> None:
        """Start a new producer, which sends InitProducerId."""
        config = self._config
        if self._producer is not None:
            await self._producer.stop()
        self._producer = AIOKafkaProducer(
            **settings(config),
            request_timeout_ms=config.request_timeout_ms,
            transactional_id=config.transactional_id,
            transaction_timeout_ms=config.transaction_timeout_ms,
        )
        await self._producer.start()
        self.serve(self._producer)

    @override
    def call(self, which: str, within_s: float) -> None:
        """Make one call, with the delivery time-out in place of `within_s`. aiokafka cannot resume a call that has
        timed out: it refuses, for example, to commit the same transaction twice.
        """
        if which == INIT:
            self._io.run(self._make(), self._config.delivery_timeout_ms / 1000)
            return
        producer = self._producer
        assert producer is not None, "init comes first"
        if which == OFFSETS:
            at, group = self.offsets
            wanted = {TopicPartition(*place): position for place, position in at.items()}
            sent = producer.send_offsets_to_transaction(wanted, group)
            self._io.run(sent, self._config.delivery_timeout_ms / 1000)
            return
        calls = {
            BEGIN: producer.begin_transaction,
            COMMIT: producer.commit_transaction,
            ABORT: producer.abort_transaction,
        }
        self._io.run(calls[which](), self._config.delivery_timeout_ms / 1000)

    @override
    def weigh(self, which: str, error: BaseException) -> ErrorMeaning:
        return weigh(which, error)

    @override
    def identity(self) -> tuple[int, int]:
        manager = getattr(self._producer, "_txn_manager", None)
        return (-1, -1) if manager is None else (manager.producer_id, manager.producer_epoch)

    def _lost(self, op: int, which: str, error: BaseException) -> None:
        weighed = weigh(which, error)
        if weighed.then is ErrorFollowUp.END:
            self.spent = weighed.name
        self._told(op, weighed.status, -1, -1, weighed.name)


def weigh(which: str, error: BaseException) -> ErrorMeaning:
    """Return what an error means. which: the call or the record's step in which it was raised, such as INIT or SEND. If
    the error has a cause, the result has the cause's name, because aiokafka wraps the error that ended its sender.
    """
    name = type(error.__cause__ or error).__name__
    if isinstance(error, TimeoutError):
        return ErrorMeaning(INFO, TIMED_OUT, ErrorFollowUp.END)
    if which == HAND and isinstance(error, LOCAL + NO_ROOM):
        status, then = UNSENT
    elif which in (HAND, SEND):
        status, then = IN_DOUBT
    elif which == BEGIN or isinstance(error, LOCAL):
        status, then = REFUSED
    elif which == INIT and isinstance(error, KafkaConnectionError):
        status, then = UNASKED
    else:
        status, then = IN_DOUBT
    return ErrorMeaning(status, name, then)


transactor = _AiokafkaTransactor
