"""A workload, as the harness sees it: plan, run, swarm, shrinking, drivers and commands know this port only.

A scenario is the plan's `[workload]` table: a model of its own checks the table and holds it, and no setting of it is
copied anywhere else. What a scenario adds (a folder of `workloads/`, one line of `squall.workloads.registry`) is what
it needs (topics, clients), how a seed draws its operations and settings, how it runs, what its final reads are, which
checks are meant for it, how it shrinks, and what its own section of the report says.

Some settings have the same name in every scenario, because checkers read them from the plan to know what was promised:
`replication_factor`, `min_isr`, `topic_settings`, and, where a scenario leaves them open, `acks`, `idempotence` and
`max_in_flight`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from squall.workloads.client.settings import ClientSettings

# Plans are read by commands that start nothing: trio, the client and its messages are imported where a load runs.
if TYPE_CHECKING:
    from random import Random

    import trio

    from squall.broker.env import Env
    from squall.checkers.history.tables import History, PlayedFault
    from squall.workloads.client.cluster import Address, Place
    from squall.workloads.client.new_topic import NewTopic
    from squall.workloads.control import LoadControls
    from squall.workloads.counters import LoadCounters
    from squall.workloads.final_reads import FinalReadResult
    from squall.workloads.libraries import ClientZone
    from squall.workloads.live_readers import LiveReaders
    from squall.workloads.needs import LibraryRequirements
    from squall.workloads.recorder import Recorder
    from squall.workloads.section import WorkloadSection

POLLS_TO_READ = 3
"""A record waits for at most so many polls: an earlier answer and a request for another broker may come first. A
partition of a group moves in as many: its owner gives it up, the next one joins, and then reads."""
BATCH_BYTES = 256
"""At least: what a batch of one record takes beside the record's value."""
LEAST_RECORD_BYTES = 100
"""Of the writes after healing."""
MIN_BYTES, MAX_BYTES = 64, 1 << 20
"""Of a record's value."""

Operation = Any
"""One thing that a client does, a NamedTuple of the scenario's. Its first field is `at_s`: seconds, counted as faults
are, from the beginning of the load: negative in the warm-up."""
AT = 0
"""Where `at_s` stands in an operation, also where a plan's file has it as a list."""
Table = dict[str, Any]
"""A `[workload]` table as JSON values, as shrinking changes it."""

Acknowledged = Callable[[str, int, int, int], None]
"""Topic, partition, offset (-1: not told) and value of a record whose send was ok."""


class RandomStream(Protocol):
    """A random stream for each purpose, so that what is drawn for one changes nothing that is drawn for another."""

    def __call__(self, *purpose: object) -> Random:
        """The stream of a purpose, from its beginning."""


class WorkloadFailed(Exception):
    """The workload could not begin. The message says why."""


class LoadProfile(NamedTuple):
    """Describes a load for faults, invariants and swarms."""

    producers: int
    """Logical ones; each is one process after the other."""
    readers: int
    rate: int
    """Records a second, all producers together, rounded up."""
    acks: int
    in_flight: int
    """Produce requests on a connection that wait for their answer."""
    mean_bytes: float
    """Of a record's value."""
    ids: tuple[str, ...] = ()
    """All transactional ids; none: it has no transactions."""
    zombies: tuple[int, ...] = ()
    """Numbers of the producers of which zombies can be made: each has a transactional id."""
    groups: tuple[str, ...] = ()
    """The consumer groups that it has."""
    asked: tuple[str, ...] = ()
    """APIs of requests that their members send to coordinators again and again."""
    members: tuple[str, ...] = ()
    """Which of the clients is a member of a group, by the members' numbers: `reader:0`, or `producer:1`."""
    named: tuple[int, ...] = ()
    """Numbers of the members that have an instance id."""


class BrokerLimit(NamedTuple):
    """A setting of the brokers that bounds what clients ask for: a request beyond it is refused, however often.
    Kafka's defaults and `Scenario.suited_brokers` are within bounds.
    """

    setting: str
    asked: int
    """By the workload's clients."""
    asked_by: str
    """The setting of the workload that has it, or what asks for it."""
    refused: str
    """What follows if it is out of bounds."""
    least: bool = False
    """The setting is the least that may be asked for; else it is the most."""


class SwarmCluster(NamedTuple):
    """Holds what a swarm has drawn before it draws a workload's settings."""

    nodes: int
    hurts_fsyncs: bool
    """A fault may hit fsyncs: they have to happen."""
    damages_files: bool = False
    """A fault may take files: there have to be closed ones."""


def _live_readers() -> LiveReaders:
    from squall.workloads.live_readers import LiveReaders

    return LiveReaders()


