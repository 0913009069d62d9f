"""Defines the settings of the workload `steady`, and runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from squall.broker.overriding import override
from squall.workloads.agenda import FixedRecordSchedule, PlannedRecord, RandomRecordSchedule, RecordSchedule
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.client.settings import ProducerSettings
from squall.workloads.needs import LibraryRequirements
from squall.workloads.scenario import (
    MAX_BYTES,
    MIN_BYTES,
    LoadProfile,
    Operation,
    RandomStreamFactory,
    Scenario,
    ScenarioEnvironment,
    SwarmCluster,
    Table,
)
from squall.workloads.section import WorkloadSection
from squall.workloads.sending import wrong_size
from squall.workloads.steady.section import section_of

if TYPE_CHECKING:
    from squall.checkers.history.tables import History, RecordedFault

TOPIC = "steady-0"


class SteadyRecord(NamedTuple):
    """Describes one planned record of the producer."""

    at_s: float
    bytes: int
    """Gives the size of the record's value."""


class SteadyLoad(Scenario):
    """Runs one producer and one reader at a low rate. The producer is idempotent, with acks=all and linger 0."""

    OPERATION: ClassVar[type[tuple[Any, ...]]] = SteadyRecord
    DRAW_ONLY_SETTINGS: ClassVar[tuple[str, ...]] = ("rate", "record_bytes")
    PLAIN: ClassVar[Mapping[int, Any]] = {1: 100}

    name: Literal["steady"] = "steady"
    rate: int = Field(10, ge=1, le=200, description="Records per second of all producers together.")
    record_bytes: int = Field(200, ge=MIN_BYTES, le=MAX_BYTES, description="Size of each record.")
    poll_pause_ms: int = Field(20, ge=0, le=200, description="Pause after each poll, in ms.")

    @override
    def topic_list(self) -> tuple[NewTopic, ...]:
        return (NewTopic(TOPIC, 1, self.replication_factor, self.topic_configs()),)

    @override
    def traffic(self) -> LoadProfile:
        settings = self._producer()
        return LoadProfile(1, 1, self.rate, settings.acks, settings.max_in_flight, self.record_bytes)

    @override
    def needs(self, operations: Sequence[Operation] = ()) -> LibraryRequirements:
        largest = max([self.record_bytes, *(each.bytes for each in operations)])
        return LibraryRequirements(self._producer(), self.request_timeout_ms, largest, self.poll_pause_ms)

    def _producer(self) -> ProducerSettings:
        return ProducerSettings(linger_ms=0, delivery_timeout_ms=self.delivery_timeout_ms)

    @override
    def drawn(self, stream: RandomStreamFactory, begin_s: float, end_s: float) -> tuple[SteadyRecord, ...]:
        """Return the producer's records, a fixed time apart. Only the time of the first one is random."""
        phase = stream("operations").random()
        times = (
            round(begin_s + (number + phase) / self.rate, 4) for number in range(int((end_s - begin_s) * self.rate))
        )
        return tuple(SteadyRecord(at_s, self.record_bytes) for at_s in times if at_s < end_s)

    @override
    def wrong(self, operation: Operation) -> str:
        return wrong_size(operation.bytes)

    @classmethod
    @override
    def drawn_settings(cls, stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> Table:
        rng = stream("workload")
        replicas = rng.choice([n for n in (1, 2, 3, 3, 3) if n <= drawn_cluster.nodes])
        return {
            "name": "steady",
            "replication_factor": replicas,
            "min_isr": rng.choice([n for n in (1, 2, 2) if n <= replicas]),
            "rate": rng.choice((5, 10, 20)),
            "record_bytes": rng.choice((100, 1000)),
            "request_timeout_ms": rng.choice((1000, 3000)),
            "topic_settings": {"flush.messages": "1"} if drawn_cluster.hurts_fsyncs and rng.random() < 0.25 else {},
        }

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
            nursery.start_soon(tail, around, self.client_settings(), 0, self.places(), 0, self.poll_pause_ms)
            await ProducerLoop(around.own("producer-0"), around, settings, 0, self._agenda(around, began)).run(
                around.stop
            )
            around.readers.load_over()
        around.recorder.flush()

    def _agenda(self, around: ScenarioEnvironment, began: float) -> RecordSchedule:
        if around.operations is None:
            from squall.workloads.sender import TICK_S

            sizes = (self.record_bytes, self.record_bytes)
            return RandomRecordSchedule(around.own("agenda"), self.places(), sizes, 1 / self.rate, TICK_S)
        return FixedRecordSchedule(
            [PlannedRecord(each.at_s, 0, TOPIC, 0, each.bytes) for each in around.operations], 0, began
        )

    @override
    def measured(self, history: Callable[[], History], faults: Sequence[RecordedFault]) -> Mapping[str, Any]:
        """Return for how long no write or no read succeeded, in the whole load and during each fault."""
        from squall.workloads.steady.availability import measure

        return measure(history(), faults, self.rate)

    @classmethod
    @override
    def section(cls, figures: Mapping[str, Any]) -> WorkloadSection | None:
        return section_of(figures)
