"""Writes a run directory for each anomaly: a short history that shows it, traces of three brokers, a fault and a
verdict.

In each, broker 1 leads every partition and is killed half-way. Broker 2 is elected. Broker 1 truncates when it is back.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from squall.checkers.anomalies.registry import CATALOG, CHECKS, find_all
from squall.checkers.findings import Witness
from tests.support.histories.anomaly_cases import CASES
from tests.support.histories.builder import MS, HistoryBuilder
from tests.support.histories.nemesis_lines import spoken
from tests.support.histories.txn_run import TxnRun

NAMES = tuple(anomaly.name for check in CHECKS if check.exists for anomaly in check.anomalies)
"""Every anomaly that has a check."""
LIMIT_NS = 20_000_000_000


def history_of(name: str) -> tuple[HistoryBuilder, list[Witness]]:
    """Return a short history that shows this anomaly, and its witnesses. If no history can show it, return one without
    anomalies.
    """
    for case in CASES.values():
        if any(found[0] == name for found in case.found):
            h = case.build()
            return h, [witness for witness in sorted(find_all(h.history())) if witness.anomaly == name]
    h = HistoryBuilder()
    p, r = h.producer(), h.reader()
    values = [h.sent(p, off) for off in range(3)]
    h.poll(r, list(enumerate(values)))
    h.final(list(enumerate(values)))
    by_hand = {
        "replica-divergence": Witness(name, "content", 0, 1, -1, -1, -1, 2),
        "stuck-producer": Witness(name, "", 0, -1, -1, -1, -1, LIMIT_NS),
        "stuck-consumer": Witness(name, "", 0, -1, -1, -1, r, LIMIT_NS),
        "not-converged": Witness(name, "", 0, -1, -1, -1, -1, -1),
    }
    return h, [by_hand[name]]


def write(path: Path, name: str) -> Path:
    """Write a run directory whose verdict has the anomaly `name`."""
    h, witnesses = history_of(name)
    path.mkdir(parents=True)
    lines = h.lines()
    (path / "history.jsonl").write_bytes(b"".join(lines))
    parts = [each for each in map(json.loads, lines) if each.get("e") == "t"]
    end = h.now + MS
    _write_run(path, end)
    half = h.now // 2 + MS // 2
    traces = _traces(parts, half, end)
    if isinstance(h, TxnRun):
        for node, own in h.traces.items():
            traces[node] += own
    for node, own in traces.items():
        folder = path / "nodes" / str(node)
        folder.mkdir(parents=True)
        (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in sorted(own, key=_time)))
    (path / "nemesis.jsonl").write_text(json.dumps(_kill(half, end)) + "\n")
    (path / "verdict.json").write_text(json.dumps(_verdict(name, witnesses, parts)))
    return path


def _time(line: dict[str, Any]) -> float:
    return float(line["t"])


def _write_run(path: Path, end: int) -> None:
    (path / "plan.toml").write_text("schema_version = 1\nseed = 1\n[cluster]\nnodes = 3\n[workload]\nacks = -1\n")
    phases = [
        {"name": "load with faults", "began": 0, "ended": end},
        {"name": "final reads", "began": end, "ended": end + MS},
    ]
    converged = {"ok": False, "took_s": 30.0, "lacking": {"t-0": "leader none, ISR 2"}}
    run = {
        "schema": 1,
        "run": "test",
        "began_ns": 0,
        "ended_ns": end + 2 * MS,
        "phases": phases,
        "converged": converged,
    }
    (path / "run.json").write_text(json.dumps(run))


def _traces(parts: list[dict[str, Any]], half: int, end: int) -> dict[int, list[dict[str, Any]]]:
    """Return the trace of each broker: the first one leads, is killed at `half`, and restarts later."""
    later = half + (end - half) // 2
    traces: dict[int, list[dict[str, Any]]] = {
        node: [_event(0, node, "node_started", incarnation=1), _event(0, node, "node_ready")] for node in (1, 2, 3)
    }
    traces[1] += [_event(later, 1, "node_started", incarnation=2), _event(later, 1, "node_ready")]
    for part in parts:
        where = {"topic": part["topic"], "partition": part["index"]}
        first = {**where, "epoch": 0, "partition_epoch": 0, "isr": [1, 2, 3], "leo": 0, "hw": 0}
        second = {**where, "epoch": 1, "partition_epoch": 1, "isr": [2, 3], "leo": 1, "hw": 1}
        traces[1] += [
            _event(0, 1, "became_leader", **first),
            _event(later, 1, "became_follower", **{**second, "leader": 2, "leo": 2}),
            _event(later, 1, "truncated", **where, from_offset=2, to_offset=1, hw=1, reason="epoch 0 ends at 1"),
        ]
        elected = {**where, "epoch": 1, "leader": 2, "isr": [2, 3], "partition_epoch": 1, "unclean": False}
        traces[2] += [
            _event(0, 2, "became_follower", **{**first, "leader": 1}),
            _event(half, 2, "became_leader", **second),
        ]
        traces[3] += [
            _event(0, 3, "became_follower", **{**first, "leader": 1}),
            _event(half, 3, "leader_elected", **elected),
            _event(half, 3, "became_follower", **{**second, "leader": 2}),
        ]
    return traces


def _event(at: int, node: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"t": at / 1e9, "w": 0, "n": f"broker-{node}", "i": 1, "e": name, **fields}


def _kill(half: int, end: int) -> dict[str, Any]:
    later = half + (end - half) // 2
    line = {
        "id": 0, "action": "kill", "fault_class": "P", "target": {"asked": "leader", "resolved": [1]}, "params": {},
        "planned": {"at_s": half / 1e9, "duration_s": 0.0}, "asked": half, "began": half, "ended": later,
        "evidence": {
            "down": [{"pid": 11, "gone": True, "code": -9, "asked_ns": half, "ended_ns": half}],
            "up": [{"pid": 12, "incarnation": 2, "asked_ns": half, "ready_ns": later}],
        },
        "seen": None, "error": None,
    }  # fmt: skip
    return spoken(line)


def _verdict(name: str, witnesses: list[Witness], parts: list[dict[str, Any]]) -> dict[str, Any]:
    names = {part["part"]: f"{part['topic']}-{part['index']}" for part in parts}
    shown = []
    for witness in witnesses:
        fields = {key: value for key, value in witness._asdict().items() if key not in ("anomaly", "evidence")}
        shown.append({**fields, **({"partition": names[witness.part]} if witness.part in names else {})})
    found = {
        "name": name, "evidence": witnesses[0].evidence, "count": len(witnesses), "permitted": False,
        "why": "not permitted: acks=all", "definition": CATALOG[name].definition, "witnesses": shown,
    }  # fmt: skip
    return {"schema": 1, "run": "test", "verdict": "invalid", "anomalies": [found]}
