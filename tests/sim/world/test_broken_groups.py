"""Each function here breaks a rule of groups in a broker or a member. A simulation must see the invariant of it broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from squall.broker.coordinators.groups.classic import ClassicGroup
from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
from squall.broker.coordinators.groups.consumer.members import TargetEpochRecord
from squall.broker.coordinators.groups.consumer.reconciliation import Reconciliation
from squall.broker.coordinators.groups.consumer.sessions import MemberSessions
from squall.broker.coordinators.groups.deadlines import GroupDeadlines
from squall.broker.coordinators.groups.ledger import ReplayedGroupState
from squall.broker.coordinators.groups.values import NO_PRODUCER, OffsetCommitRecord
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import simulate
from squall.workloads.client.groups import membership
from squall.workloads.registry import SCENARIOS

pytestmark = pytest.mark.gate

SEEDS = range(3)


CONSUMER = "consumer groups"
"""Names the workload `groups` with the protocol of KIP-848 and sessions of a second."""
SESSIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}


def plan(seed: int, workload: str) -> Plan:
    sessions, protocol = (SESSIONS, {"group_protocol": "consumer"}) if workload == CONSUMER else ({}, {})
    workload = "groups" if workload == CONSUMER else workload
    load = {"name": workload, "rate": 4, "partitions": 2, "churn": 30, "poll_pause_ms": 200, **protocol}
    settings = {**SCENARIOS[workload].BROKERS, "offsets.topic.num.partitions": "1", **sessions}
    cluster = {"nodes": 3, "settings": settings}
    return make_plan({"seed": seed, "runtime": "sim", "time_s": 8, "workload": load, "faults": [], "cluster": cluster})


def every_third_is_lost(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Do not replay every third committed offset."""
    seen = 0

    def replay(self: ReplayedGroupState, written: Any, at: int, producer_id: int = NO_PRODUCER) -> None:
        nonlocal seen
        seen += isinstance(written, OffsetCommitRecord)
        if seen % 3 or not isinstance(written, OffsetCommitRecord):
            rule(self, written, at, producer_id)

    return replay


