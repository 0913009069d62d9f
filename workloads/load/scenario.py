"""Defines the settings of the workload `load`: transactional producers, a plain one, and a load of their topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from squall.broker.overriding import override
from squall.workloads import swarm_draws
from squall.workloads.load.section import section_of
from squall.workloads.scenario import LoadProfile, RandomStreamFactory, SwarmCluster, Table
from squall.workloads.transactions.renumbered import by_one_producer, on_fewer_partitions
from squall.workloads.transactions.scenario import ISOLATIONS, TransactionalProducersLoad

if TYPE_CHECKING:
    import trio

    from squall.checkers.history.tables import History, RecordedFault
    from squall.workloads.client.settings import ProducerSettings
    from squall.workloads.scenario import ScenarioEnvironment
    from squall.workloads.section import WorkloadSection

TOPIC, PLAIN_TOPIC = "load-0", "load-plain-0"


class BatchLoad(TransactionalProducersLoad):
    """Loads the topics of transactional producers and of a plain one into a folder, as Spark's micro-batches do. Faults
    may kill the load's driver and executors.
    """

    TOPIC: ClassVar[str] = TOPIC
    PLAIN_TOPIC: ClassVar[str] = PLAIN_TOPIC
    RENUMBERINGS = (partial(on_fewer_partitions, TOPIC), by_one_producer)
    MEANT_FOR: ClassVar[tuple[str, ...]] = ("poll-skip", "nonmonotonic-poll")

    name: Literal["load"] = "load"
    readers: int = Field(1, ge=1, le=64, description="Number of readers beside the load, at the levels of --isolation.")
    isolation: Literal["read_committed", "read_uncommitted", "both"] = Field(
        "read_committed", description="Isolation level of the load; both: two loads, one at each level."
    )
    plain_rate: int = Field(
        10, ge=0, le=1000, description="Records per second of an additional plain producer, on its own topic; 0: none."
    )
    plain_idempotence: bool = Field(True, description="The additional plain producer is idempotent.")
    executors: int = Field(2, ge=1, le=16, description="Executors of the load, each of which reads a range at a time.")
    records_per_task: int = Field(20, ge=1, le=1_000_000, description="Offsets that one task of a batch reads.")
    trigger_ms: int = Field(500, ge=1, le=60_000, description="Pause of the load after each batch, in ms.")

    @property
    def levels(self) -> tuple[int, ...]:
        """Returns the isolation level of each load."""
        return ISOLATIONS[self.isolation]

    @override
    def traffic(self) -> LoadProfile:
        """Return the load's profile. Its last readers are the loads, one for each isolation level."""
        traffic = super().traffic()
        return traffic._replace(readers=traffic.readers + len(self.levels), loads=len(self.levels))

    @override
    def plain_settings(self) -> ProducerSettings:
        return replace(super().plain_settings(), idempotence=self.plain_idempotence)

    @override
    def longest_wait_s(self) -> float:
        """Return how long, in seconds, a sound cluster may keep clients waiting, a pause between batches included."""
        return super().longest_wait_s() + self.trigger_ms / 1000

    @classmethod
    @override
    def drawn_settings(cls, stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> Table:
        rng = stream("workload")
        replicas = rng.choice([n for n in (1, 2, 3, 3, 3) if n <= drawn_cluster.nodes])
        return {
            "name": "load",
            "replication_factor": replicas,
            "min_isr": rng.choice([n for n in (1, 2, 2) if n <= replicas]),
            "rate": rng.choice((2, 3, 5)),
            "producers": rng.randint(1, 3),
            "partitions": rng.randint(1, 3),
            "aborts": rng.choice((0.1, 0.3)),
            "generation": rng.choice((1, 2)),
            "isolation": rng.choice(("read_committed", "read_committed", "read_uncommitted", "both")),
            "executors": rng.randint(1, 3),
            "records_per_task": rng.choice((1, 3, 10, 1000)),
            "trigger_ms": rng.choice((200, 500, 1000)),
            "poll_pause_ms": rng.choice((20, 200)),
            "request_timeout_ms": rng.choice((1000, 3000)),
            "transaction_timeout_ms": rng.choice((1000, 2000, 4000, 4000)),
            "plain_rate": rng.choice((0, 3, 5)),
            "plain_idempotence": rng.choice((True, False)),
            "topic_settings": swarm_draws.topic_settings(stream, drawn_cluster),
            **swarm_draws.fetch_sizes(stream),
        }

    @override
    def start_readers(self, around: ScenarioEnvironment, nursery: trio.Nursery, began: float) -> None:
        from squall.workloads.load.driver import LoadSettings, RunningLoad
        from squall.workloads.load.executor import LoadEnvironment

        super().start_readers(around, nursery, began)
        settings = LoadSettings(self.topic_names(), self.executors, self.records_per_task, self.trigger_ms)
        for number, level in enumerate(self.levels, self.readers):
            env = around.own(f"load-{number}")
            consumer = replace(self.consumer_settings(), isolation=level)
            zone, client = around.zone(number), self.client_settings()
            kills = around.controls.loads[number - self.readers]
            load = LoadEnvironment(env, zone, around.recorder, client, consumer, number, kills, around.stop)
            nursery.start_soon(RunningLoad(around, load, settings).run)

    @override
    def measured(self, history: Callable[[], History], faults: Sequence[RecordedFault]) -> Mapping[str, Any]:
        from squall.workloads.load.figures import measured

        return measured(history())

    @classmethod
    @override
    def section(cls, figures: Mapping[str, Any]) -> WorkloadSection | None:
        return section_of(figures)
