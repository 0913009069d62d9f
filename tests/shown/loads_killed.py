"""Kills loads at random moments, loads the rest, and compares the rows with those of an undisturbed load."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from squall.chaos.errors import HarnessError
from tests.shown.batches import Say
from tests.shown.table import Sitting, Table, add, read
from tests.support.load.clusters import one_broker
from tests.support.load.filling import fill
from tests.support.load.loads import JVM, kill_whole, load_command, load_started, load_whole, processes_of, rows_of_lake

LOADS_KILLED = Table(
    "loads_killed",
    "Loads killed at random moments",
    "A row is one `squall load` that got SIGKILL after a time that its seed draws, and was called again at once. The "
    "signal went to its driver (the Python process), to its JVM, or to all of its processes. All columns of all rows "
    "are compared with those of an undisturbed load, which took as long as the row says.",
    ("seed", "killed", "after s", "of s", "batches committed by then", "removed", "rows", "different rows"),
    keys=1,
)
RECORDS, SIZE, PER_BATCH = 12_000, 200, 1_000
LIMIT_S = 900.0
REMOVED = re.compile(r": removed (\d+) files of a batch that was never committed")
Killed = subprocess.Popen[bytes]


def _kill_driver(load: Killed) -> None:
    os.kill(load.pid, signal.SIGKILL)
    load.wait()


def _kill_jvm(load: Killed) -> None:
    for pid in processes_of(load, JVM):
        os.kill(pid, signal.SIGKILL)
    load.wait(LIMIT_S)


WHAT: Mapping[str, Callable[[Killed], None]] = {"driver": _kill_driver, "JVM": _kill_jvm, "all": kill_whole}


def show_loads_killed(count: int, of: Sitting, docs: Path, say: Say) -> list[str]:
    """Kill `count` loads, with new seeds, and add a row for each. Returns a sentence for each one that could not
    be continued, or has other rows than an undisturbed load.
    """
    first = max((int(cells[0]) for _, cells in read(LOADS_KILLED, docs)[1]), default=0) + 1
    wrong = []
    with one_broker("squall") as bootstrap, tempfile.TemporaryDirectory(prefix="squall-shown-") as folder:
        fill(bootstrap, "orders", RECORDS, SIZE, "lz4")
        loads = KilledLoads(bootstrap, Path(folder))
        for seed in range(first, first + count):
            try:
                row = loads.row(seed)
            except HarnessError as failure:
                wrong.append(f"load with seed {seed}: {failure}")
                continue
            say(f"seed {seed}: {row[1]} killed after {row[2]:.1f} s: {row[-1]} of {row[-2]} rows are different")
            add(LOADS_KILLED, [row], of, docs)
            if row[-1]:
                wrong.append(f"load with seed {seed}: {row[-1]} rows are not those of an undisturbed load")
    return wrong


class KilledLoads:
    """Kills loads of one topic. Each has a folder of its own."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        began = time.monotonic()
        self._load_whole(folder / "undisturbed")
        self.took_s = time.monotonic() - began
        self._rows = set(rows_of_lake(folder / "undisturbed"))

    def row(self, seed: int) -> tuple[int, str, float, float, int, int, int, int]:
        """Return the row of a load that is killed as the seed draws. Raises HarnessError if the next one fails."""
        rng, lake = Random(seed), self._folder / str(seed)
        what, moment_s = rng.choice(list(WHAT)), rng.uniform(0, self.took_s)
        load = load_started(self._command(lake), self._folder / f"{seed}.log")
        try:
            time.sleep(moment_s)
            WHAT[what](load)
            committed = len(list(lake.glob("_spark_metadata/[0-9]*")))
            removed = self._load_whole(lake)
        finally:
            for pid in processes_of(load):
                os.kill(pid, signal.SIGKILL)
        rows = rows_of_lake(lake)
        # A row that is there twice counts as well.
        different = len(self._rows ^ set(rows)) + len(rows) - len(set(rows))
        return seed, what, moment_s, self.took_s, committed, removed, len(rows), different

    def _command(self, lake: Path) -> list[str]:
        return load_command(self._bootstrap, ["orders"], lake, "--headers", "--records-per-batch", str(PER_BATCH))

    def _load_whole(self, lake: Path) -> int:
        """Load to the end. Return how many Parquet files of batches without a commit were removed first."""
        done = load_whole(self._command(lake), LIMIT_S)
        if done.returncode:
            raise HarnessError(f"a load ended with {done.returncode}: {done.stderr[-2000:]}")
        removed = REMOVED.search(done.stderr)
        return int(removed[1]) if removed else 0
