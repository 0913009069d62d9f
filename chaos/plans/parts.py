"""Defines the parts of a plan as data, each checked by itself. `squall.chaos.plans.plan` checks them together."""

# Brokers try to register for ten minutes before they give up: faults can prevent an election for longer than Kafka's
# 60 s, and an exit by a setting is no finding.

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from squall.workloads.registry import DEFAULT, SCENARIOS
from squall.workloads.scenario import Scenario

FAST_FAILOVER: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1800",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "600",
    "controller.quorum.fetch.timeout.ms": "1200",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.request.timeout.ms": "1000",
    "initial.broker.registration.timeout.ms": "600000",
}
"""Holds the time-outs of a run's brokers. They are shorter than Kafka's, so that failovers fit into a load of half a
minute. Only the time-out of a broker's first registration is longer: while faults prevent an election the broker must
wait, but with Kafka's default it would give up after 60 s.
"""

FAILOVER = (
    "broker.session.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "controller.quorum.election.timeout.ms",
)
"""Names the time-outs whose sum a correct cluster may need after a fault. In this time a new controller is elected, and
the session of a dead broker expires. Only then do other brokers lead the dead broker's partitions, and only then can
the dead broker register again.
"""


WINDOW_KIB = 512


class StrictModel(BaseModel):
    """Is the base class of a plan's models: they refuse unknown names and cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterPlan(StrictModel):
    """Describes the brokers of a plan."""

    nodes: int = Field(3, ge=1, le=9)
    ids: tuple[int, ...] = ()
    """Lists the brokers' ids as the cluster reported them, for runtime external only. In other runtimes the ids are 1,
    2 and so on.
    """
    settings: dict[str, str] = Field(default_factory=lambda: dict(FAST_FAILOVER))
    """Maps broker settings, by Kafka's names, to their values."""
    voters: int | None = Field(None, ge=1, le=9)
    """Gives how many brokers vote in the quorum of controllers: the first N of them. None: three, or one if there are
    fewer than three brokers.
    """
    volume_mib: int = Field(0, ge=0, le=1 << 20)
    """Limits each broker's data to so many MiB, on a volume of its own, for runtime docker only. 0: no limit."""
    window_kib: int = Field(WINDOW_KIB, ge=1, le=WINDOW_KIB, exclude_if=lambda usual: usual == WINDOW_KIB)
    """Limits the KiB that one direction of a connection holds before its sender must wait, for runtime sim only: real
    sockets have buffers of their own.
    """

    def failover_s(self) -> float:
        """Return the sum, in seconds, of the time-outs that a correct cluster may need to recover from a failure
        (`FAILOVER`). Settings that are not given count as 0.
        """
        given = (self.settings.get(name, "") for name in FAILOVER)
        return (
            sum(int(text) for text in given if text.isdecimal()) / 1000
        )  # the broker itself refuses what is no number


class LimitsPlan(StrictModel):
    """Limits how long the cluster and the clients may take to recover after all faults are healed, in seconds."""

    converge_s: float = Field(30, gt=0, le=3600, description="How long ISRs may take to be full after healing.")
    """Limits the time until every ISR is full and every broker is back."""
    final_read_s: float = Field(30, gt=0, le=3600, description="How long each final reader may take.")
    stuck_s: float = Field(
        15, gt=0, le=3600,
        description="A client without progress for this long after healing is a finding; the default is longer if dead "
        "members may hold partitions longer, if clients pause longer, or if brokers' time-outs are longer.",
    )  # fmt: skip
    """Limits how long after healing a client may be without progress (no acknowledged write, no read record), in
    seconds; longer is a finding. The default is raised to twice (`HOLDS`) the longer of two waits: what the workload
    needs (`Scenario.longest_wait_s`) and what the cluster needs (`failover_s`).
    """


HOLDS = 2
"""A default time limit is at least this many times the wait that a correct cluster may need once (`least_limits`). Two
such waits can follow each other: members that died keep their partitions until a rebalance, and members that die during
this rebalance cause another wait.
"""


class FaultSpec(StrictModel):
    """Holds one fault as it is written in a plan's file."""

    at_s: float = Field(ge=0)
    duration_s: float = Field(gt=0)
    action: str
    target: str = "random"
    params: dict[str, Any] = Field(default_factory=dict)
    when: str | None = None
    """Gives a condition for which the fault waits, from `at_s` on, before it begins (`squall.chaos.faults.triggers`).
    """
    within_s: float | None = Field(None, gt=0)
    """Limits how long the fault waits for its condition, in seconds. It never waits beyond the end of the load."""


def which_workload(table: Any) -> str | None:
    """Return the name of the workload that a `[workload]` table is for, by which pydantic chooses the model; None if
    the value is no table.
    """
    if isinstance(table, Scenario):
        return table.name
    return str(table.get("name", DEFAULT)) if isinstance(table, Mapping) else None


