"""The files are Kafka's, byte for byte: each expected content here is written by hand."""

from __future__ import annotations

from random import Random

from crc32c import crc32c

from squall.broker.log import checkpoints
from squall.broker.log.config import LogConfig
from squall.broker.log.epochs import EpochCache
from squall.broker.log.indexes import AbortedTxn
from squall.broker.log.log import Log
from squall.broker.log.manager import LogManager
from squall.broker.log.producer_rules import BatchMetadata, ProducerStateEntry
from squall.broker.log.producers import ProducerStates
from squall.broker.log.recovery import load
from tests.support.disks.batches import batch, marker
from tests.support.disks.memory_fs import MemoryFs

TOPIC_ID = bytes(range(16))


def open_log(fs: MemoryFs, config: LogConfig | None = None) -> Log:
    return load(fs, "d/t-0", config or LogConfig(), topic="t", partition=0, topic_id=TOPIC_ID, clean=True)


def test_files_of_a_segment_are_named_by_its_base_offset_in_twenty_digits() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    log.append_as_leader(batch(7), 0, 1_000)
    log.roll()
    names = fs.list("d/t-0")
    assert names == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000007.index",
        "00000000000000000007.log",
        "00000000000000000007.snapshot",
        "00000000000000000007.timeindex",
        "leader-epoch-checkpoint",
    ]


