"""Finds eos-loss: a consume-transform-produce application committed a position after an input, but no output of the
input is visible.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.anomalies.eos_duplicate import EOS
from squall.checkers.anomalies.group_positions import GroupPartitionHistory, GroupPositions, positions_of
from squall.checkers.anomalies.outputs import outputs_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
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


SQL = """
with topics as (select distinct o.`group` grp, p.topic from outputs o join partitions p on p.part = o.part),
judged as (
  select t.grp, min(p.committed_t0) until from topics t join partitions p on p.topic = t.topic
  group by t.grp having not max(p.compacted or p.deletable or p.deleted)),
known as (
  select c.grp, c.part, c.off, c.op, c.proc from group_commits c join judged j on j.grp = c.grp
  where c.since >= 0 and c.since <= j.until
  union all
  select c.grp, c.part, c.off, c.op, c.proc
  from fetches f join judged j on j.grp = f.`group` and f.t1 <= j.until
  join group_commits c on c.grp = f.`group` and c.part = f.part and c.off = f.off and c.t0 <= f.t1 and c.st <> 1
  where f.off >= 0
    and (c.late_commit or c.txn < 0 or not (c.never_commits or c.te < 0 or c.te > f.t1))),
furthest as (select grp, part, max(struct(off, -op, proc)) last from known group by grp, part),
began as (
  select grp, part, max(struct(t0, lowest)) last from group_holds group by grp, part),
inputs as (
  select i.* from (
    select part, off, max(val) val from records
    where kind = 1 and final > 0 and iso = 1 and val >= 0 group by part, off) i
  left anti join twice t on t.val = i.val),
missing as (
  select f.grp, i.part, i.off, i.val, f.last.proc proc, f.last.off position
  from furthest f join began b on b.grp = f.grp and b.part = f.part
  join partitions p on p.part = f.part
  join inputs i on i.part = f.part and i.off >= greatest(b.last.lowest, p.judged_from) and i.off < f.last.off
  left anti join (select * from group_commits where off < 0) r on r.grp = f.grp and r.part = f.part
  where not p.compacted and not p.deleted)
select 'eos-loss' anomaly, if(coalesce(max(t.late_abort), false), 'late end', '') evidence, m.part, m.off, m.val,
       -1L op, bigint(m.proc) proc, m.position other
from missing m left join made o on o.`group` = m.grp and o.src = m.val left join txn_values t on t.val = o.val
group by m.grp, m.part, m.off, m.val, m.proc, m.position
having coalesce(max(o.off), -1L) < 0
"""


def _queries(history: ConversionResult) -> Queries:
    if not history.outputs:
        return []
    of_groups = ("outputs", "made", "twice", "group_commits", "group_holds", "fetches")
    return [WitnessQuery(SQL, (*of_groups, "records", "txn_values", "partitions"))]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
