"""Lists every anomaly module in the order of reports, and decides which anomalies a run could have shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from squall.checkers.anomalies import (
    aborted_read,
    atomicity,
    commit_ahead,
    corrupt,
    dirty_read,
    dual_ownership,
    duplicate,
    eos_duplicate,
    eos_loss,
    failed_yet_read,
    hanging_txn,
    inconsistent_offset,
    loss,
    lost_position,
    lso_violation,
    nonmonotonic_poll,
    not_converged,
    offset_regression,
    phantom,
    poll_skip,
    replica_divergence,
    revoked_read,
    send_reorder,
    stale_ack,
    stuck,
    stuck_group,
    thrown_back,
    uncommitted_offset,
    wr_cycle,
    wrong_lookup,
    wrong_offset,
    zombie_write,
)
from squall.checkers.anomalies.anomaly import OWN, PROGRAM, AnomalyDefinition, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck
from squall.checkers.findings import Witness
from squall.checkers.history.group_activity import GroupActivity
from squall.checkers.history.tables import ClientProcess, History, ObservedPartition
from squall.checkers.history.values import AFTER_HEALING

CHECKS: tuple[AnomalyCheck, ...] = (
    loss.CHECK,
    duplicate.CHECK,
    inconsistent_offset.CHECK,
    phantom.CHECK,
    failed_yet_read.CHECK,
    corrupt.CHECK,
    wrong_offset.CHECK,
    send_reorder.CHECK,
    stale_ack.CHECK,
    replica_divergence.CHECK,
    poll_skip.CHECK,
    nonmonotonic_poll.CHECK,
    thrown_back.CHECK,
    offset_regression.CHECK,
    lso_violation.CHECK,
    wrong_lookup.CHECK,
    lost_position.CHECK,
    commit_ahead.CHECK,
    dual_ownership.CHECK,
    revoked_read.CHECK,
    aborted_read.CHECK,
    dirty_read.CHECK,
    atomicity.CHECK,
    wr_cycle.CHECK,
    zombie_write.CHECK,
    hanging_txn.CHECK,
    uncommitted_offset.CHECK,
    eos_duplicate.CHECK,
    eos_loss.CHECK,
    stuck.CHECK,
    stuck_group.CHECK,
    not_converged.CHECK,
)

CATALOG: dict[str, AnomalyDefinition] = {anomaly.name: anomaly for check in CHECKS for anomaly in check.anomalies}
"""Maps the name of each anomaly to its definition."""

FOUND: tuple[str, ...] = tuple(anomaly.name for check in CHECKS if check.exists for anomaly in check.anomalies)
"""Names the anomalies for which a finder exists; a `valid` verdict rules out only these."""

LOSS: tuple[str, ...] = tuple(anomaly.name for anomaly in loss.ANOMALIES)
"""Names the anomalies in which an acknowledged record is gone."""

IN_HISTORY: tuple[AnomalyCheck, ...] = tuple(check for check in CHECKS if check.find)
"""Lists the checks whose anomalies a history shows; each has a finder and Spark queries."""


MIN_OUTPUTS_PER_INPUT = 0.5
"""Is the least number of outputs for each acknowledged input. With fewer, the checks of outputs saw little of the run.
"""
MIN_RECORDS_PER_ACK = 0.5
"""Is the least number of records that a group's members got for each record acknowledged in the partitions that they
owned. With fewer, the checks of groups saw little of the run.
"""
MIN_CHANGES_PER_PARTITION = 0.5
"""Is the least number of owner changes, or of members that resumed at a committed position, for each partition of a
group. With fewer, anomalies that follow from these could hardly show.
"""
PAGE_OF_MEMBERS = "docs/workloads/command.md, Members of a group"
NEVER_RESUMED = "no member ever took over a partition at a committed position"
SILENT_MEMBERS = {
    HistoryNeed.MEMBERS: f"the program reported no `processed`, and no `assigned` with an `offset`: {PAGE_OF_MEMBERS}",
    HistoryNeed.PROOFS: f"the program reported no commit in a `generation`: {PAGE_OF_MEMBERS}",
}
"""Maps a need (`HistoryNeed`) to the reason why a history of a program under test lacks it: the program's group members
did not report something.
"""
LOOKED_FOR = "looked for: "
"""Begins the note of a verdict that lists the anomalies which the run could have shown."""


class EvidenceCounts(NamedTuple):
    """Counts what a history contains besides the outcomes of operations. The counts decide which anomalies the run
    could have shown.
    """

    read_inside: int = 0
    """Counts records returned by read_committed polls that were part of a transaction."""
    holds: int = 0
    """Counts the rows of the table `holds`: one for each assignment of a partition to a member that did not own it yet.
    """
    outputs: int = 0
    """Counts the output records that group members sent, each with the name of its input record."""
    owned: Collection[int] = ()
    """Holds the partitions that a member of a group ever owned; empty also if they were not counted."""
    owners: int = -1
    """Counts processes that ever owned a partition; -1: not counted."""
    resumed: int = -1
    """Counts how often a member began at a committed position; -1: not counted."""
    groups: Mapping[str, GroupActivity] = MappingProxyType({})
    """Maps the name of each group to its activity; empty also if it was not counted."""
    grants: int = -1
    """Counts how many times a member learned which partitions a generation assigns to it; -1: not counted."""
    placed: int = -1
    """Counts the load's sends that were acknowledged with an offset; -1: not counted."""
    lookups: int = -1
    """Counts how often a reader looked up the time of a record that it had got; -1: not counted."""

    @classmethod
    def of(cls, history: History) -> EvidenceCounts:
        """Return the counts of a history whose tables are all in memory."""
        return cls(
            history.read_inside,
            len(history.holds),
            len(history.outputs),
            history.owned,
            len(history.owners),
            history.resumed,
            history.group_activities.by_group(history.names),
            len(history.grants),
            lookups=len(history.lookups),
        )


