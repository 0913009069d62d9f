"""Defines the interface of a workload (`Scenario`): plans, runs, swarms, shrinking, drivers and commands know only this
module.

A scenario is a pydantic model of the plan's `[workload]` table: it checks the table's settings, and all code reads them
from it. A new scenario is a folder of `workloads/` and one line of `squall.workloads.registry`. It says what it needs
(topics, clients), how a seed draws its operations and settings, how it runs, what its final reads are, which checks
apply to it, how it shrinks, and what its own section of the report contains.

Checkers read some settings from the plan to know what was promised. These have the same name in every scenario:
`replication_factor`, `min_isr` and `topic_settings`. If users can choose `acks`, `idempotence` and `max_in_flight` in a
scenario, these have the same names, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from squall.workloads.client.settings import BATCH_SIZE, ClientSettings

# Plans are read by commands that start nothing: trio, the client and its messages are imported where a load runs.
if TYPE_CHECKING:
    from random import Random

    import trio

    from squall.broker.env import Env
    from squall.checkers.history.tables import History, RecordedFault
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
"""Is the largest number of polls that a reader may need to read a record that is in the log: the first polls may return
an older response, or wait for another broker. Three polls also suffice if the partition moves to another group member:
the old owner gives it up at one poll, the new owner joins at another, and at the third the new owner reads.
"""
BATCH_BYTES = 256
"""Is an upper bound of the bytes that a batch of one record adds to the record's value."""
POST_HEAL_BYTES = 100
"""Is the size of the value of each record that the harness writes after healing."""
MIN_BYTES, MAX_BYTES = 64, 1 << 20
"""These are the limits of the size of a record's value."""

Operation = Any
"""Describes one operation of a client, as a NamedTuple of the scenario. Its first field is `at_s`: seconds since the
begin of the load with faults, negative in the warm-up.
"""
AT = 0
"""Is the index of `at_s` in an operation, also in the list that a plan's file has."""
Table = dict[str, Any]
"""Is a plan's `[workload]` table as JSON values, the form in which shrinking changes it."""

Acknowledged = Callable[[str, int, int, int], None]
"""Is called for each record whose send succeeded, with its topic, partition, offset (-1: not known) and value."""


class RandomStreamFactory(Protocol):
    """Returns a random stream for each purpose, so that a draw for one purpose changes no draw for another purpose."""

    def __call__(self, *purpose: object) -> Random:
        """Return the random stream of a purpose. Each call returns the stream from its beginning."""


class WorkloadFailed(Exception):
    """Says that the workload could not begin, and why: for example, its topics were not ready in time."""


class LoadProfile(NamedTuple):
    """Summarises a load's clients, rate, groups and transactional ids for those parts of Squall that must not depend on
    any one workload: faults, invariants and random plans.
    """

    producers: int
    """Counts the producers. Each is a sequence of processes of the history: when one ends, a successor begins."""
    readers: int
    rate: int
    """Gives the records per second of all producers together, rounded up."""
    acks: int
    in_flight: int
    """Limits the unanswered Produce requests on a connection."""
    mean_bytes: float
    """Gives the mean size of a record's value."""
    ids: tuple[str, ...] = ()
    """Lists all transactional ids; empty if the load has no transactions."""
    zombies: tuple[int, ...] = ()
    """Lists the numbers of the producers that can become zombies: each has a transactional id."""
    groups: tuple[str, ...] = ()
    """Lists the load's consumer groups."""
    coordinator_apis: tuple[str, ...] = ()
    """Lists the APIs of requests that group members send to their coordinator throughout the load, such as Heartbeat.
    Faults that are to hit a request to a coordinator choose one of these.
    """
    members: tuple[str, ...] = ()
    """Names the clients that are members of a group, by member number: `reader:0` or `producer:1`."""
    static_members: tuple[int, ...] = ()
    """Lists the numbers of the members that have a group.instance.id."""
    loads: int = 0
    """Counts the loads whose driver and executors faults can kill. They are the last readers."""

    def controls(self) -> LoadControls:
        """Return handles through which faults act on the load's clients."""
        from squall.workloads.control import LoadControls

        return LoadControls(self.producers, self.readers, self.zombies, self.members, self.static_members, self.loads)