@cache
def _operations(name: str) -> TypeAdapter[Any]:
    """Return the validator for lists of a workload's operations."""
    kind: Any = SCENARIOS[name].OPERATION
    return TypeAdapter(tuple[kind, ...])


def _read(name: str, operation: Any) -> Any:
    """Convert one operation to the workload's NamedTuple, or return it unchanged if it is invalid."""
    try:
        return _operations(name).validate_python((operation,))[0]
    except ValidationError:
        return operation


if TYPE_CHECKING:
    Workload = Scenario
else:
    Workload = Annotated[
        Union[tuple(Annotated[each, Tag(name)] for name, each in SCENARIOS.items())],  # noqa: UP007
        Discriminator(which_workload),
    ]
"""The model of the `[workload]` table is the scenario's own."""


def least_limits(workload: Scenario, cluster: ClusterPlan) -> dict[str, float]:
    """Return, by the name of each time limit, the seconds that a correct cluster may need if it fails over only once. A
    limit of a plan must not be shorter.
    """
    failover_s = cluster.failover_s()
    return {"converge_s": failover_s, "stuck_s": max(workload.longest_wait_s(), failover_s)}


class PlanParts(StrictModel):
    """Holds the parts of a plan, each checked by itself. `Plan` also checks that they fit together."""

    schema_version: Literal[1] = 1
    seed: int = Field(0, ge=0, lt=1 << 63)
    runtime: Literal["process", "docker", "sim", "external"] = "process"
    target: Literal["squall", "kafka", "other"] = "squall"
    """Says which brokers run: Squall's, Apache Kafka's, or others."""
    bootstrap: str = ""
    """Gives the bootstrap servers of an external cluster, for runtime external only."""
    compose: str = ""
    """Names the compose file of an external cluster's containers, if faults may act on them, for runtime external only.
    """
    upgrade_to: str = ""
    """Names the second version, for the fault `upgrade`: a folder with a checkout of Squall; with target kafka a folder
    with an unpacked Kafka; with runtime docker also an image.
    """
    warmup_s: float = Field(2, ge=0, le=600)
    time_s: float = Field(30, gt=0, le=86_400)
    expect: Literal["config", "safe", "loss"] = "config"
    """Chooses what the verdict demands: the guarantees of the run's configuration ("config"), every guarantee ("safe"),
    or that something is lost ("loss").
    """
    cluster: ClusterPlan = Field(default_factory=lambda: ClusterPlan.model_validate({}))
    workload: Workload = Field(default_factory=lambda: SCENARIOS[DEFAULT].model_validate({}))
    limits: LimitsPlan = Field(default_factory=lambda: LimitsPlan.model_validate({}), validate_default=True)
    probe_ms: float | None = Field(None, gt=0, le=60_000)
    """Gives how long the slowest probe (a request over a link, without load or faults) took on the machine for which
    the faults were drawn, in ms. None: not measured.
    """
    faults: tuple[FaultSpec, ...] = ()
    operations: tuple[Any, ...] | None = None
    """Lists the operations of the load; None: the workload draws them by its rate. Each operation is the workload's own
    NamedTuple.
    """

    @field_validator("limits")
    @classmethod
    def _beyond_holds(cls, limits: LimitsPlan, info: ValidationInfo) -> LimitsPlan:
        """Raise the limits that the plan does not give, so that they exceed the time-outs of the workload and of the
        cluster.
        """
        if not {"workload", "cluster"} <= info.data.keys():
            return limits
        least = least_limits(info.data["workload"], info.data["cluster"])
        update = {
            name: max(getattr(limits, name), HOLDS * least_s)
            for name, least_s in least.items()
            if name not in limits.model_fields_set
        }
        return limits.model_copy(update=update)

    @model_validator(mode="before")
    @classmethod
    def _of_the_workload(cls, values: Any) -> Any:
        """Convert each entry of the plan's `operations` to the NamedTuple that its workload has for operations. An
        invalid entry stays as it is.
        """
        given = values.get("operations") if isinstance(values, Mapping) else None
        name = which_workload(values.get("workload", {})) if given else None
        if name not in SCENARIOS:
            return values
        try:
            read = _operations(name).validate_python(given)
        except ValidationError:  # an unreadable value stays as it is: it is reported with all other mistakes
            read = tuple(_read(name, each) for each in given) if isinstance(given, list | tuple) else given
        return {**values, "operations": read}

    @property
    def nodes(self) -> tuple[int, ...]:
        """Returns the broker ids."""
        return self.cluster.ids or tuple(range(1, self.cluster.nodes + 1))

    def partitions(self) -> list[str]:
        """Return the workload's partitions, as TOPIC-NUMBER."""
        return [f"{topic}-{number}" for topic, number in self.workload.places()]
