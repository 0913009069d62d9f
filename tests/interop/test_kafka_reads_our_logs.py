"""Kafka's log tool reads every kind of file that we write: logs and their indexes; markers, aborted and open
transactions; records of groups; metadata and its snapshots.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from squall.broker.cluster.replay import PARTITION_VERSION, MetadataRecord
from squall.broker.cluster.snapshot import records_of
from squall.broker.control.kraft.snapshot_store import encode_snapshot
from squall.broker.controller.brokers import REGISTRATION_CHANGE_VERSION
from squall.broker.controller.elections import PARTITION_CHANGE_VERSION
from squall.broker.coordinators.groups import records
from squall.broker.coordinators.groups.values import (
    GroupMetadataRecord,
    GroupRecord,
    MemberRecord,
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from squall.broker.log.config import LogConfig
from squall.broker.log.markers import TxnMarker
from squall.broker.log.recovery import load
from squall.broker.protocol.metadata_frame import encode_metadata_record
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.support.brokers.controller_harness import ControllerHarness
from tests.support.disks.batches import batch
from tests.support.disks.memory_fs import MemoryFs
from tests.support.lacks import without

pytestmark = pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH))

TOOL = "org.apache.kafka.tools.DumpLogSegments"
WRITTEN = {
    RegisterBrokerRecord: 4,
    BrokerRegistrationChangeRecord: REGISTRATION_CHANGE_VERSION,
    PartitionRecord: PARTITION_VERSION,
    PartitionChangeRecord: PARTITION_CHANGE_VERSION,
}
"""The versions in which the controller writes these records at metadata version 4.3; all others have version 0."""


def dumped(*arguments: str) -> list[str]:
    """Return the lines that the tool prints."""
    command = apache_kafka(lambda line: None).command(TOOL, arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()


def written() -> MemoryFs:
    """Return a log in which producer 5 has an aborted, a committed and an open transaction; producer 6 uses none."""
    fs = MemoryFs()
    config = LogConfig(index_interval_bytes=100)
    log = load(fs, "d/t-0", config, topic="t", partition=0, topic_id=bytes(16), clean=True)
    log.append_as_leader(batch(2, pid=5, epoch=3, seq=0, transactional=True), 0, 1_000)
    log.end_transaction(5, 4, TxnMarker(False, 7), 2, 0, 1_000)
    log.append_as_leader(batch(1, pid=5, epoch=4, seq=0, transactional=True), 0, 1_000)
    log.end_transaction(5, 5, TxnMarker(True, 8), 2, 0, 1_000)
    log.append_as_leader(batch(1, pid=5, epoch=5, seq=0, transactional=True, timestamp=2_000), 0, 1_000)
    log.append_as_leader(batch(1, pid=6, epoch=0, seq=9), 0, 1_000)
    log.roll()
    log.close(0)
    return fs


def test_kafkas_dump_log_segments_reads_logs_all_indexes_and_producer_snapshots(tmp_path: Path) -> None:
    fs = written()
    files = []
    for name in fs.list("d/t-0"):
        (tmp_path / name).write_bytes(fs.read(f"d/t-0/{name}"))
        if name.endswith((".log", ".index", ".timeindex", ".txnindex", ".snapshot")):
            files.append(str(tmp_path / name))
    lines = dumped("--print-data-log", "--files", ",".join(files))
    assert [line for line in lines if line.startswith("offset: ")] == [
        "offset: 2 position: 117",
        "offset: 4 position: 284",
        "offset: 6 position: 451",
    ]
    assert [line for line in lines if line.startswith("timestamp: ")] == [
        "timestamp: 1001 offset: 1",
        "timestamp: 2000 offset: 5",
    ]
    assert not [line for line in lines if "ismatch" in line], "no index contradicts its log"
    assert [line.partition("endTxnMarker: ")[2] for line in lines if "endTxnMarker" in line] == [
        "ABORT coordinatorEpoch: 7",
        "COMMIT coordinatorEpoch: 8",
    ]
    assert sum("isTransactional: true isControl: true" in line and "isvalid: true" in line for line in lines) == 2
    assert "version: 0 producerId: 5 firstOffset: 0 lastOffset: 2 lastStableOffset: 3" in lines
    open_one, plain = (line for line in lines if line.startswith("producerId: "))
    assert open_one.startswith(
        "producerId: 5 producerEpoch: 5 coordinatorEpoch: 8 currentTxnFirstOffset: OptionalLong[5] lastTimestamp: 2000"
    )
    assert "firstSequence: 0 lastSequence: 0 lastOffset: 5 offsetDelta: 0" in open_one
    assert plain.startswith("producerId: 6 producerEpoch: 0 coordinatorEpoch: -1")
    assert "currentTxnFirstOffset: OptionalLong.empty" in plain


def groups_written() -> MemoryFs:
    """Return a log of groups with a generation with a static member, an offset, an offset in a transaction, and a
    tombstone.
    """
    fs = MemoryFs()
    log = load(fs, "d/o-0", LogConfig(), topic="__consumer_offsets", partition=0, topic_id=bytes(16), clean=True)
    member = MemberRecord("m-1", "static", "client", "/host", 30_000, 10_000, b"", b"")
    group = GroupMetadataRecord("g", GroupRecord("consumer", 3, "range", "m-1", 1_000, (member,)))
    offset = OffsetCommitRecord("g", ("t", 2), OffsetAndMetadata(17, 4, "here", 1_000))
    for written, producer in ((group, -1), (offset, -1), (offset, 5), (OffsetCommitRecord("g", ("t", 2), None), -1)):
        record = Record(0, 1_000, *records.encode(written))
        data = encode_batch([record], producer_id=producer, producer_epoch=min(producer, 0), transactional=producer > 0)
        assert not log.append_as_leader(memoryview(bytearray(data)), 0, 1_000, client=False).error
    log.end_transaction(5, 0, TxnMarker(True, 7), 0, 0, 1_000)
    log.close(0)
    return fs


def test_kafkas_dump_log_segments_decodes_groups_and_their_offsets(tmp_path: Path) -> None:
    fs = groups_written()
    name = "00000000000000000000.log"
    (tmp_path / name).write_bytes(fs.read(f"d/o-0/{name}"))
    said = dumped("--offsets-decoder", "--files", str(tmp_path / name))
    rows = [line for line in said if "payload: " in line]
    decoded = [json.loads(line.partition("payload: ")[2]) for line in rows if "payload: {" in line]
    keys = [json.loads(line.partition("key: ")[2].partition(" payload: ")[0]) for line in rows]
    assert [key["data"] for key in keys] == [{"group": "g"}, *[{"group": "g", "topic": "t", "partition": 2}] * 3]
    generation, offset, in_transaction = decoded
    assert generation["data"]["generation"] == 3
    assert generation["data"]["members"][0]["groupInstanceId"] == "static"
    assert offset == in_transaction
    assert offset["data"] == {"offset": 17, "leaderEpoch": 4, "metadata": "here", "commitTimestamp": 1000}
    assert any("endTxnMarker: COMMIT coordinatorEpoch: 7" in line for line in said)
    assert not any("isvalid: false" in line for line in said)


def test_kafkas_dump_log_segments_decodes_the_metadata_log_and_its_snapshots(tmp_path: Path) -> None:
    harness = ControllerHarness(squall_bootstrap_features="metadata.version=30,eligible.leader.replicas.version=1")
    harness.topic("t", [1, 2, 3], [2, 3, 1], min_insync_replicas="3")
    harness.lose(3)
    written = [MetadataRecord(record, WRITTEN.get(type(record), 0)) for _, record in harness.log]
    values = [encode_metadata_record(record, version) for record, version in written]
    entries = encode_batch([Record(number, 1_000, None, value) for number, value in enumerate(values)], leader_epoch=7)
    (tmp_path / f"{0:020}.log").write_bytes(entries)
    held = records_of(harness.image)
    snapshot = tmp_path / f"{harness.image.offset + 1:020}-{7:010}.checkpoint"
    snapshot.write_bytes(encode_snapshot(held, 7, 1_000))
    said = dumped("--cluster-metadata-decoder", "--files", f"{tmp_path / f'{0:020}.log'},{snapshot}")
    told = [json.loads(line.partition(" payload: ")[2]) for line in said if " payload: {" in line]
    assert [(row["type"], row["version"]) for row in told] == [
        (re.sub(r"(?<!^)(?=[A-Z])", "_", type(record).__name__).upper(), version)
        for record, version in (*written, *held)
    ]
    partitions = [row["data"] for row in told if row["type"] == "PARTITION_RECORD"]
    assert partitions[-1]["isr"] == [2, 1]
    assert partitions[-1]["eligibleLeaderReplicas"] == [3]
    assert any('SnapshotHeader {"version":0,"lastContainedLogTimestamp":1000}' in line for line in said)
    assert any("SnapshotFooter" in line for line in said)
    assert not any("isvalid: false" in line for line in said)
