"""A rule of fetch sessions is taken out of whole brokers: in a simulation the invariant for it sees that."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from squall.broker.apis.fetch_session import FetchSession
from squall.broker.replicas.fetcher_session import FetcherSession
from squall.chaos.runs.simulation import simulate
from tests.sim.world.test_broken_leaders import DELETED, PAUSES, SEEDS, plan

pytestmark = pytest.mark.gate


def last_partition_ignored(rule: Callable[..., None]) -> Callable[..., None]:
    """A broker ignores the last of several partitions that a request names."""

    def update(self: FetchSession, request: Any) -> None:
        topics = [(key, parts[:-1] if len(parts) > 1 else parts) for key, parts in request.topics]
        rule(self, request._replace(topics=topics))

    return update


def only_records(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A response has only partitions with records."""
    return lambda self, outs: rule(self, [(key, out) for key, out in outs if out.records])


def now_and_then_no_records(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Leave all partitions with records out of each twentieth response."""
    calls = count()
    return lambda self, outs: rule(
        self, outs if next(calls) % 20 else [(key, out) for key, out in outs if not out.records]
    )


def log_starts_unnamed(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A follower does not name a partition of which only the log start has changed."""

    def name(self: FetcherSession, wanted: Any) -> Any:
        for key, following in wanted:
            known = self.asked.get(key)
            if known is not None:
                self.asked[key] = known._replace(log_start=following.hosted.log.log_start_offset)
        return rule(self, wanted)

    return name


BROKEN: list[tuple[str, Any, str, Callable[..., Any], list[dict[str, Any]]]] = [
    ("session-is-continued", FetchSession, "update", last_partition_ignored, PAUSES),
    ("session-omits-the-unchanged", FetchSession, "changed", only_records, PAUSES),
    ("session-omits-the-unchanged", FetchSession, "changed", now_and_then_no_records, PAUSES),
    ("session-names-the-position", FetcherSession, "build_request", log_starts_unnamed, DELETED),
]


@pytest.mark.parametrize(("name", "owner", "attribute", "made", "faults"), BROKEN)
def test_what_breaks_sessions_is_seen_by_its_invariant(
    name: str, owner: Any, attribute: str, made: Any, faults: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, made(getattr(owner, attribute)))
    found: set[str] = set()
    for seed in SEEDS:
        found |= {each.name for each in simulate(plan(seed, faults), stop_at_first=False).violations}
        if name in found:
            return
    raise AssertionError(f"{name} was not broken, but {sorted(found)}")