def looked_for(not_run: Collection[str]) -> str:
    """Return the note that lists the anomalies which were looked for; `not_run` names the anomalies which were not."""
    return LOOKED_FOR + ", ".join(name for name in FOUND if name not in not_run)


def not_run(
    outcomes: Mapping[str, Mapping[str, int]],
    processes: Sequence[ClientProcess],
    partitions: Iterable[ObservedPartition],
    passed_over: Mapping[str, str],
    counted: EvidenceCounts,
) -> dict[str, str]:
    """Return the anomalies that were not looked for, each with the reason: an anomaly cannot be found if the history
    lacks what it needs.

    `outcomes` is `History.outcomes`. `passed_over` has the anomalies that are found outside of the history, for example
    in run.json, and whose evidence is missing there; it maps each to the reason.
    """
    load = [each for each in processes if AFTER_HEALING not in each.settings]
    own = any(each.role == "reader" and each.client == OWN for each in load)
    own_members = any("group" in each.settings and each.role != "final" and each.client == OWN for each in load)

    def done(*operations: str) -> bool:
        return any(outcomes.get(f, {}).get("ok", 0) for f in operations)

    # With acks=0 an acknowledgement has no offset that could be wrong.
    asked = any(each.role == "producer" and each.settings.get("acks") != 0 for each in load)
    acks = done("send") and asked and counted.placed != 0
    reads = done("poll", "final_read") and any(each.seen >= 0 for each in partitions)
    # -1 counts nothing: histories that early versions converted lack some counts, and that must leave no check out.
    there = {
        HistoryNeed.SENDS: bool(outcomes.get("send")),
        HistoryNeed.ACKS: acks,
        HistoryNeed.FAILURES: bool(outcomes.get("send", {}).get("fail")),
        HistoryNeed.READS: reads,
        HistoryNeed.OWN_READERS: own,
        HistoryNeed.PLACES: acks or reads,
        HistoryNeed.FINAL_READS: done("final_read"),
        HistoryNeed.MARKS: done("final_read", "list_offsets") or (own and done("poll")),
        HistoryNeed.LOOKUPS: done("list_offsets") and counted.lookups != 0,
        HistoryNeed.TRANSACTIONS: bool(outcomes.get("txn")),
        HistoryNeed.COMMITTED_READS: reads and any(each.isolation == 1 for each in processes),
        HistoryNeed.READS_INSIDE: counted.read_inside > 0,
        HistoryNeed.MEMBERS: counted.holds > 0,
        HistoryNeed.RESUMED: counted.resumed != 0,
        HistoryNeed.RIVALS: counted.owners not in (0, 1),
        HistoryNeed.WRITES_AFTER_HEALING: len(load) < len(processes),
        # A commit proves nothing if its member does not report its generation.
        HistoryNeed.PROOFS: (done("commit") and counted.grants != 0) or own_members,
        HistoryNeed.COMMITS: done("commit"),
        HistoryNeed.POSITIONS: done("fetch_offsets"),
        HistoryNeed.OUTPUTS: done("send") and counted.outputs > 0,
        HistoryNeed.COMMITTED_FINAL_READS: done("final_read")
        and any(each.role == "final" and each.isolation == 1 for each in processes),
    }
    said = {HistoryNeed.RESUMED: NEVER_RESUMED, **(SILENT_MEMBERS if _of_program(processes) else {})}
    found = {}
    for name in FOUND:
        lacking = [need for need in CATALOG[name].needs if not there[need]]
        if name in passed_over:
            found[name] = passed_over[name]
        elif lacking:
            found[name] = said.get(lacking[0]) or f"the history has no {lacking[0].partition(':')[0]}"
    return found


def _of_program(processes: Iterable[ClientProcess]) -> bool:
    return any(each.client == PROGRAM and "group" in each.settings for each in processes)


