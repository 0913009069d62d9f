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
    points: dict[int, list[int]] = {}
    after_healing: set[int] = set()
    for text in (run / "history.jsonl").open():
        line = json.loads(text)
        if line["e"] == "p" and "after_healing" in line.get("settings", {}):
            after_healing.add(line["p"])
        elif line["e"] == "i":
            asked[line["op"]] = line
            if line["f"] == "send" and line["p"] not in after_healing:
                points.setdefault(line["part"], []).append(line["t"])
        elif line["e"] == "c":
            invoked = asked.pop(line["op"])
            if invoked["f"] == "send" and line["st"] == 0:
                acknowledged[invoked["part"], invoked["v"]] = line["t"]
            for part, _, _, _, _, pairs, *_ in line.get("got", ()):
                for offset, value in pairs:
                    offsets.setdefault((part, value), set()).add(offset)
                    if invoked["f"] == "final_read":
                        survivors.add((part, value))
    gaps = [0.0]
    for part, sent in points.items():
        # Only acknowledgements of the load, and its first and last send, cut the time of a partition.
        own = [t for (of, value), t in acknowledged.items() if of == part and value >> 40 not in after_healing]
        times = sorted([min(sent), max(sent), *own])
        gaps += [(b - a) / 1e6 for a, b in zip(times, times[1:], strict=False)]
    return {
        "acknowledged": len(acknowledged),
        "lost": sum(key not in survivors for key in acknowledged),
        "duplicated": sum(len(stood) > 1 for stood in offsets.values()),
        "unavailable_ms": max(gaps),
    }


def main(runs: list[str]) -> None:
    """Each run, and the cell: sums, and the worst unavailability."""
    rows = {Path(run).name: counted(Path(run)) for run in runs}
    cell = {name: sum(row[name] for row in rows.values()) for name in ("acknowledged", "lost", "duplicated")}
    rows["the cell"] = {**cell, "unavailable_ms": max((row["unavailable_ms"] for row in rows.values()), default=0.0)}
    for name, row in rows.items():
        print(", ".join(f"{what} {value:,.0f}" for what, value in row.items()), f" {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
