"""Broken input to a real broker process: it keeps running, its memory stays bounded, other clients are served."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from struct import calcsize, pack
from struct import error as StructError

import pytest
from crc32c import crc32c

from squall.broker.cluster.image import BROKER_RESOURCE
from squall.broker.config import ConfigOp
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.header import encode_request
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from squall.broker.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from squall.broker.protocol.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.brokers.bombs import many_records
from tests.support.brokers.broker_process import BrokerProcess
from tests.support.brokers.raw_client import RawClient

MAX_FRAME = 1 << 20
RECEIVE_LIMIT = 24 << 20
DECOMPRESSED_LIMIT = 32 << 20
MAX_CONNECTIONS = 60


LIMITS = {
    "socket.request.max.bytes": str(MAX_FRAME),
    "message.max.bytes": str(MAX_FRAME - 1000),
    "queued.max.request.bytes": str(RECEIVE_LIMIT),
    "squall.decompressed.batch.max.bytes": str(DECOMPRESSED_LIMIT),
    "max.connections": str(MAX_CONNECTIONS),
    "connections.max.idle.ms": "4000",
    "squall.connection.parked.max.requests": "200",
    "squall.connection.parked.max.bytes": str(4 << 20),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path_factory.mktemp("broken-input"), LIMITS)
    try:
        with made.connect() as client:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            created = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            assert [t.error_code for t in created.topics] == [0]
        yield made
        assert made.process.poll() is None, f"the broker ended: {made.log.read_text()[-2000:]}"
    finally:
        made.stop()


@pytest.mark.gate
@pytest.mark.parametrize("seed", range(5))
def test_garbage_ends_its_connection_only(broker: BrokerProcess, seed: int) -> None:
    with broker.connect() as client:
        client.send(b"\x7f" + random.Random(seed).randbytes(5000))
        assert client.is_closed()
    broker.assert_serves()


@pytest.mark.parametrize("length", [-1, MAX_FRAME + 1, 2**31 - 1])
def test_an_impossible_frame_length_ends_its_connection_only(broker: BrokerProcess, length: int) -> None:
    with broker.connect() as client:
        client.send(pack(">i", length) + b"x" * 100)
        assert client.is_closed()
    broker.assert_serves()


@pytest.mark.parametrize("key", [0, 1, 2, 3, 18, 19, 20, 22, 23, 32, 37, 44, 60])
def test_truncated_requests_end_their_connection_only(broker: BrokerProcess, key: int) -> None:
    from squall.broker.protocol.apis import APIS, request_class

    version = APIS[key].max_version
    whole = encode_request(key, version, 1, "test", request_class(key)().encode(version))[4:]
    for cut in range(len(whole)):
        with broker.connect() as client:
            client.send(pack(">i", cut) + whole[:cut])
            client.end_sending()
            client.is_closed()
    broker.assert_serves()


@pytest.mark.gate
def test_mutated_requests_never_end_the_broker(broker: BrokerProcess) -> None:
    from squall.broker.net.served import SERVED
    from squall.broker.protocol.apis import APIS, request_class

    rng = random.Random(1)
    for _ in range(300):
        key = rng.choice(SERVED)
        version = rng.randint(max(APIS[key].min_version, request_class(key).MIN_VERSION), APIS[key].max_version)
        frame = bytearray(encode_request(key, version, 1, "test", request_class(key)().encode(version))[4:])
        for _ in range(rng.randint(1, 6)):
            frame[rng.randrange(8, len(frame))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        with broker.connect() as client:
            client.send(pack(">i", len(frame)) + frame)
            client.end_sending()
    broker.assert_serves()


def test_unknown_apis_and_versions_end_their_connection_and_api_versions_falls_back(broker: BrokerProcess) -> None:
    for key, version in [(999, 0), (-5, 0), (3, 99), (0, 2), (52, 0)]:
        with broker.connect() as client:
            client.send(pack(">ihhih", 10, key, version, 1, -1))
            if (key, version) != (52, 0):  # one listener for all here: nodes' requests are served on it
                assert client.is_closed(), (key, version)
    with broker.connect() as client:
        client.send(pack(">ihhih", 10, 18, 99, 5, -1))
        frame = client.frame()
    assert frame[:6] == pack(">ih", 5, 35)
    assert frame[6:] == pack(">ihhh", 1, 18, 0, 4)
    broker.assert_serves()


def test_half_open_connections_cost_little_and_are_ended_when_idle(broker: BrokerProcess) -> None:
    before = broker.rss_mb()
    half_open = [broker.connect() for _ in range(40)]
    for client in half_open:
        client.send(pack(">i", MAX_FRAME) + b"x" * 10)
    broker.assert_serves()
    assert broker.rss_mb() < before + RECEIVE_LIMIT / (1 << 20) + 20
    assert all(client.is_closed() for client in half_open)
    for client in half_open:
        client.close()


def test_more_connections_than_allowed_are_refused_and_those_there_are_served(broker: BrokerProcess) -> None:
    first = broker.connect()
    crowd = [broker.connect() for _ in range(MAX_CONNECTIONS + 20)]
    answer = first.ask(MetadataRequest(topics=None), 12)
    assert answer.brokers
    assert crowd[-1].is_closed()
    for client in [first, *crowd]:
        client.close()
    broker.wait_for(lambda: _try(broker))


def test_a_limit_of_connections_that_is_altered_while_the_broker_runs_is_the_one_in_force(
    broker: BrokerProcess,
) -> None:
    def altered(value: str | None) -> None:
        config = AlterableConfig("max.connections.per.ip", ConfigOp.DELETE if value is None else ConfigOp.SET, value)
        resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = first.ask(request, 1)
        assert [each.error_code for each in answer.responses] == [0]

    def is_refused() -> bool:
        with broker.connect() as other:
            return other.is_closed(0.5)

    with broker.connect() as first:
        assert not is_refused()
        altered("1")
        broker.wait_for(is_refused)
        altered(None)
        broker.wait_for(lambda: not is_refused())


def produce(client: RawClient, batch: bytes, topic: str = "t") -> int:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    done = client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    return int(done.responses[0].partition_responses[0].error_code)


def look_up(client: RawClient, timestamp: int) -> ListOffsetsPartitionResponse:
    """Return ListOffsets' answer: the first record not earlier than the timestamp, or with -1 the end of the log."""
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])])
    found: ListOffsetsPartitionResponse = client.ask(request, 7).topics[0].partitions[0]
    return found


