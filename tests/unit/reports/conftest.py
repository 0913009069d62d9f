"""A small run directory, every file of it written by hand as the documented formats say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall.checkers.anomalies.registry import FOUND
from squall.reports import figure
from tests.support.histories.nemesis_lines import spoken

S = 1_000_000_000
ORIGIN = 100 * S
"""The time of the run's clock, in ns, at which the page's seconds begin."""
TOPIC = "appends-0"
LOST = 3 << 40 | 7

PLAN = """\
schema_version = 1
seed = 8
runtime = "process"

[cluster]
nodes = 3

[workload]
replication_factor = 3
min_isr = 2

[[faults]]
at_s = 3.0
duration_s = 2.0
action = "kill"
target = "leader"
params = {}
"""


def at(seconds: float) -> int:
    """A time of the page as ns of the run's clock."""
    return ORIGIN + int(seconds * S)


def event(seconds: float, name: str, **fields: Any) -> dict[str, Any]:
    """A line of a broker's trace."""
    return {"t": at(seconds) / S, "w": 0, "n": "broker", "i": 1, "e": name, **fields}


def leads(seconds: float, epoch: int, leo: int, isr: list[int]) -> dict[str, Any]:
    """became_leader of the only partition."""
    where = {"topic": TOPIC, "partition": 0, "partition_epoch": epoch}
    return event(seconds, "became_leader", epoch=epoch, leo=leo, isr=isr, **where)


TRACES = {
    1: [
        event(0.1, "node_started"),
        event(0.2, "node_ready"),
        event(0.3, "controller_active", epoch=1),
        leads(0.5, 0, 0, [1, 2, 3]),
        event(7.0, "node_started"),
        event(8.0, "node_ready"),
        event(7.5, "truncated", topic=TOPIC, partition=0, from_offset=90, to_offset=50, reason="epoch 0 ends at 50"),
    ],
    2: [event(0.1, "node_started"), event(0.2, "node_ready"), leads(6.0, 1, 50, [2, 3])],
    3: [event(0.1, "node_started"), event(0.2, "node_ready")],
}

KILL = spoken(
    {
        "id": 0,
        "action": "kill",
        "fault_class": "P",
        "target": {"asked": "leader", "resolved": [1]},
        "params": {},
        "planned": {"at_s": 3.0, "duration_s": 2.0},
        "asked": at(4.9),
        "began": at(5.0),
        "ended": at(8.0),
        "evidence": {
            "down": [{"pid": 11, "gone": True, "code": -9, "asked_ns": at(5.0), "ended_ns": at(5.01)}],
            "up": [{"pid": 12, "incarnation": 2, "asked_ns": at(7.0), "ready_ns": at(8.0)}],
        },
        "seen": None,
        "error": None,
    }
)

RUN = {
    "schema": 1,
    "run": "r1",
    "command": "./squall run --plan runs/r1/plan.toml",
    "squall": "0.1.0",
    "versions": {"python": "3.11"},
    "began_ns": at(-1),
    "ended_ns": at(20),
    "phases": [
        {"name": "warm-up", "began": at(0), "ended": at(2)},
        {"name": "load with faults", "began": at(2), "ended": at(12)},
        {"name": "final reads", "began": at(13), "ended": at(15)},
    ],
    "counters": {"sent": 100, "acked": 90, "failed": 4, "info": 6, "read": 180},
    "faults": {"planned": 1, "landed": 1},
    "converged": {"ok": True, "took_s": 0.5, "lacking": {}},
    "final_reads": [{"round": 1, "isolation": 0, "records": 90, "missing": {}}],
    "node_exits": [],
    "trouble": None,
}

METRICS = {
    "schema": 1,
    "outcomes": {"send": {"ok": 90, "fail": 4, "info": 6}},
    "latency_ms": {"all": {"count": 90, "p50": 3.0, "p99": 1200.0, "p99.9": 1300.0, "max": 1300.0}},
    "unavailable": {"overall": None, "partitions": {f"{TOPIC}-0": {"s": 1.4, "from_s": 5.0}}},
    "faults": [
        {"id": 0, "recovery_s": 1.2, "slowest_partition": f"{TOPIC}-0", "longest_gap_s": 1.4, "began_s": 5.0},
    ],
    "after_healing": {"healed_s": 8.0, "producers": {"partition": f"{TOPIC}-0", "s": 0.1, "from_s": 9}, "readers": []},
    "reading": {
        "stale_ms": {"count": 40, "p50": 0.0, "p99": 12.0, "p99.9": 80.0, "max": 81.5},
        "lag": {"count": 4, "p50": 0.0, "p99": 1234.0, "p99.9": 1234.0, "max": 1234.0},
        "readers": [],
    },
    "partitions": {f"{TOPIC}-0": {"part": 0, "acked": 90, "complete_final_reads": 1}},
}