class BrokerLimit(NamedTuple):
    """Describes a broker setting that has to fit what the workload's clients ask for. Only a setting that the plan
    gives can be wrong: Kafka's defaults, with `Scenario.suited_brokers`, fit.
    """

    setting: str
    asked: int
    """Gives the value that the workload's clients ask for, for example a session time-out in ms."""
    asked_by: str
    """Names what decides `asked`: a setting of the workload or, for example, its largest record."""
    refused: str
    """Says what happens if the setting does not fit, for example "records are refused"."""
    least: bool = False
    """Is True if the setting must be at most `asked`, for example the shortest session time-out that a broker accepts;
    otherwise it must be at least `asked`.
    """


class SwarmCluster(NamedTuple):
    """Describes the cluster and faults of one random plan of a swarm (many simulated runs), which are drawn before the
    workload's settings.
    """

    nodes: int
    hurts_fsyncs: bool
    """Is True if a fault may hit fsyncs, so that the load must cause some."""
    damages_files: bool = False
    """Is True if a fault may damage files. Some log segments should then be closed during the load, so that there are
    files that can be lost.
    """


def _live_readers() -> LiveReaders:
    from squall.workloads.live_readers import LiveReaders

    return LiveReaders()


@dataclass(slots=True)
class ScenarioEnvironment:
    """Gives a running scenario its environment: clock, cluster addresses, recorder, counters and controls.

    Clients use the `zones` in turn: the first producer and the first reader are in the first zone, and so on. `envs`
    returns an Env for each producer and reader by name, so that the random draws of one do not change those of another.
    `operations` holds the plan's operations, with times in seconds after the begin of the run; if it is None, the
    workload draws operations during the run. `acknowledged` is called for each record whose send succeeded.
    """

    env: Env
    zones: Sequence[ClientZone]
    recorder: Recorder
    counters: LoadCounters
    stop: trio.Event
    """Is set at the end of the load: from then on, producers send no new records. Readers, and instances that write an
    output for each input, continue until `readers.may_end`.
    """
    controls: LoadControls
    """Lets faults pause and crash clients, turn them into zombies, and start a second process with a member's instance
    id.
    """
    envs: Callable[[str], Env] | None = None
    acknowledged: Acknowledged | None = None
    operations: Sequence[Operation] | None = None
    readers: LiveReaders = field(default_factory=_live_readers)
    """Tracks how far the workload's readers have read, and says when they may end."""

    def own(self, name: str) -> Env:
        """Return the Env (clock and random numbers) of the client with this name, for example `producer-0`."""
        return self.env if self.envs is None else self.envs(name)

    def zone(self, number: int) -> ClientZone:
        """Return the zone of the client with this number. Clients use the zones in turn."""
        return self.zones[number % len(self.zones)]


@dataclass(frozen=True, slots=True)
class RenumberedLoad:
    """Holds a load that was changed to use fewer topics, partitions or clients. `places` maps each renamed partition
    from its old to its new name.
    """

    table: Table
    operations: list[list[Any]]
    places: Mapping[Place, Place]


Renumbering = Callable[[Table, "list[list[Any]]"], "RenumberedLoad | None"]