def test_a_topic_whose_records_are_read_takes_no_bomb_of_many_records(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        topic = CreatableTopic(name="read", num_partitions=1, replication_factor=1)
        topic.configs = [CreatableTopicConfig(name="squall.record.validation.enable", value="true")]
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        bomb = many_records(1_000_001, int(time.time() * 1000))
        assert produce(client, bomb, "read") == ErrorCode.MESSAGE_TOO_LARGE
    broker.assert_serves()


def test_a_record_at_the_front_of_a_bomb_is_found_without_unpacking_it(broker: BrokerProcess) -> None:
    now = int(time.time() * 1000) + 3_200_000
    with broker.connect() as client:
        records = [Record(0, now, None, b"first"), Record(1, now, None, bytes(200 << 20))]
        assert produce(client, encode_batch(records, codec=4)) == 0
        before = broker.rss_mb()
        assert look_up(client, now).timestamp == now
    assert broker.rss_mb() < before + 20


@pytest.mark.gate
def test_what_headers_claim_moves_no_log_and_ends_no_connection(broker: BrokerProcess) -> None:
    fields = {23: ">i", 35: ">q", 43: ">q", 51: ">h", 53: ">i", 57: ">i"}
    values = (-(2**31), -2, -1, 0, 1, 2**15 - 1, 2**31 - 1, 2**63 - 1, -(2**63))
    with broker.connect() as client:
        end = look_up(client, -1).offset
        for at, form in fields.items():
            for value in values:
                batch = bytearray(encode_batch([Record(0, int(time.time() * 1000), None, b"v")]))
                try:
                    batch[at : at + calcsize(form)] = pack(form, value)
                except StructError:
                    continue
                batch[17:21] = pack(">I", crc32c(memoryview(batch)[21:]))
                error = produce(client, bytes(batch))
                end += error == 0
                assert look_up(client, -1).offset == end, (at, value, error)
    broker.assert_serves()


@pytest.mark.parametrize("count", [0, -1, -(2**31) + 1])
def test_a_batch_that_claims_no_records_and_an_offset_delta_that_fits_to_that_is_refused(
    broker: BrokerProcess, count: int
) -> None:
    """One such batch once ended the broker: the fields of its header agreed, so it was not checked further."""
    batch = bytearray(encode_batch([Record(0, int(time.time() * 1000), None, b"v")]))
    batch[23:27], batch[57:61] = pack(">i", count - 1), pack(">i", count)
    batch[17:21] = pack(">I", crc32c(memoryview(batch)[21:]))
    with broker.connect() as client:
        end = look_up(client, -1).offset
        assert produce(client, bytes(batch)) == ErrorCode.INVALID_RECORD
        assert look_up(client, -1).offset == end
    broker.assert_serves()


def _try(broker: BrokerProcess) -> bool:
    try:
        broker.assert_serves()
    except (AssertionError, OSError):
        return False
    return True


def test_a_client_that_never_reads_is_not_read_for_ever(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        for n in range(20):
            value = os.urandom(40_000)
            batch = encode_batch([Record(0, int(time.time() * 1000), None, value, [])])
            data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
            done = client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
            assert done.responses[0].partition_responses[0].error_code == 0, n
    before = broker.rss_mb()
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[part])]
    )
    request = encode_request(1, 11, 1, "greedy", fetch.encode(11))
    metadata = encode_request(3, 12, 1, "greedy", MetadataRequest(topics=None).encode(12))
    with broker.connect() as greedy:
        greedy.socket.settimeout(2)
        sent = 0
        try:
            while sent < 200_000:
                greedy.send(request + metadata * 20)
                sent += 21
        except TimeoutError:
            pass
        assert sent < 200_000, "the broker went on reading from a client that never reads"
        broker.assert_serves()
        assert broker.rss_mb() < before + 60
