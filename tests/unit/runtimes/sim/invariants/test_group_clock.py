"""The times at which members of groups count as heard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from squall.chaos.runtimes.sim.invariants.group_clock import MemberRequestTimes


def member(waits: bool = False) -> Any:
    joining = "a token" if waits else None
    return SimpleNamespace(
        joining=joining, syncing=None, session_ms=3_000, rebalance_ms=5_000, deadline_ms=9, instance_id=None
    )


def shard_with(members: dict[str, Any]) -> Any:
    """Return a shard with one classic group."""
    group = SimpleNamespace(group_id="g", members=members, state="Stable", leader=None, generation=1)
    return SimpleNamespace(
        groups={"g": group},
        ledger=SimpleNamespace(consumers={}),
        consumers=SimpleNamespace(_sessions={}),
        settings=SimpleNamespace(own_session_ms=lambda group_id: None, consumer_session_ms=45_000),
        deadline_of=lambda group_id: 9,
    )


def silent_ms(times: MemberRequestTimes, shard: Any, now_ms: int) -> dict[str, int]:
    (found,) = times.times(shard, now_ms)
    return {each.member_id: now_ms - each.heard_ms for each in found.members}


def test_a_member_is_silent_since_its_last_request_or_answer() -> None:
    times, shard = MemberRequestTimes(), shard_with({"a": member(), "b": member(waits=True)})
    times.follow(shard, "g", 1_000)
    times.heard(shard, "g", "a", 2_000)
    assert silent_ms(times, shard, 7_000) == {"a": 5_000, "b": 0}
    shard.groups["g"].members["b"].joining = None
    assert silent_ms(times, shard, 8_000) == {"a": 6_000, "b": 1_000}


def test_what_could_not_be_written_begins_all_times_anew() -> None:
    times, shard = MemberRequestTimes(), shard_with({"a": member()})
    times.follow(shard, "g", 1_000)
    times.forgive(shard, 5_000)
    assert silent_ms(times, shard, 6_000) == {"a": 1_000}


def test_a_group_that_becomes_a_consumer_group_begins_its_sessions_anew() -> None:
    times, shard = MemberRequestTimes(), shard_with({"a": member()})
    times.follow(shard, "g", 1_000)
    assert silent_ms(times, shard, 4_000) == {"a": 3_000}
    shard.groups.clear()
    shard.ledger.consumers["g"] = SimpleNamespace(group_id="g", members={"a": SimpleNamespace(classic=None)})
    assert silent_ms(times, shard, 5_000) == {"a": 0}
    assert silent_ms(times, shard, 8_000) == {"a": 3_000}


def test_a_revocation_that_could_not_end_in_time_is_due_once_the_coordinator_can_act() -> None:
    """The deadline of a member passes while its coordinator is paused (swarm seed 101045)."""
    times, shard = MemberRequestTimes(), shard_with({})
    shard.groups.clear()
    shard.ledger.consumers["g"] = SimpleNamespace(
        group_id="g", members={"a": SimpleNamespace(classic=None, rebalance_ms=1_000)}
    )
    shard.consumers._sessions["g"] = SimpleNamespace(_revoking={"a": (4, 2_000)}, _sessions={})
    (found,) = times.times(shard, 1_500)
    assert [each.deadline_ms for each in found.revoking] == [2_000]
    times.forgive(shard, 5_000)
    (found,) = times.times(shard, 5_100)
    assert [each.deadline_ms for each in found.revoking] == [5_000]