def ran_on_little(
    partitions: Sequence[ObservedPartition],
    processes: Iterable[ClientProcess],
    not_run: Collection[str],
    counted: EvidenceCounts,
    acked: Mapping[str, int],
) -> dict[str, str]:
    """Return the anomalies that were looked for in too small a part of the run, each with the reason: for example, no
    final read of some partition reached its end.

    `acked` counts acknowledged records by the name of their partition.
    """
    there = [each for each in partitions if not each.deleted]
    unread = [each.name for each in there if each.cover_t0 < 0]
    uncommitted = [each.name for each in there if each.transactional and each.committed_t0 < 0]
    never_committed = f"no final read of {', '.join(uncommitted)} at read_committed reached its end"
    by_need = {
        HistoryNeed.FINAL_READS: f"no final read of {', '.join(unread)} reached its end" if unread else "",
        HistoryNeed.COMMITTED_FINAL_READS: never_committed if uncommitted else "",
        HistoryNeed.RIVALS: _few_changes(counted),
        HistoryNeed.RESUMED: _few_resumed(counted),
        HistoryNeed.MEMBERS: _unowned(there, counted, of_program=_of_program(processes))
        or _few_records(there, counted, acked),
        HistoryNeed.OUTPUTS: _few_outputs(there, counted, acked),
    }
    found = {}
    for name in FOUND:
        said = [by_need[need] for need in CATALOG[name].needs if by_need.get(need)]
        if said and name not in not_run:
            found[name] = said[0]
    return found


def _unowned(partitions: Sequence[ObservedPartition], counted: EvidenceCounts, *, of_program: bool) -> str:
    """Return a sentence if a topic that a group reads has partitions that never had an owner; empty if all had one. A
    program under test shows an owner only by the records that it reports.
    """
    read = {each.topic for each in partitions if each.part in counted.owned}
    left = [
        each.name for each in partitions if each.topic in read and not each.added and each.part not in counted.owned
    ]
    if left and of_program:
        return f"no member reported a record of {', '.join(left)} as processed: {PAGE_OF_MEMBERS}"
    return f"no member of a group ever owned {', '.join(left)}" if left else ""


def _few_records(partitions: Sequence[ObservedPartition], counted: EvidenceCounts, acked: Mapping[str, int]) -> str:
    """Return a sentence if a group's members got too few of the records acknowledged in their partitions; empty if they
    got enough. `acked` counts acknowledged records by the name of their partition.
    """
    for group, did in sorted(counted.groups.items()):
        there = sum(acked.get(each.name, 0) for each in partitions if each.part in did.owned)
        if did.got < MIN_RECORDS_PER_ACK * there:
            records = f"{did.got} record{'s'[: did.got != 1]}"
            return f"members of the group {group} got {records}, and {there} were acknowledged where they read"
    return ""


def _few_changes(counted: EvidenceCounts) -> str:
    """Return a sentence if partitions changed their owners too rarely; empty if there were enough changes. The first
    owner of a partition is no change.
    """
    return _rarely_changed(counted, "took a partition over from each other", lambda did: did.changes)


def _few_resumed(counted: EvidenceCounts) -> str:
    """Return a sentence if members resumed at committed positions too rarely; empty if they did it often enough. The
    first member of a group reads from the start.
    """
    return _rarely_changed(counted, "went on at a committed position", lambda did: did.resumed)


def _rarely_changed(counted: EvidenceCounts, what: str, times: Callable[[GroupActivity], int]) -> str:
    """Return a sentence about the first group in which something happened too rarely: less than
    MIN_CHANGES_PER_PARTITION times for each of its partitions, as `times` counts. Empty if there is none. `what`
    describes the event in words.
    """
    for group, did in sorted(counted.groups.items()):
        often, many = times(did), len(did.owned)
        if often < MIN_CHANGES_PER_PARTITION * many:
            return (
                f"members of the group {group} {what} {often} time{'s'[: often != 1]}, "
                f"and it reads {many} partition{'s'[: many != 1]}"
            )
    return ""


def _few_outputs(partitions: Sequence[ObservedPartition], counted: EvidenceCounts, acked: Mapping[str, int]) -> str:
    """Return a sentence that says that group members wrote too few outputs: less than MIN_OUTPUTS_PER_INPUT for each
    acknowledged input. It is empty if there are enough. `acked` counts acknowledged records by the name of their
    partition.
    """
    inputs = sum(acked.get(each.name, 0) for each in partitions if each.part in counted.owned)
    few = counted.outputs < MIN_OUTPUTS_PER_INPUT * inputs
    return f"{counted.outputs} outputs name their input, and {inputs} inputs were acknowledged" if few else ""


SHOWN_BY_HISTORY: tuple[str, ...] = tuple(
    anomaly.name for check in (*IN_HISTORY, stuck.CHECK) for anomaly in check.anomalies
)
"""Names the anomalies that a history shows. If it is damaged at an unknown place, these anomalies are not proven."""
SHOWN_BY_RUN: tuple[str, ...] = tuple(
    anomaly.name for check in (not_converged.CHECK, stuck.CHECK) for anomaly in check.anomalies
)
"""Names the anomalies whose evidence is in run.json. If that file was changed later, these anomalies are not proven."""


def find_all(history: History) -> list[Witness]:
    """Return all witnesses that the reference finders find in a history, sorted."""
    seen = HistoryViews(history)
    return sorted(witness for check in IN_HISTORY if check.find for witness in check.find(seen))
