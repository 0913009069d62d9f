"""Test cases for the invariants of consumer groups: each has a situation that breaks one, and the nearest situation
that does not.
"""

from __future__ import annotations

from typing import Any

from squall.chaos.runtimes.sim.invariants.group_journal import (
    AssignedPartition,
    CommittedOffset,
    Generation,
    GenerationMember,
    GroupStateSnapshot,
    PartitionOwners,
    Positions,
)
from squall.chaos.runtimes.sim.invariants.group_times import (
    MARGIN_MS,
    GroupTimeouts,
    MemberRemoval,
    MemberTimes,
    MovedRevocation,
    RebalanceTimes,
    RevocationTimes,
    ShortSession,
)
from tests.support.clusters.quorum_cases import Arguments, Case

PLACE, OTHER = ("t", 0), ("t", 1)
AT = CommittedOffset(7, 0, "", 100, -1, 20)
GENERATION = Generation(
    "consumer", 3, "range", "m", (GenerationMember("m", None, b"s", b"a"), GenerationMember("n", "n-0", b"s", b"b"))
)


def books(
    generation: Generation | None = GENERATION, offsets: Positions | None = None, pending: Any = None
) -> dict[str, GroupStateSnapshot]:
    return {"g": GroupStateSnapshot(generation, {PLACE: AT} if offsets is None else offsets, pending or {})}


def against(found: dict[str, GroupStateSnapshot]) -> Arguments:
    return found, books()


SAME = against(books())


def owned(generation: int, *, before: int | None = None, moved: bool = False, **owners: list[tuple[str, int]]) -> Any:
    """Return two successive assignments of a group, of generations `before` and `generation`; without `before` only the
    second one. With `moved`, the earlier assignment has the partitions of the first two members swapped.
    """
    now = PartitionOwners(generation, {member: frozenset(places) for member, places in owners.items()})
    names = list(owners)
    swapped = dict(zip([*names[1:], names[0]], now.owners.values(), strict=True)) if moved else now.owners
    return None if before is None else PartitionOwners(before, swapped), now


NOW, SESSION = 100_000, 3_000


def member(deadline_ms: int | None = NOW + 1, waits: bool = False, silent_ms: int = 0) -> MemberTimes:
    return MemberTimes("m", deadline_ms, waits, NOW - silent_ms, SESSION)


def times(found: MemberTimes, **changed: Any) -> Arguments:
    """Return the time-outs of a group whose only member, the leader, has these times. Nothing is overdue."""
    return (GroupTimeouts("g", NOW, NOW + 1, (found,), "m", None)._replace(**changed),)


def rebalance(for_ms: int) -> RebalanceTimes:
    return RebalanceTimes("PreparingRebalance", NOW - for_ms, 5_000)


def revoking(deadline_ms: int) -> Arguments:
    return times(member(), revoking=(RevocationTimes("m", NOW - 9_000, NOW - 9_000, deadline_ms, 5_000),))


def asked(deadline_ms: int) -> Arguments:
    return times(member(), asked=(RevocationTimes("m", NOW - 10, NOW, deadline_ms, 5_000),))


def removal(deadline_ms: int | None) -> Arguments:
    return (MemberRemoval("m", deadline_ms, NOW),)


def given(epoch: int) -> Arguments:
    return (AssignedPartition("g", "m", PLACE, epoch, member_epoch=7),)


GROUPS: dict[str, list[Case]] = {
    "given-in-its-epoch": [("the epoch before", given(6), given(7))],
    "member-has-a-deadline": [
        ("neither a deadline nor an answer owed", times(member(None)), times(member(None, waits=True))),
        ("a look after the deadline", times(member(), look_ms=NOW + 2), times(member(), look_ms=NOW + 1)),
        ("no look", times(member(), look_ms=None), times(member(None, waits=True), look_ms=None)),
    ],
    "silent-member-leaves": [
        (
            "one ms beyond the limit",
            times(member(silent_ms=SESSION + MARGIN_MS + 1)),
            times(member(silent_ms=SESSION + MARGIN_MS)),
        ),
        ("one that waits", times(member(silent_ms=60_000)), times(member(None, waits=True, silent_ms=60_000))),
    ],
    "rebalance-ends": [
        (
            "one ms beyond the limit",
            times(member(), rebalance=rebalance(5_001 + MARGIN_MS)),
            times(member(), rebalance=rebalance(5_000 + MARGIN_MS)),
        ),
    ],
    "revocation-deadline-stays": [
        ("one that moves", times(member(), moved=(MovedRevocation("m", 7, NOW + 9, NOW + 10),)), times(member()))
    ],
    "revocation-ends": [
        ("one ms more", asked(NOW + 5_001), asked(NOW + 5_000)),
        ("one ms less", asked(NOW + 4_989), asked(NOW + 4_990)),
        ("one ms too late", revoking(NOW - MARGIN_MS - 1), revoking(NOW - MARGIN_MS)),
    ],
    "session-is-whole": [
        ("one that is short", times(member(), short=(ShortSession("m", NOW + 9, NOW + 10),)), times(member()))
    ],
    "removed-after-its-deadline": [
        ("one ms too early", removal(NOW + 1), removal(NOW)),
        ("without a deadline", removal(None), removal(NOW)),
    ],
    "leader-is-a-member": [("another", times(member(), leader="other"), times(member(), leader=None))],
    "group-state-is-a-replay": [
        ("a generation more", against(books(GENERATION._replace(number=4))), SAME),
        ("another assignment", against(books(GENERATION._replace(members=GENERATION.members[:1]))), SAME),
        ("a group forgotten", ({}, books()), SAME),
        ("an offset forgotten", against(books(offsets={})), SAME),
        ("an older offset", against(books(offsets={PLACE: AT._replace(offset=6)})), SAME),
        ("an offset of another record", against(books(offsets={PLACE: AT._replace(at=19)})), SAME),
        ("one invented", against(books(offsets={PLACE: AT, OTHER: AT})), SAME),
        ("pending for ever", against(books(pending={9: {OTHER: AT}})), SAME),
        (
            "pending of another producer",
            (books(pending={8: {OTHER: AT}}), books(pending={9: {OTHER: AT}})),
            (books(pending={9: {OTHER: AT}}), books(pending={9: {OTHER: AT}})),
        ),
    ],
    "offsets-wait-for-their-marker": [
        ("no marker yet", ({"g": {PLACE: AT}}, {20: 9}), ({"g": {PLACE: AT}}, {})),
        ("another record's", ({"g": {OTHER: AT, PLACE: AT}}, {20: 9}), ({"g": {PLACE: AT}}, {19: 9, 21: 9})),
    ],
    "one-owner-per-partition": [
        ("two", owned(3, m=[PLACE], n=[PLACE, OTHER]), owned(3, m=[PLACE], n=[OTHER])),
        ("two with epochs", owned(-1, m=[PLACE, OTHER], n=[OTHER]), owned(-1, m=[PLACE, OTHER], n=[])),
        (
            "another in the same generation",
            owned(3, before=3, moved=True, m=[PLACE], n=[OTHER]),
            owned(3, before=2, moved=True, m=[PLACE], n=[OTHER]),
        ),
        (
            "another, and epochs",
            owned(3, before=3, moved=True, m=[PLACE], n=[]),
            owned(-1, before=-1, moved=True, m=[PLACE], n=[]),
        ),
        (
            "an exchange of members",
            owned(3, before=3, moved=True, m=[PLACE], n=[OTHER]),
            owned(3, before=3, m=[PLACE], n=[OTHER]),
        ),
    ],
}
