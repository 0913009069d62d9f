"""Every module of this room, in the order in which reports list what they look for."""

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
from squall.checkers.anomalies.anomaly import OWN, PROGRAM, AnomalyCheck, AnomalyDefinition, HistoryNeed, HistoryViews
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
"""Every anomaly by name."""

FOUND: tuple[str, ...] = tuple(anomaly.name for check in CHECKS if check.exists for anomaly in check.anomalies)
"""Those that a finder exists for: only these are ruled out by a `valid` verdict."""

LOSS: tuple[str, ...] = tuple(anomaly.name for anomaly in loss.ANOMALIES)
"""An acknowledged record is gone."""

IN_HISTORY: tuple[AnomalyCheck, ...] = tuple(check for check in CHECKS if check.find)
"""Those whose anomalies a history shows: each has a Spark query of its name."""


MIN_OUTPUTS_PER_INPUT = 0.5
"""For each acknowledged input: with fewer, the checks of outputs saw little of the run."""
MIN_RECORDS_PER_ACK = 0.5
"""For each record that was acknowledged where a group reads: with less, checks of groups saw little of the run."""
MIN_CHANGES_PER_PARTITION = 0.5
"""For each partition of a group: with fewer changes of its owner, or members that went on at a committed position, what
comes of these could hardly show."""
PAGE_OF_MEMBERS = "docs/workloads/command.md, Members of a group"
NEVER_RESUMED = "no member ever took over a partition at a committed position"
SILENT_MEMBERS = {
    HistoryNeed.MEMBERS: f"the program reported no `processed`, and no `assigned` with an `offset`: {PAGE_OF_MEMBERS}",
    HistoryNeed.PROOFS: f"the program reported no commit in a `generation`: {PAGE_OF_MEMBERS}",
}
"""What members of a program under test have not reported, by what the history lacks then."""
LOOKED_FOR = "looked for: "
"""How the note of a verdict begins that lists the names of the anomalies which the run could have shown."""


class EvidenceCounts(NamedTuple):
    """Counts evidence in a history that the outcomes of operations do not show."""

    read_inside: int = 0
    """As `History.read_inside`."""
    holds: int = 0
    """How often a member of a group owned a partition."""
    outputs: int = 0
    """Sends that said of which input they were made."""
    owned: Collection[int] = ()
    """Partitions that a member of a group ever owned; empty, too, where nobody counted them."""
    owners: int = -1
    """Processes that ever owned one; -1: nobody counted them."""
    resumed: int = -1
    """How often a member began at a committed position; -1: nobody counted that."""
    groups: Mapping[str, GroupActivity] = MappingProxyType({})
    """How much each group did, by its name; empty, too, where nobody counted that."""
    grants: int = -1
    """The number of times that a member got the assignment of a generation; -1: not counted."""
    placed: int = -1
    """The load's sends that were acknowledged with an offset; -1: not counted."""
    lookups: int = -1
    """How often a reader looked up a time of which it had got a record; -1: not counted."""

    @classmethod
    def of(cls, history: History) -> EvidenceCounts:
        """Of a history whose tables are all in memory."""
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
    """That note. `not_run`: names of those that were not looked for."""
    return LOOKED_FOR + ", ".join(name for name in FOUND if name not in not_run)


