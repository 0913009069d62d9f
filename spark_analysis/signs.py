"""Sets the signs of witnesses with SQL: what was seen in the run that may explain each witness, for example a later
leader epoch or a power loss. `squall.checkers.signs.RunCircumstances.signs` defines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from squall.checkers.leaderships import ANYWHERE, EVER, LeaderTerm
from squall.checkers.mechanisms import MechanismSign
from squall.checkers.signs import (
    AFTER_NS,
    BEFORE_NS,
    OTHER_OFFSET,
    OTHER_RECORD,
    PowerLossRange,
    RunCircumstances,
    TimeWindow,
)
from squall.spark_analysis.query import FOUND

_PLACE = f"if(w.off >= 0, w.off, {ANYWHERE}L)"
_DONE = f"if(s.t1 >= 0, s.t1, {EVER}L)"
_BEGUN = "coalesce(s.t0, -1L)"
_BY_LEADER = "x.part = {0}.part and x.start <= {1} and x.since <= {2} and {3} <= x.until"
"""Is an SQL condition: the leader of the `LeaderTerm` `x` may have acknowledged a record. The record is at or above the
first offset of the term's epoch, and the term overlaps the time from the record's send to its acknowledgement. The
placeholders are the alias of the table with the record's `part`, the record's offset, the time of its acknowledgement,
and the time of its send.
"""
_OTHER_DONE = f"if(o.st = 0, o.t1, {EVER}L)"

_FAILED = f"""
select part, producer, collect_list(named_struct('since', since, 'until', until)) windows from (
  select part, producer, min(since) since, max(until) until from (
    select *, count_if(since > coalesce(max_before, -1L)) over (partition by part, producer order by since) nth from (
      select *, max(until) over (partition by part, producer order by since
                                 rows between unbounded preceding and 1 preceding) max_before from (
        select part, producer, t0 - {BEFORE_NS}L since, if(t1 >= 0, t1 + {AFTER_NS}L, {EVER}L) until
        from standing where sent = 1 and st <> 0)))
  group by part, producer, nth)
group by part, producer
"""
"""Selects one row for each partition and producer, with the time windows around sends that failed or were not answered.
A window begins BEFORE_NS before the send, and ends AFTER_NS after the send's end (at EVER if that end is not known).
Overlapping windows are merged, because a producer may have many failed sends.
"""


def views(circumstances: RunCircumstances) -> tuple[str, ...]:
    """Return the names of the views from which the signs of witnesses are computed. A sign is something that happened
    in the run and may explain the witness.
    """
    return ("standing", "interrupted") if circumstances.outputs else ("standing",)


def signed(found: str, circumstances: RunCircumstances) -> str:
    """Return a statement that selects the witnesses of the table `found` with all columns of `Witness`. It adds the
    column `signs`: the bits of `MechanismSign` say what happened in the run that may explain the witness.
    """
    columns = ", ".join(f"w.{name}" for name in FOUND)
    failed = f"coalesce(exists(f.windows, x -> x.since <= {_DONE} and {_BEGUN} <= x.until), false)"
    disturbed = f"({failed} or {_meets(circumstances.disturbed)})"
    tampered = _meets(circumstances.tampered)
    led = [each for each in circumstances.leaderships.rows if each.cut < EVER]
    of_outputs = "left join interrupted i on i.anomaly = w.anomaly and i.proc = w.proc and i.val = w.val"
    return f"""
select {columns}, bigint({int(circumstances.everywhere)}
  + if(w.off < 0 and coalesce(s.t1, -1L) >= 0, {_without_offset(led)},
       {MechanismSign.LATER_EPOCH:d} * int({_later_epoch(led, _DONE, _BEGUN)} or coalesce(c.cut <= w.off, false)
                                           or coalesce({_later_epoch(led, _OTHER_DONE, "o.t0")}, false)))
  + {MechanismSign.LED_ANEW:d} * int({_led_anew(circumstances)})
  + {MechanismSign.SEVERAL_LED:d} * int({_meets(circumstances.contested)})
  + {MechanismSign.DISTURBED:d} * int({disturbed})
  + {MechanismSign.RESENT:d} * int(if(coalesce(s.tries, -1L) < 0, {disturbed}, s.tries > 1) or {tampered})
  + {MechanismSign.POWER_LOST:d} * int({_lost(circumstances.power_lost)})
  + {MechanismSign.SYNC_FAILED:d} * int({_lost(each for each in circumstances.power_lost if each.sync_failed)})
  + {MechanismSign.DAMAGED:d} * int({_damaged(circumstances)})
  + {MechanismSign.INTERRUPTED:d} * int({"i.val is not null" if circumstances.outputs else "false"})) signs
from {found} w
left join (select part, val, t0, t1, tries from standing where sent = 1) s on s.part = w.part and s.val = w.val
left join (select part, val, st, t0, t1 from standing where sent = 1) o
  on w.anomaly = '{OTHER_RECORD}' and o.part = w.part and o.val = w.other
