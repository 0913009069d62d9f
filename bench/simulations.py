"""`python -m bench.simulations REV`: what CPU do simulations and `--help` take in this checkout, and in an earlier one?

Both run the same command in turn, each time in a new process: once this one first, once the other one. What counts is
user and system CPU time of all their processes. Each pair gives a ratio, so that whatever else the machine does meets
both. Both keep compiled modules from one run to the next, as an installation does, whatever this shell says of that.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.against import checkout, interval
from bench.sheet import say

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Command:
    """What is measured: the words behind `squall`, and how many seeds its CPU time is divided by."""

    words: tuple[str, ...]
    seeds: int = 1


def commands(seeds: int) -> Mapping[str, Command]:
    """By the title of its row. seeds: of the swarm."""
    swarm = ("sim", "--seeds", f"0..{seeds}", "--jobs", "1")
    return {
        "sim --seed 7": Command(("sim", "--seed", "7")),
        f"a seed of {' '.join(swarm)}": Command(swarm, seeds),
        "--help": Command(("--help",)),
        "run --help": Command(("run", "--help")),
    }


def cpu_s(root: Path, command: Command, folder: Path) -> float:
    """CPU seconds of one run of a checkout, user and system. RuntimeError if it ends with another code than 0 or 2."""
    places = {"PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | places
    files = ["--runs", str(folder / "runs")] if command.words[0] == "sim" else []
    before = _used_s()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "chaos", *command.words, *files], env=env, cwd=folder, capture_output=True
    )
    if done.returncode not in (0, 2):  # 2: a swarm of which too many seeds are unknown
        raise RuntimeError(f"{root}: squall {' '.join(command.words)} ended with {done.returncode}: {done.stderr!r}")
    return (_used_s() - before) / command.seeds


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(title: str, then: Sequence[float], now: Sequence[float]) -> str:
    """Medians of both, the median of the ratios of pairs, and its interval."""
    ratios = [ours / theirs for ours, theirs in zip(now, then, strict=True)]
    low, high = interval(ratios)
    before, after = statistics.median(then), statistics.median(now)
    return f"{title:<36}{before:9.2f}{after:9.2f}{statistics.median(ratios):9.3f}  {low:.3f} to {high:.3f}"


def main(given: Sequence[str] | None = None) -> int:
    """Print a row for each command, CPU seconds."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulations", description=__doc__)
    parser.add_argument("revision", help="a commit, or the directory of a checkout")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=12, help="of the swarm")
    arguments = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="squall-simulations-") as name:
        folder = Path(name)
        (folder / "files").mkdir()
        then = checkout(arguments.revision, folder / "files")
        say(f"load of the machine: {os.getloadavg()[0]:.1f}")
        print(f"{'CPU seconds':<36}{'before':>9}{'after':>9}{'ratio':>9}  interval")
        for title, command in commands(arguments.seeds).items():
            found: dict[Path, list[float]] = {then: [], ROOT: []}
            for root in found:  # what is done for the first time only is nobody's figure
                cpu_s(root, Command(command.words[:1] + ("--seed", "7")) if command.seeds > 1 else command, folder)
            for number in range(arguments.pairs):
                for root in (then, ROOT) if number % 2 else (ROOT, then):
                    found[root].append(cpu_s(root, command, folder))
                say(f"{title}, pair {number + 1}: {found[then][-1]:.2f} {found[ROOT][-1]:.2f}")
            print(row(title, found[then], found[ROOT]), flush=True)
        say(f"load of the machine: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
