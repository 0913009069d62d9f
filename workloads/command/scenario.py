"""Defines the settings of the workload `command`, and runs it.

The harness starts a user's program and exchanges messages with it through `ClientZone.driver`. The program is a
producer, a reader, both, or a group member that polls and commits by itself. Squall's own client takes the roles that
the program does not have: it produces, for example, if the program is a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from squall.broker.overriding import override
from squall.workloads.agenda import FixedRecordSchedule, PlannedRecord, RandomRecordSchedule, RecordSchedule
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.client.settings import ProducerSettings
from squall.workloads.group_brokers import COMMITS, SUITED_TO_GROUPS, session_limits
from squall.workloads.group_section import section_of
from squall.workloads.needs import LibraryRequirements
from squall.workloads.scenario import (
    MAX_BYTES,
    MIN_BYTES,
    POLLS_TO_READ,
    BrokerLimit,
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
    import trio

    from squall.broker.env import Env
    from squall.checkers.history.tables import History, RecordedFault
    from squall.workloads.client.cluster import Address, Place
    from squall.workloads.counters import LoadCounters
    from squall.workloads.final_reads import FinalReadResult
    from squall.workloads.recorder import Recorder
    from squall.workloads.section import WorkloadSection
    from squall.workloads.subscriber import SubscriberSettings

MEMBER = "member"
TOPIC, OUTPUT, GROUP = "command-0", "command-out-0", "squall-group"
COMMITTED = {"at-most-once": "before", "at-least-once": "after", "exactly-once": "transaction"}
"""Maps the setting `outputs`, which is the guarantee for the records that group members write, to the time at which
they commit their offsets: before or after they write these records, or in the same transaction.
"""
BUFFER_BYTES = 8 * 1024 * 1024
"""Limits, per producer, the bytes of the records that were passed to the program and have no answer yet."""


class CommandLoad(Scenario):
    """Runs a user's program as producer, reader or group member. The checkers hold the program to the same settings
    that it was given.
    """

    OPERATION: ClassVar[type[tuple[Any, ...]]] = PlannedRecord
    DRAW_ONLY_SETTINGS: ClassVar[tuple[str, ...]] = ("rate", "record_bytes")
    COUNTED: ClassVar[tuple[str, ...]] = ("partitions", "producers", "readers")
    SIMULATED: ClassVar[bool] = False

    name: Literal["command"] = "command"
    command: str = Field("", description="The program under test and its arguments: ./my-producer --fast.")
    directory: str = Field("", description="The folder in which the program is started.")
    role: Literal["producer", "reader", "both", "member"] = Field(
        "producer", description="What the program does; Squall's own client does the rest."
    )
    members: int = Field(2, ge=1, le=32, description="Members of the group.")
    outputs: Literal["none", "at-most-once", "at-least-once", "exactly-once"] = Field(
        "none", description="What members promise about the outputs that they write for their inputs."
    )
    session_timeout_ms: int = Field(
        3_000, ge=500, le=300_000, description="Silence after which the coordinator removes a member."
    )
    max_poll_interval_ms: int = Field(
        4_000, ge=500, le=300_000, description="Time without a poll after which a member leaves."
    )
    partitions: int = Field(4, ge=1, le=1000, description="Partitions of each topic.")
    acks: Literal[-1, 0, 1] = Field(-1, description="all, 1 or 0.")
    idempotence: bool = Field(True, description="Producers are idempotent; off by default unless acks is all.")
    max_in_flight: int = Field(5, ge=1, le=100, description="Produce requests in flight on each connection.")
    producers: int = Field(1, ge=1, le=100, description="Number of producing processes at a time.")
    readers: int = Field(1, ge=1, le=100, description="Number of readers at a time.")
    rate: int = Field(100, ge=1, le=100_000, description="Records per second of all producers together.")
    record_bytes: int = Field(200, ge=MIN_BYTES, le=MAX_BYTES, description="Size of each record.")
    linger_ms: int = Field(5, ge=0, le=60_000, description="How long a producer waits to fill a batch.")
    poll_pause_ms: int = Field(20, ge=0, le=60_000, description="Pause after each poll, in ms.")

    @override
    def contradictions(self) -> list[str]:
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
        if self.outputs != "none" and self.role != MEMBER:
            found.append(f"outputs {self.outputs}: of --role member only")
        return found

    @override
    def topic_list(self) -> tuple[NewTopic, ...]:
        names = (TOPIC,) if self.outputs == "none" else (TOPIC, OUTPUT)
        return tuple(NewTopic(each, self.partitions, self.replication_factor, self.topic_configs()) for each in names)

    def inputs(self) -> list[Place]:
        """Return the partitions of the input topic: producers write to them, and group members read them."""
        return [place for place in self.places() if place[0] == TOPIC]

    @override
    def traffic(self) -> LoadProfile:
        """Return the load's profile. Its readers are numbered from 0: first the group members, then the readers that
        are in no group.
        """
        load = (self.rate, self.acks, self.max_in_flight, self.record_bytes)
        if self.role != MEMBER:
            return LoadProfile(self.producers, self.readers, *load)
        members = tuple(f"reader:{number}" for number in range(self.members))
        readers = self.members + self.readers
        return LoadProfile(
            self.producers, readers, *load, groups=(GROUP,), coordinator_apis=(COMMITS,), members=members
        )

    @override
    def longest_wait_s(self) -> float:
        """Return how long, in seconds, a sound cluster may keep the load's clients waiting. This is the default of
        `Scenario`, or the clients' own delay if that is longer. The delay is a producer's linger, or a reader's pauses
        between polls. For a group member, session and poll time-outs are added: a silent member is removed only after
        its session, and then a rebalance waits for members that do not poll.
        """
        kept_ms = self.session_timeout_ms + self.max_poll_interval_ms if self.role == MEMBER else 0
        own_ms = max(kept_ms + POLLS_TO_READ * self.poll_pause_ms, self.linger_ms)
        return max(super().longest_wait_s(), own_ms / 1000)

    @override
    def broker_limits(self) -> tuple[BrokerLimit, ...]:
        """Return the broker settings that bound the requests of the load's clients. If the program is a group member,
        they include the bounds of a classic group's session time-out, because the program may use the classic protocol.
        """
        found = super().broker_limits()
        return (*found, *session_limits(("classic",), self.session_timeout_ms)) if self.role == MEMBER else found

    @classmethod
    @override
    def suited_brokers(cls, table: Table) -> dict[str, str]:
        return dict(SUITED_TO_GROUPS) if table.get("role") == MEMBER else {}

    @override
    def needs(self, operations: Sequence[Operation] = ()) -> LibraryRequirements:
        largest = max([self.record_bytes, *(each.bytes for each in operations)])
        settings = ProducerSettings(
            acks=self.acks,
            idempotence=self.idempotence,
            linger_ms=self.linger_ms,
            max_in_flight=self.max_in_flight,
            delivery_timeout_ms=self.delivery_timeout_ms,
            buffer_bytes=BUFFER_BYTES,
        )
        needs = LibraryRequirements(settings, self.request_timeout_ms, largest, self.poll_pause_ms)
        return needs._replace(program=self.command, directory=self.directory)

    @override
    def drawn(self, stream: RandomStreamFactory, begin_s: float, end_s: float) -> tuple[PlannedRecord, ...]:
        """Return the records of all producers, in order of time. Each producer sends one record in every interval of
        fixed length, at a random time within the interval.
        """
        interval_s, found = self.producers / self.rate, []
        for producer in range(self.producers):
            random = stream("operations", producer).random
            for number in range(int((end_s - begin_s) / interval_s)):
                at_s = round(begin_s + (number + random()) * interval_s, 4)
                if at_s < end_s:
                    partition = int(random() * self.partitions)
                    found.append(PlannedRecord(at_s, producer, TOPIC, partition, self.record_bytes))
        return tuple(sorted(found))

    @override
    def wrong(self, operation: Operation) -> str:
        return wrong_send(operation, self.producers, self.partitions, [TOPIC])

    @classmethod
    @override
    def drawn_settings(cls, stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> Table:
        """Return no settings: random plans are for the simulator, which cannot run this workload."""
        return {"name": "command"}

    @override
    async def run(self, around: ScenarioEnvironment) -> None:
        import trio

        from squall.workloads.background_reader import tail
        from squall.workloads.sender import ProducerLoop, SenderSettings
        from squall.workloads.topics import make_topics

        began = around.env.mono()
        await make_topics(around.env, around.zones[0].bootstrap, self, around.recorder)
        needs = self.needs(around.operations or ())
        settings = SenderSettings(needs.producer, self.client_settings(), self.topic_names(), needs.max_record_bytes)
        sending = around if self.role in ("producer", "both") else _without_program(around)
        reading = around if self.role in ("reader", "both") else _without_program(around)
        async with trio.open_nursery() as nursery:
            ahead = self._members(around, nursery) if self.role == MEMBER else 0
            for number in range(self.readers):
                read = partial(tail, reading, self.client_settings(), ahead + number, self.places(), number % 2)
                nursery.start_soon(read, self.poll_pause_ms)
            async with trio.open_nursery() as producing:
                for number in range(self.producers):
                    env = around.own(f"producer-{number}")
                    if around.operations is not None:
                        agenda: RecordSchedule = FixedRecordSchedule(around.operations, number, began)
                    else:
                        sizes = (self.record_bytes, self.record_bytes)
                        agenda = RandomRecordSchedule(env, self.inputs(), sizes, self.producers / self.rate, 0.0)
                    producing.start_soon(ProducerLoop(env, sending, settings, number, agenda).run, around.stop)
            around.readers.load_over()
        around.recorder.flush()

    def _members(self, around: ScenarioEnvironment, nursery: trio.Nursery) -> int:
        """Start the group members, and return how many there are. No actions are planned for them, so only faults
        disturb them.
        """
        from squall.workloads.command.member import ProgramSubscriber
        from squall.workloads.group_progress import GroupProgress, OperationSchedule
        from squall.workloads.groups.acts import GroupAction
        from squall.workloads.groups.group_pause import EmptyGroupInterval
        from squall.workloads.groups.member_slot import MemberSlot

        outputs = [place for place in self.places() if place[0] == OUTPUT]
        commits = COMMITTED.get(self.outputs, "")
        program = partial(ProgramSubscriber, outputs=outputs, commits=commits, record_bytes=self.record_bytes)
        progress = GroupProgress(around, self.inputs(), client="program", reports=True)
        group_pause = EmptyGroupInterval("classic")
        for number in range(self.members):
            env, acts = around.own(f"reader-{number}"), OperationSchedule[GroupAction](iter(()), 0.0, late=False)
            settings = self.subscriber_settings()
            slot = MemberSlot(env, around, settings, number, acts, progress, group_pause, self.poll_pause_ms, program)
            nursery.start_soon(slot.run)
        return self.members

    def subscriber_settings(self) -> SubscriberSettings:
        """Return the settings of each member."""
        from squall.workloads.client.groups.membership import MemberSettings
        from squall.workloads.client.settings import ConsumerSettings
        from squall.workloads.subscriber import SubscriberSettings

        member = MemberSettings(
            GROUP,
            (TOPIC,),
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=max(self.session_timeout_ms // 5, 50),
            max_poll_interval_ms=self.max_poll_interval_ms,
        )
        consumer = ConsumerSettings(isolation=1)
        return SubscriberSettings(member, self.client_settings(), consumer, False, 0, 0, commits=False)

    @override
    async def final_reads(
        self,
        env: Env,
        bootstrap: Sequence[Address],
        recorder: Recorder,
        counters: LoadCounters,
        limit_s: float,
        zone: str,
    ) -> list[FinalReadResult]:
        """Fetch the group's committed offsets if the program is a group member. Then read all partitions, as every
        workload does after the faults are healed.
        """
        if self.role == MEMBER:
            from squall.workloads.group_standing import record_committed_offsets

            settings = self.client_settings()
            await record_committed_offsets(env, bootstrap, recorder, settings, GROUP, self.inputs(), limit_s, zone)
        return await super().final_reads(env, bootstrap, recorder, counters, limit_s, zone)

    @override
    def meant_for(self) -> tuple[str, ...]:
        """Return the anomalies that every run must be able to detect. If the program is a group member, this is
        `commit-ahead`: a committed offset is beyond a record that no member got. Otherwise there are none.
        """
        return ("commit-ahead",) if self.role == MEMBER else ()

    @override
    def measured(self, history: Callable[[], History], faults: Sequence[RecordedFault]) -> Mapping[str, Any]:
        if self.role != MEMBER:
            return {}
        from squall.checkers.measured_groups import measure_groups

        return measure_groups(history(), faults)

    @classmethod
    @override
    def section(cls, figures: Mapping[str, Any]) -> WorkloadSection | None:
        return section_of(figures) if figures else None


def _without_program(around: ScenarioEnvironment) -> ScenarioEnvironment:
    """Return a copy of the environment in which all clients are Squall's own, instead of the user's program."""
    return replace(around, zones=[zone._replace(driver=None) for zone in around.zones])
