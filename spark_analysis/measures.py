"""The measures of `checkers.metrics` as SQL: rows of name, a, b, numbers.

Same definitions and same numbers as `checkers.reference.measures`; tests/parity holds them together. Besides `standing`
and `told` of `spark_analysis.queries` they read `faults` and `processes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkers.metrics import CALM, FAULTY, LATENCY_UNIT_NS, OVERALL, PERCENTILES, Context
from checkers.nemesis_log import FOREVER, windows

_SENDS = "select part, st, t0, t1 from standing where sent = 1"

ACKED = """
select 'acked' name, part a, 0 b, array(double(count(*))) numbers from sends where st = 0 group by part
"""

LATENCIES = """
select 'latency', flag, 0,
       concat(array(double(count(*))), percentile(took, array({percentiles})), array(double(max(took))))
from (
  select explode(array(-1, if({faulty}, {faulty_flag}, {calm_flag}))) flag, (t1 - t0) div {unit} took
  from sends where st = 0)
group by flag
"""

BY_SECOND = """
select 'latency by second', int((t1 - {origin}) div 1000000000), 0,
       concat(array(double(count(*))), percentile((t1 - t0) div {unit}, array(0.5, 0.99)),
              array(double(max((t1 - t0) div {unit}))))
from sends where st = 0 group by 2
union all
select 'sends', int((t1 - {origin}) div 1000000000), int(st), array(double(count(*)))
from sends where t1 >= 0 group by 2, 3
union all
select 'reads', int((t1 - {origin}) div 1000000000), 0, array(double(sum(records)))
from told where records > 0 group by 2
"""

GAPS = """
select 'gap', grp, 0, array(double(longest.gap), double(-longest.begin)) from (
  select grp, max(struct(till - since as gap, -since as begin)) longest from gaps group by grp)
"""

HEALED_GAPS = """
select 'healed gap', grp, 0, array(double(longest.gap), double(-longest.begin)) from (
  select grp, max(struct(till - greatest(since, {healed}) as gap, -greatest(since, {healed}) as begin)) longest
  from gaps where till > {healed} group by grp)
"""

FAULT_GAPS = """
select 'fault gap', id, grp, array(double(longest.gap), double(-longest.begin)) from (
  select int(id) id, grp, max(struct(till - since as gap, -since as begin)) longest
  from gaps join faults on grp >= 0 and began >= 0 and till >= began and (ended < 0 or since <= ended)
  group by id, grp)
"""

RECOVERIES = """
select 'recovery', int(id), part, array(double(coalesce(min(if(st = 0, t1 - began, null)), -1)))
from sends join faults on began >= 0 and t0 >= began group by id, part
"""

READER_GAPS = """
select 'reader gap', proc, part, array(double(longest.gap), double(-longest.begin)) from (
  select proc, part, max(struct(t - before as gap, -before as begin)) longest from (
    select proc, part, t, lag(t) over (partition by proc, part order by t) before from (
      select proc, part, begin, last_t, explode(concat(array(begin, last_t), progress)) t
      from (
        select proc, part, greatest(min(t0), {healed}) begin,
               collect_list(if(st = 0 and t1 > {healed} and (records > 0 or position >= if(iso = 1, lso, hw)),
                               t1, null)) progress
        from told where kind <> 3 and final = 0 group by proc, part)
      join processes using (proc))
    where begin < last_t and t >= begin)
  where before is not null group by proc, part)
"""

_POINTS = """
ends as (select explode(array(part, {overall})) grp, st, t0, t1 from sends),
points as (
  select grp, t1 t from ends where st = 0
  union all select grp, explode(array(min(t0), max(t0))) from ends group by grp),
gaps as (
  select * from (select grp, lag(t) over (partition by grp order by t) since, t till from points)
  where since is not null)
"""


def measures(context: Context) -> str:
    """All of them as one statement."""
    origin, unit, healed = context.origin_ns, LATENCY_UNIT_NS, f"{context.healed_ns}L"
    latencies = LATENCIES.format(
        percentiles=", ".join(map(str, PERCENTILES)),
        faulty=_faulty(windows(context.faults)),
        faulty_flag=FAULTY,
        calm_flag=CALM,
        unit=unit,
    )
    queries = [ACKED, latencies, BY_SECOND.format(origin=f"{origin}L", unit=unit), GAPS]
    if context.faults:
        queries += [FAULT_GAPS, RECOVERIES]
    if context.healed_ns >= 0:
        queries += [HEALED_GAPS.format(healed=healed), READER_GAPS.format(healed=healed)]
    points = _POINTS.format(overall=OVERALL)
    return f"with sends as ({_SENDS}),\n{points}" + "\nunion all\n".join(queries)


def _faulty(faulty: Sequence[tuple[int, int]]) -> str:
    """Whether a send overlaps the times at which a fault was on."""
    spans = ", ".join(f"struct({began}L as began, {min(ended, FOREVER)}L as ended)" for began, ended in faulty)
    return f"exists(array({spans}), span -> t0 <= span.ended and t1 >= span.began)" if faulty else "false"
