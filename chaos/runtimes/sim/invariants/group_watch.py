"""Compares the state of groups in a coordinator's memory with a replay of its log, and checks the groups' time-outs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from squall.chaos.runtimes.sim.invariants import inspection
from squall.chaos.runtimes.sim.invariants.group_differences import records_of
from squall.chaos.runtimes.sim.invariants.partition_checks import check
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, entered

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
    from squall.chaos.runtimes.sim.invariants.group_clock import MemberRequestTimes
    from squall.chaos.runtimes.sim.invariants.group_journal import GroupJournal
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel
    from squall.chaos.runtimes.sim.invariants.partition_checks import Report
    from squall.chaos.runtimes.sim.invariants.watched import WatchedNode

GROUPS_LOG: Final = "__consumer_offsets"


class GroupWatch:
    """Checks the invariants of groups: compares a coordinator's state with a replay of its log, and checks the
    time-outs that the coordinator must keep.
    """

    def __init__(
        self, report: Report, clock_of: Callable[[GroupCoordinatorShard], MemberRequestTimes] | None = None
    ) -> None:
        """Start without groups. `clock_of` returns the observed times of requests to a shard; without it, time-outs are
        not checked.
        """
        self._report, self._clock_of = report, clock_of

    def coordinator(
        self, node: int, known: PartitionModel, journal: GroupJournal, machine: Any, *, whole: bool
    ) -> None:
        """Check a serving coordinator against its log: all groups if the shard was loaded just now (`whole`), otherwise
        the groups with new records or markers.
        """
        (steps, journal.news), (given, journal.given) = (journal.news, []), (journal.given, [])
        names, journal.changed_groups = journal.changed_groups, {}
        if whole:
            names = dict.fromkeys((*journal.groups(), *inspection.groups_of(machine.ledger)))
        if node in known.cluster.rotten:
            return
        for step in steps:
            subject = f"group {step.group}: "
            check(self._report, CheckTrigger.OWNERS, step.before, step.after, node=node, known=known, subject=subject)
        for gift in given:
            check(self._report, CheckTrigger.GIVEN, gift, node=node, known=known, subject=f"group {gift.group}: ")
        if not names:
            return
        found = inspection.group_states_of(machine.ledger, names)
        offsets = {name: books.offsets for name, books in found.items()}
        replayed = journal.states(names)
        for each in entered(CheckTrigger.GROUPS):
            if (wrong := each.check(found, replayed)) is not None:
                self._report(each, wrong, node, known, {"records": records_of(found, replayed)})
        check(self._report, CheckTrigger.OFFSETS, offsets, journal.unmarked, node=node, known=known)

    def look(self, seen: WatchedNode, known: PartitionModel, hosted: Any, *, able: bool) -> None:
        """Check the time-outs of the groups of a serving coordinator shard (`hosted.machine`) on the node `seen`.
        `able`: the coordinator could act on time-outs, because since the last check its node ran and could write; if
        not, all time-outs restart now.
        """
        if self._clock_of is None:
            return
        clock, shard, mono_ms = self._clock_of(hosted.machine), hosted.machine, int(seen.sim.env.mono() * 1000)
        if not able:
            clock.forgive(shard, mono_ms)
        for now in clock.times(shard, mono_ms):
            subject = f"group {now.name}: "
            check(self._report, CheckTrigger.GROUP_TIMES, now, node=seen.id, known=known, subject=subject)
