"""Changes the wall clocks of real brokers, and reads the brokers' own reports of their clocks, which prove the change.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NoReturn, Protocol

from squall.broker.overriding import override
from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.contract import ClockReport, Evidence
from squall.chaos.runtimes.real.brokers import Brokers
from squall.chaos.runtimes.real.trace_tail import TraceTail


class Clocks(Protocol):
    """Changes and reads the wall clocks of a cluster's brokers."""

    def bend(self, node: int, offset_ms: float, rate: float) -> Evidence:
        """Set a broker's wall clock to the true time plus `offset_ms`, running at `rate` from now."""

    def fake(self, node: int, offset_ms: float) -> Evidence:
        """Set a broker's wall clock to the true time plus `offset_ms`, by libfaketime instead of by the broker itself.
        """

    def reports(self, node: int) -> Sequence[ClockReport]:
        """Return a broker's reports of its wall clock, in order. The first call for a broker starts the reading: every
        call returns all reports that the broker has written since that first call.
        """

    def heal(self) -> None:
        """Set every clock to the true time."""


class FileClocks(Clocks):
    """Changes the clocks of brokers that read their clock offset from a file. A broker reads it at most every 50 ms,
    and reports its clock in its trace.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._heard: dict[int, tuple[TraceTail, list[ClockReport]]] = {}

    @override
    def bend(self, node: int, offset_ms: float, rate: float) -> Evidence:
        asked_ns = time.monotonic_ns()
        self._brokers[node].files.bend_clock(offset_ms, rate)
        return {"offset_ms": offset_ms, "rate": rate, "asked_ns": asked_ns}

    def fake(self, node: int, offset_ms: float) -> NoReturn:
        """Raise PreconditionError: these brokers run without libfaketime."""
        raise PreconditionError(f"broker {node} was started without libfaketime: how = 'offset'")

    @override
    def reports(self, node: int) -> Sequence[ClockReport]:
        if node not in self._heard:
            self._heard[node] = (TraceTail(self._brokers[node].files.trace), [])
        tail, words = self._heard[node]
        # Both clocks are this machine's. The difference between them now is the difference when the line was written.
        between_ms = (time.time() - time.monotonic()) * 1000
        for event in tail.events():
            if event["e"] == "clock":
                offset_ms = event["w"] - (event["t"] * 1000 + between_ms)
                words.append(ClockReport(int(event["t"] * 1e9), offset_ms, event["offset_ms"], event["rate"]))
        return tuple(words)

    @override
    def heal(self) -> None:
        for each in self._brokers.values():
            each.files.clock.unlink(missing_ok=True)


class NoClocks:
    """Represents clocks that cannot be changed. who: a description of the brokers, for the error message."""

    def __init__(self, who: str) -> None:
        self._who = who

    def bend(self, node: int, offset_ms: float, rate: float) -> NoReturn:
        """Raise: these clocks cannot be changed."""
        raise PreconditionError(f"{self._who} has no clock that could be bent from outside (node {node})")

    def fake(self, node: int, offset_ms: float) -> NoReturn:
        """Raise: these clocks cannot be changed."""
        self.bend(node, offset_ms, 1.0)

    def reports(self, node: int) -> Sequence[ClockReport]:
        """Return no reports."""
        return ()

    def heal(self) -> None:
        """Do nothing: the clocks are true."""
