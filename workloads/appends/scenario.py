"""Defines the settings of the workload `appends`, and runs it."""

# A simulated load has 7 records a second by default (LIGHT): a record that is its own batch costs about 1 ms of CPU
# in client, leader, two followers, readers and checks, and bugs of replication depend on timing, not on volume.
# Rejected: 200 a second (ten times the CPU); 20 (half as many seeds in the same time).

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from squall.broker.env import Env
from squall.broker.overriding import override
from squall.workloads.agenda import FixedRecordSchedule, PlannedRecord, RandomRecordSchedule, RecordSchedule
from squall.workloads.appends import draws
from squall.workloads.appends.renumbered import by_one_producer, on_one_topic
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.client.settings import (
    FETCH_MAX_BYTES,
    FETCH_PARTITION_MAX_BYTES,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from squall.workloads.needs import LibraryRequirements
from squall.workloads.scenario import (
    MAX_BYTES,
    MIN_BYTES,
    POLLS_TO_READ,
    LoadProfile,
    Operation,
    RandomStreamFactory,
    Scenario,
    ScenarioEnvironment,
    SwarmCluster,
    Table,
)
from squall.workloads.sending import contradictions, wrong_send

if TYPE_CHECKING:
    from squall.workloads.client.cluster import Place

TOPIC = "appends-{}"
BUFFER_BYTES = 8 * 1024 * 1024
"""Gives the size of each producer's buffer."""
PLAIN_BYTES = 100
_PRODUCE, _FETCH = 0, 1
"""Are API keys. `ApiKey` has them, too, but `--help` must not wait until the protocol is imported."""
NEWEST_VERSIONS: Mapping[str, Mapping[int, int]] = {
    "0.11": {_PRODUCE: 3, _FETCH: 5},
    "2.4": {_PRODUCE: 8, _FETCH: 11},
    "2.8": {_PRODUCE: 9, _FETCH: 12},
}
"""Maps a release of Apache Kafka to its newest versions of Produce and Fetch. Those of 0.11 are the oldest versions
that carry record batches of format 2. Those of 2.4 are the newest versions that are not flexible (KIP-482).
"""
READER_POLL_MS = 1_000
"""Gives the longest time of a reader's poll, in ms. A Fetch may wait longer at the broker; the reader sends further
requests only after the poll has ended.
"""


class AppendsLoad(Scenario):
    """Appends uniquely valued records with several producers, and reads them with several readers."""

    OPERATION: ClassVar[type[tuple[Any, ...]]] = PlannedRecord
    DRAW_ONLY_SETTINGS: ClassVar[tuple[str, ...]] = ("rate", "burst", "min_bytes", "max_bytes")
    # 200 records in 30 seconds. Producers hold them for ten times as long as in a real run, and readers rest for longer
    # between polls, so that a request still brings several partitions' records now and then.
    LIGHT: ClassVar[Mapping[str, Any]] = {"rate": 7, "linger_ms": 50, "poll_pause_ms": 500, "readers": 2}
    COUNTED: ClassVar[tuple[str, ...]] = ("topics", "partitions", "producers", "readers")
    PLAIN: ClassVar[Mapping[int, Any]] = {4: PLAIN_BYTES, 1: 0}
    RENUMBERINGS = (partial(on_one_topic, TOPIC.format(0)), by_one_producer)

    name: Literal["appends"] = "appends"
    topics: int = Field(2, ge=1, le=100, description="Topics of the workload.")
    partitions: int = Field(3, ge=1, le=1000, description="Partitions of each topic.")
    acks: Literal[-1, 0, 1] = Field(-1, description="all, 1 or 0.")
    idempotence: bool = Field(True, description="Producers are idempotent; off by default unless acks is all.")
    max_in_flight: int = Field(5, ge=1, le=100, description="Produce requests in flight on each connection.")
    producers: int = Field(4, ge=1, le=1000, description="Number of producing processes at a time.")
    readers: int = Field(3, ge=1, le=1000, description="Number of readers at a time.")
    rate: int = Field(2000, ge=1, le=1_000_000, description="Records per second of all producers together.")
    min_bytes: int = Field(100, ge=MIN_BYTES, le=MAX_BYTES, description="Smallest record.")
    max_bytes: int = Field(2048, ge=MIN_BYTES, le=MAX_BYTES, description="Largest record.")
    linger_ms: int = Field(5, ge=0, le=60_000, description="How long a producer waits to fill a batch.")
    batch_bytes: int = Field(65_536, ge=1024, le=16 << 20, description="Largest batch.")
    codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field("none", description="Compression of batches.")
    poll_pause_ms: int = Field(20, ge=0, le=60_000, description="Pause after each poll, in ms.")
    burst: int = Field(
        0,
        ge=0,
        le=1_000_000,
        exclude_if=lambda rate: rate == 0,
        description="Records per second during bursts of half a second, one burst every 4 seconds; 0: no bursts.",
    )
    keep_in_flight: bool = Field(
        False,
        exclude_if=lambda keeps: not keeps,
        description="After a failure, idempotent producers keep as many requests in flight as before, as Kafka's do.",
    )
    fetch_sessions: bool = Field(
        False, exclude_if=lambda has: not has, description="Readers keep incremental fetch sessions, as Kafka's do."
    )
    lookups: bool = Field(
        False, exclude_if=lambda has: not has, description="Readers look up offsets by timestamp now and then."
    )
    fetch_min_bytes: int = Field(
        1, ge=1, le=MAX_BYTES, exclude_if=lambda few: few == 1, description="How many bytes a reader's fetch waits for."
    )
    fetch_max_wait_ms: int = Field(
        500,
        ge=1,
        le=60_000,
        exclude_if=lambda usual: usual == 500,
        description="How long a fetch waits for --fetch-min-bytes.",
    )
    fetch_max_bytes: int = Field(
        FETCH_MAX_BYTES,
        ge=1,
        le=1 << 30,
        exclude_if=lambda usual: usual == FETCH_MAX_BYTES,
        description="Largest response to a reader's fetch; a first batch may be larger.",
    )
    fetch_partition_max_bytes: int = Field(
        FETCH_PARTITION_MAX_BYTES,
        ge=1,
        le=1 << 30,
        exclude_if=lambda usual: usual == FETCH_PARTITION_MAX_BYTES,
        description="Largest part of a response that a partition may have; a first batch may be larger.",
    )

    client_release: Literal["newest", "0.11", "2.4", "2.8"] = Field(
        "newest",
        exclude_if=lambda release: release == "newest",
        description="Release of Apache Kafka whose versions of Produce and Fetch Squall's own clients speak.",
    )

    @override
    def contradictions(self) -> list[str]:
        found = super().contradictions()
        if self.client_release != "newest" and self.client != "squall":
            found.append(f"client_release {self.client_release}: client {self.client} has versions of its own")
        if self.client_release == "0.11" and self.fetch_sessions:
            found.append("client_release 0.11 has no fetch sessions (fetch_sessions): they came with 1.1")
        if self.client_release == "0.11" and self.codec == "zstd":
            found.append("client_release 0.11 has no codec zstd: it came with 2.1")
        if self.min_bytes > self.max_bytes:
            found.append(f"min_bytes {self.min_bytes} is above max_bytes {self.max_bytes}")
        found += contradictions(
            acks=self.acks,
            idempotence=self.idempotence,
            max_in_flight=self.max_in_flight,
            linger_ms=self.linger_ms,
            delivery_timeout_ms=self.delivery_timeout_ms,
        )
        longest_ms = self.request_timeout_ms + READER_POLL_MS
        if self.fetch_min_bytes > 1 and self.fetch_max_wait_ms > longest_ms:
            found.append(
                f"fetch_max_wait_ms {self.fetch_max_wait_ms} with fetch_min_bytes {self.fetch_min_bytes} is above "
                f"{longest_ms}: requests behind such a fetch end its connection after request_timeout_ms "
                f"{self.request_timeout_ms}, and a reader gets nothing: set that to {self.fetch_max_wait_ms}"
            )
        return found

    @override
    def topic_list(self) -> tuple[NewTopic, ...]:
        names = (TOPIC.format(number) for number in range(self.topics))
        return tuple(NewTopic(name, self.partitions, self.replication_factor, self.topic_configs()) for name in names)

    @override
    def traffic(self) -> LoadProfile:
        mean_bytes = (self.min_bytes + self.max_bytes) / 2
        return LoadProfile(self.producers, self.readers, self.rate, self.acks, self.max_in_flight, mean_bytes)

    @override
    def longest_wait_s(self) -> float:
        """Return how long, in seconds, a sound cluster may keep the load's clients waiting: the default of `Scenario`
        plus the clients' own delay. The delay is a producer's linger, or a reader's pauses between polls plus
        fetch.max.wait.ms, whichever is longer.
        """
        waits_ms = self.fetch_max_wait_ms if self.fetch_min_bytes > 1 else 0
        return super().longest_wait_s() + max(POLLS_TO_READ * self.poll_pause_ms + waits_ms, self.linger_ms) / 1000

    @override
    def needs(self, operations: Sequence[Operation] = ()) -> LibraryRequirements:
        largest = max([self.max_bytes, *(each.bytes for each in operations)])
        return LibraryRequirements(self.producer_settings(), self.request_timeout_ms, largest, self.poll_pause_ms)

    def producer_settings(self) -> ProducerSettings:
        """Return the settings that all producers of the load share: acks, idempotence, batches and others, as the
        workload sets them.
        """
        return ProducerSettings(
            acks=self.acks,
            idempotence=self.idempotence,
            linger_ms=self.linger_ms,
            batch_size=self.batch_bytes,
            codec=self.codec,
            max_in_flight=self.max_in_flight,
            delivery_timeout_ms=self.delivery_timeout_ms,
            buffer_bytes=BUFFER_BYTES,
            keep_in_flight=self.keep_in_flight and self.idempotence,
        )

    def consumer_settings(self) -> ConsumerSettings:
        """Return the fetch settings that all readers of the load share, as the workload sets them. The isolation level
        is not among them.
        """
        return ConsumerSettings(
            min_bytes=self.fetch_min_bytes,
            max_wait_ms=self.fetch_max_wait_ms,
            max_bytes=self.fetch_max_bytes,
            partition_max_bytes=self.fetch_partition_max_bytes,
            sessions=self.fetch_sessions,
        )

    @override
    def client_settings(self) -> ClientSettings:
        return replace(super().client_settings(), newest_versions=NEWEST_VERSIONS.get(self.client_release, {}))

    def assignment(self, reader: int) -> list[Place]:
        """Return the partitions of a reader. Each partition has two readers, or one if the load has only one reader."""
        return [
            place
            for number, place in enumerate(self.places())
            if reader in (number % self.readers, (number + 1) % self.readers)
        ]

    @override
    def drawn(self, stream: RandomStreamFactory, begin_s: float, end_s: float) -> tuple[PlannedRecord, ...]:
        sizes = (self.min_bytes, self.max_bytes)
        return draws.operations(stream, self.producers, self.rate, self.places(), sizes, begin_s, end_s, self.burst)

    @override
    def wrong(self, operation: Operation) -> str:
        return wrong_send(operation, self.producers, self.partitions, self.topic_names())

    @classmethod
    @override
    def drawn_settings(cls, stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> Table:
        return {"name": "appends", **draws.settings(stream, drawn_cluster)}

    @override
    async def run(self, around: ScenarioEnvironment) -> None:
        import trio

        from squall.workloads.background_reader import tail
        from squall.workloads.sender import ProducerLoop, SenderSettings
        from squall.workloads.topics import make_topics

        began = around.env.mono()
        await make_topics(around.env, around.zones[0].bootstrap, self, around.recorder)
        needs = self.needs(around.operations or ())
        largest, topics = needs.max_record_bytes, self.topic_names()
        settings = SenderSettings(needs.producer, self.client_settings(), topics, largest, headers=True)
        async with trio.open_nursery() as nursery:
            for number in range(self.readers):
                read = partial(tail, around, self.client_settings(), number, self.assignment(number), number % 2)
                asks = {"consumer": self.consumer_settings(), "lookups": self.lookups}
                nursery.start_soon(partial(read, self.poll_pause_ms, **asks))
            async with trio.open_nursery() as producing:
                for number in range(self.producers):
                    env = around.own(f"producer-{number}")
                    sender = ProducerLoop(env, around, settings, number, self._agenda(env, around, number, began))
                    producing.start_soon(sender.run, around.stop)
            around.readers.load_over()
        around.recorder.flush()

    def _agenda(self, env: Env, around: ScenarioEnvironment, number: int, began: float) -> RecordSchedule:
        """Return the records that producer `number` is to send: those of the run's plan if it has one, else random
        ones. `began` is env.mono() at the begin of the run.
        """
        if around.operations is not None:
            return FixedRecordSchedule(around.operations, number, began)
        from squall.workloads.sender import TICK_S

        sizes, burst_s = (self.min_bytes, self.max_bytes), self.producers / self.burst if self.burst else math.inf
        return RandomRecordSchedule(env, self.places(), sizes, self.producers / self.rate, TICK_S, burst_s)
