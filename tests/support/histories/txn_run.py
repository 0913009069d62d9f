"""Writes run directories with transactions: a history, the brokers' traces, and the anomalies that the finders find."""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack
from typing import Any

from squall.broker.protocol.coordinator_frame import encode_key, encode_versioned
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from squall.checkers.anomalies.registry import CATALOG, find_all
from tests.support.histories.builder import HistoryBuilder

PRODUCER_ID = 4000
"""The producer id of every producer in `HistoryBuilder`."""


class TxnRun(HistoryBuilder):
    """A history and the traces of three brokers. Broker 1 is the coordinator, and broker N + 1 leads partition N."""

    def __init__(self, partitions: int = 2) -> None:
        super().__init__(partitions)
        self.traces: dict[int, list[dict[str, Any]]] = {1: [], 2: [], 3: []}
        self.faults: list[dict[str, Any]] = []

    def trace(self, node: int, name: str, **fields: Any) -> None:
        """Add an event to a broker's trace."""
        line = {"t": self.tick() / 1e9, "w": 0, "n": f"broker-{node}", "i": 1, "e": name, **fields}
        self.traces[node].append(line)

    def decided(self, state: str, *parts: int, epoch: int = 0, name: str = "a", coordinator_epoch: int = 0) -> None:
        """Trace that the coordinator appends a new state of the transaction."""
        self.trace(
            1, "transaction_state", transactional_id=name, state=state, producer_id=PRODUCER_ID, epoch=epoch,
            partitions=[["t", part] for part in parts], coordinator_epoch=coordinator_epoch, offset=0,
        )  # fmt: skip

    def marker(
        self, part: int, offset: int, *, commit: bool = True, epoch: int = 0, error: int = 0, coordinator_epoch: int = 0
    ) -> None:
        """Trace that a marker reaches the leader of a partition."""
        self.trace(
            part % 3 + 1, "txn_marker", topic="t", partition=part, producer=PRODUCER_ID, epoch=epoch,
            coordinator_epoch=coordinator_epoch, commit=commit, offset=offset, error=error,
        )  # fmt: skip

    def fault(self, action: str, begin: int, end: int, words: str, evidence: str = "it landed") -> None:
        """Add a fault that was active between these times."""
        said = {"fault": words, "evidence": evidence, "nodes": {}}
        times = {"asked": begin, "began": begin, "ended": end, "evidence": {"x": 1}}
        line = {"schema": 2, "id": len(self.faults), "action": action, "traits": [], "params": {}, "words": said}
        self.faults.append({**line, "target": {"asked": "", "resolved": []}, **times})

    def write(self, path: Path, *, foreign: str = "") -> Path:
        """Write all files that reports read. `foreign` names the kind of brokers if they are not ours; such brokers
        write no trace.
        """
        path.mkdir(parents=True, exist_ok=True)
        (path / "history.jsonl").write_bytes(b"".join(self.lines()))
        (path / "plan.toml").write_text("schema_version = 1\nseed = 1\n[cluster]\nnodes = 3\n")
        target = {"target": {"name": foreign}} if foreign else {}
        phases = [
            {"name": "load with faults", "began": 0, "ended": self.now},
            {"name": "final reads", "began": self.now, "ended": self.now + 1},
        ]
        run = {"schema": 1, "run": "test", "began_ns": 0, "ended_ns": self.now + 2, "phases": phases, **target}
        (path / "run.json").write_text(json.dumps(run))
        (path / "nemesis.jsonl").write_text("".join(json.dumps(fault) + "\n" for fault in self.faults))
        for node, lines in self.traces.items():
            folder = path / "nodes" / str(node)
            folder.mkdir(parents=True, exist_ok=True)
            if not foreign:
                (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (path / "verdict.json").write_text(json.dumps(self._verdict()))
        return path

    def write_logs(self, path: Path) -> None:
        """Write the brokers' log segments, with the states and markers of their traces. Times are cut to ms, as in a
        log.
        """
        logs: dict[Path, list[tuple[int, bytes]]] = {}
        for node, lines in self.traces.items():
            data = path / "nodes" / str(node) / "data"
            for line in lines:
                ms = int(line["t"] * 1000)
                if line["e"] == "txn_marker" and line["offset"] >= 0 and not line["error"]:
                    folder = data / f"{line['topic']}-{line['partition']}"
                    logs.setdefault(folder, []).append((line["offset"], _marker_bytes(line, ms)))
                elif line["e"] == "transaction_state":
                    log = logs.setdefault(data / "__transaction_state-7", [])
                    log.append((len(log), _state_bytes(line, len(log), ms)))
        for folder, batches in logs.items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{0:020}.log").write_bytes(b"".join(batch for _, batch in sorted(batches)))

    def _verdict(self) -> dict[str, Any]:
        by_name: dict[str, list[dict[str, Any]]] = {}
        for witness in sorted(find_all(self.history())):
            fields = {name: value for name, value in witness._asdict().items() if name not in ("anomaly", "evidence")}
            by_name.setdefault(witness.anomaly, []).append({**fields, "partition": f"t-{witness.part}"})
        found = [
            {
                "name": name, "evidence": "", "count": len(witnesses), "permitted": False, "why": "not permitted",
                "definition": CATALOG[name].definition, "witnesses": witnesses,
            }
            for name, witnesses in by_name.items()
        ]  # fmt: skip
        return {"schema": 1, "run": "test", "verdict": "invalid" if found else "valid", "anomalies": found}


STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
"""States of a transaction, at the index that Kafka gives each."""


def _marker_bytes(line: dict[str, Any], ms: int) -> bytes:
    key, value = pack(">hh", 0, int(line["commit"])), pack(">hi", 0, line["coordinator_epoch"])
    ids = {"producer_id": line["producer"], "producer_epoch": line["epoch"]}
    record = Record(line["offset"], ms, key, value)
    return bytes(encode_batch([record], base_offset=line["offset"], **ids, transactional=True, control=True))


def _state_bytes(line: dict[str, Any], offset: int, ms: int) -> bytes:
    value = TransactionLogValue(
        producer_id=line["producer_id"],
        producer_epoch=line["epoch"],
        transaction_status=STATES.index(line["state"]),
        transaction_partitions=[PartitionsSchema(topic, [index]) for topic, index in line["partitions"]],
    )
    key = encode_key(TransactionLogKey(transactional_id=line["transactional_id"]))
    record = Record(offset, ms, key, encode_versioned(value, 0))
    return bytes(encode_batch([record], base_offset=offset, leader_epoch=line["coordinator_epoch"]))
