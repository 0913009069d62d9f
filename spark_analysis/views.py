"""What the queries read: the tables of the history, and views that several queries share.

A query names its views; only those that are named are made, each after what it reads itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from checkers.history.tables import Partition


@dataclass(frozen=True, slots=True)
class View:
    """One view. `sql`: of the partitions as the converter left them."""

    sql: str | Callable[[Sequence[Partition]], str]
    reads: tuple[str, ...] = ()
    """Tables of the history (the names of their Parquet files) and other views."""
    kept: bool = False
    """Several statements read it: it is computed once, and kept."""
    by: str = ""
    """The column whose rows come together; empty where that does not matter."""


PLACES = """
select part, off, val,
       max(if(kind = 0, 1, 0)) sent, max(if(kind = 0, st, null)) st, max(if(kind = 0, op, null)) send_op,
       max(if(kind = 0, t0, null)) t0, max(if(kind = 0, t1, null)) t1, max(key) key,
       max(if(kind = 1, 1, 0)) is_read, max(if(final > 0, 1, 0)) is_final,
       min(if(kind = 1, op, null)) read_op, min(if(kind = 1, t1, null)) read_t1
from records where kind < 2 group by part, off, val
"""
"""One row for each value at each offset, sends without an offset at -1. What all reads of one record have in common is
folded here, by the only aggregation that sees every record."""

STANDING = """
select part, val, shiftright(val, 40) producer, max(sent) sent, max(st) st, coalesce(max(send_op), min(read_op)) op,
       max(t0) t0, max(t1) t1, max(key) key, max(if(sent = 1, off, -1)) acked_at, min(read_t1) first_read,
       min(if(is_read = 1, off, null)) read_min, max(if(is_read = 1, off, null)) read_max,
       min(if(is_final = 1, off, null)) final_min, max(if(is_final = 1, off, null)) final_max,
       max(if(sent = 1 and off >= 0, is_read, 0)) acked_read, max(if(sent = 1 and off >= 0, is_final, 0)) acked_final
from places where val >= 0 group by part, val
"""
"""One row for each value: was it sent, was it acknowledged and where, and where does it stand."""

JUDGED = """
select s.*, seen, if(acked_at >= 0, acked_at, coalesce(read_max, -1L)) placed_at, cover_from, cover_to, cover_t0,
       judged_from
from standing s join partitions using (part)
"""
"""`standing`, with which part of its partition the final reads allow to judge. `placed_at`: where it stood, by its
acknowledgement, else by the highest read; -1 where nobody knows."""


def partitions(rows: Sequence[Partition]) -> str:
    """The partitions, in the statement itself: reading a file of a few rows costs as much as reading a large one."""
    facts = (
        f"({each.part}, {str(each.compacted).lower()}, {str(each.deletable).lower()}, {each.judged_from}L, "
        f"{each.seen}L, {each.cover_from}L, {each.cover_to}L, {each.cover_t0}L)"
        for each in rows
    )
    columns = "part, compacted, deletable, judged_from, seen, cover_from, cover_to, cover_t0"
    nothing = "(-1, false, false, 0L, 0L, 0L, 0L, 0L)"
    return f"select * from values {', '.join(facts) or nothing} as t({columns})"


VIEWS: dict[str, View] = {
    "partitions": View(partitions),
    # All that follows groups or sorts by partition: one exchange serves it all.
    "places": View(PLACES, ("records",), kept=True, by="part"),
    "standing": View(STANDING, ("places",), kept=True),
    "judged": View(JUDGED, ("standing", "partitions")),
}


def in_order(names: Iterable[str]) -> Iterator[str]:
    """These tables and views and all that they read, each after what it reads itself."""
    made: dict[str, None] = {}

    def make(name: str) -> None:
        if name not in made:
            for each in VIEWS[name].reads if name in VIEWS else ():
                make(each)
            made[name] = None

    for name in sorted(names):
        make(name)
    return iter(made)
