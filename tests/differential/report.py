"""The report of a differential."""
from __future__ import annotations
import json
from collections import Counter
from tests.differential.compare import UNEXPLAINED
def write(results, out):
    out.mkdir(parents=True, exist_ok=True)
    count = Counter((r.api, r.outcome) for r in results)
    print(Counter(r.outcome for r in results))
    with (out/"unexplained.txt").open("w") as f:
        for r in results:
            if r.outcome == UNEXPLAINED:
                for d in r.differences:
                    f.write(f"{r.row} | {r.api} v{r.version} | {d.path} | {d.ours!r} | {d.theirs!r}\n")
    return 1 if any(r.outcome == UNEXPLAINED for r in results) else 0