def test_the_log_file_holds_the_batch_as_it_came_but_for_base_offset_and_leader_epoch() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    log.append_as_leader(batch(3), 7, 1_000)
    sent = bytes(batch(3))
    log.append_as_leader(batch(3), 7, 1_000)
    stored = fs.read("d/t-0/00000000000000000000.log")
    second = stored[len(stored) // 2 :]
    assert second == b"\0\0\0\0\0\0\0\3" + sent[8:12] + b"\0\0\0\7" + sent[16:]


def test_index_entries_are_relative_last_offset_and_position_of_the_batch() -> None:
    fs = MemoryFs()
    log = open_log(fs, LogConfig(index_interval_bytes=150))
    size = len(batch(2))
    assert 75 < size <= 150
    for n in range(5):
        log.append_as_leader(batch(2, timestamp=1_000 + 10 * n), 0, 1_000)
    log.roll()
    # An entry is due at the first batch that lies more than 150 bytes behind the last one with an entry.
    assert fs.read("d/t-0/00000000000000000000.index") == (
        b"\0\0\0\5" + (2 * size).to_bytes(4, "big") + b"\0\0\0\11" + (4 * size).to_bytes(4, "big")
    )
    # Timestamps 1021 and 1041 (0x3fd, 0x411) at the offsets 5 and 9, the last of their batches.
    assert fs.read("d/t-0/00000000000000000000.timeindex") == (
        b"\0\0\0\0\0\0\x03\xfd\0\0\0\5" + b"\0\0\0\0\0\0\x04\x11\0\0\0\11"
    )


def test_the_time_index_gets_a_last_entry_when_the_segment_is_rolled() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    log.append_as_leader(batch(2, timestamp=256), 0, 1_000)
    log.append_as_leader(batch(2, timestamp=16), 0, 1_000)
    log.roll()
    assert fs.read("d/t-0/00000000000000000000.timeindex") == b"\0\0\0\0\0\0\1\1" + b"\0\0\0\1"
    assert fs.read("d/t-0/00000000000000000000.index") == b""


def test_a_producer_snapshot_is_version_1_with_its_crc() -> None:
    states = ProducerStates()
    entry = states.entries[0x1122] = ProducerStateEntry(3)
    entry.remember(BatchMetadata(10, 14, 100, 104, 0x55))
    entry.timestamp, entry.coordinator_epoch, entry.txn_first_offset = 0x55, 9, 100
    body = (
        b"\0\0\0\1"  # one entry
        b"\0\0\0\0\0\0\x11\x22"  # producer id
        b"\0\3"  # epoch
        b"\0\0\0\x0e"  # last sequence
        b"\0\0\0\0\0\0\0\x68"  # last offset
        b"\0\0\0\4"  # offset delta
        b"\0\0\0\0\0\0\0\x55"  # timestamp
        b"\0\0\0\x09"  # coordinator epoch
        b"\0\0\0\0\0\0\0\x64"  # first offset of the open transaction
    )
    assert states.encode() == b"\0\1" + crc32c(body).to_bytes(4, "big") + body


def test_a_producer_that_only_had_a_marker_has_no_sequence_in_the_snapshot() -> None:
    states = ProducerStates()
    states.entries[1] = ProducerStateEntry(0)
    assert states.encode()[6:] == (
        b"\0\0\0\1\0\0\0\0\0\0\0\1\0\0"  # one entry, producer id, epoch
        + b"\xff" * 4
        + b"\xff" * 8
        + b"\0\0\0\0"
        + b"\xff" * 8
        + b"\xff" * 4
        + b"\xff" * 8
    )


def test_the_index_of_aborted_transactions_has_34_bytes_an_entry() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    log.append_as_leader(batch(2, pid=5, epoch=0, seq=0, transactional=True), 0, 1_000)
    log.append_as_leader(marker(5, 0, commit=False), 0, 1_000, client=False)
    log.roll()
    assert fs.read("d/t-0/00000000000000000000.txnindex") == (
        b"\0\0" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\0\0\0\0\0" + b"\0\0\0\0\0\0\0\2" + b"\0\0\0\0\0\0\0\3"
    )
    assert log.aborted_transactions(0, 3) == [AbortedTxn(5, 0, 2, 3)]


def test_leader_epoch_checkpoint() -> None:
    fs = MemoryFs()
    cache = EpochCache(fs, "")
    cache.assign(0, 0)
    cache.assign(4, 120)
    cache.flush()
    assert fs.read("leader-epoch-checkpoint") == b"0\n2\n0 0\n4 120\n"
    loaded = EpochCache.load(fs, "")
    assert loaded is not None
    assert loaded.entries == [(0, 0), (4, 120)]


def test_offset_checkpoints() -> None:
    fs = MemoryFs()
    checkpoints.write_offsets(fs, "recovery-point-offset-checkpoint", {("b", 1): 5, ("a-b.c", 0): 2**40})
    assert fs.read("recovery-point-offset-checkpoint") == b"0\n2\na-b.c 0 1099511627776\nb 1 5\n"
    assert checkpoints.read_offsets(fs, "recovery-point-offset-checkpoint") == {("b", 1): 5, ("a-b.c", 0): 2**40}


def test_damaged_checkpoints_read_as_absent() -> None:
    fs = MemoryFs()
    for text in (
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"0\n1\na x 1\n",
        b"0\n2\na 0 1\na 1 -1\n",
        b"\xff\xff",
    ):
        fs.write("c", text)
        assert checkpoints.read_offsets(fs, "c") == {}
    for text in (b"0\n2\n1 5\n1 6\n", b"0\n2\n1 5\n2 5\n", b"0\n1\nx 5\n", b"0\n1\n5\n", b"zero", b"0\n1\n-1 0\n"):
        fs.write("c", text)
        assert checkpoints.read_epochs(fs, "c") is None
    assert checkpoints.read_offsets(fs, "missing") == {}
    assert checkpoints.read_epochs(fs, "missing") is None


def test_partition_metadata() -> None:
    fs = MemoryFs()
    fs.mkdirs("d/t-0")
    checkpoints.write_topic_id(fs, "d/t-0", TOPIC_ID)
    assert fs.read("d/t-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert checkpoints.read_topic_id(fs, "d/t-0") == TOPIC_ID


def test_meta_properties_and_the_mark_of_a_clean_shutdown() -> None:
    fs = MemoryFs()
    manager = LogManager(fs, "data", lambda topic: LogConfig(), rng=Random(1), cluster_id="Q1", node_id=3)
    directory_id = checkpoints.uuid_text(manager.directory_id)
    assert fs.read("data/meta.properties").decode() == (
        f"version=1\nnode.id=3\ncluster.id=Q1\ndirectory.id={directory_id}\n"
    )
    manager.mark_clean_shutdown(77)
    assert fs.read("data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":77}'
