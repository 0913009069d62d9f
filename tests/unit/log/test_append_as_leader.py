"""Checks what a leader takes, what it refuses, and what it answers (kafka-wire.md sections 2 and 4)."""

from __future__ import annotations

import errno
from struct import pack_into

import pytest
from crc32c import crc32c

from squall.broker.log.config import LogConfig
from squall.broker.log.log import Log
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import HEADER_SIZE, Record, check_crc, decode_records, encode_batch, read_header
from tests.support.disks.batches import NEWEST, batch, marker
from tests.support.disks.memory_fs import MemoryFs
from tests.support.disks.small_log import open_log, stable_offset

WALL_MS = 10_000
BIG = LogConfig()


def patched(at: int, form: str, value: int, *, count: int = 2) -> memoryview:
    """Return a batch with one header field changed and a correct CRC."""
    data = batch(count)
    pack_into(form, data, at, value)
    if at >= 21:
        pack_into(">I", data, 17, crc32c(data[21:]))
    return data


@pytest.fixture
def log() -> Log:
    return open_log(MemoryFs(), config=BIG)


def test_offsets_follow_one_another(log: Log) -> None:
    assert log.append_as_leader(batch(3), 0, WALL_MS)[:6] == (0, 0, 2, -1, False, None)
    assert log.append_as_leader(batch(1), 0, WALL_MS)[:6] == (0, 3, 3, -1, False, None)
    assert log.append_as_leader(batch(2), 1, WALL_MS)[:6] == (0, 4, 5, -1, False, None)
    assert log.log_end_offset == 6
    assert log.epochs.entries == [(0, 0), (1, 4)]


def test_base_offset_and_epoch_are_written_into_the_request_itself(log: Log) -> None:
    log.append_as_leader(batch(3), 5, WALL_MS)
    sent = batch(2)
    log.append_as_leader(sent, 5, WALL_MS)
    assert read_header(sent, 0)[:3] == (3, len(sent) - 12, 5)
    assert check_crc(sent, 0, len(sent))


def test_a_batch_that_cannot_be_written_to_is_copied(log: Log) -> None:
    sent = bytes(batch(2))
    log.append_as_leader(batch(1), 0, WALL_MS)
    assert log.append_as_leader(memoryview(sent), 0, WALL_MS).base_offset == 1
    assert [header.base_offset for header, _ in log.read_batches(0, 3)] == [0, 1]


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (ErrorCode.INVALID_RECORD, memoryview(b"")),
        (ErrorCode.INVALID_RECORD, batch(2)[: HEADER_SIZE - 1]),
        (ErrorCode.CORRUPT_MESSAGE, batch(2)[:-1]),
        (ErrorCode.INVALID_RECORD, memoryview(bytearray(bytes(batch(2)) * 2))),
        (ErrorCode.CORRUPT_MESSAGE, patched(8, ">i", 3)),
        (ErrorCode.CORRUPT_MESSAGE, patched(8, ">i", -1)),
        (ErrorCode.INVALID_RECORD, patched(16, ">b", 1)),
        (ErrorCode.CORRUPT_MESSAGE, patched(17, ">I", 0)),
        (ErrorCode.INVALID_RECORD, patched(21, ">h", 5)),
        (ErrorCode.INVALID_RECORD, patched(21, ">h", 0x20)),
        (ErrorCode.INVALID_RECORD, patched(21, ">h", 0x40)),
        (ErrorCode.INVALID_RECORD, patched(21, ">h", 0x10)),
        (ErrorCode.INVALID_RECORD, patched(23, ">i", 2)),
        (ErrorCode.INVALID_RECORD, patched(57, ">i", 0)),
        (ErrorCode.INVALID_RECORD, patched(57, ">i", 1)),
        (ErrorCode.INVALID_RECORD, patched(43, ">q", 7)),
        (ErrorCode.INVALID_RECORD, batch(1, pid=1, epoch=0, seq=-2)),
        (ErrorCode.INVALID_RECORD, marker(1, 0, commit=True)),
    ],
)
def test_refused(log: Log, error: ErrorCode, sent: memoryview) -> None:
    result = log.append_as_leader(sent, 0, WALL_MS)
    assert result[:5] == (error, -1, -1, -1, False)
    assert result.message
    assert log.log_end_offset == 0
    assert log.size == 0
    assert log.epochs.entries == []


