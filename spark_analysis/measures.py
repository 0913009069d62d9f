"""Computes the measures that `squall.checkers.metrics` defines, with SQL.

Definitions and numbers are the same as those of `squall.checkers.measures`; tests/parity compares both. The statements
read `squall.spark_analysis.views`. Small data, such as faults and processes, is part of the statement itself.

All counting is one aggregation and all gaps are one sort, because each further statement, however small its data, costs
a few tenths of a second of planning and compiling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from squall.checkers import metrics
from squall.checkers.history.group_tables import PartitionOwnership
from squall.checkers.history.tables import ClientProcess, RecordedFault
from squall.checkers.history.values import SEQUENCE_BITS
from squall.checkers.metrics import (
    CALM,
    FAULTY,
    LATENCY_UNIT_NS,
    OVERALL,
    PERCENTILES,
    MeasurementContext,
    MeasurementRow,
    TxnOutcome,
    waiting_for,
)
from squall.checkers.nemesis_log import FOREVER, windows


def views(context: MeasurementContext) -> tuple[str, ...]:
    """Return the names of the Spark views of a history that the queries COUNTS and GAPS read."""
    more = ("txns", "txn_values", "records") if context.transactions else ()
    return "standing", "told", "txns", "inits", *more


def _count(name: str, a: str, b: str = "0", x: str = "null", took: str = "null") -> str:
    """Return SQL for a row that COUNTS aggregates. `name` is the measure; `a` and `b` are its keys, such as a
    partition. `x` is summed and its minimum taken, and `took` is used for percentiles. All arguments but `name` are SQL
    expressions.
    """
    return f"named_struct('name', '{name}', 'a', int({a}), 'b', int({b}), 'x', bigint({x}), 'took', bigint({took}))"


def _gap(name: str, a: str, b: str, since: str) -> str:
    """Return SQL for a row that GAPS aggregates: a gap from `since` to the column `till`. `name` is the measure; `a`
    and `b` are its keys, such as a partition. All arguments are SQL expressions.
    """
    return f"named_struct('name', {name}, 'a', int({a}), 'b', int({b}), 'since', {since}, 'till', till)"


ANY = str(metrics.ALL)

SEQUENCE = f"val & {(1 << SEQUENCE_BITS) - 1}L"

TRIES = """
tries as (
  select min(proc) over (partition by id) first, how, st, t0, t1 from (
    select id, proc, how, st, if(te >= 0, te, t0) t0, if(t1 >= 0, t1, if(te >= 0, te, t0)) t1 from txns
    where not (how = 0 and st = 2) and not (st = 1 and if(te >= 0, te, t1) - t0 >= timeout_ms * 1000000L)
    union all
    select id, proc, 0, 1, t0, t from inits where producer_id < 0))"""
"""Defines the table `tries`, with a row for each attempt with a transactional id: a transaction that ended or failed,
or an InitProducerId that failed (`squall.checkers.measured_producers.TransactionAttempt`). The column `first` is the
lowest process that used the id.
"""

COUNTS = f"""
with {TRIES},
sends as (
  select part, st, t0, t1, producer, acked_at, val, int((t1 - {{origin}}) div 1000000000) second from standing
  where sent = 1{{load}}),
