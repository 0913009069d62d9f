"""Measures consumer groups: rebalances, time without an owner, and how evenly partitions were shared.

These measures are never findings: a group that moves partitions keeps its promises, but costs its readers time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from squall.checkers.history.group_tables import (
    CRASHED,
    HELD,
    LEFT,
    LOST,
    REVOKED,
    GenerationAssignment,
    PartitionOwnership,
)
from squall.checkers.history.tables import History, RecordedFault
from squall.checkers.rebalance_causes import FOREVER, MEMBERS, GenerationCauses, static_returns

Span = tuple[int, int]
"""Is (begin, end) of a span of time, in ns."""


def measure_groups(history: History, faults: Sequence[RecordedFault]) -> dict[str, Any]:
    """Return the measures of each group by its name, as plain JSON; empty if no process was a member of a group.

    - `generations`: how often its partitions were assigned.
    - `rebalances`: how many assignments after the first had each cause: members of the load that came or went
      (`members` is true), a fault (`fault` is its id), or neither (`fault` is null).
    - `static`: how often static members returned, and how often that made the group rebalance (`static_returns`), for
      example {"returns": 5, "rebalanced": 1, "unclear": 1}.
    - `unowned`: time in which a partition had no owner between two owners: the longest time, its partition and its
      begin, and the sum over all partitions.
    - `members`: what each process of the group owned from when to when, and why that ended. `believed` has what a
      process only believed to own, because its session was over, or another member had been assigned the partition.
    - `began`: when the first member heard of each generation.
    - `unfair`: over generations with several members, the largest difference between the shares of two members, and
      how many generations had a difference above 1, which no assignor needs.
    """
    groups = sorted({row.group for table in (history.holds, history.grants) for row in table.rows()})
    names = {partition.part: partition.name for partition in history.partitions}
    processes = {each.proc: each for each in history.processes}
    found = {}
    for group in groups:
        grants = [grant for grant in history.grants.rows() if grant.group == group]
        holds = [hold for hold in history.holds.rows() if hold.group == group]
        stills = [still for still in history.stills.rows() if still.group == group]
        generations = GenerationCauses(grants, holds, stills, processes, faults)
        began = generations.began
        found[history.names[group]] = {
            "generations": len(began),
            "rebalances": list(_rebalances(generations, faults)),
            "static": static_returns(generations),
            "unowned": _unowned(holds, names, history.mono_ns),
            "unfair": _unfair(grants),
            "began": [{"generation": gen, "from_s": _seconds(t, history.mono_ns)} for gen, t in began.items()],
            "members": list(_members(holds, names, history.mono_ns, generations.session_ns)),
        }
    return found


def _rebalances(generations: GenerationCauses, faults: Sequence[RecordedFault]) -> Iterator[dict[str, Any]]:
    """Yield the number of rebalances by cause. The first assignment is left out, because nothing was assigned before.
    """
    causes = Counter(generations.causes().values())
    yield {"fault": None, "members": True, "count": causes[MEMBERS]}
    yield {"fault": None, "count": causes[None]}
    for fault in sorted((fault for fault in faults if fault.began >= 0), key=lambda fault: fault.began):
        yield {"fault": fault.id, "action": fault.action, "count": causes[fault.id]}


HOW = {HELD: "", REVOKED: "revoked", LOST: "lost", CRASHED: "crashed", LEFT: "left"}
"""Maps each `PartitionOwnership.how` to a word; empty if the member owned the partition to the end."""


def _seconds(t: int, origin_ns: int) -> float:
    return round((t - origin_ns) / 1e9, 3)


def _members(
    holds: Sequence[PartitionOwnership], names: Mapping[int, str], origin_ns: int, session_ns: Callable[[int], int]
) -> Iterator[dict[str, Any]]:
    """Yield, for each process, the partitions that it owned and when (`held`), and those that it only believed to own
    (`believed`). The process that owned a partition first comes first. Times are in seconds since `origin_ns`.
    `session_ns` returns a process's session time-out.
    """
    end = max((max(hold.t0, hold.t1, hold.proved) for hold in holds), default=0)
    of_proc: dict[int, list[PartitionOwnership]] = {}
    for hold in sorted(holds, key=lambda hold: (hold.t0, hold.proc)):
        of_proc.setdefault(hold.proc, []).append(hold)
    for proc, own in of_proc.items():
        reported = {hold: end if hold.t1 < 0 else hold.t1 for hold in own}
        owned = {hold: min(t, _over(hold, holds, session_ns(proc))) for hold, t in reported.items()}
        yield {
            "process": proc,
            "held": list(_held(own, names, origin_ns, owned)),
            "believed": [
                {
                    "from_s": _seconds(owned[hold], origin_ns),
                    "to_s": _seconds(reported[hold], origin_ns),
                    "partition": names.get(hold.part, str(hold.part)),
                }
                for hold in own
                if owned[hold] < reported[hold]
            ],
        }


def _over(hold: PartitionOwnership, holds: Iterable[PartitionOwnership], session_ns: int) -> int:
    """Return when an ownership had ended for the coordinator at the latest, in ns; the member may have learned of it
    only later. It had ended when another member was assigned the partition. If the member lost it, it had also ended
    once its session time-out had passed since its last proof of ownership (`proved`). FOREVER if neither is known.
    """
    next_one = [each.t0 for each in holds if each.part == hold.part and each.proc != hold.proc and each.t0 > hold.t0]
    over = hold.proved + session_ns if hold.how == LOST and hold.proved >= 0 and session_ns else FOREVER
    return max(hold.t0, min([*next_one, over]))


def _held(
    own: Sequence[PartitionOwnership], names: Mapping[int, str], origin_ns: int, until: Mapping[PartitionOwnership, int]
) -> Iterator[dict[str, Any]]:
    """Yield the stretches of time in which a process owned the same partitions. `until` maps each ownership to its end.
    """
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


def gaps_of(holds: Iterable[PartitionOwnership]) -> list[Span]:
    """Return the times in which a partition had no owner between two owners."""
    found: list[Span] = []
    until: int | None = None
    for hold in sorted(holds, key=lambda hold: hold.t0):
        if until is not None and hold.t0 > until:
            found.append((until, hold.t0))
        # Owned to the end of the history.
        if hold.t1 < 0:
            break
        until = hold.t1 if until is None else max(until, hold.t1)
    return found


def _unowned(holds: Iterable[PartitionOwnership], names: Mapping[int, str], origin_ns: int) -> dict[str, Any] | None:
    """Return the longest time in which a partition had no owner between two owners, that partition, and the sum of such
    times over all partitions; None if there were none. Times are in seconds, begins since `origin_ns`.
    """
    of_part: dict[int, list[PartitionOwnership]] = {}
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


def _unfair(grants: Iterable[GenerationAssignment]) -> dict[str, int]:
    shares: dict[int, dict[int, int]] = {}
    for grant in grants:
        shares.setdefault(grant.gen, {})[grant.proc] = grant.parts
    apart = [max(own.values()) - min(own.values()) for own in shares.values() if len(own) > 1]
    return {"most": max(apart, default=0), "generations": sum(each > 1 for each in apart)}