def test_a_batch_larger_than_the_topic_takes_is_refused() -> None:
    log = open_log(MemoryFs(), config=LogConfig(max_message_bytes=100, segment_bytes=90))
    assert log.append_as_leader(batch(1, size=40), 0, WALL_MS).error == ErrorCode.MESSAGE_TOO_LARGE
    assert log.append_as_leader(batch(1, size=25), 0, WALL_MS).error == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.append_as_leader(batch(1, size=5), 0, WALL_MS).error == 0


def test_what_the_broker_itself_writes_may_be_larger_than_a_segment() -> None:
    """Else a transaction would stay open for ever where somebody has made its partition's segments tiny."""
    log = open_log(MemoryFs(), config=LogConfig(max_message_bytes=14, segment_bytes=14))
    assert log.append_as_leader(marker(1, 0, commit=True), 0, WALL_MS, client=False).error == 0
    assert log.append_as_leader(marker(1, 1, commit=True), 0, WALL_MS, client=False).error == 0
    assert [segment.next_offset for segment in log.segments] == [1, 2]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_stored_as_they_came(log: Log, codec: int) -> None:
    sent = batch(5, codec=codec, size=100)
    assert log.append_as_leader(sent, 0, WALL_MS).last_offset == 4
    [(_, stored)] = log.read_batches(0, 5)
    assert stored == sent
    assert len(decode_records(memoryview(stored))) == 5


def test_zstd_is_refused_where_the_request_is_too_old_for_it(log: Log) -> None:
    sent = batch(1, codec=4)
    assert log.append_as_leader(sent, 0, WALL_MS, zstd=False).error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert log.append_as_leader(batch(1, codec=3), 0, WALL_MS, zstd=False).error == 0


def test_a_timestamp_too_far_ahead_is_refused() -> None:
    log = open_log(
        MemoryFs(), config=LogConfig(message_timestamp_after_max_ms=100, message_timestamp_before_max_ms=500)
    )
    assert log.append_as_leader(batch(1, timestamp=WALL_MS + 100), 0, WALL_MS).error == 0
    assert log.append_as_leader(batch(2, timestamp=WALL_MS + 100), 0, WALL_MS).error == ErrorCode.INVALID_TIMESTAMP
    assert log.append_as_leader(batch(1, timestamp=WALL_MS - 501), 0, WALL_MS).error == ErrorCode.INVALID_TIMESTAMP
    assert log.append_as_leader(batch(1, timestamp=-1), 0, WALL_MS).error == 0


def test_log_append_time_goes_over_the_producers_timestamps() -> None:
    log = open_log(MemoryFs(), config=LogConfig(message_timestamp_type="LogAppendTime"))
    sent = batch(3, timestamp=5, pid=1, seq=0)
    assert log.append_as_leader(sent, 0, WALL_MS)[:6] == (0, 0, 2, WALL_MS, False, None)
    [(header, stored)] = log.read_batches(0, 3)
    assert header.timestamp_type == 1
    assert header.max_timestamp == WALL_MS
    assert [record.timestamp for record in decode_records(memoryview(stored))] == [WALL_MS] * 3
    assert log.append_as_leader(batch(3, timestamp=5, pid=1, seq=0), 0, WALL_MS + 9)[:6] == (
        0,
        0,
        2,
        WALL_MS,
        True,
        None,
    )


@pytest.mark.parametrize("config", [BIG, LogConfig(message_timestamp_type="LogAppendTime")])
def test_a_producer_cannot_claim_log_append_time(config: LogConfig) -> None:
    log = open_log(MemoryFs(), config=config)
    claimed = log.append_as_leader(patched(21, ">h", 0x08), 0, WALL_MS)
    assert (claimed.error, log.log_end_offset) == (ErrorCode.INVALID_TIMESTAMP, 0)


@pytest.mark.parametrize("largest", [-1, 999])
def test_a_largest_timestamp_below_the_first_records_is_set_to_that_as_kafka_sets_it(log: Log, largest: int) -> None:
    sent = patched(35, ">q", largest, count=1)
    assert log.append_as_leader(sent, 0, WALL_MS).error == 0
    [(header, stored)] = log.read_batches(0, 1)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_000)
    assert check_crc(memoryview(stored), 0, len(stored))


def test_timestamps_below_none_are_refused(log: Log) -> None:
    assert log.append_as_leader(patched(35, ">q", -2), 0, WALL_MS).error == ErrorCode.INVALID_TIMESTAMP
    assert log.append_as_leader(patched(27, ">q", -(2**63)), 0, WALL_MS).error == ErrorCode.INVALID_TIMESTAMP


