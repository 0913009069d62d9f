"""A fuzzer for one broker: sends malformed frames and malformed batches, as many as wanted, drawn from a seed.

Some frames are valid but ask for very much, and some batches unpack to millions of records. Meanwhile another client
sends small requests, and must be answered soon.

`python -m tests.support.brokers.opponent --frames 1000000 --batches 100000` plays the full size (docs/testing.md).
"""

from __future__ import annotations

import argparse
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from errno import ENOTCONN
from pathlib import Path
from struct import pack, pack_into
from typing import Any

from crc32c import crc32c

from squall.broker.net.served import SERVED
from squall.broker.protocol.apis import request_class
from squall.broker.protocol.compression import compress
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.header import encode_request
from squall.broker.protocol.records import HEADER_SIZE, Record, encode_batch
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest
from squall.broker.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.property.protocol.hostile import mutations
from tests.support.brokers.bombs import many_records
from tests.support.brokers.broker_process import BrokerProcess
from tests.support.brokers.bystander import Bystander
from tests.support.brokers.filled import lists_of, requests, swollen, versions
from tests.support.brokers.raw_client import RawClient

LIMITS = {
    "socket.request.max.bytes": str(1 << 20),
    "message.max.bytes": str((1 << 20) - 1000),
    "queued.max.request.bytes": str(24 << 20),
    "squall.decompressed.batch.max.bytes": str(16 << 20),
    "log.retention.bytes": str(16 << 20),
    "log.segment.bytes": str(4 << 20),
    "auto.create.topics.enable": "false",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
}
FIELDS = {0: "q", 12: "i", 16: "b", 21: "h", 23: "i", 27: "q", 35: "q", 43: "q", 51: "h", 53: "i", 57: "i"}
"""Offset and struct format of each field of a batch header, except length and checksum."""
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
GROWTH_MB = 160
"""Limit of the broker's memory growth: receive buffers, one unpacked batch, and what its allocator keeps."""
LOOK_EVERY = 2_000
BOMB_EVERY = 400
"""Of so many batches, one unpacks to millions of records."""
SIZES = (2_000, 20_000, 60_000, 200_000)
"""Sizes in bytes of the requests with long lists."""
PLAIN, CHECKED = "plain", "checked"
"""Two topics: for PLAIN the broker checks only batch headers, for CHECKED it reads every record."""


@dataclass
class Score:
    """The results of an attack."""

    frames: int = 0
    batches: int = 0
    closed: int = 0
    """How many connections the broker closed."""
    errors: Counter[str] = field(default_factory=Counter)
    """Responses to Produce, counted by the name of their error."""
    most_mb: float = 0.0
    least_mb: float = 1e9
    slowest_s: float = 0.0
    """The longest time that the other client waited for an answer."""

    def line(self) -> str:
        """Return the results in one line of text."""
        errors = ", ".join(f"{name} {count}" for name, count in self.errors.most_common())
        sent = f"{self.frames} frames, {self.batches} batches; {self.closed} connections ended"
        memory, waited = f"{self.least_mb:.0f} to {self.most_mb:.0f} MB", f"{1000 * self.slowest_s:.0f} ms"
        return f"{sent}; memory {memory}; others waited {waited} at most; answers: {errors or 'none'}"


def frames(count: int, seed: int) -> Iterator[bytes]:
    """Yield frames for every served API, empty and filled. Most contain an error, some are valid but ask for very much,
    and some have a wrong length.
    """
    rng = random.Random(seed)
    for number in range(count):
        key = rng.choice(SERVED)
        version = rng.choice(versions(key))
        whole = encode_request(key, version, number & 0x7FFFFFFF, "opponent", _body(key, version, rng))[4:]
        if rng.randrange(4):
            [whole] = mutations(whole, 1, seed=rng.getrandbits(32))
        length = rng.choice((-1, 2**31 - 1, len(whole) + 5)) if not rng.randrange(50) else len(whole)
        yield pack(">i", length) + whole


def _body(key: int, version: int, rng: random.Random) -> bytes:
    """Return the body of a request: empty, filled, or with a list of thousands of elements."""
    kind, lists = rng.randrange(100), lists_of(key)
    if kind < 2 and lists:
        found = swollen(key, version, rng.choice(lists), rng.choice(SIZES), rng, same=rng.random() < 0.5)
        if found is not None:
            return found
    return bytes((requests(key, version, rng) if kind < 70 else request_class(key)()).encode(version))


def batches(count: int, seed: int) -> Iterator[bytes]:
    """Yield batches whose checksum is right and whose header, records or compression is wrong."""
    rng = random.Random(seed)
    for _ in range(count):
        codec = rng.randrange(5)
        now = int(time.time() * 1000)
        records = [Record(n, now + n, None, rng.randbytes(rng.randrange(60))) for n in range(rng.randint(1, 5))]
        batch = bytearray(encode_batch(records, codec=codec))
        kind = rng.randrange(4)
        if not rng.randrange(BOMB_EVERY):
            yield many_records(rng.choice((5_000, 500_000, 2_300_000)), now + 100_000)
            continue
        if kind == 0:
            for at in rng.sample(sorted(FIELDS), rng.randint(1, 3)):
                bits = BITS[FIELDS[at]]
                value = rng.choice((0, -1, 1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), rng.getrandbits(bits - 1)))
                pack_into(">" + FIELDS[at], batch, at, value)
        elif kind == 1:
            for _ in range(rng.randint(1, 4)):
                batch[rng.randrange(HEADER_SIZE, len(batch))] ^= 1 << rng.randrange(8)
        elif kind == 2:
            batch[HEADER_SIZE:] = compress(codec, bytes(rng.randrange(1 << 20))) if codec else bytes(rng.randrange(300))
            pack_into(">i", batch, 8, len(batch) - 12)
            pack_into(">i", batch, 57, claimed := rng.randint(1, 1 << 17))
            pack_into(">i", batch, 23, claimed - 1)
        else:
            del batch[rng.randrange(HEADER_SIZE, len(batch)) :]
            pack_into(">i", batch, 8, len(batch) - 12)
        if rng.randrange(10):
            pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
        yield bytes(batch)


