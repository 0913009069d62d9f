"""Observes broker calls that show members' requests and fetch responses: for time-outs of groups, and for readers.

The calls are wrapped during a simulation, those of a planted bug as well: the broker needs no hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from squall.broker.apis.fetch import FetchApi
from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.chaos.runtimes.sim.invariants.group_clock import GroupClock, waits

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.values import ClockReading
    from squall.broker.protocol.hot.types import FetchResponsePartition
    from squall.broker.replicas.hosted_partition import HostedPartition

READ_COMMITTED: Final = 1
ReadObserver = Callable[["HostedPartition", int, "FetchResponsePartition"], None]


class BrokerCalls:
    """Holds a clock for each shard of a group coordinator, and reports fetch responses to read_committed readers."""

    def __init__(self) -> None:
        self.answered: ReadObserver = lambda hosted, offset, answer: None
        """Is called with a partition, the requested offset, and a response that has records."""
        self._clocks: dict[GroupCoordinatorShard, GroupClock] = {}

    def clock(self, shard: GroupCoordinatorShard) -> GroupClock:
        """Return the clock of a shard."""
        return self._clocks.setdefault(shard, GroupClock())

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Observe the brokers' calls inside this block."""
        hooks: list[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = [
            (FetchApi, "_read", self._read),
            (GroupCoordinatorShard, "submit", self._submitted),
            *((GroupCoordinatorShard, name, self._moved) for name in ("begin", "settle", "tick")),
        ]
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in hooks]
        for owner, name, hook in hooks:
            setattr(owner, name, hook(getattr(owner, name)))
        try:
            yield
        finally:
            for owner, name, rule in before:
                setattr(owner, name, rule)

    def _read(self, rule: Callable[..., FetchResponsePartition]) -> Callable[..., FetchResponsePartition]:
        @wraps(rule)
        def read(api: FetchApi, fetch: Any, want: Any, *more: Any) -> FetchResponsePartition:
            answer = rule(api, fetch, want, *more)
            if fetch.isolation == READ_COMMITTED and answer.records:
                self.answered(want.hosted, want.part.offset, answer)
            return answer

        return read

    def _submitted(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def submit(shard: GroupCoordinatorShard, request: Any, token: Any, now: ClockReading) -> Any:
            clock, group_id = self.clock(shard), request.group_id
            clock.follow(shard, group_id, now.mono_ms)
            effects = rule(shard, request, token, now)
            clock.heard(shard, group_id, getattr(request, "member_id", ""), now.mono_ms)
            return effects

        return submit

    def _moved(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def move(shard: GroupCoordinatorShard, *args: Any) -> Any:
            clock, now_ms = self.clock(shard), args[-1].mono_ms
            names = [name for name, group in shard.groups.items() if any(map(waits, group.members.values()))]
            for name in names:
                clock.follow(shard, name, now_ms)
            effects = rule(shard, *args)
            if rule.__name__ == "settle" and args[1]:  # an append failed: its records are not what the group is now
                clock.forgive(shard, now_ms)
            for name in names if rule.__name__ != "begin" else (*shard.groups, *shard.ledger.consumers):
                clock.follow(shard, name, now_ms)
            return effects

        return move