def as_if_committed(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Let offsets in a transaction be valid before its commit."""
    return lambda self, written, at, producer_id=NO_PRODUCER: rule(self, written, at, NO_PRODUCER)


def everything_to_everybody(rule: Callable[..., bytes]) -> Callable[..., bytes]:
    return lambda places: rule([("groups-0", 0), ("groups-0", 1)])


def nothing_is_pending(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Ignore transaction markers."""
    return lambda self, producer_id, commit, at: ()


def without_deadlines(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Give no deadline to members that have been in a generation, even if the coordinator owes them an answer."""

    def wait_for(self: ClassicGroup, member: Any, now: Any) -> None:
        rule(self, member, now)
        if not member.is_new:
            member.deadline_ms = None

    return wait_for


def a_second_late(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Check a group one second after its deadline."""
    return lambda self, group_id, at_ms: rule(self, group_id, None if at_ms is None else at_ms + 1_000)


def asked_again_later(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Extend every expired session by a second, again and again."""

    def due(self: MemberSessions, now_ms: int) -> list[str]:
        self._sessions = {one: now_ms + 1_000 if at <= now_ms else at for one, at in self._sessions.items()}
        return rule(self, now_ms)

    return due


def a_third_of_it(rule: Callable[..., None]) -> Callable[..., None]:
    """Give members a third of their session time-out."""

    def wait_for(self: ClassicGroup, member: Any, now: Any) -> None:
        rule(self, member, now)
        if member.deadline_ms is not None:
            member.deadline_ms -= member.session_ms * 2 // 3

    return wait_for


def until_a_little_earlier(rule: Callable[..., None]) -> Callable[..., None]:
    """Give members 300 ms less than their session time-out."""
    return lambda self, member_id, until_ms: rule(self, member_id, until_ms - 300)


def seconds_early(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Remove members three seconds before their deadlines."""
    return lambda self, now: rule(self, now._replace(mono_ms=now.mono_ms + 3_000))


def those_of_the_next_second(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Remove members whose deadline is within the next second."""

    def due(self: MemberSessions, now_ms: int) -> list[str]:
        soon = [one for one, at in self._sessions.items() if now_ms < at <= now_ms + 1_000]
        return [*rule(self, now_ms), *soon]

    return due


def ten_times_as_long(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Give members ten times their rebalance time-out to revoke partitions."""

    def track(self: MemberSessions, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        before = self._revoking.get(member_id)
        rule(self, group, member_id, now_ms)
        if self._revoking.get(member_id) not in (before, None):
            late_ms = now_ms + 10 * group.members[member_id].rebalance_ms
            self._revoking[member_id] = self._revoking[member_id][0], late_ms

    return track


def as_long_as_it_takes(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Let a rebalance wait until the last member has joined, without a time limit."""

    def end(self: ClassicGroup, now: Any) -> None:
        self._join_deadline_ms = now.mono_ms + 1_000

    return end


def from_each_heartbeat_on(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Restart a member's rebalance time-out at each heartbeat, instead of at the first that asks it to revoke."""

    def follow(self: MemberSessions, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        self._revoking.pop(member_id, None)
        rule(self, group, member_id, now_ms)

    return follow


def still_its_leader(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Keep a removed member as the group's leader until the next generation."""

    def remove(self: ClassicGroup, member: Any, *more: Any) -> None:
        leader = self.leader
        rule(self, member, *more)
        if leader == member.member_id:
            self.leader = leader

    return remove


def in_the_epoch_before(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Assign partitions to a member with its previous epoch."""

    def step(self: Reconciliation, current: Any) -> Any:
        after = rule(self, current)
        given = after.assigned.keys() - current.assigned.keys()
        return replace(after, assigned={**after.assigned, **dict.fromkeys(given, current.epoch)})

    return step


def no_target_epoch(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Do not replay records of target assignment epochs."""

    def replay(self: ReplayedGroupState, written: Any, at: int, producer_id: int = NO_PRODUCER) -> None:
        if not isinstance(written, TargetEpochRecord):
            rule(self, written, at, producer_id)

    return replay


Broken = tuple[str, str, Any, str, Callable[[Any], Any]]
"""The invariant that must break, a workload, the class and the method to replace, and what makes the broken method."""
BROKEN: list[Broken] = [
    ("group-state-is-a-replay", "groups", ReplayedGroupState, "replay", every_third_is_lost),
    ("group-state-is-a-replay", "pipeline", ReplayedGroupState, "end_transaction", nothing_is_pending),
    ("offsets-wait-for-their-marker", "pipeline", ReplayedGroupState, "replay", as_if_committed),
    ("one-owner-per-partition", "groups", membership, "encode_assignment", everything_to_everybody),
    ("group-state-is-a-replay", CONSUMER, ReplayedGroupState, "replay", no_target_epoch),
    ("given-in-its-epoch", CONSUMER, Reconciliation, "step", in_the_epoch_before),
    ("member-has-a-deadline", "groups", ClassicGroup, "_wait_for", without_deadlines),
    ("member-has-a-deadline", "groups", GroupDeadlines, "put", a_second_late),
    ("silent-member-leaves", CONSUMER, MemberSessions, "due", asked_again_later),
    ("rebalance-ends", "groups", ClassicGroup, "_join_phase_ends", as_long_as_it_takes),
    ("revocation-deadline-stays", CONSUMER, MemberSessions, "track_revocation", from_each_heartbeat_on),
    ("leader-is-a-member", "groups", ClassicGroup, "_remove", still_its_leader),
    ("session-is-whole", "groups", ClassicGroup, "_wait_for", a_third_of_it),
    ("session-is-whole", CONSUMER, MemberSessions, "extend_session", until_a_little_earlier),
    ("removed-after-its-deadline", "groups", ClassicGroup, "expire", seconds_early),
    ("removed-after-its-deadline", CONSUMER, MemberSessions, "due", those_of_the_next_second),
    ("revocation-ends", CONSUMER, MemberSessions, "track_revocation", ten_times_as_long),
]


@pytest.mark.parametrize(("name", "workload", "owner", "attribute", "made"), BROKEN)
def test_what_breaks_groups_is_seen_by_its_invariant(
    name: str, workload: str, owner: Any, attribute: str, made: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, made(getattr(owner, attribute)))
    found: set[str] = set()
    for seed in SEEDS:
        result = simulate(plan(seed, workload), stop_at_first=False)
        found |= {each.name for each in result.violations}
        if name in found:
            return
    raise AssertionError(f"{name} was not broken, but {sorted(found)}")
