"""Counts what each group did in a run. Some checks of groups can find nothing if the groups did too little; the verdict
then says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class MemberActivity(NamedTuple):
    """Counts the polls of one process and the records that it got. Only processes that ever owned a partition have a
    count.
    """

    proc: int
    polls: int
    """Counts responses to its polls, once for each partition; final reads do not count."""
    got: int
    """Counts records in the responses to its polls."""
    due: int
    """Counts sends that were acknowledged in a partition while the process owned it."""


class GroupActivity(NamedTuple):
    """Counts, for one group, changes of partitions' owners, starts at committed positions, and records that polls
    returned.
    """

    owned: tuple[int, ...]
    """Lists the partitions that a member ever owned, ascending."""
    changes: int
    """Counts how often a partition was assigned to a process other than its previous owner."""
    resumed: int
    """Counts how often a member began to read a partition at its committed position."""
    got: int
    """Counts records that polls of its members returned, each as often as it was returned."""
    members: tuple[MemberActivity, ...] = ()
    """Lists the activity of each member by process, ascending; empty also if an early version converted the history."""


@dataclass(slots=True)
class GroupActivityCounter:
    """Counts what each group does while a history is read. Groups are given by their index into `History.names`."""

    owners: dict[int, dict[int, int]] = field(default_factory=dict)
    """Maps each group and partition to the process to which the partition was assigned last."""
    members: dict[int, set[int]] = field(default_factory=dict)
    """Maps each group to the processes to which a partition was ever assigned."""
    changes: dict[int, int] = field(default_factory=dict)
    resumed: dict[int, int] = field(default_factory=dict)
    got: dict[int, int] = field(default_factory=dict)
    """Maps each process to the number of records that its polls returned; final reads do not count."""
    polls: dict[int, int] = field(default_factory=dict)
    due: dict[int, int] = field(default_factory=dict)
    """Maps each process to the number of sends that were acknowledged in its partitions while it owned them."""
    acked: dict[int, int] = field(default_factory=dict)
    """Maps each partition to the number of sends that were acknowledged so far."""
    owns: dict[tuple[int, int], int] = field(default_factory=dict)
    """Maps (partition, its present owner) to the number of sends that had been acknowledged in the partition when it
    was assigned to that owner.
    """

    def assigned(self, group: int, part: int, proc: int, *, resumes: bool) -> None:
        """Count the assignment of a partition to a member. `resumes` is True if the member begins at the committed
        position.
        """
        owners = self.owners.setdefault(group, {})
        self.changes[group] = self.changes.get(group, 0) + (owners.get(part, proc) != proc)
        self.resumed[group] = self.resumed.get(group, 0) + resumes
        owners[part] = proc
        self.members.setdefault(group, set()).add(proc)
        self.owns[part, proc] = self.acked.get(part, 0)

    def released(self, part: int, proc: int) -> None:
        """End a member's ownership of a partition. Add the sends that were acknowledged in the partition during the
        ownership to `due`.
        """
        if (part, proc) in self.owns:
            due = self.acked.get(part, 0) - self.owns.pop((part, proc))
            self.due[proc] = self.due.get(proc, 0) + due

    def sent(self, part: int, st: int) -> None:
        """Count a send that ended with the status `st`."""
        if not st:
            self.acked[part] = self.acked.get(part, 0) + 1

    def polled(self, proc: int, records: int) -> None:
        """Count a poll that returned `records` records of one partition."""
        self.polls[proc] = self.polls.get(proc, 0) + 1
        self.got[proc] = self.got.get(proc, 0) + records

    def by_group(self, names: Sequence[str]) -> dict[str, GroupActivity]:
        """Return the activity of each group that ever owned a partition, by its name. `names` is `History.names`."""
        return {
            names[group]: GroupActivity(
                tuple(sorted(owners)),
                self.changes[group],
                self.resumed[group],
                sum(self.got.get(proc, 0) for proc in self.members[group]),
                tuple(
                    MemberActivity(proc, *(each.get(proc, 0) for each in (self.polls, self.got, self.due)))
                    for proc in sorted(self.members[group])
                ),
            )
            for group, owners in self.owners.items()
        }


def from_json(stored: Mapping[str, Any]) -> dict[str, GroupActivity]:
    """Decode the dicts that `GroupActivity._asdict` made of each group."""
    return {
        name: GroupActivity(
            **{
                **each,
                "owned": tuple(each["owned"]),
                "members": tuple(MemberActivity(*one) for one in each.get("members", ())),
            }
        )
        for name, each in stored.items()
    }