left join ({_FAILED}) f on f.part = w.part and f.producer = shiftright(w.val, 40)
left join ({_cuts(led)}) c on c.part = w.part and w.anomaly = '{OTHER_OFFSET}' and c.off = w.other
{of_outputs if circumstances.outputs else ""}
"""


def bounds(led: Sequence[LeaderTerm]) -> str:
    """Return an SQL statement that computes two times of each leader term, `kept_until` and `cut_since`. They serve to
    judge whether a record that the leader acknowledged without an offset was below `cut`, the lowest start offset of a
    later epoch.

    Both times come from records that the leader may have acknowledged with an offset. `kept_until` is the latest send
    time of such a record below `cut` that no earlier leader can have acknowledged. `cut_since` is the earliest
    acknowledgement time of such a record at or above `cut`.

    The rows are (nth, kept_until, cut_since); `nth` is the term's index in `led`. A term without such records has no
    row.
    """
    return f"""
select nth, coalesce(max(if(acked_at < x.cut and t0 > x.alone, t0, null)), -1L) kept_until,
       coalesce(min(if(acked_at >= x.cut, t1, null)), {EVER}L) cut_since
from (select posexplode({_led(led, "part", "start", "since", "until", "cut", "alone")}) as (nth, x)) join standing s
  on {_BY_LEADER.format("s", "acked_at", "t1", "t0")}
where sent = 1 and st = 0 and acked_at >= 0 group by nth
"""


def _cuts(led: Sequence[LeaderTerm]) -> str:
    """Return an SQL statement with the rows (part, off, cut). Each is an acknowledged offset whose record a later
    leader may have truncated; `cut` is the lowest offset at which such a leader's epoch starts.
    """
    taken_back = f"{_BY_LEADER.format('s', 'acked_at', 't1', 't0')} and x.cut <= acked_at"
    rows = _led(led, "part", "start", "since", "until", "cut")
    cut = f"array_min(transform(filter({rows}, x -> {taken_back}), x -> x.cut))" if led else "null"
    return f"""
select part, acked_at off, min(cut) cut
from (select part, acked_at, {cut} cut from standing s where sent = 1 and st = 0 and acked_at >= 0)
where cut is not null group by part, acked_at"""


def _later_epoch(led: Sequence[LeaderTerm], done: str, begun: str) -> str:
    names = ("part", "start", "since", "until", "cut")
    taken_back = f"{_BY_LEADER.format('w', _PLACE, done, begun)} and x.cut <= {_PLACE}"
    return _exists(names, map(attrgetter(*names), led), taken_back)


def _without_offset(led: Sequence[LeaderTerm]) -> str:
    """Return an SQL expression that says whether a later leader truncated a record which was acknowledged without an
    offset: LATER_EPOCH if so, 0 if not, UNPLACED if that is not known. `Leaderships.explain_without_offset` defines the
    rules.
    """
    if not led:
        return "0"
    # `array_min` below takes the lower sign: one leader that explains the loss for certain outweighs an open one.
    assert MechanismSign.LATER_EPOCH < MechanismSign.UNPLACED
    rows = _led(led, "part", "start", "since", "until", "kept_until", "cut_since")
    perhaps = f"{_BY_LEADER.format('w', f'{ANYWHERE}L', 's.t1', 's.t0')} and x.kept_until <= s.t1"
    sign = f"if(x.cut_since < s.t0, {MechanismSign.LATER_EPOCH:d}, {MechanismSign.UNPLACED:d})"
    return f"coalesce(array_min(transform(filter({rows}, x -> {perhaps}), x -> {sign})), 0)"


def _led(led: Sequence[LeaderTerm], *names: str) -> str:
    return _array(names, map(attrgetter(*names), led))


def _led_anew(circumstances: RunCircumstances) -> str:
    parts = sorted(
        {each.part for each in circumstances.leaderships.rows if circumstances.leaderships.changed(each.part)}
    )
    return f"w.part in ({', '.join(map(str, parts))})" if parts else "false"


def _meets(windows: Iterable[TimeWindow]) -> str:
    when = f"x.part in (w.part, -1) and x.since <= {_DONE} and {_BEGUN} <= x.until"
    return _exists(("part", "since", "until"), ((each.part, each.since, each.until) for each in windows), when)


def _lost(ranges: Iterable[PowerLossRange]) -> str:
    when = f"x.part = w.part and x.at >= {_BEGUN} and (w.off < 0 or x.low <= w.off and w.off < x.high)"
    return _exists(("part", "low", "high", "at"), (each[:4] for each in ranges), when)


def _damaged(circumstances: RunCircumstances) -> str:
    return _exists(("part", "at"), circumstances.damaged, f"x.part in (w.part, -1) and x.at >= {_BEGUN}")


def _exists(names: Sequence[str], rows: Iterable[Sequence[int]], when: str) -> str:
    found = list(rows)
    return f"exists({_array(names, found)}, x -> {when})" if found else "false"


def _array(names: Sequence[str], rows: Iterable[Sequence[int]]) -> str:
    structs = []
    for row in rows:
        fields = ", ".join(f"'{name}', {value}L" for name, value in zip(names, row, strict=True))
        structs.append(f"named_struct({fields})")
    return f"array({', '.join(structs)})"
