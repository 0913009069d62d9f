"""What happened in consumer groups, as figures: rebalances, time without an owner, how evenly partitions were shared.

Never a finding: a group that moves partitions keeps its promises, and costs its readers time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from checkers.history.group_tables import CRASHED, HELD, LEFT, LOST, REVOKED, Grant, Hold
from checkers.history.tables import History, PlayedFault

Span = tuple[int, int]
"""(begin, end), ns."""


def measure_groups(history: History, faults: Sequence[PlayedFault]) -> dict[str, Any]:
    """By the group's name, as plain JSON; empty where nobody was a member of a group.

    - `generations`: how often its partitions were assigned anew; `rebalances`: by the faults during which, or after
      which and before the next one, that began (`fault` null: before the first).
    - `unowned`: time in which a partition that had an owner had none until its next one: the longest time, in which
      partition and from when, and the sum over all partitions.
    - `members`: what each process of the group held from when to when, and why it held it no longer.
    - `began`: when the first member heard of each generation.
    - `unfair`: over generations with several members, the largest difference between what two of them got; and how
      many generations had one above 1, which no assignor needs.
    """
    groups = sorted({row.group for table in (history.holds, history.grants) for row in table.rows()})
    names = {partition.part: partition.name for partition in history.partitions}
    found = {}
    for group in groups:
        grants = [grant for grant in history.grants.rows() if grant.group == group]
        holds = [hold for hold in history.holds.rows() if hold.group == group]
        began = began_by_generation(grants)
        found[history.names[group]] = {
            "generations": len(began),
            "rebalances": list(_by_fault(sorted(began.values()), faults)),
            "unowned": _unowned(holds, names, history.mono_ns),
            "unfair": _unfair(grants),
            "began": [{"generation": gen, "from_s": _seconds(t, history.mono_ns)} for gen, t in began.items()],
            "members": list(_members(holds, names, history.mono_ns)),
        }
    return found


def began_by_generation(grants: Iterable[Grant]) -> dict[int, int]:
    """Generation -> when its first member heard of it."""
    found: dict[int, int] = {}
    for grant in grants:
        found[grant.gen] = min(grant.t, found.get(grant.gen, grant.t))
    return found


def _by_fault(times: Sequence[int], faults: Iterable[PlayedFault]) -> Iterator[dict[str, Any]]:
    """Each rebalance belongs to the fault that began last before it."""
    begun = sorted((fault for fault in faults if fault.began >= 0), key=lambda fault: fault.began)
    edges = [(-1, None), *((fault.began, fault) for fault in begun)]
    for number, (begin, fault) in enumerate(edges):
        end = edges[number + 1][0] if number + 1 < len(edges) else None
        count = sum(begin <= t and (end is None or t < end) for t in times)
        if fault is None:
            yield {"fault": None, "count": count}
        else:
            yield {"fault": fault.id, "action": fault.action, "count": count}


HOW = {HELD: "", REVOKED: "revoked", LOST: "lost", CRASHED: "crashed", LEFT: "left"}
"""Hold.how in a word; empty: it held it to the end."""


def _seconds(t: int, origin_ns: int) -> float:
    return round((t - origin_ns) / 1e9, 3)


def _members(holds: Sequence[Hold], names: Mapping[int, str], origin_ns: int) -> Iterator[dict[str, Any]]:
    """Each process, the one that held something first before the others."""
    end = max((max(hold.t0, hold.t1, hold.proved) for hold in holds), default=0)
    of_proc: dict[int, list[Hold]] = {}
    for hold in sorted(holds, key=lambda hold: (hold.t0, hold.proc)):
        of_proc.setdefault(hold.proc, []).append(hold)
    for proc, own in of_proc.items():
        yield {"process": proc, "held": list(_held(own, names, origin_ns, end))}


def _held(own: Sequence[Hold], names: Mapping[int, str], origin_ns: int, end: int) -> Iterator[dict[str, Any]]:
    """Stretches in which a process held the same partitions."""
    until = {hold: end if hold.t1 < 0 else hold.t1 for hold in own}
    edges = sorted({hold.t0 for hold in own} | set(until.values()))
    for begin, stop in pairwise(edges):
        held = [hold for hold in own if hold.t0 <= begin and stop <= until[hold]]
        if held:
            yield {
                "from_s": _seconds(begin, origin_ns),
                "to_s": _seconds(stop, origin_ns),
                "partitions": sorted({names.get(hold.part, str(hold.part)) for hold in held}),
                "ended": ", ".join(sorted({HOW[hold.how] for hold in held if until[hold] == stop} - {""})),
            }


def gaps_of(holds: Iterable[Hold]) -> list[Span]:
    """Times in which a partition had no owner, between two of them."""
    found: list[Span] = []
    until: int | None = None
    for hold in sorted(holds, key=lambda hold: hold.t0):
        if until is not None and hold.t0 > until:
            found.append((until, hold.t0))
        if hold.t1 < 0:
            break
        until = hold.t1 if until is None else max(until, hold.t1)
    return found


def _unowned(holds: Iterable[Hold], names: Mapping[int, str], origin_ns: int) -> dict[str, Any] | None:
    """None where no partition ever changed its owner."""
    of_part: dict[int, list[Hold]] = {}
    for hold in holds:
        of_part.setdefault(hold.part, []).append(hold)
    gaps = [(end - begin, -begin, part) for part, own in of_part.items() for begin, end in gaps_of(own)]
    if not gaps:
        return None
    longest, negative_begin, part = max(gaps)
    return {
        "longest_s": round(longest / 1e9, 3),
        "partition": names.get(part, str(part)),
        "from_s": round((-negative_begin - origin_ns) / 1e9, 3),
        "total_s": round(sum(gap[0] for gap in gaps) / 1e9, 3),
    }


def _unfair(grants: Iterable[Grant]) -> dict[str, int]:
    shares: dict[int, dict[int, int]] = {}
    for grant in grants:
        shares.setdefault(grant.gen, {})[grant.proc] = grant.parts
    apart = [max(own.values()) - min(own.values()) for own in shares.values() if len(own) > 1]
    return {"most": max(apart, default=0), "generations": sum(each > 1 for each in apart)}
