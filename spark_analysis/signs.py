"""The signs of witnesses in SQL: what `checkers.signs.Ground.signs` says of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from checkers.leaderships import ANYWHERE, EVER
from checkers.mechanisms import Sign
from checkers.signs import AFTER_NS, BEFORE_NS, Ground, LostRange, Window
from spark_analysis.query import FOUND

VIEWS = ("standing",)
"""What the statement reads beside the witnesses."""

_PLACE = f"if(w.off >= 0, w.off, {ANYWHERE}L)"
_DONE = f"if(s.t1 >= 0, s.t1, {EVER}L)"
_BEGUN = "coalesce(s.t0, -1L)"

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
"""When sends of a producer to a partition failed, or had no answer; what meets is one, for they may be many."""


def signed(found: str, ground: Ground) -> str:
    """A statement for the witnesses of the table `found`, with their signs: the columns of `Witness`."""
    columns = ", ".join(f"w.{name}" for name in FOUND)
    failed = f"coalesce(exists(f.windows, x -> x.since <= {_DONE} and {_BEGUN} <= x.until), false)"
    disturbed = f"({failed} or {_meets(ground.disturbed)})"
    return f"""
select {columns}, bigint({int(ground.everywhere)}
  + {Sign.LATER_EPOCH:d} * int({_later_epoch(ground)})
  + {Sign.LED_ANEW:d} * int({_led_anew(ground)})
  + {Sign.SEVERAL_LED:d} * int({_meets(ground.contested)})
  + {Sign.DISTURBED:d} * int({disturbed})
  + {Sign.RESENT:d} * int(if(coalesce(s.tries, -1L) < 0, {disturbed}, s.tries > 1) or {_meets(ground.tampered)})
  + {Sign.POWER_LOST:d} * int({_lost(ground.power_lost)})
  + {Sign.SYNC_FAILED:d} * int({_lost(each for each in ground.power_lost if each.sync_failed)})
  + {Sign.DAMAGED:d} * int({_damaged(ground)})) signs
from {found} w
left join (select part, val, t0, t1, tries from standing where sent = 1) s on s.part = w.part and s.val = w.val
left join ({_FAILED}) f on f.part = w.part and f.producer = shiftright(w.val, 40)
"""


def _later_epoch(ground: Ground) -> str:
    rows = ((each.part, each.start, each.since, each.until, each.cut) for each in ground.leaderships.rows)
    return _exists(
        ("part", "start", "since", "until", "cut"),
        rows,
        f"x.part = w.part and x.cut <= {_PLACE} and x.start <= {_PLACE} and x.since <= {_DONE} and {_BEGUN} <= x.until",
    )


def _led_anew(ground: Ground) -> str:
    parts = sorted({each.part for each in ground.leaderships.rows if ground.leaderships.changed(each.part)})
    return f"w.part in ({', '.join(map(str, parts))})" if parts else "false"


def _meets(windows: Iterable[Window]) -> str:
    when = f"x.part in (w.part, -1) and x.since <= {_DONE} and {_BEGUN} <= x.until"
    return _exists(("part", "since", "until"), ((each.part, each.since, each.until) for each in windows), when)


def _lost(ranges: Iterable[LostRange]) -> str:
    when = f"x.part = w.part and x.at >= {_BEGUN} and (w.off < 0 or x.low <= w.off and w.off < x.high)"
    return _exists(("part", "low", "high", "at"), (each[:4] for each in ranges), when)


def _damaged(ground: Ground) -> str:
    return _exists(("part", "at"), ground.damaged, f"x.part in (w.part, -1) and x.at >= {_BEGUN}")


def _exists(names: Sequence[str], rows: Iterable[Sequence[int]], when: str) -> str:
    structs = []
    for row in rows:
        fields = ", ".join(f"'{name}', {value}L" for name, value in zip(names, row, strict=True))
        structs.append(f"named_struct({fields})")
    return f"exists(array({', '.join(structs)}), x -> {when})" if structs else "false"