class Scenario(BaseModel, ABC):
    """Defines a workload: its fields are the settings, and its methods draw, run and measure the load. Sizes are in
    bytes, rates in records per second.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    OPERATION: ClassVar[type[tuple[Any, ...]]]
    """Is the NamedTuple class of which each operation of the workload is an instance."""
    SIMULATED: ClassVar[bool] = True
    """Is True if Squall's own clients can run the whole workload, so that the simulator can run it."""
    DRAW_ONLY_SETTINGS: ClassVar[tuple[str, ...]] = ("rate",)
    """Lists the settings that only say how operations are drawn: they mean nothing in a plan with operations of its
    own.
    """
    LIGHT: ClassVar[Mapping[str, Any]] = {}
    """Holds settings of a smaller load. `squall sim` uses them for a single run if the user gives no rate: in the
    simulator every request costs CPU time, while virtual time is free.
    """
    CHECKS: ClassVar[tuple[str, ...] | None] = None
    """Lists the anomalies that can occur in this workload; None means all anomalies that the checkers can find."""
    MEANT_FOR: ClassVar[tuple[str, ...]] = ()
    """Lists the anomalies that every run of this workload must be able to show. A run whose history could not have
    shown one of them does not pass: its verdict is `unknown`, unless there are findings.
    """
    BROKERS: ClassVar[Mapping[str, str]] = {}
    """Holds the broker settings that suit the workload, for use if the plan gives no others."""
    COORDINATOR_LOGS: ClassVar[tuple[str, ...]] = ()
    """Names the replication-factor settings of the internal topics that the workload cannot work without."""
    SWARM_SHARE: ClassVar[float] = 0.0
    """Gives the share of random plans of a swarm (many simulated runs) that have this workload if the user names none;
    the rest have the default workload.
    """
    COUNTED: ClassVar[tuple[str, ...]] = ()
    """Lists the settings that are counts, such as the number of partitions: shrinking looks for the smallest value with
    which the failure still shows.
    """
    PLAIN: ClassVar[Mapping[int, Any]] = {}
    """Maps a field of an operation, by its index, to its simplest value. Shrinking tries this value."""
    RENUMBERINGS: ClassVar[tuple[Renumbering, ...]] = ()
    """Lists functions for shrinking. Each renames the used topics, partitions or clients to the first ones, so that the
    load needs fewer of them: for example, partitions 2 and 5 become 0 and 1.
    """

    @field_validator("*", mode="before")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[info.field_name or ""].annotation
        # pydantic would take `true` for 1.
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
        """Return a sentence for each contradiction between the settings. Subclasses add contradictions of their own."""
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
        """Return the topics that must exist before the workload begins."""

    @abstractmethod
    def traffic(self) -> LoadProfile:
        """Return a summary of the load for the code of faults, invariants and random plans."""

    @abstractmethod
    def needs(self, operations: Sequence[Operation] = ()) -> LibraryRequirements:
        """Return what the workload requires of its client library. `operations` holds the plan's operations, if the
        plan gives any.
        """

    def topic_names(self) -> list[str]:
        """Return the names of the workload's topics."""
        return [topic.name for topic in self.topic_list()]

    def places(self) -> list[Place]:
        """Return all partitions of the workload's topics."""
        return [(topic.name, index) for topic in self.topic_list() for index in range(topic.partitions)]

    def topic_configs(self) -> dict[str, str]:
        """Return the settings that all topics of the workload have in common."""
        return {"min.insync.replicas": str(self.min_isr), **self.topic_settings}

    @classmethod
    def suited_brokers(cls, table: Table) -> dict[str, str]:
        """Return broker settings that suit this `[workload]` table, in addition to `BROKERS`. They apply if the plan
        gives no others.
        """
        return {}

    @classmethod
    def drawn_brokers(cls, stream: RandomStreamFactory, table: Table) -> dict[str, str]:
        """Draw the broker settings of one random plan, for the drawn workload settings `table`."""
        return dict(cls.BROKERS)

    def longest_wait_s(self) -> float:
        """Return the longest time, in seconds, for which a sound cluster may keep the load's producers and readers
        waiting. The default is the request time-out: after it, a client repeats a request that a fault swallowed. A
        workload adds the pauses of its clients, and the time-outs after which the cluster removes a dead member or
        aborts a dead client's transaction, because these block other clients until then.
        """
        return self.request_timeout_ms / 1000

    def broker_limits(self) -> tuple[BrokerLimit, ...]:
        """Return the broker settings that have to fit the requests of the workload's clients."""
        name = "max.message.bytes" if "max.message.bytes" in self.topic_settings else "message.max.bytes"
        bytes_ = max(self.needs().max_record_bytes, POST_HEAL_BYTES) + BATCH_BYTES
        asked_by = "the largest record and its batch"
        return (BrokerLimit(name, bytes_, asked_by, "records are refused"),)

    def batch_size(self) -> int:
        """Return the batch size (`batch.size`), in bytes, of the producers in workloads whose users cannot choose it. A
        batch must fit into a segment, because a broker refuses larger ones.
        """
        segment_bytes = self.topic_settings.get("segment.bytes")
        return BATCH_SIZE if segment_bytes is None else max(min(BATCH_SIZE, int(segment_bytes) - BATCH_BYTES), 1)

    def client_settings(self) -> ClientSettings:
        """Return the settings that all of Squall's own clients have in this load."""
        return ClientSettings(request_timeout_ms=self.request_timeout_ms)

    # ---------------------------------------------------------------------------------------------- operations

    @abstractmethod
    def drawn(self, stream: RandomStreamFactory, begin_s: float, end_s: float) -> tuple[Operation, ...]:
        """Draw the operations of a load between these times, in order of time. The operations of each client come from
        a random stream of its own.
        """

    @abstractmethod
    def wrong(self, operation: Operation) -> str:
        """Return why this is no valid operation of the workload; empty if it is valid."""

    @classmethod
    def simplifications(cls, operation: list[Any]) -> Iterator[list[Any]]:
        """Yield simpler variants of one operation for shrinking, each simplified in one place. An operation is a list
        here, as in a plan's file.
        """
        return iter(())

    # --------------------------------------------------------------------------------------------- how it runs

    @abstractmethod
    async def run(self, around: ScenarioEnvironment) -> None:
        """Drive the load until `around.stop`, then wait until every operation has its outcome.

        The method then calls `around.readers.load_over`, and readers continue until `around.readers.may_end`. It raises
        WorkloadFailed if the load cannot begin, and OSError if the history cannot be written.
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
        """Read the surviving records after healing; each reader has `limit_s` seconds. Never raises for the cluster's
        errors.

        Partitions and topics that were added during the load are read, too; deleted topics are not.
        """
        from squall.workloads.final_reads import final_reads

        places = list(recorder.partitions)
        return await final_reads(env, bootstrap, places, recorder, timeout_s=limit_s, counters=counters, zone=zone)

    # ------------------------------------------------------------------------------------------- how it is drawn

    @classmethod
    @abstractmethod
    def drawn_settings(cls, stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> Table:
        """Draw the `[workload]` table of one random plan, including the workload's name."""

    # ------------------------------------------------------------------------------------------ how it is judged

    def meant_for(self) -> tuple[str, ...]:
        """Return the anomalies that every run with these settings must be able to show, by default all of `MEANT_FOR`.
        A run that could not have shown one of them has the verdict `unknown`, unless there are findings.
        """
        return self.MEANT_FOR

    def measured(self, history: Callable[[], History], faults: Sequence[RecordedFault]) -> Mapping[str, Any]:
        """Return the workload's own figures for verdict.json, as plain JSON; empty if it has none.

        Moments are seconds since the history began, under a name that reports recognise as a moment: `from_s`, `to_s`,
        `began_s` or `ended_s`. Reports convert them to seconds since the begin of the load with faults before they call
        `section`.
        """
        return {}

    @classmethod
    def section(cls, figures: Mapping[str, Any]) -> WorkloadSection | None:
        """Return the section that shows the figures of `measured` on the report's page and in the terminal; None if the
        workload has no such section.
        """
        return None


def listed(operations: Sequence[Operation]) -> Iterator[list[Any]]:
    """Yield operations as lists, as in a plan's file."""
    return (list(each) for each in operations)