@dataclass(slots=True)
class ScenarioEnvironment:
    """Gives a scenario its environment.

    `zones` take turns: the first producer and the first reader are of the first one, and so on. `envs` gives each
    producer and reader, by name, an Env of its own, so that what one draws does not change what another draws.
    `operations`: what is done, and when, counted from the beginning of the run; None: drawn on the way, by the
    settings. `acknowledged` is called for each record whose send was ok.
    """

    env: Env
    zones: Sequence[ClientZone]
    recorder: Recorder
    counters: LoadCounters
    stop: trio.Event
    """Hand nothing over any more."""
    controls: LoadControls
    """What is done to clients from outside."""
    envs: Callable[[str], Env] | None = None
    acknowledged: Acknowledged | None = None
    operations: Sequence[Operation] | None = None
    readers: LiveReaders = field(default_factory=_live_readers)
    """Where the workload's readers say how far they have come, and are told when they may end."""

    def own(self, name: str) -> Env:
        """The Env of one client."""
        return self.env if self.envs is None else self.envs(name)

    def zone(self, number: int) -> ClientZone:
        """The zone of the client of this number."""
        return self.zones[number % len(self.zones)]


@dataclass(frozen=True, slots=True)
class RenumberedLoad:
    """The same load with fewer topics, partitions or clients. `places`: partitions that have another name now."""

    table: Table
    operations: list[list[Any]]
    places: Mapping[Place, Place]


Renumbering = Callable[[Table, "list[list[Any]]"], "RenumberedLoad | None"]


