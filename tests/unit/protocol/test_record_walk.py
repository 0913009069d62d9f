"""Walking over records: what is looked for is found early, and no batch costs more than its limit."""

from __future__ import annotations

from struct import pack_into

import pytest

from squall.broker.protocol import record_walk
from squall.broker.protocol.compression import compress
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.record_walk import record_since
from squall.broker.protocol.records import HEADER_SIZE, Record, encode_batch, read_header
from tests.support.brokers.bombs import many_records

CODECS = range(5)


def made(records: list[Record], codec: int) -> memoryview:
    return memoryview(bytearray(encode_batch(records, base_offset=100, codec=codec)))


def since(batch: memoryview, timestamp: int, *, start: int = 0, limit: int = 2**60, most: int = 1 << 26) -> object:
    return record_since(read_header(batch, 0), batch, timestamp, start, limit, most)


@pytest.mark.parametrize("codec", CODECS)
def test_the_first_record_that_is_late_enough_is_found(codec: int) -> None:
    batch = made([Record(n, 1_000 + n, None, bytes(3_000)) for n in range(200)], codec)
    assert since(batch, 0) == (1_000, 100)
    assert since(batch, 1_199) == (1_199, 299)
    assert since(batch, 1_200) is None
    assert since(batch, 0, start=150) == (1_050, 150)
    assert since(batch, 1_050, limit=150) is None


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_a_record_at_the_front_costs_little_of_a_batch_that_unpacks_to_gigabytes(codec: int) -> None:
    front = encode_batch([Record(0, 1_000, None, b"v")])
    body = front[HEADER_SIZE:] + bytes(8 << 20)
    batch = memoryview(bytearray(front[:HEADER_SIZE] + compress(codec, body)))
    pack_into(">h", batch, 21, codec)
    assert since(batch, 1_000, most=1 << 20) == (1_000, 0)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_no_more_is_unpacked_than_the_limit(codec: int) -> None:
    batch = made([Record(0, 1_000, None, bytes(1 << 20)), Record(1, 2_000, None, b"")], codec)
    with pytest.raises(MalformedFrame, match="unpack"):
        since(batch, 2_000, most=1 << 19)
    assert since(batch, 2_000, most=1 << 22) == (2_000, 101)


@pytest.mark.parametrize("codec", CODECS)
def test_a_timestamp_that_no_answer_can_carry_is_malformed(codec: int) -> None:
    batch = made([Record(0, 0, None, b"v"), Record(1, 2**62, None, b"v")], codec)
    pack_into(">q", batch, 27, 2**62 + 5)
    with pytest.raises(MalformedFrame, match="timestamp"):
        since(batch, 2**62 + 6)


@pytest.mark.parametrize("codec", CODECS)
def test_fewer_records_than_the_header_says_are_malformed(codec: int) -> None:
    batch = made([Record(0, 1_000, None, b"v")], codec)
    pack_into(">i", batch, 57, 2)
    with pytest.raises(MalformedFrame, match="before its end"):
        since(batch, 2_000)


@pytest.mark.parametrize("codec", [0, 4])
def test_a_batch_of_millions_of_records_is_not_read_to_its_end(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """9.6 million records of 6 KB took 15 to 20 s."""
    monkeypatch.setattr(record_walk, "MOST_RECORDS", 100_000)
    batch = memoryview(many_records(100_001, 100_000, codec=codec))
    with pytest.raises(MalformedFrame, match="among the first"):
        since(batch, 100_000)
    assert since(memoryview(many_records(100_000, 100_000, codec=codec)), 100_000) is None


def test_a_search_that_is_given_up_ends() -> None:
    batch, asked = memoryview(many_records(100_000, 100_000)), 0

    def is_given_up() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    with pytest.raises(MalformedFrame, match="nobody waits"):
        record_since(read_header(batch, 0), batch, 100_000, 0, 2**60, 1 << 26, is_given_up=is_given_up)
    assert asked == 3
