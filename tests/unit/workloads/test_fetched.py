"""Checks what a reader sees of a partition's bytes."""

from __future__ import annotations

import pytest

from squall.broker.protocol.records import encode_batch
from squall.workloads.client.fetched import UnreadableBatch, read_records
from squall.workloads.payload import NOT_KNOWN

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
VALUE = b"\0\0\0\0\0\0"


def batch(base: int, count: int = 1, *, pid: int = -1, epoch: int = 3, txn: bool = False, codec: int = 0) -> bytes:
    records = [(offset, 0, None, b"v%d" % offset, []) for offset in range(base, base + count)]
    return encode_batch(records, base_offset=base, leader_epoch=epoch, producer_id=pid, transactional=txn, codec=codec)


def marker(base: int, pid: int, key: bytes) -> bytes:
    return encode_batch(
        [(base, 0, key, VALUE, [])], base_offset=base, producer_id=pid, transactional=True, control=True
    )


def offsets(data: bytes, position: int = 0, aborted: list[tuple[int, int]] | None = None, iso: int = 0) -> list[int]:
    return [record.offset for record in read_records(memoryview(data), position, aborted, iso).records]


def test_records_before_the_position_are_left_out_and_the_next_position_is_behind_the_batch() -> None:
    read = read_records(memoryview(batch(10, 5) + batch(15, 2, epoch=4)), 12, None, 0)
    assert [record.offset for record in read.records] == [12, 13, 14, 15, 16]
    assert read.next_position == 17 and read.last_epoch == 4 and read.damage == []


def test_a_batch_cut_short_is_left_for_the_next_fetch() -> None:
    read = read_records(memoryview(batch(0, 3) + batch(3, 3)[:-1]), 0, None, 0)
    assert [record.offset for record in read.records] == [0, 1, 2]
    assert read.next_position == 3


def test_nothing_leaves_the_position_alone() -> None:
    assert read_records(memoryview(b""), 7, None, 0) == ([], 7, -1, [])
    assert read_records(None, 7, None, 0) == ([], 7, -1, [])


def test_control_batches_are_never_seen_but_move_the_position() -> None:
    for iso in (0, 1):
        read = read_records(memoryview(batch(0) + marker(1, 9, COMMIT)), 0, [], iso)
        assert [record.offset for record in read.records] == [0]
        assert read.next_position == 2


def test_aborted_transactions_are_seen_only_by_readers_of_uncommitted_records() -> None:
    data = batch(0, pid=9, txn=True) + batch(1, pid=8, txn=True) + marker(2, 9, ABORT) + marker(3, 8, COMMIT)
    assert offsets(data, aborted=[(9, 0)], iso=1) == [1]
    assert offsets(data, aborted=None, iso=0) == [0, 1]


def test_a_producers_next_transaction_after_an_aborted_one_is_seen() -> None:
    data = batch(0, pid=9, txn=True) + marker(1, 9, ABORT) + batch(2, pid=9, txn=True) + marker(3, 9, COMMIT)
    assert offsets(data, aborted=[(9, 0)], iso=1) == [2]


def test_two_aborted_transactions_of_one_producer_are_both_left_out() -> None:
    data = batch(0, pid=9, txn=True) + marker(1, 9, ABORT) + batch(2, pid=9, txn=True) + marker(3, 9, ABORT)
    assert offsets(data + batch(4), aborted=[(9, 2), (9, 0)], iso=1) == [4]


def test_an_aborted_producers_records_outside_of_transactions_are_seen() -> None:
    assert offsets(batch(0, pid=9) + batch(1, pid=9, txn=True), aborted=[(9, 0)], iso=1) == [0]


def test_a_batch_with_a_wrong_crc_is_reported_and_passed_over() -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-1] ^= 1
    read = read_records(memoryview(bytes(damaged) + batch(3)), 0, None, 0)
    assert [record.offset for record in read.records] == [3]
    assert read.damage == [UnreadableBatch(0, "wrong batch CRC")] and read.next_position == 4


@pytest.mark.parametrize("bit", [0, 1, 31])
def test_where_a_damaged_batch_ends_is_not_believed(bit: int) -> None:
    damaged = bytearray(batch(5, 3))
    damaged[23 + bit // 8] ^= 0x80 >> bit % 8  # of its last offset delta
    read = read_records(memoryview(bytes(damaged)), 5, None, 0)
    assert read.records == []
    assert (read.damage, read.next_position) == ([UnreadableBatch(5, "wrong batch CRC")], 6)
    again = read_records(memoryview(bytes(damaged) + batch(8)), 6, None, 0)
    assert [record.offset for record in again.records] == [8]
    assert (again.damage, again.next_position) == ([UnreadableBatch(6, "wrong batch CRC")], 9)


def test_bytes_without_any_batch_are_reported_where_they_begin() -> None:
    read = read_records(memoryview(batch(0) + bytes(100)), 0, None, 0)
    assert [record.offset for record in read.records] == [0]
    assert read.next_position == 1 and [damage.offset for damage in read.damage] == [1]


def test_compressed_batches_are_read() -> None:
    for codec in range(5):
        assert offsets(batch(5, 3, codec=codec)) == [5, 6, 7]


def test_timestamps_that_the_leader_set_are_not_known_as_the_senders() -> None:
    records = [(offset, 1_000 + offset, None, b"v", []) for offset in range(2)]
    sent = read_records(memoryview(encode_batch(records)), 0, None, 0).records
    assert [record.timestamp for record in sent] == [1_000, 1_001]
    appended = read_records(memoryview(encode_batch(records, timestamp_type=1)), 1, None, 0).records
    assert [(record.offset, record.timestamp) for record in appended] == [(1, NOT_KNOWN)]
