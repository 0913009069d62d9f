"""Drives transactions of confluent-kafka (librdkafka), which speaks transaction version 1."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

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
from squall.chaos.drivers.with_confluent import NEVER_LEFT, LibrdkafkaSender, settings, version

__all__ = ["transactor", "version"]

LOCAL = frozenset(
    {
        *(KafkaError._STATE, KafkaError._CONFLICT, KafkaError._NOT_CONFIGURED, KafkaError._INVALID_ARG),
        *(KafkaError._PREV_IN_PROGRESS, KafkaError._NOT_IMPLEMENTED, KafkaError._UNSUPPORTED_FEATURE),
    }
)
"""Lists errors with which librdkafka refuses a call before it sends anything."""
UNLEFT = NEVER_LEFT - {KafkaError._PURGE_QUEUE}
"""Lists errors of records that were never sent. _PURGE_QUEUE is not among them: a record that an abort purges from the
queue may have been sent before, and be waiting for a retry.
"""
STATISTICS_MS = 200
"""Gives the interval, in ms, of librdkafka's statistics. Nothing else shows the producer id and the epoch."""
IDENTITY_S = 1.0
"""Limits the seconds for which `init` waits for the new producer id and epoch."""


class _LibrdkafkaTransactor(LibrdkafkaSender, TransactionalAdapter):
    """Drives librdkafka's transactional producer. If a record's outcome is unknown, librdkafka raises its epoch after
    the abort (KIP-360), so that the producer can be used further.
    """

    def __init__(self, config: DriverConfig, answer: OutcomeCallback) -> None:
        self.offsets: tuple[Mapping[Place, int], Any] = ({}, None)
        self._identity = (-1, -1)
        self._doubtful = False
        """Is True if a record of the current transaction has failed."""
        self.spent = ""
        timeout_ms = config.transaction_timeout_ms
        super().__init__(
            {
                **settings(config),
                "transactional.id": config.transactional_id,
                "transaction.timeout.ms": timeout_ms,
                # librdkafka refuses time-outs that are longer than transaction.timeout.ms.
                "message.timeout.ms": min(config.delivery_timeout_ms, timeout_ms),
                "socket.timeout.ms": min(max(config.request_timeout_ms, 1000), timeout_ms),
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._told,
            },
            answer,
        )

    def _told(self, statistics: str) -> None:
        eos = json.loads(statistics).get("eos", {})
        if eos.get("producer_id", -1) >= 0:
            self._identity = eos["producer_id"], eos["producer_epoch"]

    @override
    def call(self, which: str, within_s: float) -> None:
        producer = self._producer
        if which == OFFSETS:
            at, member = self.offsets
            producer.send_offsets_to_transaction(
                [TopicPartition(*place, position) for place, position in at.items()], member, within_s
            )
            return
        if which == BEGIN:
            self._doubtful = False
            producer.begin_transaction()
            return
        {INIT: producer.init_transactions, COMMIT: producer.commit_transaction, ABORT: producer.abort_transaction}[
            which
        ](within_s)
        if which == INIT:
            until = time.monotonic() + IDENTITY_S
            while self._identity == (-1, -1) and time.monotonic() < until:
                time.sleep(0.01)  # the statistics come by `pump`, beside this
        elif which == ABORT and self._doubtful:
            self._identity = (-1, -1)  # it may have raised its epoch, and says so later

    @override
    def weigh(self, which: str, error: BaseException) -> ErrorMeaning:
        return weigh(which, error)

    @override
    def identity(self) -> tuple[int, int]:
        return self._identity

    def _refused(self, op: int, error: Any) -> None:
        self._lost(op, weigh_error(HAND, error))

    def _failed(self, op: int, error: Any) -> None:
        self._lost(op, weigh_error(SEND, error))

    def _lost(self, op: int, weighed: ErrorMeaning) -> None:
        self._doubtful = True
        if weighed.then is ErrorFollowUp.END:
            self.spent = weighed.name
        self._answer(op, weighed.status, -1, -1, weighed.name)


def weigh(which: str, error: BaseException) -> ErrorMeaning:
    """Return what an exception of the call `which`, such as INIT, means. `weigh_error` handles a KafkaException."""
    if isinstance(error, TimeoutError):
        return ErrorMeaning(INFO, TIMED_OUT, ErrorFollowUp.END)
    if not isinstance(error, KafkaException):
        # The Python binding rejected an argument, so librdkafka was not called.
        return ErrorMeaning(FAIL, type(error).__name__, ErrorFollowUp.END)
    return weigh_error(which, error.args[0])


def weigh_error(which: str, error: Any) -> ErrorMeaning:
    """Return what a KafkaError means. which: the call or the record's step that failed, such as INIT or SEND. After a
    record's error that is fatal(), the producer can do nothing more. A call whose error is retriable() can be made
    again.
    """
    code = error.code()
    if which in (HAND, SEND):
        status, then = UNSENT if which == HAND or code in UNLEFT else LOST
        return ErrorMeaning(status, error.name(), ErrorFollowUp.END if error.fatal() else then)
    if which == BEGIN or code in LOCAL:
        status, then = REFUSED
    elif error.retriable():
        status, then = RESUMED
    else:
        status, then = IN_DOUBT
    return ErrorMeaning(status, error.name(), then)


transactor = _LibrdkafkaTransactor
