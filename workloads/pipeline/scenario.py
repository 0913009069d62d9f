"""Defines the settings of the workload `pipeline`, draws its load, and runs it.

`MultiInstanceLoad` holds everything that is common to loads with any number of applications side by side.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import tee
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from squall.broker.overriding import override
from squall.workloads import swarm_draws
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.client.settings import ProducerSettings
from squall.workloads.group_brokers import (
    COMMITS,
    FACTOR,
    METADATA,
    SUITED_TO_GROUPS,
    TXN_COMMITS,
    draw_group_settings,
    frequent_coordinator_apis,
    session_limits,
    session_settings_for,
)
from squall.workloads.group_section import section_of
from squall.workloads.library_abilities import OURS, assignor_of, unsupported_instances, unsupported_membership
from squall.workloads.needs import LibraryRequirements
from squall.workloads.pipeline import steps
from squall.workloads.pipeline.steps import SEND, InstanceAction, InstanceActionMix, transactional_id
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
from squall.workloads.transactions import brokers

if TYPE_CHECKING:
    import trio

    from squall.broker.env import Env
    from squall.checkers.history.tables import History, RecordedFault
    from squall.workloads.agenda import RecordSchedule
    from squall.workloads.client.cluster import Address, Place
    from squall.workloads.counters import LoadCounters
    from squall.workloads.final_reads import FinalReadResult
    from squall.workloads.pipeline.instance import InstanceProcessFactory
    from squall.workloads.pipeline.process_run import InstanceSettings
    from squall.workloads.recorder import Recorder
    from squall.workloads.section import WorkloadSection


CONSUMER_SHARE = 0.4
"""Gives the share of random plans whose group members speak the consumer group protocol (KIP-848)."""


class PipelineApplication(NamedTuple):
    """Describes instances that form one group, read the input topic, and write to an output topic of their own."""

    group: str
    output: str
    """Names the output topic, which has as many partitions as the input."""
    transactional: bool


class MultiInstanceLoad(Scenario):
    """Runs applications that read, transform and write. Each application has the same number of instances. Instances of
    the same number pause, leave and crash at the same times in all applications. In addition, one reader reads the
    input and output topics at read_committed.
    """

    INPUT: ClassVar[str]
    APPLICATIONS: ClassVar[tuple[PipelineApplication, ...]]
    OPERATION: ClassVar[type[tuple[Any, ...]]] = InstanceAction
    DRAW_ONLY_SETTINGS: ClassVar[tuple[str, ...]] = ("rate", "record_bytes", "churn")
    LIGHT: ClassVar[dict[str, Any]] = {"rate": 4, "poll_pause_ms": 200}
    COUNTED: ClassVar[tuple[str, ...]] = ("instances", "producers", "partitions")
    BROKERS: ClassVar[Mapping[str, str]] = {**brokers.SUITED, **SUITED_TO_GROUPS}
    COORDINATOR_LOGS: ClassVar[tuple[str, ...]] = (brokers.FACTOR, FACTOR)
    MEANT_FOR: ClassVar[tuple[str, ...]] = ("stuck-group", "eos-duplicate")

    rate: int = Field(20, ge=1, le=1000, description="Records per second of all producers together.")
    record_bytes: int = Field(200, ge=MIN_BYTES, le=MAX_BYTES, description="Size of each record.")
    partitions: int = Field(4, ge=1, le=64, description="Partitions of the topic.")
    producers: int = Field(1, ge=1, le=16, description="Number of producing processes at a time.")
    instances: int = Field(2, ge=1, le=16, description="Instances of each application; they are members of one group.")
    group_protocol: Literal["classic", "consumer"] = Field(
        "classic", description="Group protocol of the members; consumer: KIP-848."
    )
    generation: Literal[1, 2] = Field(2, description="Newest transaction version that the workload's clients speak.")
    transaction_timeout_ms: int = Field(
        4_000, ge=1_000, le=900_000, description="Time-out after which the coordinator aborts an open transaction."
    )
    churn: int = Field(
        20, ge=0, le=600, description="How many times a minute some member pauses, halts, leaves or crashes."
    )
    session_timeout_ms: int = Field(
        3_000, ge=500, le=300_000, description="Silence after which the coordinator removes a member."
    )
    max_poll_interval_ms: int = Field(
        4_000, ge=500, le=300_000, description="Time without a poll after which a member leaves."
    )
    poll_pause_ms: int = Field(20, ge=0, le=60_000, description="Pause after each poll, in ms.")

    @override
    def contradictions(self) -> list[str]:
        found = super().contradictions()
        found += unsupported_membership(
            self.client,
            self.group_protocol,
            assignor_of(self.client),
            self.session_timeout_ms,
            self.max_poll_interval_ms,
        )
        if self.client != OURS and self.generation != 1:
            found.append(f"client {self.client} speaks generation 1 of transactions only: generation = 1")
        if self.instances > 1 and any(each.transactional for each in self.APPLICATIONS):
            found += unsupported_instances(self.client)
        return found

    @model_validator(mode="before")
    @classmethod
    def _default_generation(cls, given: Any) -> Any:
        """Return the `[workload]` table `given`, with `generation = 1` added if its client is a library and it gives no
        generation: libraries speak only V1 of the transaction protocol.
        """
        return {"generation": 1, **given} if isinstance(given, dict) and given.get("client", OURS) != OURS else given

    @override
    def longest_wait_s(self) -> float:
        """Return the longest of these waits, in seconds: the request time-out; the time after which the group has
        removed a member (session plus poll time-out); the transaction time-out. The latter two include the pauses
        between polls.

        A silent member is removed only after its session, and then a rebalance waits for members that do not poll. The
        open transaction of a dead instance blocks readers of its output.
        """
        kept_ms = max(self.session_timeout_ms + self.max_poll_interval_ms, self.transaction_timeout_ms)
        return max(super().longest_wait_s(), kept_ms / 1000 + POLLS_TO_READ * self.poll_pause_ms // 1000)

    @override
    def broker_limits(self) -> tuple[BrokerLimit, ...]:
        found = (*super().broker_limits(), *session_limits((self.group_protocol,), self.session_timeout_ms))
        if any(each.transactional for each in self.APPLICATIONS):
            found += (brokers.timeout_limit(self.transaction_timeout_ms),)
        return (*found, METADATA) if self.client == OURS else found

    @override
    def topic_list(self) -> tuple[NewTopic, ...]:
        common = (self.partitions, self.replication_factor, self.topic_configs())
        names = (self.INPUT, *(each.output for each in self.APPLICATIONS))
        return tuple(NewTopic(name, *common) for name in names)

    def inputs(self) -> list[Place]:
        """Return the partitions of the input topic."""
        return [place for place in self.places() if place[0] == self.INPUT]

    @override
    def traffic(self) -> LoadProfile:
        """Return the load's profile. Producers of inputs are numbered first, then the instances of each application."""
        settings, applications = self.producer_settings(), self.APPLICATIONS
        writing = any(each.transactional for each in applications)
        return LoadProfile(
            self.producers + self.instances * len(applications),
            1,
            self.rate * (1 + len(applications)),
            settings.acks,
            settings.max_in_flight,
            self.record_bytes,
            tuple(map(transactional_id, range(self.instances if writing else 0))),
            self._zombies(),
            tuple(each.group for each in applications),
            self._asked(),
            tuple(f"producer:{self.producers + number}" for number in range(self.instances * len(applications))),
        )

    def _asked(self) -> tuple[str, ...]:
        """Return `LoadProfile.coordinator_apis`: the APIs that instances request again and again, for heartbeats and
        commits.
        """
        commits = dict.fromkeys(TXN_COMMITS if each.transactional else COMMITS for each in self.APPLICATIONS)
        return frequent_coordinator_apis(self.group_protocol, *commits)

    def _zombies(self) -> tuple[int, ...]:
        """Return the numbers of the instances that can become zombies. There are none if instances outnumber
        partitions, because an instance without partitions has no transaction in which it could pause. There are none
        with a library, because its process cannot pause between two calls of the library.
        """
        if self.instances > self.partitions or self.client != OURS:
            return ()
        return tuple(
            self._handle(index, number)
            for index, application in enumerate(self.APPLICATIONS)
            if application.transactional
            for number in range(self.instances)
        )

    def _handle(self, application: int, instance: int) -> int:
        """Return an instance's number among all producers of the load, in which the producers of inputs come first."""
        return self.producers + application * self.instances + instance

    @classmethod
    @override
    def suited_brokers(cls, table: Table) -> dict[str, str]:
        return session_settings_for(table, cls.model_fields["session_timeout_ms"].default)

    @classmethod
    @override
    def drawn_brokers(cls, stream: RandomStreamFactory, table: Table) -> dict[str, str]:
        rng = stream("brokers of pipelines")
        drawn = {**brokers.drawn(rng, table), **draw_group_settings(rng, table)}
        return {**drawn, **cls.suited_brokers(table)}

    @override
    def needs(self, operations: Sequence[Operation] = ()) -> LibraryRequirements:
        largest = max([self.record_bytes, *(each.bytes for each in operations)])
        return LibraryRequirements(self.producer_settings(), self.request_timeout_ms, largest, self.poll_pause_ms)

    def producer_settings(self) -> ProducerSettings:
        """Return the settings of all producers: those of inputs, and those of instances. Instances of a transactional
        application also get a transactional id.
        """
        return ProducerSettings(
            linger_ms=0, delivery_timeout_ms=self.delivery_timeout_ms, batch_size=self.batch_size()
        )

    def draw(self) -> InstanceActionMix:
        """Return an object that draws the load's actions at random, as the workload's settings demand."""
        return InstanceActionMix(
            self.rate,
            self.producers,
            self.partitions,
            self.record_bytes,
            self.instances,
            self.churn,
            self.max_poll_interval_ms,
            self.session_timeout_ms,
        )

    @override
    def drawn(self, stream: RandomStreamFactory, begin_s: float, end_s: float) -> tuple[InstanceAction, ...]:
        draw, found = self.draw(), list[InstanceAction]()
        for producer in range(self.producers):
            found += draw.records(stream("operations", producer), producer, begin_s, end_s)
        for instance in range(self.instances):
            found += draw.steps(stream("instances", instance), instance, begin_s, end_s)
        return tuple(sorted(found))

    @override
    def wrong(self, operation: Operation) -> str:
        return steps.wrong(operation, self.draw(), (MIN_BYTES, MAX_BYTES))

    @classmethod
    @override
    def drawn_settings(cls, stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> Table:
        rng = stream("workload")
        replicas = rng.choice([n for n in (1, 2, 3, 3, 3) if n <= drawn_cluster.nodes])
        return {
            "name": cls.model_fields["name"].default,
            "replication_factor": replicas,
            "min_isr": rng.choice([n for n in (1, 2, 2) if n <= replicas]),
            "rate": rng.choice((2, 4, 6)),
            "partitions": rng.randint(1, 3),
            "instances": rng.randint(1, 3),
            "group_protocol": "consumer" if stream("group protocol").random() < CONSUMER_SHARE else "classic",
            "generation": rng.choice((1, 2)),
            "churn": rng.choice((10, 30, 60)),
            "session_timeout_ms": rng.choice((1500, 3000)),
            "max_poll_interval_ms": rng.choice((2000, 4000)),
            "transaction_timeout_ms": rng.choice((1000, 2000, 4000)),
            "poll_pause_ms": rng.choice((50, 200)),
            "request_timeout_ms": rng.choice((1000, 3000)),
            "topic_settings": swarm_draws.topic_settings(stream, drawn_cluster),
        }

    @classmethod
    @abstractmethod
    def process_factory(cls, application: PipelineApplication) -> InstanceProcessFactory:
        """Return the class of the application's processes, which decides when they commit."""

    def instance_settings(self, application: PipelineApplication) -> InstanceSettings:
        """Return the settings of the application's instances: membership, producer, outputs and transactions."""
        from squall.workloads.client.groups.membership import MemberSettings
        from squall.workloads.client.settings import ConsumerSettings
        from squall.workloads.pipeline.process_run import InstanceSettings
        from squall.workloads.subscriber import SubscriberSettings

        member = MemberSettings(
            application.group,
            (self.INPUT,),
            (assignor_of(self.client),),
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=max(self.session_timeout_ms // 5, 50),
            max_poll_interval_ms=self.max_poll_interval_ms,
            protocol=self.group_protocol,
        )
        consumer = ConsumerSettings(isolation=1, max_wait_ms=100)
        client = self.client_settings()
        subscriber = SubscriberSettings(member, client, consumer, False, 0, self.request_timeout_ms, commits=False)
        return InstanceSettings(
            subscriber,
            self.producer_settings(),
            [place for place in self.places() if place[0] == application.output],
            self.transaction_timeout_ms,
            self.generation,
            self.record_bytes,
        )

    @override
    async def run(self, around: ScenarioEnvironment) -> None:
        import trio

        from squall.workloads.background_reader import tail
        from squall.workloads.sender import ProducerLoop, SenderSettings
        from squall.workloads.topics import make_topics

        began = around.env.mono()
        await make_topics(around.env, around.zones[0].bootstrap, self, around.recorder)
        needs = self.needs(around.operations or ())
        sending = SenderSettings(needs.producer, self.client_settings(), [self.INPUT], needs.max_record_bytes)
        async with trio.open_nursery() as nursery:
            read = partial(tail, around, self.client_settings(), 0, self.places(), 1, self.poll_pause_ms)
            nursery.start_soon(read)
            self._start(nursery, around, began)
            async with trio.open_nursery() as producing:
                for number in range(self.producers):
                    env = around.own(f"producer-{number}")
                    sender = ProducerLoop(env, around, sending, number, self._records(env, around, number, began))
                    producing.start_soon(sender.run, around.stop)
            around.readers.load_over()
        around.recorder.flush()

    def _start(self, nursery: trio.Nursery, around: ScenarioEnvironment, began: float) -> None:
        """Start all instances of all applications. Instances of the same number get the same actions. `began` is
        env.mono() at the begin of the run.
        """
        from squall.workloads.group_progress import GroupProgress, OperationSchedule
        from squall.workloads.pipeline.instance import ApplicationInstance

        # Drawn once for all applications: they should differ only in when they commit.
        alike = [tee(self._steps(around, number), len(self.APPLICATIONS)) for number in range(self.instances)]
        for index, application in enumerate(self.APPLICATIONS):
            progress, settings = GroupProgress(around, self.inputs()), self.instance_settings(application)
            for number in range(self.instances):
                handle = self._handle(index, number)
                agenda = OperationSchedule(alike[number][index], began, late=around.operations is not None)
                env, process_factory = around.own(f"producer-{handle}"), self.process_factory(application)
                nursery.start_soon(
                    ApplicationInstance(env, around, process_factory, settings, number, handle, agenda, progress).run
                )

    def _steps(self, around: ScenarioEnvironment, number: int) -> Iterator[InstanceAction]:
        """Yield the actions of the instance with this number. They are the same in every application."""
        given = around.operations
        if given is None:
            rng = around.own(f"producer-{self.producers + number}").rng
            return self.draw().steps(rng, number, 0.0, float("inf"))
        return iter(sorted(each for each in given if each.do != SEND and each.who == number))

    def _records(self, env: Env, around: ScenarioEnvironment, number: int, began: float) -> RecordSchedule:
        """Return the schedule of the records that one producer sends: the sends that the plan lists, or random ones."""
        from squall.workloads.agenda import FixedRecordSchedule, PlannedRecord, RandomRecordSchedule
        from squall.workloads.sender import TICK_S

        if around.operations is None:
            sizes = (self.record_bytes, self.record_bytes)
            return RandomRecordSchedule(env, self.inputs(), sizes, self.producers / self.rate, TICK_S)
        mine = [each for each in around.operations if each.do == SEND]
        given = [PlannedRecord(each.at_s, each.who, self.INPUT, each.number, each.bytes) for each in mine]
        return FixedRecordSchedule(given, number, began)

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
        """Fetch the groups' committed offsets, then read all partitions, as every workload does after the faults are
        healed.
        """
        from squall.workloads.group_standing import record_committed_offsets

        client = self.client_settings()
        for each in self.APPLICATIONS:
            await record_committed_offsets(env, bootstrap, recorder, client, each.group, self.inputs(), limit_s, zone)
        return await super().final_reads(env, bootstrap, recorder, counters, limit_s, zone)


class PipelineLoad(MultiInstanceLoad):
    """Runs one application, which commits its input offsets in transactions."""

    INPUT: ClassVar[str] = "pipeline-in-0"
    APPLICATIONS: ClassVar[tuple[PipelineApplication, ...]] = (
        PipelineApplication("squall-pipeline", "pipeline-out-0", True),
    )

    SWARM_SHARE: ClassVar[float] = 0.14

    name: Literal["pipeline"] = "pipeline"

    @classmethod
    @override
    def process_factory(cls, application: PipelineApplication) -> InstanceProcessFactory:
        from squall.workloads.pipeline.transactional import TransactionalInstanceProcess

        return TransactionalInstanceProcess

    @override
    def measured(self, history: Callable[[], History], faults: Sequence[RecordedFault]) -> Mapping[str, Any]:
        from squall.checkers.measured_groups import measure_groups

        return measure_groups(history(), faults)

    @classmethod
    @override
    def section(cls, figures: Mapping[str, Any]) -> WorkloadSection | None:
        return section_of(figures)