class Opponent:
    """Attacks one broker, and now and then checks that it still serves."""

    def __init__(self, broker: BrokerProcess, tell: Callable[[str], object] = lambda line: None) -> None:
        """`tell` gets a line of progress after each check."""
        self._broker, self.score, self._tell = broker, Score(), tell
        with broker.connect() as client:
            checked = CreatableTopic(name=CHECKED, num_partitions=1, replication_factor=1)
            checked.configs = [_setting("squall.record.validation.enable", "true")]
            plain = CreatableTopic(name=PLAIN, num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest(topics=[plain, checked], timeout_ms=10_000)
            made = client.ask(request, 7)
            assert [topic.error_code for topic in made.topics] == [0, 0]
        self._look("begun")

    def _look(self, so_far: str) -> None:
        """Assert that the broker's process still runs, has bounded memory, and answers another client."""
        score, began = self.score, time.monotonic()
        self._broker.assert_serves()
        score.slowest_s = max(score.slowest_s, time.monotonic() - began)
        now = self._broker.rss_mb()
        score.least_mb, score.most_mb = min(score.least_mb, now), max(score.most_mb, now)
        self._tell(f"{so_far}, {now:.0f} MB")
        assert score.most_mb < score.least_mb + GROWTH_MB, score.line()

    def _is_served_meanwhile(self, bystander: Bystander) -> None:
        self.score.slowest_s = max(self.score.slowest_s, bystander.slowest_s)

    def send_frames(self, count: int, seed: int) -> None:
        """Send malformed frames while another client sends small requests."""
        with Bystander(self._broker) as bystander:
            self._send_frames(count, seed)
        self._is_served_meanwhile(bystander)

    def _send_frames(self, count: int, seed: int) -> None:
        """Send most frames over a connection of their own, and some five in a row over one connection."""
        rng, waiting, most = random.Random(seed + 1), [], 1
        for number, frame in enumerate(frames(count, seed), 1):
            waiting.append(frame)
            if len(waiting) >= most or number == count:
                self._send(b"".join(waiting))
                waiting, most = [], rng.choice((1, 1, 1, 1, 1, 1, 1, 5))
            if not number % LOOK_EVERY or number == count:
                self._look(f"{number} of {count} frames")
        self.score.frames += count

    def _send(self, data: bytes) -> None:
        with self._broker.connect() as client:
            # No TIME_WAIT: a million of them would use up the ports.
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            try:
                client.send(data)
                client.end_sending()
                while client.socket.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
            except OSError as problem:
                if problem.errno != ENOTCONN:  # it was ended before our side was
                    raise
            self.score.closed += 1

    def send_batches(self, count: int, seed: int) -> None:
        """Send malformed batches while another client sends small requests."""
        with Bystander(self._broker) as bystander:
            self._send_batches(count, seed)
        self._is_served_meanwhile(bystander)

    def _send_batches(self, count: int, seed: int) -> None:
        """Produce each batch to one of the two topics. Now and then look records up by time, which makes the broker
        unpack them.
        """
        rng, client = random.Random(seed + 1), self._broker.connect()
        for number, batch in enumerate(batches(count, seed), 1):
            topic = rng.choice((PLAIN, CHECKED))
            part = PartitionProduceData(index=0, records=batch)
            data = TopicProduceData(name=topic, partition_data=[part])
            request = ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data])
            try:
                done = client.ask(request, 9)
                code = done.responses[0].partition_responses[0].error_code
                self.score.errors[ErrorCode(code).name] += 1
                if not rng.randrange(20):
                    _look_up(client, topic, int(time.time() * 1000) + rng.randrange(-1000, 3_600_000))
            except (OSError, AssertionError):
                self.score.closed += 1
                client.close()
                client = self._broker.connect()
            if not number % LOOK_EVERY or number == count:
                self._look(f"{number} of {count} batches")
        client.close()
        self.score.batches += count


def _setting(name: str, value: str) -> Any:
    from squall.broker.protocol.schema.create_topics import CreatableTopicConfig

    return CreatableTopicConfig(name=name, value=value)


def _look_up(client: RawClient, topic: str, timestamp: int) -> None:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])
    client.ask(request, 7)


def main(arguments: list[str]) -> int:
    """Start a broker, attack it, and print the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder), LIMITS)
        try:
            opponent = Opponent(broker, lambda line: sys.stderr.write(line + "\n"))
            opponent.send_frames(asked.frames, asked.seed)
            opponent.send_batches(asked.batches, asked.seed)
        finally:
            broker.stop()
            sys.stderr.write(broker.log.read_text()[-4000:])  # empty, if it ended well
    sys.stdout.write(opponent.score.line() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
