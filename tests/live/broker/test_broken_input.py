"""Broken input against a real broker process: it stays up, its memory stays bounded, others are served."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest

from broker.protocol.header import decode_response_header, encode_request
from broker.protocol.records import Record, encode_batch
from broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.schema.metadata import MetadataRequest, MetadataResponse
from broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

pytestmark = pytest.mark.timeout(120)
MAX_FRAME = 1 << 20
RECEIVE_LIMIT = 24 << 20
MAX_CONNECTIONS = 60
READY_S = 30.0


class Broker:
    """One node as a process."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.trace = folder / "trace.jsonl"
        settings = {
            "node.id": "1",
            "listeners": f"CLIENT://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.port}",
            "log.dirs": str(folder / "data"),
            "socket.request.max.bytes": str(MAX_FRAME),
            "message.max.bytes": str(MAX_FRAME - 1000),
            "queued.max.request.bytes": str(RECEIVE_LIMIT),
            "max.connections": str(MAX_CONNECTIONS),
            "connections.max.idle.ms": "4000",
            "squall.connection.parked.max.requests": "200",
            "squall.connection.parked.max.bytes": str(4 << 20),
            "squall.trace.path": str(self.trace),
        }
        config = folder / "broker.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self.log = folder / "broker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "broker", "--config", str(config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self.wait_for(lambda: any(e["e"] == "node_ready" for e in self.events()))

    def events(self) -> list[dict[str, object]]:
        text = self.trace.read_text() if self.trace.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait_for(self, holds: object, limit_s: float = READY_S) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():  # type: ignore[operator]
            assert self.process.poll() is None, f"the broker ended: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)

    def rss_mb(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def assert_serves(self) -> None:
        """Another client gets an answer, and the process is still the same one."""
        with self.connect() as client:
            answer = ask(client, MetadataRequest(topics=None), MetadataResponse, 12)
        assert [broker.node_id for broker in answer.brokers] == [1]
        assert self.process.poll() is None


def ask(client: socket.socket, request: object, response: object, version: int) -> object:
    key = request.API_KEY  # type: ignore[attr-defined]
    client.sendall(encode_request(key, version, 7, "test", request.encode(version)))  # type: ignore[attr-defined]
    frame = memoryview(receive_frame(client))
    correlation_id, at = decode_response_header(frame, key, version)
    assert correlation_id == 7
    return response.decode(frame, at, version)[0]  # type: ignore[attr-defined]


def receive_frame(client: socket.socket) -> bytes:
    def exactly(n: int) -> bytes:
        data = b""
        while len(data) < n:
            more = client.recv(n - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    return exactly(int.from_bytes(exactly(4), "big"))


def is_closed(client: socket.socket, limit_s: float = 10.0) -> bool:
    """The broker ended this connection, by FIN or RST."""
    client.settimeout(limit_s)
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("broken-input"))
    try:
        with made.connect() as client:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            created = ask(client, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
            assert [t.error_code for t in created.topics] == [0]  # type: ignore[attr-defined]
        yield made
        assert made.process.poll() is None, f"the broker ended: {made.log.read_text()[-2000:]}"
    finally:
        made.process.terminate()
        made.process.wait(20)


@pytest.mark.parametrize("seed", range(5))
def test_garbage_ends_its_connection_only(broker: Broker, seed: int) -> None:
    with broker.connect() as client:
        client.sendall(b"\x7f" + random.Random(seed).randbytes(5000))
        assert is_closed(client)
    broker.assert_serves()


@pytest.mark.parametrize("length", [-1, MAX_FRAME + 1, 2**31 - 1])
def test_an_impossible_frame_length_ends_its_connection_only(broker: Broker, length: int) -> None:
    with broker.connect() as client:
        client.sendall(pack(">i", length) + b"x" * 100)
        assert is_closed(client)
    broker.assert_serves()


@pytest.mark.parametrize("key", [0, 1, 2, 3, 18, 19, 20, 22, 23, 32, 37, 44, 60])
def test_truncated_requests_end_their_connection_only(broker: Broker, key: int) -> None:
    from broker.protocol.apis import APIS, request_class

    version = APIS[key].max_version
    whole = encode_request(key, version, 1, "test", request_class(key)().encode(version))[4:]
    for cut in range(len(whole)):
        with broker.connect() as client:
            client.sendall(pack(">i", cut) + whole[:cut])
            client.shutdown(socket.SHUT_WR)
            is_closed(client)
    broker.assert_serves()


def test_mutated_requests_never_end_the_broker(broker: Broker) -> None:
    from broker.net.served import SERVED
    from broker.protocol.apis import APIS, request_class

    rng = random.Random(1)
    for _ in range(300):
        key = rng.choice(SERVED)
        version = rng.randint(max(APIS[key].min_version, request_class(key).MIN_VERSION), APIS[key].max_version)
        frame = bytearray(encode_request(key, version, 1, "test", request_class(key)().encode(version))[4:])
        for _ in range(rng.randint(1, 6)):
            frame[rng.randrange(8, len(frame))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        with broker.connect() as client:
            client.sendall(pack(">i", len(frame)) + frame)
            client.shutdown(socket.SHUT_WR)
    broker.assert_serves()


def test_unknown_apis_and_versions_end_their_connection_and_api_versions_falls_back(broker: Broker) -> None:
    for key, version in [(999, 0), (-5, 0), (3, 99), (0, 2), (52, 0)]:
        with broker.connect() as client:
            client.sendall(pack(">ihhih", 10, key, version, 1, -1))
            if (key, version) != (52, 0):  # one listener for all here: nodes' requests are served on it
                assert is_closed(client), (key, version)
    with broker.connect() as client:
        client.sendall(pack(">ihhih", 10, 18, 99, 5, -1))
        frame = receive_frame(client)
    assert frame[:6] == pack(">ih", 5, 35)
    assert frame[6:] == pack(">ihhh", 1, 18, 0, 4)
    broker.assert_serves()


def test_half_open_connections_cost_little_and_are_ended_when_idle(broker: Broker) -> None:
    before = broker.rss_mb()
    half_open = [broker.connect() for _ in range(40)]
    for client in half_open:
        client.sendall(pack(">i", MAX_FRAME) + b"x" * 10)
    broker.assert_serves()
    assert broker.rss_mb() < before + RECEIVE_LIMIT / (1 << 20) + 20
    assert all(is_closed(client, 30) for client in half_open)
    for client in half_open:
        client.close()


def test_more_connections_than_allowed_are_refused_and_those_there_are_served(broker: Broker) -> None:
    first = broker.connect()
    crowd = [broker.connect() for _ in range(MAX_CONNECTIONS + 20)]
    answer = ask(first, MetadataRequest(topics=None), MetadataResponse, 12)
    assert answer.brokers  # type: ignore[attr-defined]
    assert any(is_closed(client, 5) for client in crowd[-5:])
    for client in [first, *crowd]:
        client.close()
    broker.wait_for(lambda: _try(broker))


def _try(broker: Broker) -> bool:
    try:
        broker.assert_serves()
    except (AssertionError, OSError):
        return False
    return True


def test_a_client_that_never_reads_is_not_read_for_ever(broker: Broker) -> None:
    with broker.connect() as client:
        for n in range(20):
            value = os.urandom(40_000)
            batch = encode_batch([Record(0, int(time.time() * 1000), None, value, [])])
            data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
            done = ask(client, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), ProduceResponse, 9)
            assert done.responses[0].partition_responses[0].error_code == 0, n  # type: ignore[attr-defined]
    before = broker.rss_mb()
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[part])]
    )
    request = encode_request(1, 11, 1, "greedy", fetch.encode(11))
    metadata = encode_request(3, 12, 1, "greedy", MetadataRequest(topics=None).encode(12))
    with broker.connect() as greedy:
        greedy.settimeout(2)
        sent = 0
        try:
            while sent < 200_000:
                greedy.sendall(request + metadata * 20)
                sent += 21
        except TimeoutError:
            pass
        assert sent < 200_000, "the broker went on reading from a client that never reads"
        broker.assert_serves()
        assert broker.rss_mb() < before + 60