counted as (
  select inline(filter(flatten(array(
    if(st = 0, array(
      {_count("acked", "part")},
      if(acked_at < 0, {_count("unplaced", "part", "producer", x=SEQUENCE)}, null),
      {_count("latency", str(metrics.ALL), took="took")},
      {_count("latency", "{flag}", took="took")},
      {_count("latency by second", "second", took="took")}), array()),
    array({_count("outcomes", "{flag}", "st")},
      if(t1 >= 0 and {{flag}} = {CALM}, {_count("producer sends", "{whose}", "st")}, null),
      if(t1 >= 0, {_count("sends", "second", "st")}, null)){{recoveries}})), each -> each is not null))
  from (select *, (t1 - t0) div {LATENCY_UNIT_NS} took from sends)
  union all
  select inline(array({_count("acked", "part", str(metrics.AFTERWARDS))})) from standing
  where sent = 1 and st = 0 and {{after}}
  union all
  select inline(array_compact(array(
    if(st = 0 and how = 1, {_count("tried transactions", "first")}, null),
    if(not (st = 0 and how <> 0) and {{flag}} = {CALM}, {_count("tried transactions", "first", "1")}, null))))
  from tries
  union all
  select inline(array_compact(array(
    {_count("reads", "(t1 - {origin}) div 1000000000", x="records")},
    if(final > 0, {_count("final read", "part", "iso", x="records")}, null))))
  from told where records > 0
  union all
  select inline(array({_count("stale", ANY, ANY, took="age")}, {_count("stale", "proc", "part", took="age")}))
  from (
    select proc, part, polled, greatest(0L, coalesce(t0 - known, 0L)) div {LATENCY_UNIT_NS} age
    from (
      select proc, part, t0, polled, min(t) over (
               partition by part order by off desc range between unbounded preceding and 1 preceding) known
      from (
        select part, proc, inline(array(
                 named_struct('off', position, 'polled', kind < 3 and final = 0 and st = 0, 't0', t0, 't', null),
                 named_struct('off', hw, 'polled', false, 't0', t0, 't', if(hw >= 0, t1, null))))
        from told)))
  where polled
  union all
  select inline(array({_count("lag", ANY, ANY, took="behind")}, {_count("lag", "proc", "part", took="behind")}))
  from (
    select proc, part, kind, position_before, greatest(0L, greatest(hw, lso) - position_before) behind
    from (
      select *, last_value(if(kind < 3 and final = 0, position, null), true) over (
                  partition by proc, part order by op, idx rows between unbounded preceding and 1 preceding)
                position_before
      from told))
  where kind = 3 and position_before is not null{{transactions}})
select name, a, b, concat(array(double(count(*)), sum(double(x)), double(min(x))),
                          coalesce(percentile(took, array({", ".join(map(str, PERCENTILES))})),
                                   array({", ".join("0.0D" for _ in PERCENTILES)})),
                          array(double(max(took)))) numbers
from counted group by name, a, b
"""

TRANSACTIONS = f"""
  union all
  select inline(array_compact(array(
    {_count("transactions", "ended")},
    if(st = 0 and how = 1, {_count("commit latency", "0", took=f"(t1 - te) div {LATENCY_UNIT_NS}")}, null))))
  from (
    select *, case when st = 0 then if(how = 1, {TxnOutcome.COMMITTED:d}, {TxnOutcome.ABORTED:d})
                   when st = 1 then
                     if(t1 - t0 >= timeout_ms * 1000000L, {TxnOutcome.TIMED_OUT:d}, {TxnOutcome.FAILED:d})
                   else if(how = 0, {TxnOutcome.LEFT:d}, {TxnOutcome.UNKNOWN:d}) end ended
    from txns)
  union all
  select inline(array(
    {_count("uncommitted", "which", "final", x="reads")},
    {_count("uncommitted offsets", "which", "final", x="offsets")}))
  from (
    select which, final, txn, sum(reads) reads, count(*) offsets
    from (
      select t.txn, r.part, r.off, if(r.final > 0, 1, 0) final, count(*) reads,
             case when t.never_commits then if(t.aborted, {metrics.ABORTED_DATA}, {metrics.NEVER_ENDED_DATA})
                  when r.t1 <= t.te then {metrics.EARLY_DATA} end which
      from records r join txn_values t on t.val = r.val
      where r.kind = 1 and r.iso = 0 and r.val >= 0
      group by 1, 2, 3, 4, 6)
    where which is not null group by which, final, txn)"""
"""Extends COUNTS by counts of transactions and of uncommitted reads, if the history has transactions. Uncommitted
offsets are counted in each transaction and added up: no two transactions share an offset.
"""

RECOVERIES = f""",
    transform(filter({{faults}}, fault -> fault.began >= 0 and t0 >= fault.whole_since),
              fault -> {_count("recovery", "fault.id", "part", x="if(st = 0, t1 - fault.began, null)")})"""


def unanswered(group: str, sends: str) -> str:
    """Return SQL common table expressions that find gaps: times in which writes waited and none was acknowledged. The
    last one, `unanswered`, has a row for each gap: the columns that `group` names, `since` and `till`.

    `sends` names a table of writes. Its columns are those that `group` names, `st` (status), `t0` (when sent) and `t1`
    (when completed). There is one sort, of the begins and ends of all writes. It gives, after each of them, how many
    writes wait and how many acknowledgements there were. Between two acknowledgements there are at most two times of
    waiting: for writes that are acknowledged in the end (from `a0` to `a1`), and for writes that fail (from `f0` to
    `f1`). If the two overlap, they are one gap.
    """
    order = f"partition by {group} order by t, ends, acked"
    return f"""
