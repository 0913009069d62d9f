"""`python -m bench.against REV`: does this checkout take more broker CPU for a record than an earlier one does?

Two clusters run at the same time, one of each checkout, and the same client loads them in turn: once this one first,
once the other one. Each pair gives a ratio, so that whatever else the machine does, and how fast it happens to be,
meets both. The result is the median of the ratios, and an interval that needs no assumption on how they are spread.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

from bench.client import latency, throughput
from bench.clusters import Squall
from bench.sheet import say
from chaos.toolchain.engine import unpack

CERTAINTY = 0.95
RATE = 1000
Load = Callable[[Squall, float], float]
"""Broker CPU seconds for a million records, by a load of so many seconds."""


def _full(size: int) -> Load:
    return lambda cluster, seconds: throughput(cluster, size, idempotent=True, seconds=seconds).broker_cpu_s_per_m


def _single(cluster: Squall, seconds: float) -> float:
    # `latency` does not count its first second as latency, and so wants more than one.
    return latency(cluster, RATE, seconds + 1, size=100, linger_ms=0).broker_cores * 1e6 / RATE


LOADS: dict[str, Load] = {
    "100 B": _full(100),
    "1024 B": _full(1024),
    f"100 B, one a request, {RATE}/s": _single,
}


def interval(values: Sequence[float], certainty: float = CERTAINTY) -> tuple[float, float]:
    """Two of the values between which their median lies at least so surely (the sign test's interval); the smallest and
    the largest where there are too few for that.
    """
    ordered, n = sorted(values), len(values)
    cut, missed = 0, 0.5**n
    # `missed`: the probability that at most `cut` of n values lie on one given side of the median.
    while cut + 1 < n / 2 and 2 * (missed + math.comb(n, cut + 1) * 0.5**n) <= 1 - certainty:
        cut += 1
        missed += math.comb(n, cut) * 0.5**n
    return ordered[cut], ordered[n - 1 - cut]


def checkout(revision: str, folder: Path) -> Path:
    """Where the files of a revision are: a directory is taken as it stands, anything else is asked of git."""
    if Path(revision).is_dir():
        return Path(revision).resolve()
    packed = subprocess.run(["git", "archive", revision], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as files:
        unpack(files, folder)
    return folder


def ratios(now: Squall, then: Squall, load: Load, pairs: int, seconds: float) -> list[float]:
    """This checkout's figure divided by the other one's, of each pair."""
    found = []
    for number in range(pairs):
        order = (now, then) if number % 2 == 0 else (then, now)
        figures = {cluster: load(cluster, seconds) for cluster in order}
        found.append(figures[now] / figures[then])
        say(f"pair {number + 1}: {figures[now]:.2f} / {figures[then]:.2f} = {found[-1]:.3f}")
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Print a line for each load. Exit code 1 where one of the intervals lies above 1: this checkout needs more."""
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    parser.add_argument("revision", help="a commit, or the directory of a checkout")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2, help="length of each load")
    arguments = parser.parse_args(given)
    worse = False
    with tempfile.TemporaryDirectory(prefix="squall-against-") as name:
        folder = Path(name)
        for part in ("now", "then", "files"):
            (folder / part).mkdir()
        then = Squall(folder / "then", root=checkout(arguments.revision, folder / "files"))
        then.start()
        now = Squall(folder / "now")
        now.start()
        try:
            for title, load in LOADS.items():
                say(title)
                load(now, 1)
                load(then, 1)  # what is done for the first time only is nobody's figure
                found = ratios(now, then, load, arguments.pairs, arguments.seconds)
                low, high = interval(found)
                worse = worse or low > 1
                print(f"{title:32} broker CPU a record: {statistics.median(found):.3f} ({low:.3f} to {high:.3f})")
        finally:
            now.stop()
            then.stop()
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
