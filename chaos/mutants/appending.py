"""Wraps the broker's append of one partition's batch, for mutants that change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from squall.broker.apis.produce import ProduceApi
from squall.broker.log.results import AppendResult
from squall.broker.protocol.record_walk import CheckedBatch
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replicas.purgatory import DelayedProduce, ProduceResult
from squall.chaos.mutants.mutant import ReplacedFunction

Appended = tuple[ProduceResult, DelayedProduce | None]
_SOUND = ProduceApi._append


@dataclass(frozen=True, slots=True)
class AppendCall:
    """Holds the arguments of a call of `ProduceApi._append`."""

    api: ProduceApi
    h: HostedPartition
    index: int
    records: memoryview | None
    version: int
    acks: int
    now_ms: int
    wall_ms: int
    checked: CheckedBatch | AppendResult | None

    def go(self) -> Appended:
        """Append as the correct broker does: call `ProduceApi._append` with these arguments."""
        return _SOUND(
            self.api, self.h, self.index, self.records, self.version, self.acks, self.now_ms, self.wall_ms, self.checked
        )


def around_append(rule: Callable[[AppendCall], Appended]) -> ReplacedFunction:
    """Return a mutant's replacement of the broker's append: `rule` is called in its place."""

    # The parameters are on one line, because they only repeat those of the replaced function.
    def _append(self, h, index, records, version, acks, now_ms, wall_ms, checked):  # type: ignore[no-untyped-def]
        return rule(AppendCall(self, h, index, records, version, acks, now_ms, wall_ms, checked))

    return ReplacedFunction(ProduceApi, "_append", _append)
