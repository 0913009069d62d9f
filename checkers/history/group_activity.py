"""Counts what each group did: a check of groups needs a whole run's activity to show something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class MemberActivity(NamedTuple):
    """Counts what one process did that ever owned a partition."""

    proc: int
    polls: int
    """Answers to its polls, one for each partition; final reads are none."""
    got: int
    """Records in these."""
    due: int
    """Sends that were acknowledged in a partition while it owned it."""


class GroupActivity(NamedTuple):
    """Counts what one group did."""

    owned: tuple[int, ...]
    """Partitions that a member ever owned, ascending."""
    changes: int
    """How often one of them was given to another process than the one that had been given it before."""
    resumed: int
    """How often a member began to read one of them at its committed position."""
    got: int
    """Records that polls of its members returned, each as often as it was."""
    members: tuple[MemberActivity, ...] = ()
    """By their processes, ascending. Empty, too, where an early version converted the history."""


@dataclass(slots=True)
class GroupActivityCounter:
    """Counts what each group did while a history is read. Groups by their index into `History.names`."""

    owners: dict[int, dict[int, int]] = field(default_factory=dict)
    """Group -> partition -> the process that was given it last."""
    members: dict[int, set[int]] = field(default_factory=dict)
    """Group -> processes that were given a partition."""
    changes: dict[int, int] = field(default_factory=dict)
    resumed: dict[int, int] = field(default_factory=dict)
    got: dict[int, int] = field(default_factory=dict)
    """Process -> records that its polls returned; final reads are none."""
    polls: dict[int, int] = field(default_factory=dict)
    due: dict[int, int] = field(default_factory=dict)
    """As in `MemberActivity`, by process."""
    acked: dict[int, int] = field(default_factory=dict)
    """Partition -> sends that were acknowledged up to now."""
    owns: dict[tuple[int, int], int] = field(default_factory=dict)
    """(partition, process) that owns it -> `acked` when it was given it."""

    def assigned(self, group: int, part: int, proc: int, *, resumes: bool) -> None:
        """A member was assigned a partition. resumes: it begins at the committed position."""
        owners = self.owners.setdefault(group, {})
        self.changes[group] = self.changes.get(group, 0) + (owners.get(part, proc) != proc)
        self.resumed[group] = self.resumed.get(group, 0) + resumes
        owners[part] = proc
        self.members.setdefault(group, set()).add(proc)
        self.owns[part, proc] = self.acked.get(part, 0)

    def released(self, part: int, proc: int) -> None:
        """A member owns a partition no longer."""
        if (part, proc) in self.owns:
            due = self.acked.get(part, 0) - self.owns.pop((part, proc))
            self.due[proc] = self.due.get(proc, 0) + due

    def sent(self, part: int, st: int) -> None:
        """A send ended so."""
        if not st:
            self.acked[part] = self.acked.get(part, 0) + 1

    def polled(self, proc: int, records: int) -> None:
        """A poll returned so many of one partition."""
        self.polls[proc] = self.polls.get(proc, 0) + 1
        self.got[proc] = self.got.get(proc, 0) + records

    def by_group(self, names: Sequence[str]) -> dict[str, GroupActivity]:
        """Name of each group that ever owned a partition -> what it did. names: as `History.names`."""
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
    """Decode what `GroupActivity._asdict` made of each group."""
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