def claiming(count: int, codec: int = 0, size: int = 20) -> memoryview:
    """Return a batch of one record whose header claims `count` records."""
    data = batch(1, codec=codec, size=size)
    pack_into(">i", data, 23, count - 1)
    pack_into(">i", data, 57, count)
    pack_into(">I", data, 17, crc32c(data[21:]))
    return data


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("count", [2**31 - 1, 200_000_000])
def test_a_batch_does_not_move_the_logs_end_further_than_its_bytes_can_hold(log: Log, codec: int, count: int) -> None:
    refused = log.append_as_leader(claiming(count, codec), 0, WALL_MS)
    assert (refused.error, log.log_end_offset) == (ErrorCode.INVALID_RECORD, 0)
    assert str(count) in str(refused.message)


@pytest.mark.parametrize("codec", range(5))
def test_as_many_records_as_fit_are_taken_however_well_they_pack(log: Log, codec: int) -> None:
    sent = encode_batch([Record(n, 5, None, b"") for n in range(20_000)], codec=codec)
    assert log.append_as_leader(memoryview(bytearray(sent)), 0, WALL_MS).last_offset == 19_999


def test_a_clients_batch_begins_at_offset_0(log: Log) -> None:
    assert log.append_as_leader(patched(0, ">q", 7), 0, WALL_MS).error == ErrorCode.INVALID_RECORD
    assert log.append_as_leader(patched(0, ">q", 7), 0, WALL_MS, client=False).error == 0


# -------------------------------------------------------------------------------------------- record by record

CHECKED = LogConfig(squall_record_validation_enable=True, message_timestamp_after_max_ms=100)


def damaged(codec: int) -> memoryview:
    """Return a batch with a correct CRC and random bytes as records."""
    data = batch(2, codec=codec)
    data[61:] = bytes(255 - byte for byte in data[61:])
    pack_into(">I", data, 17, crc32c(data[21:]))
    return data


@pytest.mark.parametrize("codec", range(5))
def test_garbage_and_wrong_codecs_are_refused_where_records_are_checked(codec: int) -> None:
    log = open_log(MemoryFs(), config=CHECKED)
    assert log.append_as_leader(damaged(codec), 0, WALL_MS).error == ErrorCode.INVALID_RECORD
    wrong = batch(2, codec=codec)
    pack_into(">h", wrong, 21, (codec + 1) % 5)
    pack_into(">I", wrong, 17, crc32c(wrong[21:]))
    assert log.append_as_leader(wrong, 0, WALL_MS).error == ErrorCode.INVALID_RECORD
    assert log.append_as_leader(claiming(3, codec), 0, WALL_MS).error == ErrorCode.INVALID_RECORD
    assert log.append_as_leader(batch(2, codec=codec), 0, WALL_MS).error == 0
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", range(5))
def test_which_records_are_untimely_is_told_where_records_are_checked(codec: int) -> None:
    log = open_log(MemoryFs(), config=CHECKED)
    late = [Record(n, WALL_MS + 99 * n, b"k", b"v") for n in range(3)]
    sent = memoryview(bytearray(encode_batch(late, codec=codec)))
    pack_into(">q", sent, 35, WALL_MS)
    pack_into(">I", sent, 17, crc32c(sent[21:]))
    refused = log.append_as_leader(sent, 0, WALL_MS)
    assert (refused.error, [place for place, _ in refused.faults]) == (ErrorCode.INVALID_TIMESTAMP, [2])


def test_a_wrong_largest_timestamp_is_set_right_where_records_are_checked() -> None:
    log = open_log(MemoryFs(), config=CHECKED)
    assert log.append_as_leader(patched(35, ">q", WALL_MS + 50, count=3), 0, WALL_MS).error == 0
    [(header, stored)] = log.read_batches(0, 3)
    assert header.max_timestamp == 1_002
    assert check_crc(memoryview(stored), 0, len(stored))


def test_a_batch_that_unpacks_to_too_much_is_refused_where_records_are_checked() -> None:
    config = LogConfig(squall_record_validation_enable=True, squall_decompressed_batch_max_bytes=1 << 20)
    log = open_log(MemoryFs(), config=config)
    bomb = encode_batch([Record(0, 5, None, bytes(2 << 20))], codec=4)
    assert log.append_as_leader(memoryview(bytearray(bomb)), 0, WALL_MS).error == ErrorCode.INVALID_RECORD
    small = encode_batch([Record(0, 5, None, bytes(1 << 19))], codec=4)
    assert log.append_as_leader(memoryview(bytearray(small)), 0, WALL_MS).error == 0


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    log = open_log(MemoryFs(), config=LogConfig(cleanup_policy=("compact",)))
    refused = log.append_as_leader(batch(2, key=None), 0, WALL_MS)
    assert (refused.error, [place for place, _ in refused.faults]) == (ErrorCode.INVALID_RECORD, [0, 1])
    assert log.append_as_leader(batch(2, key=None, codec=1), 0, WALL_MS).error == ErrorCode.INVALID_RECORD
    assert log.append_as_leader(batch(2), 0, WALL_MS).error == 0


