"""Drives transactions of kafka-python, which speaks transaction version 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
)
from kafka.structs import OffsetAndMetadata

from squall.broker.overriding import override
from squall.chaos.drivers.library import FAIL, INFO, DriverConfig, OutcomeCallback, Place
from squall.chaos.drivers.transactors.outcomes import (
    ABORT,
    BEGIN,
    COMMIT,
    HAND,
    IN_DOUBT,
    INIT,
    LOST,
    OFFSETS,
    REFUSED,
    RESUMED,
    SEND,
    TIMED_OUT,
    UNSENT,
    ErrorFollowUp,
    ErrorMeaning,
    TransactionalAdapter,
)
from squall.chaos.drivers.with_kafka_python import KafkaPythonSender, settings, version

__all__ = ["transactor", "version"]

LOCAL = ("Cannot execute transactional method", "TransactionalId ")
"""Lists beginnings of error messages. A plain KafkaError with such a message means that the library refused a call
before it sent anything.
"""
UNASKED = (FAIL, ErrorFollowUp.AGAIN)
"""Is the meaning of an error if no broker could be reached: nothing was sent, and the same call can be made again."""


class _KafkaPythonTransactor(KafkaPythonSender, TransactionalAdapter):
    """Drives kafka-python's transactional producer. If a record's outcome is unknown, the library raises its epoch by
    itself (KIP-360), and has no open transaction any more.
    """

    REFUSALS = (KafkaError,)

    def __init__(self, config: DriverConfig, answer: OutcomeCallback) -> None:
        # Not by super().__init__, which would make a producer and connect: the first call does that.
        self._answer, self._config = answer, config
        self._producer: KafkaProducer | None = None
        self.spent = ""
        self.offsets: tuple[Mapping[Place, int], Any] = ({}, None)

    @override
    def call(self, which: str, within_s: float) -> None:
        """Make one call. `within_s` is ignored, because kafka-python's commit and abort take no time-out.
        `TransactionCalls` runs this in a thread, for which it waits only a limited time.
        """
        config = self._config
        if self._producer is None:
            # A record has no longer than its transaction, but as long as kafka-python demands.
            longest_ms = max(config.request_timeout_ms + config.linger_ms, config.transaction_timeout_ms)
            self._producer = KafkaProducer(
                **{**settings(config), "delivery_timeout_ms": min(config.delivery_timeout_ms, longest_ms)},
                transactional_id=config.transactional_id,
                transaction_timeout_ms=config.transaction_timeout_ms,
            )
        producer = self._producer
        if which == OFFSETS:
            at, member = self.offsets
            wanted = {TopicPartition(*place): OffsetAndMetadata(position, "", -1) for place, position in at.items()}
            producer.send_offsets_to_transaction(wanted, member)
            return
        calls = {
            INIT: producer.init_transactions,
            BEGIN: producer.begin_transaction,
            COMMIT: producer.commit_transaction,
            ABORT: producer.abort_transaction,
        }
        calls[which]()

    @override
    def weigh(self, which: str, error: BaseException) -> ErrorMeaning:
        return weigh(which, error)

    @override
    def identity(self) -> tuple[int, int]:
        manager = getattr(self._producer, "_transaction_manager", None)
        if manager is None:
            return -1, -1
        current = manager.producer_id_and_epoch
        return current.producer_id, current.epoch

    def _refused(self, op: int, error: BaseException) -> None:
        self._lost(op, HAND, error)

    def _failed(self, op: int, error: BaseException) -> None:
        self._lost(op, SEND, error)

    def _lost(self, op: int, which: str, error: BaseException) -> None:
        weighed = weigh(which, error)
        if weighed.then is ErrorFollowUp.END:
            self.spent = weighed.name
        self._answer(op, weighed.status, -1, -1, weighed.name)


def weigh(which: str, error: BaseException) -> ErrorMeaning:
    """Return what an error means. which: the call or the record's step in which it was raised, such as INIT or SEND.
    The class of the error decides; for a plain KafkaError, its message does (`LOCAL`). If the error wraps another one,
    the result has the name of the wrapped error.
    """
    wrapped = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
    name = type(wrapped).__name__
    if isinstance(error, TimeoutError):
        return ErrorMeaning(INFO, TIMED_OUT, ErrorFollowUp.END)
    words = str(error.args[0]) if error.args else ""
    local = isinstance(error, IllegalStateError) or (type(error) is KafkaError and words.startswith(LOCAL))
    if which == HAND:
        status, then = UNSENT
    elif which == SEND:
        status, then = IN_DOUBT if isinstance(error, ProducerFencedError) else LOST
    elif which == BEGIN or local:
        status, then = REFUSED
    elif which == INIT and isinstance(error, KafkaConnectionError):
        status, then = UNASKED
    elif which == INIT and isinstance(error, KafkaTimeoutError):
        status, then = RESUMED
    else:
        status, then = IN_DOUBT
    return ErrorMeaning(status, name, then)


transactor = _KafkaPythonTransactor
