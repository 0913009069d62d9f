"""The files of a run directory that a page links to, with what each is."""

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
    "spark.log": "what Spark said while judging",
}
OF_NODES = {"trace.jsonl": "trace of broker {node}", "broker.log": "log of broker {node}",
            "broker.properties": "settings of broker {node}"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file, from the page's folder."""

    path: str
    what: str
    size: str


def raw_files(run_dir: Path) -> list[RawFile]:
    """Those that are there and hold something."""
    found = [(run_dir / name, what) for name, what in NAMES.items()]
    nodes = [path for path in (run_dir / "nodes").glob("*") if path.name.isdigit()]
    for node in sorted(nodes, key=lambda path: int(path.name)):
        found += [(node / name, what.format(node=node.name)) for name, what in OF_NODES.items()]
    there = [(path, what, _size(path)) for path, what in found]
    return [RawFile(str(path.relative_to(run_dir)), what, _text(size)) for path, what, size in there if size > 0]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _text(size: int) -> str:
    if size < 10_000:
        return f"{size:,} B"
    return f"{size / 1e3:,.0f} kB" if size < 10_000_000 else f"{size / 1e6:,.0f} MB"
