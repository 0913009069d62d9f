"""Simulates one random plan, and prints its digest and its trace. It is run as a program."""

from __future__ import annotations

import json
import sys

from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs.simulation import simulate


def main() -> None:
    """Simulate the seed given as the only argument."""
    result = simulate(swarm_plan(int(sys.argv[1])), stop_at_first=False)
    out = [result.digest, f"{result.verdict} {result.failure}", *(json.dumps(line) for line in result.trace)]
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
