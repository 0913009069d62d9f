"""Runs `squall load`, ends it by SIGKILL, and reads the rows that it wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import duckdb

from tests.architecture.source import ROOT

EXECUTOR: Final = "CoarseGrainedExecutorBackend"
JVM: Final = "org.apache.spark.deploy.SparkSubmit"


def load_command(bootstrap: str, topics: Sequence[str], lake: Path, *more: str) -> list[str]:
    """Return the command that loads topics into a folder."""
    return [
        *(sys.executable, "-P", "-m", "squall.chaos", "load", *topics),
        *("--bootstrap", bootstrap, "--to", str(lake), *more),
    ]


def load_whole(command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """Run a load to its end, or raise TimeoutExpired after `limit_s` seconds."""
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=limit_s)


def load_started(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a load in a process group of its own, with what it prints in `log`."""
    with log.open("wb") as out:
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)


def wait_during(load: subprocess.Popen[bytes], condition: Callable[[], bool], log: Path, limit_s: float) -> None:
    """Wait until the condition is true. Fail if the load ends before, or after `limit_s` seconds."""
    until = time.monotonic() + limit_s
    while not condition():
        assert load.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)


def kill_whole(load: subprocess.Popen[bytes]) -> None:
    """Kill a load with its JVM and its tasks, and wait until it has ended."""
    os.killpg(load.pid, signal.SIGKILL)
    load.wait()


def processes_of(load: subprocess.Popen[bytes], *words: str) -> Iterator[int]:
    """Yield the processes of a load that have all these words in their command lines."""
    for pid in processes_with(*words):
        with suppress(OSError):
            if os.getsid(pid) == load.pid:
                yield pid


def processes_with(*words: str) -> Iterator[int]:
    """Yield the processes of this machine that have all these words in their command lines."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            if all(word.encode() in line for word in words):
                yield int(entry.name)


def rows_of_lake(lake: Path) -> list[tuple[str | None, ...]]:
    """Return all rows of a folder, sorted, with each column as text, as a reader sees them that knows nothing of Spark.
    """
    files = f"read_parquet('{lake}/topic=*/partition=*/*.parquet', hive_partitioning = true)"
    return duckdb.sql(f"select columns(*)::varchar from {files} order by all").fetchall()