moments as (
  select {group}, acked, t, ends from (
    select {group}, int(st = 0) acked, inline(array(
      named_struct('t', t0, 'ends', 0), named_struct('t', if(t1 >= 0, t1, t0), 'ends', 1)))
    from {sends})),
waits as (
  select {group}, t since, lead(t) over ({order}) till,
         sum(if(acked = 1, 1 - 2 * ends, 0)) over so_far to_come, sum(if(acked = 0, 1 - 2 * ends, 0)) over so_far lost,
         sum(acked * ends) over so_far acks
  from moments window so_far as ({order} rows between unbounded preceding and current row)),
stretches as (
  select {group}, min(if(to_come > 0, since, null)) a0, max(if(to_come > 0, till, null)) a1,
         min(if(lost > 0, since, null)) f0, max(if(lost > 0, till, null)) f1
  from waits where to_come > 0 or lost > 0 group by {group}, acks),
unanswered as (
  select {group}, inline(if(f0 <= a1 and a0 <= f1,
    array(named_struct('since', least(a0, f0), 'till', greatest(a1, f1))),
    filter(array(named_struct('since', a0, 'till', a1), named_struct('since', f0, 'till', f1)),
           each -> each.since is not null)))
  from stretches)"""


# A group below OVERALL is that of a producer, or, if its number is odd, that of a transactional id. `reader` says whose
# the gap is: 0 a partition's, 1 a reader's, 2 a producer's, 3 a transactional id's.
GAPS = f"""
with {TRIES},
sends as (
  select explode(array(part, {OVERALL}, -2 - 2 * {{whose}})) grp, st, t0, t1 from standing where sent = 1{{load}}
  union all
  select -3 - 2 * first, st, t0, t1 from tries),
{unanswered("grp", "sends")},
gaps as (
  select if(grp >= {OVERALL}, 0, 2 - grp % 2) reader, if(grp >= {OVERALL}, grp, (-2 - grp) div 2) a, 0 b, since, till
  from unanswered{{readers}})
select name, a, b, array(double(longest.length), double(-longest.begin)) numbers from (
  select name, a, b, max(struct(till - since as length, -since as begin)) longest from (
    select inline(filter(flatten(array(
      array(if(reader = 0, {_gap("'gap'", "a", "0", "since")}, null)){{more}})), each -> each is not null))
    from gaps{{fresh}})
  group by name, a, b)
