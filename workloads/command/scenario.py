"""The workload `command`: its settings, and how it runs.

The harness starts the program and speaks with it (`Zone.driver`); here it is a producer or a reader like any library's.
Whatever the program does not do, our own client does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from workloads.agenda import Agenda, Drawn, Given, Handover
from workloads.client.new_topic import NewTopic
from workloads.client.settings import ProducerSettings
from workloads.needs import Needs
from workloads.scenario import (
    MAX_BYTES,
    MIN_BYTES,
    Operation,
    Scenario,
    Stream,
    Surroundings,
    SwarmGround,
    Table,
    Traffic,
)
from workloads.sending import contradictions, wrong_handover

TOPIC = "command-0"
BUFFER_BYTES = 8 * 1024 * 1024
"""Of each producer: records handed to the program that have no answer yet."""


class Command(Scenario):
    """Load and clients. What the program is told of settings, and held to, is the same."""

    OPERATION: ClassVar[type[tuple[Any, ...]]] = Handover
    OF_THE_DRAW: ClassVar[tuple[str, ...]] = ("rate", "record_bytes")
    COUNTED: ClassVar[tuple[str, ...]] = ("partitions", "producers", "readers")
    SIMULATED: ClassVar[bool] = False

    name: Literal["command"] = "command"
    command: str = Field("", description="The program under test and its arguments: ./my-producer --fast.")
    directory: str = Field("", description="Where the program is started.")
    role: Literal["producer", "reader", "both"] = Field(
        "producer", description="What the program does; our own client does the rest."
    )
    partitions: int = Field(1, ge=1, le=1000, description="Partitions of each topic.")
    acks: Literal[-1, 0, 1] = Field(-1, description="all, 1 or 0.")
    idempotence: bool = Field(True, description="Idempotent producers; off by itself where acks is not all.")
    max_in_flight: int = Field(5, ge=1, le=100, description="Produce requests in flight on each connection.")
    producers: int = Field(1, ge=1, le=100, description="Producing processes at a time.")
    readers: int = Field(1, ge=1, le=100, description="Readers beside them.")
    rate: int = Field(100, ge=1, le=100_000, description="Records a second, all producers together.")
    record_bytes: int = Field(200, ge=MIN_BYTES, le=MAX_BYTES, description="Size of each record.")
    linger_ms: int = Field(5, ge=0, le=60_000, description="How long a producer waits to fill a batch.")
    poll_pause_ms: int = Field(20, ge=0, le=60_000, description="How long a reader takes over what a poll brought.")

    def contradictions(self) -> list[str]:
        """As `Scenario.contradictions`."""
        found = super().contradictions()
        if self.client != "squall":
            found.append(f"client {self.client}: the program brings its own; what it leaves is done by squall's")
        found += contradictions(
            acks=self.acks,
            idempotence=self.idempotence,
            max_in_flight=self.max_in_flight,
            linger_ms=self.linger_ms,
            delivery_timeout_ms=self.delivery_timeout_ms,
        )
        return found

    def topic_list(self) -> tuple[NewTopic, ...]:
        """As `Scenario.topic_list`."""
        return (NewTopic(TOPIC, self.partitions, self.replication_factor, self.topic_configs()),)

    def traffic(self) -> Traffic:
        """As `Scenario.traffic`."""
        return Traffic(self.producers, self.readers, self.rate, self.acks, self.max_in_flight, self.record_bytes)

    def held_s(self) -> float:
        """As `Scenario.held_s`: a reader that takes its time over a poll asks for nothing meanwhile."""
        return self.poll_pause_ms / 1000

    def needs(self, operations: Sequence[Operation] = ()) -> Needs:
        """As `Scenario.needs`."""
        largest = max([self.record_bytes, *(each.bytes for each in operations)])
        settings = ProducerSettings(
            acks=self.acks,
            idempotence=self.idempotence,
            linger_ms=self.linger_ms,
            max_in_flight=self.max_in_flight,
            delivery_timeout_ms=self.delivery_timeout_ms,
            buffer_bytes=BUFFER_BYTES,
        )
        needs = Needs(settings, self.request_timeout_ms, largest, self.poll_pause_ms)
        return needs._replace(program=self.command, directory=self.directory)

    def drawn(self, stream: Stream, begin_s: float, end_s: float) -> tuple[Handover, ...]:
        """As `Scenario.drawn`: each producer's a fixed time apart."""
        interval_s, found = self.producers / self.rate, []
        for producer in range(self.producers):
            random = stream("operations", producer).random
            for number in range(int((end_s - begin_s) / interval_s)):
                at_s = round(begin_s + (number + random()) * interval_s, 4)
                if at_s < end_s:
                    partition = int(random() * self.partitions)
                    found.append(Handover(at_s, producer, TOPIC, partition, self.record_bytes))
        return tuple(sorted(found))

    def wrong(self, operation: Operation) -> str:
        """As `Scenario.wrong`."""
        return wrong_handover(operation, self.producers, self.partitions, self.topic_names())

    @classmethod
    def drawn_settings(cls, stream: Stream, ground: SwarmGround) -> Table:
        """As `Scenario.drawn_settings`. A swarm is simulated, and this workload is not: nothing is drawn."""
        return {"name": "command"}

    async def run(self, around: Surroundings) -> None:
        """As `Scenario.run`."""
        import trio

        from workloads.sender import Sender, SenderSettings
        from workloads.tail import tail
        from workloads.topics import make_topics

        began = around.env.mono()
        await make_topics(around.env, around.zones[0].bootstrap, self, around.recorder)
        needs = self.needs(around.operations or ())
        settings = SenderSettings(needs.producer, self.client_settings(), self.topic_names(), needs.max_record_bytes)
        sending = around if self.role != "reader" else _without_program(around)
        reading = around if self.role != "producer" else _without_program(around)
        async with trio.open_nursery() as nursery:
            for number in range(self.readers):
                read = partial(tail, reading, self.client_settings(), number, self.places(), number % 2)
                nursery.start_soon(read, self.poll_pause_ms)
            async with trio.open_nursery() as producing:
                for number in range(self.producers):
                    env = around.own(f"producer-{number}")
                    if around.operations is not None:
                        agenda: Agenda = Given(around.operations, number, began)
                    else:
                        sizes = (self.record_bytes, self.record_bytes)
                        agenda = Drawn(env, self.places(), sizes, self.producers / self.rate, 0.0)
                    producing.start_soon(Sender(env, sending, settings, number, agenda).run, around.stop)
            around.readers.load_over()
        around.recorder.flush()


def _without_program(around: Surroundings) -> Surroundings:
    """The same surroundings for our own clients."""
    return replace(around, zones=[zone._replace(driver=None) for zone in around.zones])
