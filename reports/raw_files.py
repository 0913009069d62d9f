"""Lists the files of a run directory that a page links to, with a description of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAMES = {
    "plan.toml": "the plan: all that is needed to repeat the run",
    "verdict.json": "the verdict with its witnesses",
    "run.json": "phases, counters, what the harness saw",
    "history.jsonl": "every operation of every client",
    "nemesis.jsonl": "every fault with its evidence",
    "metrics.json": "latency, unavailability, recovery",
    "series.json": "second by second",
    "polled.jsonl": "leaders and ISRs, as the cluster named them when it was asked",
    "replicas.json": "what the comparison of the replicas' logs found",
    "violations.json": "broken invariants of the simulation",
    "messages.jsonl": "every message of the simulation",
    "junit.xml": "the same for CI",
    "story.txt": "the story of a shrunk run",
}
PROGRAMS = "clients.log"
"""Names the file with the standard error of programs under test and client libraries."""
LOCAL = {
    "spark.log": "what Spark said while judging",
    PROGRAMS: "standard error of the program under test, or of client libraries",
}
"""Maps files that `squall export` never packs, because they concern only the machine of the run, to their descriptions.
"""
BESIDE = ("counts.json", "findings.json", "frame-relay-produce.jsonl", "story.svg")
"""Lists files that `squall export` packs although no page links to them: judging the run again, or making its page
again, reads them.
"""
OF_NODES = {"trace.jsonl": "trace of broker {node}", "broker.log": "log of broker {node}",
            "broker.properties": "settings of broker {node}"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RawFile:
    """Describes a file that a run's page links to. `path` is relative to the run directory, `what` describes the
    content, and `size` is text, such as "12 kB".
    """

    path: str
    what: str
    size: str


def raw_files(run_dir: Path, *, sent_only: bool = False) -> list[RawFile]:
    """Return the files of a run directory that its page links to, if they exist and are not empty. If `sent_only`,
    leave out those that `squall export` does not pack (LOCAL).
    """
    found = [(run_dir / name, what) for name, what in ({} if sent_only else LOCAL).items()]
    found = [*((run_dir / name, what) for name, what in NAMES.items()), *found]
    for node in _nodes(run_dir):
        found += [(node / name, what.format(node=node.name)) for name, what in OF_NODES.items()]
    there = [(path, what, _size(path)) for path, what in found]
    return [RawFile(str(path.relative_to(run_dir)), what, size_text(size)) for path, what, size in there if size > 0]


def sent(run_dir: Path) -> list[Path]:
    """Return the files of a run that `squall export` packs, relative to `run_dir`: those that the page shows, and those
    that judging the run again needs.

    Brokers' data, logs that concern only this machine, and tables that judging makes anew are left out.
    """
    names = [*NAMES, *BESIDE, *(f"nodes/{node.name}/{name}" for node in _nodes(run_dir) for name in OF_NODES)]
    return [Path(name) for name in names if (run_dir / name).is_file()]


LAST_LINES = 12
LAST_BYTES = 2000
"""Limits the bytes that are read from the end of clients.log."""


def last_words(run_dir: Path) -> str:
    """Return the last lines of clients.log; empty if there is no such file."""
    try:
        with (run_dir / PROGRAMS).open("rb") as file:
            file.seek(max(0, _size(run_dir / PROGRAMS) - LAST_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-LAST_LINES:])


def _nodes(run_dir: Path) -> list[Path]:
    nodes = [path for path in (run_dir / "nodes").glob("*") if path.name.isdigit()]
    return sorted(nodes, key=lambda path: int(path.name))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def size_text(size: int) -> str:
    """Return a size in bytes as text, such as "12 kB"."""
    if size < 10_000:
        return f"{size:,} B"
    return f"{size / 1e3:,.0f} kB" if size < 10_000_000 else f"{size / 1e6:,.0f} MB"