# ------------------------------------------------------------------------------------------------------ idempotence


def send(log: Log, seq: int, *, epoch: int = 0, count: int = 1, pid: int = 9) -> tuple[int, int, bool]:
    result = log.append_as_leader(batch(count, pid=pid, epoch=epoch, seq=seq), 0, WALL_MS)
    return result.error, result.base_offset, result.duplicate


def test_the_five_newest_batches_are_known_again_with_their_first_offsets(log: Log) -> None:
    for n in range(6):
        assert send(log, n * 2, count=2) == (0, n * 2, False)
    for n in range(1, 6):
        assert send(log, n * 2, count=2) == (0, n * 2, True)
    assert send(log, 0, count=2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, False)
    assert log.log_end_offset == 12
    assert send(log, 12) == (0, 12, False)


def test_a_batch_with_a_known_beginning_but_another_end_is_no_duplicate(log: Log) -> None:
    send(log, 0, count=2)
    assert send(log, 0, count=3)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_refused(log: Log) -> None:
    send(log, 0)
    assert send(log, 2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1) == (0, 1, False)


def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    assert send(log, 77) == (0, 0, False)
    assert send(log, 78) == (0, 1, False)


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(log: Log) -> None:
    send(log, 0)
    assert send(log, 1, epoch=1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1) == (0, 1, False)
    assert send(log, 1, epoch=0)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 0, epoch=0)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 1, epoch=1) == (0, 2, False)


def test_sequences_wrap_to_zero(log: Log) -> None:
    last = 2**31 - 1
    send(log, last - 1)
    assert send(log, last, count=3) == (0, 1, False)
    assert send(log, 2) == (0, 4, False)
    assert send(log, last, count=3) == (0, 1, True)


def test_the_sequence_behind_the_largest_is_zero(log: Log) -> None:
    assert send(log, 2**31 - 1) == (0, 0, False)
    assert send(log, 0) == (0, 1, False)


def test_a_refusal_says_what_was_expected(log: Log) -> None:
    send(log, 4)
    message = log.append_as_leader(batch(1, pid=9, seq=9), 0, WALL_MS).message
    assert message == "producer 9 epoch 0 sent sequence 9; expected 5 of epoch 0 in t-0"


def test_the_window_survives_a_restart_clean_or_not() -> None:
    for clean in (True, False):
        fs = MemoryFs()
        log = open_log(fs, config=BIG)
        for n in range(8):
            send(log, n)
        if clean:
            log.close(0)
        log = open_log(fs.after_crash(), clean=clean, config=BIG)
        assert [send(log, n) for n in range(3, 8)] == [(0, n, True) for n in range(3, 8)]
        assert send(log, 8) == (0, 8, False)


# ------------------------------------------------------------------------------------------------------ transactions


def test_a_transaction_holds_the_last_stable_offset_until_its_marker_is_replicated(log: Log) -> None:
    log.append_as_leader(batch(2), 0, WALL_MS)
    log.append_as_leader(batch(2, pid=1, seq=0, transactional=True), 0, WALL_MS)
    log.append_as_leader(batch(2), 0, WALL_MS)
    assert stable_offset(log.producers, 6) == 2
    assert stable_offset(log.producers, 1) == 1
    log.append_as_leader(marker(1, 0, commit=True), 0, WALL_MS, client=False)
    assert stable_offset(log.producers, 6) == 2
    assert stable_offset(log.producers, 7) == 7
    assert log.aborted_transactions(0, 7) == []


def test_aborted_transactions_are_found_where_they_overlap(log: Log) -> None:
    log.append_as_leader(batch(2, pid=1, seq=0, transactional=True), 0, WALL_MS)
    log.append_as_leader(batch(2, pid=2, seq=0, transactional=True), 0, WALL_MS)
    log.append_as_leader(marker(2, 0, commit=False), 0, WALL_MS, client=False)
    log.roll()
    log.append_as_leader(marker(1, 0, commit=False), 0, WALL_MS, client=False)
    assert [txn[:3] for txn in log.aborted_transactions(0, 6)] == [(2, 2, 4), (1, 0, 5)]
    assert [txn[:3] for txn in log.aborted_transactions(5, 6)] == [(1, 0, 5)]
    assert [txn[:3] for txn in log.aborted_transactions(0, 2)] == [(1, 0, 5)]


