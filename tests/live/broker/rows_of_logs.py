"""The table's rows of requests that make a broker search, create, fill and remove logs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from struct import pack

from crc32c import crc32c

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.live.broker.table import (
    KIB,
    MIB,
    Row,
    create,
    delete,
    found_offsets,
    logs_of,
    look_up,
    now_ms,
    produce,
    produced,
    small_batch,
    topic,
)
from tests.support.brokers.bombs import SMALLEST_RECORD, many_records
from tests.support.brokers.broker_process import BrokerProcess
from tests.support.brokers.raw_client import frame_of

RECORDS = 4_600
"""How many of the smallest records make a batch of less than 32 KiB, which is searched on the event loop."""
WIDE, WIDER, FRESH = 1_400, 3_000, 100


def batch_that_claims_to_be_late(newest_ms: int) -> bytes:
    """Return a batch whose header has a later timestamp than all of its records."""
    batch = many_records(RECORDS, newest_ms, codec=0)
    assert len(batch) < 32 << 10
    return batch


def hundreds_of_batches(broker: BrokerProcess) -> Iterator[None]:
    """A search by time in 500 batches of 32 KiB, which are 16 MB, once blocked the event loop for seconds."""
    newest = now_ms() + 60_000
    create(broker, topic("long"))
    assert produce(broker, "long", *[batch_that_claims_to_be_late(newest)] * 500) == {ErrorCode.NONE}
    yield
    with broker.connect() as client:
        assert found_offsets(client.ask(look_up("long", newest), 7)) == [(0, 0, -1)]


def thousands_of_headers(broker: BrokerProcess) -> Iterator[None]:
    """A search by time that has to read every batch header of a segment, and no record: only the last batch may be late
    enough.
    """
    create(broker, topic("headers"))
    batch = bytes(encode_batch([Record(0, now_ms(), None, b"v")]))
    sent = frame_of(produced(batch, "headers"), 9)
    late = now_ms() + 60_000
    with broker.connect() as client:
        for _ in range(60):
            client.send(sent * 100)
            for _ in range(100):
                client.frame()
    assert produce(broker, "headers", bytes(encode_batch([Record(0, late, None, b"v")]))) == {ErrorCode.NONE}
    yield
    with broker.connect() as client:
        assert found_offsets(client.ask(look_up("headers", late), 7)) == [(0, 0, 6_000)]


def one_partition_often(broker: BrokerProcess) -> Iterator[None]:
    """A ListOffsets that names one partition 2,000 times once blocked the event loop for 4.8 s."""
    newest = now_ms() + 60_000
    create(broker, topic("twice"))
    assert produce(broker, "twice", batch_that_claims_to_be_late(newest)) == {ErrorCode.NONE}
    yield
    with broker.connect() as client:
        answer = client.ask(look_up("twice", newest, *[0] * 2000), 7)
        assert found_offsets(answer) == [(0, ErrorCode.INVALID_REQUEST, -1)]
        assert found_offsets(client.ask(look_up("twice", newest), 7)) == [(0, 0, -1)]


def zstd_bomb(unpacked: int, newest_ms: int) -> bytes:
    """Return a batch of a few hundred bytes that unpacks to `unpacked` bytes. Its second record is late according to
    the header only, so a search for a late record has to read all of it.
    """
    now = newest_ms - 60_000
    batch = bytearray(encode_batch([Record(0, now, None, bytes(unpacked)), Record(1, now, None, b"")], codec=4))
    batch[35:43] = pack(">q", newest_ms)
    batch[17:21] = pack(">I", crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def packed_zeroes(broker: BrokerProcess) -> Iterator[None]:
    """A search in 725 bytes once cost 2 s of the event loop and 149 MB. Here several connections search such batches at
    once.
    """
    newest = now_ms() + 3_000_000
    create(broker, topic("zeroes"))
    bombs = [zstd_bomb(size << 20, newest) for size in (16, 200)]
    assert max(map(len, bombs)) < 8_000
    assert produce(broker, "zeroes", *bombs) == {ErrorCode.NONE}
    yield
    search = look_up("zeroes", newest)
    clients = [broker.connect() for _ in range(8)]
    for client in clients:
        client.send(frame_of(search, 7))
    for client in clients:
        assert client.answer(search, 7).topics[0].partitions[0].error_code == 0
        client.close()


def many_small_records(broker: BrokerProcess) -> Iterator[None]:
    """6,221 bytes hold 9.6 million records at the default limit, and half of them here. Another client's search waited
    10 s behind such a batch. Now the batch is not read to its end, because the header answers.
    """
    newest = now_ms() + 3_400_000
    bomb = many_records((32 << 20) // len(SMALLEST_RECORD), newest)
    assert len(bomb) < 8_000
    create(broker, topic("bombs"))
    assert produce(broker, "bombs", bomb) == {ErrorCode.NONE}
    yield
    search = look_up("bombs", newest)
    clients = [broker.connect() for _ in range(2)]
    for client in clients:
        client.send(frame_of(search, 7))
    for client in clients:
        [part] = client.answer(search, 7).topics[0].partitions
        assert (part.error_code, part.timestamp) == (0, newest)
        client.close()


def first_batches(broker: BrokerProcess) -> Iterator[None]:
    """The first batch of a leader epoch waits for the disk in each partition: with 3,600 partitions a broker was
    blocked until it was fenced.
    """
    create(broker, topic("fresh", FRESH))
    request = produced(small_batch(), "fresh", *range(FRESH))
    yield
    with broker.connect() as client:
        [found] = client.ask(request, 9).responses
    assert [part.error_code for part in found.partition_responses] == [ErrorCode.NONE] * FRESH


def parked_fetches(broker: BrokerProcess) -> Iterator[None]:
    """Fetches that name one partition often: 51 MB of them once kept 440 MB, and from then on every record of any
    client took more than a second.
    """
    create(broker, topic("few"))
    assert produce(broker, "few") == {ErrorCode.NONE}
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1) for _ in range(30_000)]
    request = FetchRequest(
        max_wait_ms=2**31 - 1,
        min_bytes=2**30,
        max_bytes=2**31 - 1,
        session_epoch=-1,
        topics=[FetchTopic(topic="few", partitions=parts)],
    )
    yield
    with broker.connect() as client:
        for _ in range(30):
            client.send(frame_of(request, 12))
        for _ in range(5):
            assert produce(broker, "few") == {ErrorCode.NONE}


def wide_topic(broker: BrokerProcess) -> Iterator[None]:
    """Creating and deleting a topic with many partitions once blocked the event loop for two seconds."""
    yield
    create(broker, topic("wide", WIDE))
    broker.wait_for(lambda: len(logs_of(broker, "wide")) == WIDE, 100)
    delete(broker, "wide")
    broker.wait_for(lambda: not logs_of(broker, "wide"), 100)


def directories(broker: BrokerProcess) -> Iterator[None]:
    """Removing the directories of a deleted topic once blocked the broker for up to 49 s."""
    create(broker, topic("wider", WIDER))
    delete(broker, "wider")
    data = broker.trace.parent / "data"

    def are_gone() -> bool:
        time.sleep(0.3)
        return not any(path.name.startswith("wider-") for path in data.iterdir())

    yield
    broker.wait_for(are_gone, 200)


SWEPT = {"log.segment.delete.delay.ms": "1000", "log.retention.check.interval.ms": "1000"}
ROWS = (
    Row("look up through hundreds of batches", hundreds_of_batches, 100, bytes=96 * KIB, entries=2_000,
        records=3 * RECORDS, in_gate=True),
    Row("look up through thousands of headers", thousands_of_headers, 100, entries=2_000, records=1, in_gate=True),
    Row("look up one partition often", one_partition_often, 40 * KIB, bytes=64 * KIB, records=RECORDS, in_gate=True),
    Row("look into packed zeroes", packed_zeroes, KIB, 124),
    Row("look into many small records", many_small_records, KIB, 124),
    Row("first batches", first_batches, 100 * KIB, entries=96, in_gate=True),
    Row("parked fetches", parked_fetches, 52 * MIB),
    Row("a wide topic", wide_topic, 200, 100, settings={}),
    Row("directories", directories, 0, entries=96, settings=SWEPT),
)  # fmt: skip
