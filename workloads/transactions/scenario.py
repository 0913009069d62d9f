"""Defines the settings of the workload `transactions`, draws its load, and runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from squall.broker.overriding import override
from squall.workloads import swarm_draws
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.client.settings import (
    FETCH_MAX_BYTES,
    FETCH_PARTITION_MAX_BYTES,
    ConsumerSettings,
    ProducerSettings,
)
from squall.workloads.needs import LibraryRequirements
from squall.workloads.scenario import (
    MAX_BYTES,
    MIN_BYTES,
    BrokerLimit,
    LoadProfile,
    Operation,
    RandomStreamFactory,
    Scenario,
    ScenarioEnvironment,
    SwarmCluster,
    Table,
)
from squall.workloads.transactions import brokers, plain
from squall.workloads.transactions.operations import (
    COMMIT,
    ENDS,
    STEPS,
    PlannedTransaction,
    TransactionMix,
    simplifications,
    wrong_steps,
)
from squall.workloads.transactions.renumbered import by_one_producer, on_fewer_partitions

if TYPE_CHECKING:
    import trio

    from squall.workloads.start_positions import Beginning

TOPIC = "transactions-0"
FOLLOWERS = 2
"""Counts the readers that follow the log from its start. The other readers start anew every few seconds (`AGAIN`)."""
AGAIN: tuple[Sequence[Beginning], float] = (("middle", "end", "start"), 3.0)
"""Gives the kinds of offsets at which each reader beyond the first `FOLLOWERS` starts in turn, and the seconds after
which it changes to the next kind.
"""
ISOLATIONS: Mapping[str, tuple[int, ...]] = {"read_committed": (1,), "read_uncommitted": (0,), "both": (1, 0)}
"""Maps each value of the setting `isolation` to the isolation levels that the readers get in turn: 1 is read_committed,
0 is read_uncommitted.
"""


def transactional_id(producer: int) -> str:
    """Return the transactional id of the producer with this number. All its processes have the same id."""
    return f"squall-{producer}"


class TransactionalProducersLoad(Scenario):
    """Runs producers that write in transactions, and readers. Each producer has a transactional id. When its process
    has ended or crashed, a new process of the producer takes over the id. Subclasses name the topics.
    """

    TOPIC: ClassVar[str]
    PLAIN_TOPIC: ClassVar[str]
    """Names the topic of the plain producer, which has no transactions."""
    OPERATION: ClassVar[type[tuple[Any, ...]]] = PlannedTransaction
    DRAW_ONLY_SETTINGS: ClassVar[tuple[str, ...]] = ("rate", "record_bytes", "aborts")
    LIGHT: ClassVar[dict[str, Any]] = {"rate": 3}
    BROKERS: ClassVar[Mapping[str, str]] = brokers.SUITED
    COORDINATOR_LOGS: ClassVar[tuple[str, ...]] = (brokers.FACTOR,)
    COUNTED: ClassVar[tuple[str, ...]] = ("producers", "readers", "partitions")
    PLAIN: ClassVar[dict[int, Any]] = {STEPS: "send 0", 3: 100, 4: COMMIT}

    rate: int = Field(20, ge=1, le=1000, description="Transactions per second of all producers together.")
    record_bytes: int = Field(200, ge=MIN_BYTES, le=MAX_BYTES, description="Size of each record.")
    partitions: int = Field(3, ge=1, le=64, description="Partitions of the topic.")
    producers: int = Field(3, ge=1, le=64, description="Transactional producers, each with an id of its own.")
    readers: int = Field(4, ge=1, le=64, description="Number of readers, at the levels of --isolation.")
    isolation: Literal["read_committed", "read_uncommitted", "both"] = Field(
        "both",
        description="Isolation level of the load's readers; both: reader by reader. Final reads always use both.",
    )
    aborts: float = Field(0.2, ge=0, le=1, description="Share of transactions that clients abort on purpose.")
    transaction_timeout_ms: int = Field(
        4_000, ge=1_000, le=900_000, description="Time-out after which the coordinator aborts an open transaction."
    )
    generation: Literal[1, 2] = Field(2, description="Newest transaction version that the workload's clients speak.")
    poll_pause_ms: int = Field(20, ge=0, le=200, description="Pause after each poll, in ms.")
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
    plain_rate: int = Field(
        0, ge=0, le=1000, description="Records per second of an additional plain producer, on its own topic; 0: none."
    )

    @model_validator(mode="before")
    @classmethod
    def _default_generation(cls, given: Any) -> Any:
        """Add `generation = 1` to a table whose client is a library, because the libraries speak only V1 of the
        transaction protocol. `given` is the `[workload]` table.
        """
        if isinstance(given, dict) and given.get("client", "squall") != "squall":
            return {"generation": 1, **given}
        return given

    @override
    def contradictions(self) -> list[str]:
        found = super().contradictions()
        if self.client != "squall" and self.generation != 1:
            found.append(f"client {self.client} speaks generation 1 of transactions only: generation = 1")
        return found

    @override
    def topic_list(self) -> tuple[NewTopic, ...]:
        own = NewTopic(self.TOPIC, self.partitions, self.replication_factor, self.topic_configs())
        beside = NewTopic(self.PLAIN_TOPIC, 1, self.replication_factor, self.topic_configs())
        return (own, beside) if self.plain_rate else (own,)

    @override
    def traffic(self) -> LoadProfile:
        settings = self.producer_settings()
        return LoadProfile(
            self.producers + bool(self.plain_rate),
            self.readers,
            # A drawn transaction has about two records: up to four steps, and some of them are polls.
            self.rate * 2 + self.plain_rate,
            settings.acks,
            settings.max_in_flight,
            self.record_bytes,
            tuple(map(transactional_id, range(self.producers))),
            tuple(range(self.producers)),
        )

    @classmethod
    @override
    def drawn_brokers(cls, stream: RandomStreamFactory, table: Table) -> dict[str, str]:
        return brokers.drawn(stream("brokers of transactions"), table)

    @override
    def needs(self, operations: Sequence[Operation] = ()) -> LibraryRequirements:
        largest = max([self.record_bytes, *(each.bytes for each in operations)])
        return LibraryRequirements(self.producer_settings(), self.request_timeout_ms, largest, self.poll_pause_ms)

    def producer_settings(self) -> ProducerSettings:
        """Return the settings of each producer, but for its transactional id."""
        return ProducerSettings(
            linger_ms=0, delivery_timeout_ms=self.delivery_timeout_ms, batch_size=self.batch_size()
        )

    def consumer_settings(self) -> ConsumerSettings:
        """Return the settings of each reader, but for its isolation level."""
        return ConsumerSettings(max_bytes=self.fetch_max_bytes, partition_max_bytes=self.fetch_partition_max_bytes)

    @override
    def longest_wait_s(self) -> float:
        """Return how long, in seconds, a sound cluster may keep clients waiting: the transaction time-out, or the
        request time-out if that is longer. An open transaction of a dead producer blocks read_committed readers until
        the transaction time-out.
        """
        return max(super().longest_wait_s(), self.transaction_timeout_ms / 1000)

    @override
    def broker_limits(self) -> tuple[BrokerLimit, ...]:
        return (*super().broker_limits(), brokers.timeout_limit(self.transaction_timeout_ms))

    def level(self, number: int) -> int:
        """Return the isolation level of the reader, or of the polling producer, with this number: 1 is read_committed.
        """
        levels = ISOLATIONS[self.isolation]
        return levels[number % len(levels)]

    def draw(self) -> TransactionMix:
        """Return the settings by which the load's transactions are drawn."""
        timeout_ms = self.transaction_timeout_ms
        return TransactionMix(self.rate, self.producers, self.partitions, self.record_bytes, self.aborts, timeout_ms)

    @override
    def drawn(self, stream: RandomStreamFactory, begin_s: float, end_s: float) -> tuple[PlannedTransaction, ...]:
        found, draw = [], self.draw()
        for producer in range(self.producers):
            rng, at_s = stream("operations", producer), begin_s
            while (at_s := at_s + draw.interval_s(rng)) < end_s:
                found.append(draw.one(rng, at_s, producer))
        if self.plain_rate:
            found += plain.drawn(stream("operations", "plain"), self.plain_rate, self.record_bytes, begin_s, end_s)
        return tuple(sorted(found))

    @override
    def wrong(self, operation: Operation) -> str:
        one = operation
        if one.end == plain.PLAIN and MIN_BYTES <= one.bytes <= MAX_BYTES:
            return plain.wrong(one, bool(self.plain_rate))
        limits = (
            ("bytes", one.bytes, MIN_BYTES, MAX_BYTES),
            ("producer", one.producer, 0, self.producers - 1),
        )
        for what, number, low, high in limits:
            if not low <= number <= high:
                return f"{what} {number}: between {low} and {high} are allowed"
        if one.end not in ENDS:
            return f"end {one.end!r}: one of {', '.join(ENDS)}"
        return wrong_steps(one.steps, self.partitions)

    @classmethod
    @override
    def simplifications(cls, operation: list[Any]) -> Iterator[list[Any]]:
        return simplifications(operation)

    @override
    async def run(self, around: ScenarioEnvironment) -> None:
        import trio

        from squall.workloads.topics import make_topics
        from squall.workloads.transactions.writer import TransactionalWriter, WriterSettings

        began = around.env.mono()
        await make_topics(around.env, around.zones[0].bootstrap, self, around.recorder)
        settings = WriterSettings(
            self.producer_settings(),
            self.client_settings(),
            [place for place in self.places() if place[0] == self.TOPIC],
            self.transaction_timeout_ms,
            self.generation,
            self.draw(),
            self.traffic().ids,
            self.level,
        )
        async with trio.open_nursery() as nursery:
            self.start_readers(around, nursery, began)
            async with trio.open_nursery() as writers:
                for number in range(self.producers):
                    env = around.own(f"producer-{number}")
                    writers.start_soon(TransactionalWriter(env, around, settings, number, began).run)
                if self.plain_rate:
                    rate, size, common = self.plain_rate, self.record_bytes, (self.plain_settings(), settings.client)
                    writers.start_soon(plain.append, around, self.PLAIN_TOPIC, self.producers, rate, size, *common)
            around.readers.load_over()
        around.recorder.flush()

    def plain_settings(self) -> ProducerSettings:
        """Return the settings of the plain producer, which has no transactions."""
        return self.producer_settings()

    def start_readers(self, around: ScenarioEnvironment, nursery: trio.Nursery, began: float) -> None:
        """Start the load's readers in `nursery`. `began` is env.mono() at the begin of the run."""
        from squall.workloads.background_reader import tail

        for number in range(self.readers):
            read = partial(tail, around, self.client_settings(), number, self.places(), self.level(number))
            begins = AGAIN if number >= FOLLOWERS else ()
            nursery.start_soon(partial(read, self.poll_pause_ms, *begins, consumer=self.consumer_settings()))


