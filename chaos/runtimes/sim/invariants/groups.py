"""Defines the invariants of consumer groups: of their records in the log, and of the state that a coordinator has in
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from squall.chaos.runtimes.sim.invariants.group_differences import difference
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.group_journal import (
        AssignedPartition,
        GroupStateSnapshot,
        PartitionOwners,
        Place,
        Positions,
    )


@invariant("group-state-is-a-replay", CheckTrigger.GROUPS, "KIP-98, KIP-848: a coordinator knows what its log says")
def group_state_is_a_replay(
    found: Mapping[str, GroupStateSnapshot], replayed: Mapping[str, GroupStateSnapshot]
) -> str | None:
    """A serving coordinator's state of groups equals a replay of its partition of __consumer_offsets, after it was
    loaded and after each record and marker. The state is made of generations, consumer groups (epochs, subscriptions,
    targets, assignments), committed offsets and pending offsets.
    """
    for name in sorted(found.keys() | replayed.keys()):
        has, wanted = found.get(name), replayed.get(name)
        if has != wanted:
            return difference(name, has, wanted)
    return None


@invariant(
    "offsets-wait-for-their-marker", CheckTrigger.OFFSETS, "KIP-98: offsets of a transaction count once it is committed"
)
def offsets_wait_for_their_marker(offsets: Mapping[str, Positions], unmarked: Mapping[int, int]) -> str | None:
    """A group's committed offset in a coordinator's memory never comes from a transaction without a commit marker in
    this log. `offsets`: the committed offsets by group. `unmarked`: the log's offset records of such transactions, as
    {offset of the record: producer id}.
    """
    for group, positions in offsets.items():
        for (topic, index), position in positions.items():
            if position.at in unmarked:
                producer = unmarked[position.at]
                return (
                    f"group {group}: committed offset of {topic}-{index} is {position.offset} (record {position.at}) "
                    f"of producer id {producer}, which has no commit marker"
                )
    return None


@invariant(
    "one-owner-per-partition", CheckTrigger.OWNERS, "KIP-429, KIP-848: a partition is given away once nobody has it"
)
def one_owner_per_partition(before: PartitionOwners | None, now: PartitionOwners) -> str | None:
    """By the records of a group, a partition has at most one owner at a time, and within one generation always the same
    one. If members have epochs of their own (KIP-848), partitions still to be revoked count as owned.
    """
    owners: dict[Place, str] = {}
    for owner, places in now.owners.items():
        for place in places:
            if (other := owners.setdefault(place, owner)) != owner:
                return f"{_named(place)} is owned by {other} and by {owner} in generation {now.generation}"
    if before is None or now.generation < 0 or before.generation != now.generation:
        return None
    for owner, places in before.owners.items():
        for place in places:
            if (other := owners.get(place, owner)) != owner:
                return f"{_named(place)} went from {owner} to {other} in generation {now.generation}"
    return None


@invariant("given-in-its-epoch", CheckTrigger.GIVEN, "KIP-848: commits are fenced by the assignment epoch")
def given_in_its_epoch(given: AssignedPartition) -> str | None:
    """If a record assigns an unowned partition to a member of a consumer group, the partition's assignment epoch equals
    the member's epoch at that moment. So commits of a previous owner are fenced.
    """
    if given.epoch == given.member_epoch:
        return None
    return (
        f"{_named(given.place)} was given to member {given.member_id} with epoch {given.epoch}, and the member has "
        f"epoch {given.member_epoch}"
    )


def _named(place: Place) -> str:
    topic = place[0] if isinstance(place[0], str) else place[0].hex()
    return f"{topic}-{place[1]}"