SERIES = {
    "schema": 1,
    "second": [0, 1, 2],
    "acked": [30, 30, 30],
    "failed": [0, 0, 4],
    "unknown": [0, 6, 0],
    "read": [60, 60, 60],
    "p50_ms": [2.0, None, 3.0],
    "p99_ms": [9.0, None, 1200.0],
    "max_ms": [9.0, None, 1300.0],
    "faults": [],
}

VALID = {
    "schema": 1,
    "run": "r1",
    "verdict": "valid",
    "expect": "config",
    "reasons": [],
    "notes": ["looked for: " + ", ".join(FOUND)],
    "guarantee": {"row": "acks=all, min ISR 2", "fault_classes": ["P"], "permitted": {}, "sources": ["KIP-1"]},
    "anomalies": [],
    "metrics": METRICS,
}

LOSS = {
    "name": "lost-write",
    "evidence": "reads",
    "count": 2,
    "permitted": False,
    "why": "not permitted: acks=all",
    "definition": "acknowledged, in no final read",
    "witnesses": [{"partition": f"{TOPIC}-0", "part": 0, "off": 60, "val": LOST, "op": 9, "proc": 3, "other": 90}],
}

INVALID = {**VALID, "verdict": "invalid", "reasons": ["lost-write (reads): 2, not permitted"], "anomalies": [LOSS]}

UNKNOWN = {**VALID, "verdict": "unknown", "reasons": ["fault 0 (kill leader) left no evidence"]}


def write_json(path: Path, value: Any) -> None:
    """One JSON document."""
    path.write_text(json.dumps(value))


def write_lines(path: Path, values: list[Any]) -> None:
    """One JSON document a line."""
    path.write_text("".join(json.dumps(each) + "\n" for each in values))


@pytest.fixture
def drawn() -> None:
    """Has the page's figure drawn, which takes longer than all the rest."""


@pytest.fixture(autouse=True)
def empty_figure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figure empty where a test does not ask for `drawn`."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(figure, "draw", lambda *_: figure.Timeline("<svg></svg>", "", 0))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A valid run: three brokers, one partition, one kill."""
    path = tmp_path / "r1"
    path.mkdir()
    (path / "plan.toml").write_text(PLAN)
    for name, value in (("run", RUN), ("metrics", METRICS), ("series", SERIES), ("verdict", VALID)):
        write_json(path / f"{name}.json", value)
    write_lines(path / "nemesis.jsonl", [{**KILL, "ended": None, "evidence": None}, KILL])
    header = {"e": "h", "schema": 1, "run": "r1", "wall_ms": 0, "mono_ns": ORIGIN}
    write_lines(path / "history.jsonl", [header, {"e": "t", "part": 0, "topic": TOPIC, "index": 0}])
    for node, events in TRACES.items():
        (path / "nodes" / str(node)).mkdir(parents=True)
        write_lines(path / "nodes" / str(node) / "trace.jsonl", events)
    return path


@pytest.fixture
def verdicts() -> dict[str, Any]:
    """verdict.json for each of the three words."""
    return {"valid": VALID, "invalid": INVALID, "unknown": UNKNOWN}


@pytest.fixture
def lost_dir(run_dir: Path) -> Path:
    """A run that lost a record, with what its clients did."""
    write_json(run_dir / "verdict.json", INVALID)
    lines: list[dict[str, Any]] = [
        {"e": "h", "schema": 1, "run": "r1", "wall_ms": 0, "mono_ns": ORIGIN},
        {"e": "t", "part": 0, "topic": TOPIC, "index": 0},
        {"e": "p", "p": 3, "role": "producer", "settings": {"producer": 1}},
        {"e": "i", "op": 9, "p": 3, "f": "send", "t": at(4.4), "part": 0, "v": LOST},
        {"e": "c", "op": 9, "st": 0, "t": at(4.41), "off": 60},
        {"e": "i", "op": 10, "p": 3, "f": "send", "t": at(6.4), "part": 0, "v": LOST + 1},
        {"e": "c", "op": 10, "st": 0, "t": at(6.41), "off": 60},
        {"e": "i", "op": 11, "p": 3, "f": "send", "t": at(6.5), "part": 0, "v": LOST + 2},
        {"e": "p", "p": 5, "role": "final"},
        {"e": "i", "op": 20, "p": 5, "f": "final_read", "t": at(13.1), "at": {"0": 60}},
        {"e": "c", "op": 20, "st": 0, "t": at(14), "got": [[0, 61, 61, 61, 0, [[60, LOST + 1]], 1]]},
    ]
    write_lines(run_dir / "history.jsonl", lines)
    return run_dir