"""


READERS = """
  union all
  select * from (
    select 1, proc, part, lag(t) over (partition by proc, part, owned order by t) since, t till
    from (
      select proc, part, owned, explode(concat(array(begin, till), filter(progress, t -> t > begin and t < till))) t
      from (
        select proc, part, owned, min(t0) begin,
               if(min(held_till) < try_element_at({last_heard}, proc), min(held_till),
                  try_element_at({last_heard}, proc)) till,
               collect_list(if(st = 0 and (records > 0 or ended and coalesce(known > t0, true)),
                               t1, null)) progress
        from (
          select *, min(t) over (partition by part, epoch, iso
                                 order by off desc range between unbounded preceding and 1 preceding) known{always}
          from (
            select part, epoch, st, t0, t1, records, inline(array(
                     named_struct('proc', proc, 'iso', iso, 'off', position,
                                  'ended', position >= if(iso = 1, lso, hw),
                                  'polled', kind < 3 and final = 0, 't', null),
                     named_struct('proc', proc, 'iso', 0, 'off', hw, 'ended', false, 'polled', false,
                                  't', if(epoch >= 0 and hw >= 0, t1, null)),
                     named_struct('proc', proc, 'iso', 1, 'off', lso, 'ended', false, 'polled', false,
                                  't', if(epoch >= 0 and lso >= 0, t1, null))))
            from told)){held}
        where polled group by proc, part, owned)
      where begin < till))
  where since is not null"""

ALWAYS = f", 0L owned, {FOREVER}L held_till"
HELD = """
        left join values {rows} as w(of_proc, of_part, owned, since, next, held_till)
          on proc = of_proc and part = of_part and t0 >= since and t0 < next"""

_HEALED = "element_at(array('healed gap', 'reader gap', 'producer gap', 'transaction gap'), int(reader + 1))"

HEALED_GAPS = f""",
      array(if(till > {{healed}}, {_gap(_HEALED, "a", "b", "greatest(since, {healed})")}, null))"""

CALM_GAPS = """,
      transform(
        filter({between}, span -> till > span.began and since < span.ended),
        span -> named_struct(
          'name', element_at(array('calm gap', 'calm reader gap', 'producer gap', 'transaction gap'), int(reader + 1)),
          'a', int(a), 'b', int(b), 'since', greatest(since, span.began), 'till', least(till, span.ended)))"""

FRESH_GAPS = f""",
      transform(slice(filter(coalesce(fresh, array()), t -> t >= greatest(since, {{healed}}) and t < till), 1, 1),
                served -> {_gap("'fresh gap'", "a", "0", "served")})"""
FRESH = """ left join (
      select part fresh_part, array_sort(collect_list(t1)) fresh from standing
      where sent = 1 and st = 0 and {after} group by part)
      on reader = 0 and a = fresh_part"""
"""Joins the gaps of a partition with `fresh`: the times at which writes of fresh clients, which the harness started
after healing, were acknowledged in the partition, in order.
"""

FAULT_GAPS = f""",
      transform(
        filter({{faults}}, fault -> reader = 0 and a >= 0 and fault.began >= 0 and till >= fault.began
                                    and (fault.ended < 0 or since <= fault.ended)),
        fault -> {_gap("'fault gap'", "fault.id", "a", "since")})"""


def statements(
    context: MeasurementContext, processes: Sequence[ClientProcess], holds: Iterable[PartitionOwnership]
) -> tuple[str, str]:
    """Return the SQL statements (COUNTS, GAPS) for this context. Their rows are (name, a, b, numbers), the arguments of
    `taken`. `holds` says which group member owned which partition, and when.
    """
    faults = _faults(context.faults)
    wrote_after = f"producer in ({', '.join(map(str, context.afterwards))})" if context.afterwards else "false"
    load = f" and not {wrote_after}" if context.afterwards else ""
    whose = _producer_sql(context.producers)
    counts = COUNTS.format(
        load=load,
        whose=whose,
        after=wrote_after,
        origin=f"{context.origin_ns}L",
        flag=f"if({_faulty(windows(context.faults))}, {FAULTY}, {CALM})",
        transactions=TRANSACTIONS if context.transactions else "",
        recoveries=RECOVERIES.format(faults=faults) if faults else "",
    )
    readers = more = fresh = ""
    if context.healed_ns >= 0:
        healed = f"{context.healed_ns}L"
        more = HEALED_GAPS.format(healed=healed)
        if context.afterwards:
            more, fresh = more + FRESH_GAPS.format(healed=healed), FRESH.format(after=wrote_after)
    if reading := [process for process in processes if process.keeps_reading]:
        last_heard = ", ".join(f"{process.proc}, {process.last_t}L" for process in reading)
        readers = READERS.format(last_heard=f"map({last_heard})", **_owned(holds))
    if between := context.between:
        more += CALM_GAPS.format(between=_spans(between))
    if faults:
        more += FAULT_GAPS.format(faults=faults)
    return counts, GAPS.format(load=load, whose=whose, readers=readers, more=more, fresh=fresh)


def _producer_sql(producers: Mapping[int, int]) -> str:
    """Return an SQL expression that maps the process of a send (column `producer`) to the first process of the same
    producer: a producer that starts again is a new process in the history. `producers` maps later processes to first
    ones.
    """
    pairs = ", ".join(f"{proc}L, {first}L" for proc, first in producers.items())
    return f"int(coalesce(try_element_at(map({pairs}), producer), producer))" if pairs else "int(producer)"


_COUNTED: Mapping[str, Callable[[Sequence[float]], Sequence[float]]] = {
    metrics.ACKED: lambda row: row[:1],
    metrics.UNPLACED: lambda row: (row[0], row[2]),
    metrics.LATENCY: lambda row: (row[0], *row[3:]),
    metrics.STALE: lambda row: (row[0], *row[3:]),
    metrics.LAG: lambda row: (row[0], *row[3:]),
    metrics.TRANSACTIONS: lambda row: row[:1],
    metrics.COMMIT_LATENCY: lambda row: (row[0], *row[3:]),
    metrics.PRODUCER_SENDS: lambda row: row[:1],
    metrics.TRIED: lambda row: row[:1],
    metrics.UNCOMMITTED: lambda row: row[:2],
    metrics.UNCOMMITTED_OFFSETS: lambda row: row[1:2],
    metrics.SECOND: lambda row: (row[0], row[3], row[4], row[-1]),
    metrics.SENDS: lambda row: row[:1],
    metrics.READS: lambda row: row[1:2],
    metrics.OUTCOMES: lambda row: row[:1],
    metrics.FINAL_READ: lambda row: row[1:2],
    metrics.RECOVERY: lambda row: (-1.0 if row[2] is None else row[2],),
}
"""Maps each measure to the numbers that it takes from a row of COUNTS: count, sum, minimum, percentiles, maximum."""


def taken(name: str, a: int, b: int, numbers: Sequence[float]) -> MeasurementRow:
    """Convert a result row of the query COUNTS or GAPS to a `MeasurementRow`. Numbers that the measure does not use are
    left out.
    """
    choose = _COUNTED.get(name)
    return MeasurementRow(name, a, b, tuple(choose(numbers) if choose else numbers))


def _owned(holds: Iterable[PartitionOwnership]) -> dict[str, str]:
    """Return the SQL for the placeholders {held} and {always} of READERS, by name. It gives each poll the time in which
    its group member owned the partition; without group members, readers own their partitions all the time.
    """
    rows = [
        # The first ownership takes the polls before it as well, as in `squall.checkers.measures`.
        f"({proc}, {part}, {since}L, {since if at else 0}L, {following}L, {till}L)"
        for (proc, part), waits in waiting_for(holds).items()
        for at, ((since, till), (following, _)) in enumerate(pairwise([*waits, (FOREVER, FOREVER)]))
    ]
    return {"held": HELD.format(rows=", ".join(rows)) if rows else "", "always": "" if rows else ALWAYS}


def _faults(faults: Sequence[RecordedFault]) -> str:
    """Return the faults as an SQL array; empty if there are none."""
    rows = [
        f"struct({fault.id} as id, {fault.began}L as began, {fault.ended}L as ended, "
        f"{fault.whole_since}L as whole_since)"
        for fault in faults
    ]
    return f"array({', '.join(rows)})" if rows else ""


def _faulty(faulty: Sequence[tuple[int, int]]) -> str:
    """Return the SQL condition that a send overlaps a time at which a fault was on."""
    return f"exists({_spans(faulty)}, span -> t0 <= span.ended and t1 >= span.began)" if faulty else "false"


def _spans(windows: Sequence[tuple[int, int]]) -> str:
    """Return these (begin, end) times, in ns, as an SQL array."""
    spans = ", ".join(f"struct({began}L as began, {min(ended, FOREVER)}L as ended)" for began, ended in windows)
    return f"array({spans})"