def test_a_marker_of_a_fenced_producer_or_coordinator_is_refused(log: Log) -> None:
    log.append_as_leader(batch(1, pid=1, epoch=3, seq=0, transactional=True), 0, WALL_MS)
    stale = log.append_as_leader(marker(1, 2, commit=True), 0, WALL_MS, client=False)
    assert stale.error == ErrorCode.INVALID_PRODUCER_EPOCH
    log.append_as_leader(marker(1, 3, commit=True, coordinator_epoch=5), 0, WALL_MS, client=False)
    zombie = log.append_as_leader(marker(1, 3, commit=False, coordinator_epoch=4), 0, WALL_MS, client=False)
    assert zombie.error == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_plain_batch_inside_of_a_transaction_of_its_producer_is_refused(log: Log) -> None:
    log.append_as_leader(batch(1, pid=1, seq=0, transactional=True), 0, WALL_MS)
    assert log.append_as_leader(batch(1, pid=1, seq=1), 0, WALL_MS).error == ErrorCode.INVALID_TXN_STATE


def test_a_control_record_that_cannot_be_read_is_refused(log: Log) -> None:
    sent = marker(1, 0, commit=True)
    sent[-12:] = b"\xff" * 12
    pack_into(">I", sent, 17, crc32c(sent[21:]))
    assert log.append_as_leader(sent, 0, WALL_MS, client=False).error == ErrorCode.CORRUPT_MESSAGE


# --------------------------------------------------------------------------------------------------- files and disk


def test_one_append_is_one_write_and_no_fsync() -> None:
    fs = MemoryFs()
    log = open_log(fs, config=BIG)
    log.append_as_leader(batch(2), 0, WALL_MS)
    fs.log.clear()
    log.append_as_leader(batch(2), 0, WALL_MS)
    assert fs.log == ["append"]


def test_a_new_leader_epoch_is_durable_before_its_first_batch_is_written() -> None:
    fs = MemoryFs()
    log = open_log(fs, config=BIG)
    log.append_as_leader(batch(2), 0, WALL_MS)
    fs.log.clear()
    log.epochs.assign(1, 2)
    assert fs.log == []
    log.append_as_leader(batch(2), 1, WALL_MS)
    assert fs.log == ["create", "append", "fsync", "rename", "fsync_dir", "append"]


def test_a_full_disk_leaves_log_and_producers_as_they_were() -> None:
    fs = MemoryFs()
    log = open_log(fs, config=BIG)
    log.append_as_leader(batch(1, pid=1, seq=0), 0, WALL_MS)
    fs.fail = lambda kind: OSError(errno.ENOSPC, "no space") if kind == "append" else None
    with pytest.raises(OSError, match="no space"):
        log.append_as_leader(batch(1, pid=1, seq=1), 0, WALL_MS)
    fs.fail = None
    assert log.log_end_offset == 1
    assert log.append_as_leader(batch(1, pid=1, seq=1), 0, WALL_MS)[:6] == (0, 1, 1, -1, False, None)


def test_segments_are_rolled_by_size_time_and_index_size() -> None:
    one = len(batch(1))
    log = open_log(MemoryFs(), config=LogConfig(segment_bytes=3 * one))
    for _ in range(7):
        log.append_as_leader(batch(1), 0, WALL_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]

    log = open_log(MemoryFs(), config=LogConfig(segment_ms=100))
    for timestamp in (0, 100, 101, 50, 201, 202):
        log.append_as_leader(batch(1, timestamp=timestamp), 0, WALL_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 5]

    log = open_log(MemoryFs(), config=LogConfig(index_interval_bytes=0, segment_index_bytes=16))
    for _ in range(7):
        log.append_as_leader(batch(1), 0, WALL_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]


def test_a_segment_is_rolled_before_its_offsets_grow_too_large_for_the_index() -> None:
    log = open_log(MemoryFs(), config=LogConfig(cleanup_policy=("compact",)))
    log.append_as_follower(batch(1, leader_epoch=0), NEWEST)
    log.append_as_follower(batch(1, base=2**31 - 1, leader_epoch=0), NEWEST)
    log.append_as_leader(batch(1), 0, WALL_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]