class Scenario(BaseModel, ABC):
    """A workload with its settings. Sizes in bytes, rates in records a second."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    OPERATION: ClassVar[type[tuple[Any, ...]]]
    """The NamedTuple of its operations."""
    SIMULATED: ClassVar[bool] = True
    """Our own clients can do all of it, so that the simulator can run it."""
    OF_THE_DRAW: ClassVar[tuple[str, ...]] = ("rate",)
    """Settings that say only how operations are drawn: they mean nothing to a plan with operations of its own."""
    LIGHT: ClassVar[Mapping[str, Any]] = {}
    """Settings of a single simulated seed where nobody asks for a rate: every request costs what it costs there, and
    time is free."""
    CHECKS: ClassVar[tuple[str, ...] | None] = None
    """Names of the anomalies that can show in it; None: all that there is a finder for."""
    MEANT_FOR: ClassVar[tuple[str, ...]] = ()
    """Names of anomalies that every run of it can show: a history that cannot show them lacks something."""
    BROKERS: ClassVar[Mapping[str, str]] = {}
    """Settings of the brokers that suit it, where no others are given."""
    COORDINATOR_LOGS: ClassVar[tuple[str, ...]] = ()
    """Replication factors of the logs that it cannot work without."""
    SWARM_SHARE: ClassVar[float] = 0.0
    """Share of a swarm's seeds that have it, where nobody names a workload; the rest have the default."""
    COUNTED: ClassVar[tuple[str, ...]] = ()
    """Settings that count something: shrinking looks for the fewest."""
    PLAIN: ClassVar[Mapping[int, Any]] = {}
    """Field of an operation, by its number -> the plainest value that it can have."""
    RENUMBERINGS: ClassVar[tuple[Renumbering, ...]] = ()
    """How its load becomes one of fewer topics, partitions or clients."""

    @field_validator("*", mode="before")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and kind in (int, float):
            raise ValueError("it is a number")
        if info.field_name == "acks" and value not in (0, 1):
            if value not in ("all", -1):
                raise ValueError("it is all, 1 or 0")
            return -1
        return value

    name: str
    client: Literal["squall", "confluent", "aiokafka", "kafka-python"] = Field(
        "squall", description="The library that produces and reads; final readers are always Squall's own."
    )
    replication_factor: int = Field(3, ge=1, le=9, description="Replicas of each partition.")
    min_isr: int = Field(2, ge=1, le=9, description="min.insync.replicas of the topics.")
    zones: int = Field(
        1, ge=1, le=9, exclude_if=lambda count: count == 1,
        description="Number of client zones. Clients are spread over the zones in turn; each zone has its own links to "
        "the brokers, so a fault can hit one zone (target zone:N).",
    )  # fmt: skip
    request_timeout_ms: int = Field(
        3_000, ge=100, le=600_000, description="How long a client waits before it counts a request as lost."
    )
    delivery_timeout_ms: int = Field(
        20_000, ge=100, le=3_600_000, description="How long a producer tries before it gives a record up."
    )
    topic_settings: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if wrong := self.contradictions():
            raise ValueError("\n".join(wrong))
        return self

    def contradictions(self) -> list[str]:
        """Settings that cannot be together, a sentence for each contradiction. A workload adds its own."""
        found = []
        if self.min_isr > self.replication_factor:
            found.append(f"min_isr {self.min_isr} is above replication_factor {self.replication_factor}")
        traffic = self.traffic()
        if self.zones > max(traffic.producers, traffic.readers):
            clients = f"{traffic.producers} producers and {traffic.readers} readers"
            found.append(f"zones {self.zones}: {clients} leave one without clients")
        return found

    # -------------------------------------------------------------------------------------------- what it needs

    @abstractmethod
    def topic_list(self) -> tuple[NewTopic, ...]:
        """The topics that must exist before it begins."""

    @abstractmethod
    def traffic(self) -> LoadProfile:
        """Return what faults, invariants and swarms have to know of its load."""

    @abstractmethod
    def needs(self, operations: Sequence[Operation] = ()) -> LibraryRequirements:
        """Return what its client libraries must do. `operations`: those that a plan gives."""

    def topic_names(self) -> list[str]:
        """Return the names of its topics."""
        return [topic.name for topic in self.topic_list()]

    def places(self) -> list[Place]:
        """All partitions of its topics."""
        return [(topic.name, index) for topic in self.topic_list() for index in range(topic.partitions)]

    def topic_configs(self) -> dict[str, str]:
        """The settings of its topics, as far as they are all alike."""
        return {"min.insync.replicas": str(self.min_isr), **self.topic_settings}

    @classmethod
    def suited_brokers(cls, table: Table) -> dict[str, str]:
        """Return the settings, beside `BROKERS`, that these settings of the load call for where no others are given."""
        return {}

    @classmethod
    def drawn_brokers(cls, stream: RandomStream, table: Table) -> dict[str, str]:
        """Settings of the brokers that a swarm gives it, beside `drawn_settings`, which are `table`."""
        return dict(cls.BROKERS)

    def held_s(self) -> float:
        """Return how long a sound cluster may keep its producers and live readers waiting, in seconds: because of their
        own pauses and time-outs, or because members or transactions of clients that are gone keep partitions until a
        time-out. By itself: until a request that a fault has swallowed is sent again.
        """
        return self.request_timeout_ms / 1000

    def broker_limits(self) -> tuple[BrokerLimit, ...]:
        """Return the bounds that brokers set to what its clients ask for."""
        name = "max.message.bytes" if "max.message.bytes" in self.topic_settings else "message.max.bytes"
        bytes_ = max(self.needs().max_record_bytes, LEAST_RECORD_BYTES) + BATCH_BYTES
        asked_by = "the largest record and its batch"
        return (BrokerLimit(name, bytes_, asked_by, "records are refused"),)

    def client_settings(self) -> ClientSettings:
        """Of each of our own clients."""
        return ClientSettings(request_timeout_ms=self.request_timeout_ms)

    # ---------------------------------------------------------------------------------------------- operations

    @abstractmethod
    def drawn(self, stream: RandomStream, begin_s: float, end_s: float) -> tuple[Operation, ...]:
        """The operations of a load of this time, in order of time, each client's from a stream of its own."""

    @abstractmethod
    def wrong(self, operation: Operation) -> str:
        """Why this is no operation of the workload; empty where it is one."""

    @classmethod
    def lesser(cls, operation: list[Any]) -> Iterator[list[Any]]:
        """The same operation, as a plan's file has it, with one thing less in it: each way in which that may be."""
        return iter(())

    # --------------------------------------------------------------------------------------------- how it runs

    @abstractmethod
    async def run(self, around: ScenarioEnvironment) -> None:
        """Drive the load until `around.stop`, then wait until every operation has its outcome.

        `around.readers.load_over` is called then, and readers go on until `around.readers.may_end`. Raises
        WorkloadFailed where it cannot begin, OSError where the history cannot be written.
        """

    async def final_reads(
        self,
        env: Env,
        bootstrap: Sequence[Address],
        recorder: Recorder,
        counters: LoadCounters,
        limit_s: float,
        zone: str,
    ) -> list[FinalReadResult]:
        """Read what survived, once all is healed: each reader has `limit_s`. Never raises for what a cluster does.

        Partitions and topics that were added during the load are read, too; topics that were deleted are not.
        """
        from squall.workloads.final_reads import final_reads

        places = list(recorder.partitions)
        return await final_reads(env, bootstrap, places, recorder, timeout_s=limit_s, counters=counters, zone=zone)

    # ------------------------------------------------------------------------------------------- how it is drawn

    @classmethod
    @abstractmethod
    def drawn_settings(cls, stream: RandomStream, ground: SwarmCluster) -> Table:
        """The settings that a swarm gives it, its name among them."""

    # ------------------------------------------------------------------------------------------ how it is judged

    def meant_for(self) -> tuple[str, ...]:
        """Return `MEANT_FOR`, as far as these settings can show it."""
        return self.MEANT_FOR

    def measured(self, history: Callable[[], History], faults: Sequence[PlayedFault]) -> Mapping[str, Any]:
        """Figures of its own for verdict.json, plain JSON; empty where it has none.

        Moments are seconds since the history began and have a name that reports know as one, `from_s`, `to_s`,
        `began_s` or `ended_s`: people see them on the clock of the load, as `section` is given them.
        """
        return {}

    @classmethod
    def section(cls, figures: Mapping[str, Any]) -> WorkloadSection | None:
        """Return what page and terminal show of `measured`."""
        return None


def listed(operations: Sequence[Operation]) -> Iterator[list[Any]]:
    """Operations as a plan's file has them."""
    return (list(each) for each in operations)
