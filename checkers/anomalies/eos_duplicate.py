"""Finds eos-duplicate: a consume-transform-produce application made two visible outputs of one input."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.anomalies.outputs import outputs_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import LATE_END

EOS = "KIP-98, KIP-447: outputs and the positions of their inputs are committed together, or not at all"

ANOMALIES = (
    AnomalyDefinition(
        "eos-duplicate",
        AnomalyFamily.GROUPS,
        "consume-transform-produce: read_committed readers got two outputs that members of one group made from the "
        "same input",
        source=EOS,
        other="the value of the first of these outputs",
        needs=(HistoryNeed.OUTPUTS, HistoryNeed.COMMITTED_READS),
        meaning="outputs are duplicates: their inputs have an output already",
        meaning_of_one="output is a duplicate: its input has an output already",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each further visible output of an input that has several. Inputs that readers found at two
    offsets are left out, because the application reads such an input twice.
    """
    if not seen.history.outputs:
        return
    outputs = seen.view(outputs_of)
    for (_, src), made in outputs.made.items():
        visible = [each for each in made if each.off >= 0]
        if len(outputs.places.get(src, ())) > 1:
            continue
        for each in visible[1:]:
            evidence = LATE_END if any(one.late_commit for one in visible) else ""
            out = each.output
            yield Witness(
                "eos-duplicate", evidence, out.part, each.off, out.val, out.op, out.proc, visible[0].output.val
            )


SQL = """
with visible as (
  select o.*, coalesce(t.late_commit, false) late
  from made o left join txn_values t on t.val = o.val where o.off >= 0),
numbered as (
  select *, row_number() over (partition by `group`, src order by op) nth,
         first_value(val) over (partition by `group`, src order by op) first,
         max(late) over (partition by `group`, src) any_late
  from visible)
select 'eos-duplicate' anomaly, if(any_late, 'late end', '') evidence, part, off, val, op, bigint(proc) proc,
       first other
from numbered left anti join twice on twice.val = src
where nth > 1
"""


def _queries(history: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("made", "twice", "txn_values"))] if history.outputs else []


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
