"""Finds eos-loss: a consume-transform-produce application committed a position after an input, but no output of the
input is visible.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyCheck, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.eos_duplicate import EOS
from squall.checkers.anomalies.group_positions import GroupPartitionHistory, GroupPositions, positions_of
from squall.checkers.anomalies.outputs import outputs_of
from squall.checkers.findings import Witness
from squall.checkers.history.group_tables import GroupCommit
from squall.checkers.history.tables import LATE_END, POLL, History

ANOMALIES = (
    AnomalyDefinition(
        "eos-loss",
        AnomalyFamily.GROUPS,
        "consume-transform-produce: the commit of a position after an input was acknowledged, or a coordinator "
        "reported such a position; but no read_committed reader ever got an output of the input, although a reader "
        "read all partitions of the outputs to their ends after that",
        source=EOS,
        other="the position that was committed",
        needs=(HistoryNeed.OUTPUTS, HistoryNeed.COMMITS, HistoryNeed.COMMITTED_FINAL_READS, HistoryNeed.MEMBERS),
        meaning="inputs have no output, and their positions are committed",
        meaning_of_one="input has no output, and its position is committed",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each input that has no visible output although the group committed a position above the
    input's offset. Inputs are the records that final reads at read_committed return.
    """
    history = seen.history
    positions = seen.view(positions_of)
    if not positions.places:
        return
    outputs = seen.view(outputs_of)
    judged, inputs = judged_until(history), _inputs(history)
    partitions = {partition.part: partition for partition in history.partitions}
    for place in positions.places:
        known = [(commit.off, -commit.op, commit) for commit in _known(positions, place, judged.get(place.group, -1))]
        if not known or not place.holds or place.reset or partitions[place.part].compacted:
            continue
        last = max(known)[-1]
        lowest = max(_begun(place), partitions[place.part].judged_from)
        for off, val in inputs.get(place.part, {}).items():
            made = outputs.made.get((place.group, val), [])
            # An input at two offsets may have been read at the other one.
            alone = len(outputs.places[val]) == 1
            if lowest <= off < last.off and alone and not any(each.off >= 0 for each in made):
                evidence = LATE_END if any(each.late_abort for each in made) else ""
                yield Witness("eos-loss", evidence, place.part, off, val, -1, last.proc, last.off)


def _known(positions: GroupPositions, place: GroupPartitionHistory, until: int) -> Iterator[GroupCommit]:
    """Yield each commit of a group in a partition that took effect by `until` ns, or may have. Either the commit was
    acknowledged by then; or a coordinator reported a position by then that the commit may have set. A commit of the
    second kind may have had no answer, for example because its client crashed.
    """
    reported = [each for each in place.fetches if each.off >= 0 and each.t1 <= until]
    for commit in place.commits:
        acknowledged = 0 <= positions.known_at(commit) <= until
        if acknowledged or any(positions.may_explain(commit, each.off, each.t1) for each in reported):
            yield commit


def _begun(place: GroupPartitionHistory) -> int:
    return place.begins_at(max(hold.t0 for hold in place.holds))


def judged_until(history: History) -> dict[int, int]:
    """Return, for each group, the time in ns until which its commits are judged. In each output partition of the group,
    a complete final read at read_committed began at that time or later. So that read must show the outputs of all
    inputs committed by then.

    A group whose outputs may be removed (compaction, retention, deletion) is left out.
    """
    topics: dict[int, set[str]] = {}
    of_part = {partition.part: partition for partition in history.partitions}
    for output in history.outputs.rows():
        topics.setdefault(output.group, set()).add(of_part[output.part].topic)
    found = {}
    for group, names in topics.items():
        to = [partition for partition in history.partitions if partition.topic in names]
        if not any(partition.compacted or partition.deletable or partition.deleted for partition in to):
            found[group] = min(partition.committed_t0 for partition in to)
    return found


def _inputs(history: History) -> dict[int, dict[int, int]]:
    """Return partition -> offset -> value of the records that final reads at read_committed returned."""
    found: dict[int, dict[int, int]] = {}
    for record in history.records.rows():
        if record.kind == POLL and record.final and record.iso == 1 and record.val >= 0:
            here = found.setdefault(record.part, {})
            # If final reads differ, any value would do, but both engines must choose the same.
            here[record.off] = max(record.val, here.get(record.off, -1))
    return found


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
