"""Defines the settings of the workload `groups`, draws its load, and runs it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
    draw_group_settings,
    expiry_settings_for,
    frequent_coordinator_apis,
    session_limits,
    session_settings_for,
)
from squall.workloads.group_section import section_of
from squall.workloads.groups import acts
from squall.workloads.groups.acts import SEND, GroupAction, GroupActionMix, is_static
from squall.workloads.library_abilities import (
    CLASSIC,
    MIXED,
    OURS,
    default_assignor,
    speaks_both,
    unsupported_membership,
)
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

if TYPE_CHECKING:
    from squall.broker.env import Env
    from squall.checkers.history.tables import History, RecordedFault
    from squall.workloads.agenda import RecordSchedule
    from squall.workloads.client.cluster import Address
    from squall.workloads.counters import LoadCounters
    from squall.workloads.final_reads import FinalReadResult
    from squall.workloads.group_progress import OperationSchedule
    from squall.workloads.recorder import Recorder
    from squall.workloads.section import WorkloadSection
    from squall.workloads.subscriber import SubscriberSettings

TOPIC, GROUP = "groups-0", "squall-group"
CONSUMER_SHARE = 0.4
"""Gives the share of random plans whose group is a consumer group (KIP-848)."""
MIXED_SHARE = 0.15
"""Gives the share of random plans whose group has members of both protocols."""
RECESS_SHARE = 0.25
"""Gives the share of random plans in which all members leave from time to time, so that the group can change its
protocol or be deleted.
"""
ASSIGNORS = Literal["range", "roundrobin", "cooperative-sticky"]


class GroupsLoad(Scenario):
    """Runs a group whose members join, leave, pause and crash, and one reader outside of the group that reads
    everything.
    """

    OPERATION: ClassVar[type[tuple[Any, ...]]] = GroupAction
    DRAW_ONLY_SETTINGS: ClassVar[tuple[str, ...]] = (
        "rate",
        "record_bytes",
        "churn",
        "conversions",
        "deletions",
        "away_s",
    )
    LIGHT: ClassVar[dict[str, Any]] = {"rate": 5, "poll_pause_ms": 200}
    COUNTED: ClassVar[tuple[str, ...]] = ("members", "producers", "partitions")
    BROKERS: ClassVar[Mapping[str, str]] = SUITED_TO_GROUPS
    COORDINATOR_LOGS: ClassVar[tuple[str, ...]] = (FACTOR,)
    SWARM_SHARE: ClassVar[float] = 0.1
    MEANT_FOR: ClassVar[tuple[str, ...]] = ("stuck-group",)

    name: Literal["groups"] = "groups"
    rate: int = Field(50, ge=1, le=5000, description="Records per second of all producers together.")
    record_bytes: int = Field(200, ge=MIN_BYTES, le=MAX_BYTES, description="Size of each record.")
    partitions: int = Field(6, ge=1, le=64, description="Partitions of the topic.")
    producers: int = Field(1, ge=1, le=16, description="Number of producing processes at a time.")
    members: int = Field(3, ge=1, le=64, description="Members of the group.")
    group_protocol: Literal["classic", "consumer", "mixed"] = Field(
        "classic", description="Group protocol of the members; consumer: KIP-848; mixed: each process draws its own."
    )
    assignor: ASSIGNORS = Field(
        "cooperative-sticky", description="Assignor of a classic group; cooperative-sticky moves few partitions."
    )
    server_assignor: Literal["uniform", "range"] = Field(
        "uniform", description="The coordinator's assignor, with --group-protocol consumer or mixed."
    )
    static_members: bool = Field(
        False, description="All members but the first have an instance id, so they restart without a rebalance."
    )
    auto_commit: bool = Field(
        False, description="Members commit at intervals, before a poll, instead of after each poll."
    )
    commit_every_ms: int = Field(200, ge=0, le=60_000, description="Shortest time between two commits of a member.")
    churn: int = Field(
        20, ge=0, le=600, description="How many times a minute some member pauses, halts, leaves or crashes."
    )
    conversions: int = Field(
        0,
        ge=0,
        le=60,
        description="How many times a minute all members leave and come back with the other group protocol.",
    )
    deletions: int = Field(
        0,
        ge=0,
        le=60,
        description="How many times a minute all members leave, the group is deleted, and they come back.",
    )
    away_s: int = Field(
        0,
        ge=0,
        le=3_600,
        description="For how long all members are away, once in the run; from 60 s on, offsets may expire meanwhile.",
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
        found += self._beyond_the_library()
        most_ms = min(self.max_poll_interval_ms * 3 // 4, self.session_timeout_ms)
        if self.poll_pause_ms > most_ms:
            found.append(
                f"poll_pause_ms {self.poll_pause_ms} is above {most_ms}: at most session_timeout_ms "
                f"{self.session_timeout_ms} and three quarters of max_poll_interval_ms {self.max_poll_interval_ms}, or "
                "a sound group looks stuck"
            )
        other = "server_assignor" if self.group_protocol == "classic" else "assignor"
        if self.group_protocol == MIXED:
            if self.conversions:
                found.append(f"conversions {self.conversions}: mixed members have no other protocol to go over to")
        elif not self.conversions and getattr(self, other) != type(self).model_fields[other].default:
            found.append(f"{other} {getattr(self, other)}: {self.group_protocol} members ask for none")
        return found

    def _beyond_the_library(self) -> list[str]:
        """Return a sentence for each setting that the members' client library cannot carry out."""
        found = unsupported_membership(
            self.client, self.group_protocol, self.assignor, self.session_timeout_ms, self.max_poll_interval_ms
        )
        both = f"conversions {self.conversions}" if self.conversions else f"group_protocol {MIXED}"
        if (self.conversions or self.group_protocol == MIXED) and not speaks_both(self.client):
            found.append(f"{both}: {self.client} speaks the classic protocol of groups only")
        if self.client != OURS and self.auto_commit:
            found.append(f"auto_commit: {self.client} does not say when it begins to commit by itself")
        return found

    @model_validator(mode="before")
    @classmethod
    def _choose_assignor(cls, given: Any) -> Any:
        """Fill in the assignor if the settings name none and the members' client library does not have the default one.
        `given` are the raw settings.
        """
        return {**default_assignor(given), **given} if isinstance(given, dict) else given

    @override
    def longest_wait_s(self) -> float:
        """Return the longest time, in seconds, for which a sound cluster may keep members waiting: session time-out
        plus poll time-out plus the pauses between polls (rounded down to whole seconds), or the base class's limit if
        that is longer.

        A member that stops without leaving is removed when its session is over. Then the rebalance waits, up to the
        poll time-out, for members that do not poll. Each member needs three polls to give up partitions, join and begin
        to read.
        """
        pauses_s = POLLS_TO_READ * self.poll_pause_ms // 1000
        return max(super().longest_wait_s(), (self.session_timeout_ms + self.max_poll_interval_ms) / 1000 + pauses_s)

    @override
    def broker_limits(self) -> tuple[BrokerLimit, ...]:
        both = self.conversions or self.group_protocol == MIXED
        protocols = ("classic", "consumer") if both else (self.group_protocol,)
        metadata = (METADATA,) if self.client == OURS else ()
        return (*super().broker_limits(), *session_limits(protocols, self.session_timeout_ms), *metadata)

    @override
    def topic_list(self) -> tuple[NewTopic, ...]:
        return (NewTopic(TOPIC, self.partitions, self.replication_factor, self.topic_configs()),)

    @override
    def traffic(self) -> LoadProfile:
        """Return the load's profile. Its readers are numbered from 0: first the group members, last the one reader that
        is in no group.
        """
        settings = self.producer_settings()
        readers, in_flight = self.members + 1, settings.max_in_flight
        return LoadProfile(
            self.producers,
            readers,
            self.rate,
            settings.acks,
            in_flight,
            self.record_bytes,
            groups=(GROUP,),
            coordinator_apis=frequent_coordinator_apis(
                self.group_protocol, COMMITS, both=self.conversions > 0 or self.group_protocol == MIXED
            ),
            members=tuple(f"reader:{number}" for number in range(self.members)),
            static_members=tuple(number for number in range(self.members) if self.instance(number)),
        )

    @classmethod
    @override
    def suited_brokers(cls, table: Table) -> dict[str, str]:
        default_ms = cls.model_fields["session_timeout_ms"].default
        return {**session_settings_for(table, default_ms), **expiry_settings_for(table)}

    @classmethod
    @override
    def drawn_brokers(cls, stream: RandomStreamFactory, table: Table) -> dict[str, str]:
        return {**draw_group_settings(stream("brokers of groups"), table), **cls.suited_brokers(table)}

    @override
    def needs(self, operations: Sequence[Operation] = ()) -> LibraryRequirements:
        largest = max([self.record_bytes, *(each.bytes for each in operations)])
        return LibraryRequirements(self.producer_settings(), self.request_timeout_ms, largest, self.poll_pause_ms)

    def producer_settings(self) -> ProducerSettings:
        """Return the settings of each producer."""
        return ProducerSettings(
            linger_ms=5, delivery_timeout_ms=self.delivery_timeout_ms, batch_size=self.batch_size()
        )

    def instance(self, member: int) -> str:
        """Return the instance id of the member of this number; empty for a dynamic member."""
        return f"squall-{member}" if is_static(self.static_members, member) else ""

    def subscriber_settings(self) -> SubscriberSettings:
        """Return the settings of each member, but for its instance id."""
        from squall.workloads.client.groups.membership import MemberSettings
        from squall.workloads.client.settings import ConsumerSettings
        from squall.workloads.subscriber import SubscriberSettings

        member = MemberSettings(
            GROUP,
            (TOPIC,),
            (self.assignor,),
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=max(self.session_timeout_ms // 5, 50),
            max_poll_interval_ms=self.max_poll_interval_ms,
            # In a mixed group `MemberSlot` draws the protocol of each process.
            protocol=CLASSIC if self.group_protocol == MIXED else self.group_protocol,
            server_assignor=self.server_assignor,
        )
        return SubscriberSettings(
            member,
            self.client_settings(),
            ConsumerSettings(max_wait_ms=100),
            self.auto_commit,
            self.commit_every_ms,
            self.request_timeout_ms,
        )

    def draw(self) -> GroupActionMix:
        """Return a `GroupActionMix` with this load's settings. It draws the load's actions."""
        return GroupActionMix(
            self.rate,
            self.producers,
            self.partitions,
            self.record_bytes,
            self.members,
            self.churn,
            self.session_timeout_ms,
            self.max_poll_interval_ms,
            self.static_members,
            self.conversions,
            self.deletions,
            self.away_s * 1000,
        )

    @override
    def drawn(self, stream: RandomStreamFactory, begin_s: float, end_s: float) -> tuple[GroupAction, ...]:
        draw, found = self.draw(), list[GroupAction]()
        for producer in range(self.producers):
            found += draw.records(stream("operations", producer), producer, begin_s, end_s)
        for member in range(self.members):
            found += draw.acts(stream("members", member), member, begin_s, end_s)
        found += draw.of_all(stream("all members"), begin_s, end_s)
        return tuple(sorted(found))

    @override
    def wrong(self, operation: Operation) -> str:
        return acts.wrong(operation, self.draw(), (MIN_BYTES, MAX_BYTES))

    @classmethod
    @override
    def drawn_settings(cls, stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> Table:
        rng = stream("workload")
        replicas = rng.choice([n for n in (1, 2, 3, 3, 3) if n <= drawn_cluster.nodes])
        table: dict[str, Any] = {
            "name": "groups",
            "replication_factor": replicas,
            "min_isr": rng.choice([n for n in (1, 2, 2) if n <= replicas]),
            "rate": rng.choice((3, 5, 8)),
            "partitions": rng.randint(1, 5),
            "members": rng.randint(2, 4),
            "assignor": rng.choice(("range", "roundrobin", "cooperative-sticky", "cooperative-sticky")),
            "static_members": rng.random() < 0.4,
            "auto_commit": rng.random() < 0.3,
            "commit_every_ms": rng.choice((0, 200, 1000)),
            "churn": rng.choice((10, 30, 60)),
            "session_timeout_ms": rng.choice((1500, 3000)),
            "max_poll_interval_ms": rng.choice((2000, 4000)),
            "poll_pause_ms": rng.choice((50, 200)),
            "request_timeout_ms": rng.choice((1000, 3000)),
            "topic_settings": swarm_draws.topic_settings(stream, drawn_cluster),
        }
        # Drawn by itself: the other seeds keep their old plans.
        protocol = stream("group protocol")
        if protocol.random() < CONSUMER_SHARE:
            del table["assignor"]
            table |= {"group_protocol": "consumer", "server_assignor": protocol.choice(("uniform", "range"))}
        mixed = stream("mixed members")
        if mixed.random() < MIXED_SHARE:
            table["group_protocol"] = MIXED
            table["server_assignor"] = mixed.choice(("uniform", "range"))
            table.setdefault("assignor", mixed.choice(("range", "roundrobin", "cooperative-sticky")))
        recess = stream("recesses")
        if recess.random() < RECESS_SHARE:
            what, often = recess.choice(("conversions", "conversions", "deletions")), recess.choice((5, 10))
            table[what if table.get("group_protocol") != MIXED else "deletions"] = often
        return table

    @override
    async def run(self, around: ScenarioEnvironment) -> None:
        import trio

        from squall.workloads.background_reader import tail
        from squall.workloads.group_progress import GroupProgress
        from squall.workloads.groups.group_pause import EmptyGroupInterval
        from squall.workloads.groups.member_slot import MemberSlot, of_member
        from squall.workloads.sender import ProducerLoop, SenderSettings
        from squall.workloads.topics import make_topics

        began = around.env.mono()
        await make_topics(around.env, around.zones[0].bootstrap, self, around.recorder)
        needs = self.needs(around.operations or ())
        sending = SenderSettings(needs.producer, self.client_settings(), self.topic_names(), needs.max_record_bytes)
        progress, group_pause = GroupProgress(around, self.places()), EmptyGroupInterval(self.group_protocol)
        async with trio.open_nursery() as nursery:
            read = partial(tail, around, self.client_settings(), self.members, self.places(), 0, self.poll_pause_ms)
            nursery.start_soon(read)
            for number in range(self.members):
                env = around.own(f"reader-{number}")
                settings = of_member(self.subscriber_settings(), self.instance(number))
                agenda = self._acts(env, around, number, began)
                slot = MemberSlot(env, around, settings, number, agenda, progress, group_pause, self.poll_pause_ms)
                nursery.start_soon(slot.run)
            async with trio.open_nursery() as producing:
                for number in range(self.producers):
                    env = around.own(f"producer-{number}")
                    sender = ProducerLoop(env, around, sending, number, self._records(env, around, number, began))
                    producing.start_soon(sender.run, around.stop)
            around.readers.load_over()
        around.recorder.flush()

    def _acts(self, env: Env, around: ScenarioEnvironment, number: int, began: float) -> OperationSchedule[GroupAction]:
        """Return the schedule of the actions of member `number`: the plan's actions, or random ones if there is no
        plan. `began` is env.mono() at the start of the run.
        """
        from squall.workloads.group_progress import OperationSchedule

        given = around.operations
        if given is None:
            draw, end_s = self.draw(), float("inf")
            coming = draw.acts(env.rng, number, 0.0, end_s)
            if not number:
                # Merged, because both are endless. The first member alone makes all others leave.
                coming = heapq.merge(coming, draw.of_all(around.own("all members").rng, 0.0, end_s))
        else:
            coming = iter(sorted(each for each in given if each.do != SEND and each.who == number))
        return OperationSchedule(coming, began, late=given is not None)

    def _records(self, env: Env, around: ScenarioEnvironment, number: int, began: float) -> RecordSchedule:
        """Return the schedule of the records of producer `number`: the plan's records, or random ones if there is no
        plan. `began` is env.mono() at the start of the run.
        """
        from squall.workloads.agenda import FixedRecordSchedule, PlannedRecord, RandomRecordSchedule
        from squall.workloads.sender import TICK_S

        if around.operations is None:
            sizes = (self.record_bytes, self.record_bytes)
            return RandomRecordSchedule(env, self.places(), sizes, self.producers / self.rate, TICK_S)
        mine = [each for each in around.operations if each.do == SEND]
        return FixedRecordSchedule(
            [PlannedRecord(each.at_s, each.who, TOPIC, each.number, each.bytes) for each in mine], number, began
        )

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
        """Fetch the group's committed offsets, then read all partitions, as every workload does after the faults are
        healed.
        """
        from squall.workloads.group_standing import record_committed_offsets

        client = self.client_settings()
        await record_committed_offsets(env, bootstrap, recorder, client, GROUP, self.places(), limit_s, zone)
        return await super().final_reads(env, bootstrap, recorder, counters, limit_s, zone)

    @override
    def measured(self, history: Callable[[], History], faults: Sequence[RecordedFault]) -> Mapping[str, Any]:
        from squall.checkers.measured_groups import measure_groups

        return measure_groups(history(), faults)

    @classmethod
    @override
    def section(cls, figures: Mapping[str, Any]) -> WorkloadSection | None:
        return section_of(figures)