class TransactionsLoad(TransactionalProducersLoad):
    """Is the workload `transactions`."""

    TOPIC: ClassVar[str] = TOPIC
    PLAIN_TOPIC: ClassVar[str] = plain.TOPIC
    SWARM_SHARE: ClassVar[float] = 0.2
    RENUMBERINGS = (partial(on_fewer_partitions, TOPIC), by_one_producer)

    name: Literal["transactions"] = "transactions"

    @classmethod
    @override
    def drawn_settings(cls, stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> Table:
        rng = stream("workload")
        replicas = rng.choice([n for n in (1, 2, 3, 3, 3) if n <= drawn_cluster.nodes])
        return {
            "name": "transactions",
            "replication_factor": replicas,
            "min_isr": rng.choice([n for n in (1, 2, 2) if n <= replicas]),
            "rate": rng.choice((2, 3, 5)),
            "producers": rng.randint(1, 3),
            "partitions": rng.randint(1, 3),
            "aborts": rng.choice((0.1, 0.3)),
            "generation": rng.choice((1, 2)),
            "readers": rng.choice((2, 3, 4)),
            "isolation": rng.choice(("both", "both", "both", "read_committed", "read_uncommitted")),
            "request_timeout_ms": rng.choice((1000, 3000)),
            "transaction_timeout_ms": stream("transaction time-outs").choice((1000, 2000, 4000, 4000)),
            "plain_rate": stream("plain records").choice((0, 0, 3)),
            "topic_settings": swarm_draws.topic_settings(stream, drawn_cluster),
            **swarm_draws.fetch_sizes(stream),
        }