def not_run(
    outcomes: Mapping[str, Mapping[str, int]],
    processes: Sequence[ClientProcess],
    partitions: Iterable[ObservedPartition],
    passed_over: Mapping[str, str],
    counted: EvidenceCounts,
) -> dict[str, str]:
    """Return what was not looked for, and why: an anomaly could not have been found if the history lacks what it needs.

    `outcomes`: as in `History`. `passed_over`: names whose evidence, outside the history, was not there, and why.
    """
    load = [each for each in processes if AFTER_HEALING not in each.settings]
    own = any(each.role == "reader" and each.client == OWN for each in load)
    own_members = any("group" in each.settings and each.role != "final" and each.client == OWN for each in load)

    def done(*operations: str) -> bool:
        return any(outcomes.get(f, {}).get("ok", 0) for f in operations)

    # Without acks an acknowledgement has no offset that could be wrong.
    asked = any(each.role == "producer" and each.settings.get("acks") != 0 for each in load)
    acks = done("send") and asked and counted.placed != 0
    reads = done("poll", "final_read") and any(each.seen >= 0 for each in partitions)
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
        # Of a member that does not say which generation it is in, a commit proves nothing.
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
    """Checks that ran, and that saw a part only of what a whole run shows them; and why.

    `acked`: records that were acknowledged, by name of their partition.
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
    """A group that reads a topic reads all of it. Of a program it is known where a member begins once that is said."""
    read = {each.topic for each in partitions if each.part in counted.owned}
    left = [
        each.name for each in partitions if each.topic in read and not each.added and each.part not in counted.owned
    ]
    if left and of_program:
        return f"no member reported a record of {', '.join(left)} as processed: {PAGE_OF_MEMBERS}"
    return f"no member of a group ever owned {', '.join(left)}" if left else ""


def _few_records(partitions: Sequence[ObservedPartition], counted: EvidenceCounts, acked: Mapping[str, int]) -> str:
    """A group that goes on gets all that is acknowledged where it reads."""
    for group, did in sorted(counted.groups.items()):
        there = sum(acked.get(each.name, 0) for each in partitions if each.part in did.owned)
        if did.got < MIN_RECORDS_PER_ACK * there:
            records = f"{did.got} record{'s'[: did.got != 1]}"
            return f"members of the group {group} got {records}, and {there} were acknowledged where they read"
    return ""


def _few_changes(counted: EvidenceCounts) -> str:
    """One owner for each partition is where a run begins. Two of them come of changes."""
    return _rarely_changed(counted, "took a partition over from each other", lambda did: did.changes)


def _few_resumed(counted: EvidenceCounts) -> str:
    """The first one reads from the start. Only a later one goes on where somebody has committed."""
    return _rarely_changed(counted, "went on at a committed position", lambda did: did.resumed)


def _rarely_changed(counted: EvidenceCounts, what: str, times: Callable[[GroupActivity], int]) -> str:
    """The first group of which that is said less than MIN_CHANGES_PER_PARTITION times for each of its partitions."""
    for group, did in sorted(counted.groups.items()):
        often, many = times(did), len(did.owned)
        if often < MIN_CHANGES_PER_PARTITION * many:
            return (
                f"members of the group {group} {what} {often} time{'s'[: often != 1]}, "
                f"and it reads {many} partition{'s'[: many != 1]}"
            )
    return ""


def _few_outputs(partitions: Sequence[ObservedPartition], counted: EvidenceCounts, acked: Mapping[str, int]) -> str:
    """Return why there are too few outputs, if there are: one for each input if all goes well. Empty if enough."""
    inputs = sum(acked.get(each.name, 0) for each in partitions if each.part in counted.owned)
    few = counted.outputs < MIN_OUTPUTS_PER_INPUT * inputs
    return f"{counted.outputs} outputs name their input, and {inputs} inputs were acknowledged" if few else ""


SHOWN_BY_HISTORY: tuple[str, ...] = tuple(
    anomaly.name for check in (*IN_HISTORY, stuck.CHECK) for anomaly in check.anomalies
)
"""Those that nothing proves where the history is damaged nobody knows where."""
SHOWN_BY_RUN: tuple[str, ...] = tuple(
    anomaly.name for check in (not_converged.CHECK, stuck.CHECK) for anomaly in check.anomalies
)
"""Those that run.json shows."""


def find_all(history: History) -> list[Witness]:
    """Return every witness in a history, sorted: what the reference finders say."""
    seen = HistoryViews(history)
    return sorted(witness for check in IN_HISTORY if check.find for witness in check.find(seen))
