"""A client library for tests of a driver's process: the contents of the records decide on its answers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence

from squall.broker.overriding import override
from squall.chaos.drivers.library import (
    FAIL,
    INFO,
    OK,
    ConsumerAdapter,
    DriverConfig,
    OffsetOutOfRange,
    OutcomeCallback,
    Place,
    ProducerAdapter,
    ReadRecord,
)
from squall.chaos.drivers.transactors.outcomes import (
    IN_DOUBT,
    INIT,
    REFUSED,
    RESUMED,
    ErrorMeaning,
    TransactionalAdapter,
)
from squall.workloads import payload

version = "0-scripted"


class producer(ProducerAdapter):
    """Answers b"ok", b"fail" and b"doubt" at once, answers nothing to b"silent", and ends the process at b"die"."""

    def __init__(self, config: DriverConfig, answer: OutcomeCallback) -> None:
        self._answer = answer
        self._offset = 0

    @override
    def send(self, op: int, topic: str, partition: int, key: bytes | None, value: bytes, timestamp_ms: int) -> None:
        if value == b"ok":
            self._answer(op, OK, self._offset, timestamp_ms, "")
            self._offset += 1
        elif value == b"fail":
            self._answer(op, FAIL, -1, -1, "REFUSED")
        elif value == b"doubt":
            self._answer(op, INFO, -1, -1, "TIMED_OUT")
        elif value == b"die":
            os._exit(1)
        elif value == b"raise":
            raise RuntimeError("a library's bug")

    @override
    def pump(self) -> None:
        pass

    @override
    def finish(self, within_s: float) -> None:
        pass


class transactor(producer, TransactionalAdapter):
    """Its transactional id says how calls end: "commit: doubt, ok" is a commit with an unknown outcome that succeeds
    when it is repeated. "die" ends the process, and after "silent" nothing is answered. Producer epochs grow with each
    `init`.
    """

    def __init__(self, config: DriverConfig, answer: OutcomeCallback) -> None:
        super().__init__(config, answer)
        which, _, outcomes = config.transactional_id.partition(": ")
        self._script = {which: outcomes.split(", ")}
        self._identity = (7, -1)
        self.spent = ""

    @override
    def call(self, which: str, within_s: float) -> None:
        outcomes = self._script.get(which, [])
        outcome = outcomes.pop(0) if outcomes else "ok"
        if outcome == "die":
            os._exit(1)
        if outcome == "silent":
            threading.Event().wait()
        if outcome != "ok":
            raise RuntimeError(outcome)
        if which == INIT:
            self._identity = (7, self._identity[1] + 1)

    @override
    def weigh(self, which: str, error: BaseException) -> ErrorMeaning:
        name = str(error)
        known = {"refused": REFUSED, "doubt": RESUMED, "ended": IN_DOUBT}
        return ErrorMeaning(*known.get(name, IN_DOUBT)[:1], name, known.get(name, IN_DOUBT)[1])

    @override
    def identity(self) -> tuple[int, int]:
        return self._identity

    @override
    def send(self, op: int, topic: str, partition: int, key: bytes | None, value: bytes, timestamp_ms: int) -> None:
        super().send(op, topic, partition, key, value, timestamp_ms)
        if value == b"doubt":
            self.spent = "a gap"


class consumer(ConsumerAdapter):
    """Returns two records, one of them damaged, then an out-of-range error, and then nothing."""

    def __init__(self, config: DriverConfig) -> None:
        self._place: Place = config.places[0]
        self._polls = 0
        self._place = (str(self._place[0]), int(self._place[1]))

    @override
    def bounds(self, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        """Return bounds as if, once it is polled, the log ended earlier than what was read."""
        return dict.fromkeys(places, (0, 1))

    @override
    def assign(self, positions: dict[Place, int]) -> None:
        pass

    @override
    def seek(self, place: Place, position: int) -> None:
        pass

    @override
    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        self._polls += 1
        sys.stdout.write("what a library prints is not for the harness\n")
        if self._polls == 1:
            value, _ = payload.make(7, b"k")
            return [ReadRecord(self._place, 0, b"k", value, ()), ReadRecord(self._place, 1, b"other", value, ())]
        if self._polls == 2:
            raise OffsetOutOfRange([self._place], "gone")
        if self._polls == 3:
            raise RuntimeError("no broker")
        return []

    @override
    def close(self) -> None:
        pass
