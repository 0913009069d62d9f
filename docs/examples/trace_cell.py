"""The figures of a cell of the durability table, counted from the histories of its runs and from nothing else.

    python docs/examples/trace_cell.py RUN RUN ...

Of workloads without transactions, on topics that are not compacted. docs/durability.md says how to find the runs.
"""

import json
import sys
from pathlib import Path


def counted(run: Path) -> dict[str, float]:
    """What one run adds: acknowledged, lost and duplicated records, and the longest unavailability in ms."""
    asked: dict[int, dict] = {}
    acknowledged: dict[tuple[int, int], int] = {}
    survivors: set[tuple[int, int]] = set()
    offsets: dict[tuple[int, int], set[int]] = {}
    moments: dict[int, list[tuple[int, bool, bool]]] = {}
    after_healing: set[int] = set()
    for text in (run / "history.jsonl").open():
        line = json.loads(text)
        if line["e"] == "p" and "after_healing" in line.get("settings", {}):
            after_healing.add(line["p"])
        elif line["e"] == "i":
            asked[line["op"]] = line
        elif line["e"] == "c":
            invoked = asked.pop(line["op"])
            if invoked["f"] == "send" and line["st"] == 0:
                acknowledged[invoked["part"], invoked["v"]] = line["t"]
            if invoked["f"] == "send":
                note(moments, after_healing, invoked, line["t"], line["st"] == 0)
            for part, _, _, _, _, pairs, *_ in line.get("got", ()):
                for offset, value in pairs:
                    offsets.setdefault((part, value), set()).add(offset)
                    if invoked["f"] == "final_read":
                        survivors.add((part, value))
    for invoked in asked.values():  # nobody knows how long a client waited that was never answered
        if invoked["f"] == "send":
            note(moments, after_healing, invoked, invoked["t"], False)
    return {
        "acknowledged": len(acknowledged),
        "lost": sum(key not in survivors for key in acknowledged),
        "duplicated": sum(len(stood) > 1 for stood in offsets.values()),
        "unavailable_ms": max((longest_ms(each) for each in moments.values()), default=0.0),
    }


def note(moments: dict[int, list], after_healing: set[int], invoked: dict, until: int, acked: bool) -> None:
    """A write of the load waits from its invocation until its completion."""
    if invoked["p"] not in after_healing:
        moments.setdefault(invoked["part"], []).extend([(invoked["t"], False, acked), (until, True, acked)])


def longest_ms(moments: list[tuple[int, bool, bool]]) -> float:
    """The longest time in which writes of a partition waited and none was acknowledged. Between writes that failed it
    goes on; between the last that failed and the next that is acknowledged it does not, unless they overlap.
    """
    waiting, since, until, longest = {True: 0, False: 0}, {}, {}, 0
    moments = sorted(moments)
    for (t, completes, acked), (following, _, _) in zip(moments, [*moments[1:], (0, False, False)], strict=True):
        waiting[acked] += -1 if completes else 1
        if completes:
            spans = sorted((since[each], until[each]) for each in since)
            if len(spans) == 2 and spans[1][0] <= spans[0][1]:
                spans = [(spans[0][0], max(spans[0][1], spans[1][1]))]
            longest = max([longest, *(b - a for a, b in spans)])
            if acked:
                since, until = {}, {}
        for each in (True, False):
            if waiting[each]:
                since.setdefault(each, t)
                until[each] = following
    return longest / 1e6


def main(runs: list[str]) -> None:
    """Each run, and the cell: sums, and the worst unavailability."""
    rows = {Path(run).name: counted(Path(run)) for run in runs}
    cell = {name: sum(row[name] for row in rows.values()) for name in ("acknowledged", "lost", "duplicated")}
    rows["the cell"] = {**cell, "unavailable_ms": max((row["unavailable_ms"] for row in rows.values()), default=0.0)}
    for name, row in rows.items():
        print(", ".join(f"{what} {value:,.0f}" for what, value in row.items()), f" {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
