"""A plan: everything that is needed to repeat a run, as data. Each run directory holds it as `plan.toml`.

Reading a plan checks all of it. A plan that names something unknown is refused, with all its errors at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from chaos.faults import triggers
from chaos.faults.kind import OUR_WORLDS, Fault, FaultError, Setting, Trait
from chaos.faults.kinds import KINDS
from chaos.faults.targets import check_feasible
from chaos.faults.vocabulary import make_fault
from chaos.plans.external import check_external, drawn_kinds, for_others
from chaos.plans.schedule import DEFAULT_KINDS, in_a_zone, likely, make_schedule, of_one_broker
from chaos.plans.settings import check_broker_settings, check_topic_settings
from workloads.registry import DEFAULT, SCENARIOS, unknown
from workloads.scenario import Scenario

SCHEMA = 1

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
"""Time-outs of a run's brokers, shorter than Kafka's so that failovers fit into a load of half a minute. One is longer:
a broker that starts while faults keep the quorum from electing waits for it, where Kafka's would give up after 60 s.
"""


RESTART_S: Mapping[str, float] = {"squall": 0.0, "kafka": 8.0, "other": 8.0}
"""How much longer a foreign broker needs to come back than Squall's, if several share two cores: a JVM has to warm up.
"""


class PlanError(ValueError):
    """A plan that cannot be run; the message lists what is wrong, one line each."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterPlan(_Part):
    """The brokers."""

    nodes: int = Field(3, ge=1, le=9)
    ids: tuple[int, ...] = ()
    """Runtime external only: the brokers' ids as the cluster reported them. In other runtimes the ids are 1, 2 and so
    on.
    """
    settings: dict[str, str] = Field(default_factory=lambda: dict(FAST_FAILOVER))
    """Broker settings by Kafka's names."""
    volume_mib: int = Field(0, ge=0, le=1 << 20)
    """Runtime docker only: MiB that each broker's data may take, on a volume of its own. 0: no limit."""


class LimitsPlan(_Part):
    """How long each step may take after everything is healed, in seconds."""

    converge_s: float = Field(30, gt=0, le=3600, description="Limit for full ISRs after healing.")
    """Until every ISR is full and every broker is back."""
    final_read_s: float = Field(30, gt=0, le=3600, description="Limit for each final reader.")
    stuck_s: float = Field(15, gt=0, le=3600, description="No progress for so long after healing is a finding.")
    """A finding if no write is acknowledged, or no record is read, for this long after healing."""


class FaultPlan(_Part):
    """One fault as it stands in a file."""

    at_s: float = Field(ge=0)
    duration_s: float = Field(gt=0)
    action: str
    target: str = "random"
    params: dict[str, Any] = Field(default_factory=dict)
    when: str | None = None
    """The condition that the fault waits for, from `at_s` on (`chaos.faults.triggers`)."""
    within_s: float | None = Field(None, gt=0)
    """How long the fault waits for its condition, in seconds: at most as long as the load lasts."""


def _which(table: Any) -> str | None:
    """The workload that this table is for, as pydantic's discriminator; None if the value is no table."""
    if isinstance(table, Scenario):
        return table.name
    return str(table.get("name", DEFAULT)) if isinstance(table, Mapping) else None


@cache
def _operations(name: str) -> TypeAdapter[Any]:
    """Reads the operations of a workload."""
    kind: Any = SCENARIOS[name].OPERATION
    return TypeAdapter(tuple[kind, ...])


if TYPE_CHECKING:
    Workload = Scenario
else:
    Workload = Annotated[
        Union[tuple(Annotated[each, Tag(name)] for name, each in SCENARIOS.items())],  # noqa: UP007
        Discriminator(_which),
    ]
"""The model of the `[workload]` table is the scenario's own."""


class Plan(_Part):
    """A whole run."""

    schema_version: Literal[1] = 1
    seed: int = Field(0, ge=0, lt=1 << 63)
    runtime: Literal["process", "docker", "sim", "external"] = "process"
    target: Literal["squall", "kafka", "other"] = "squall"
    """Whose brokers: Squall's, Apache Kafka's, or somebody else's."""
    bootstrap: str = ""
    """Runtime external only: the addresses to ask for its brokers."""
    compose: str = ""
    """Runtime external only: the compose file of the brokers' containers, if faults may hit them."""
    upgrade_to: str = ""
    """The second version for the fault `upgrade`: a checkout of Squall; for target kafka an unpacked Kafka; for runtime
    docker also an image.
    """
    warmup_s: float = Field(2, ge=0, le=600)
    time_s: float = Field(30, gt=0, le=86_400)
    expect: Literal["config", "safe", "loss"] = "config"
    """The standard of the verdict: the promises of the run's configuration, every promise, or an expected loss."""
    cluster: ClusterPlan = Field(default_factory=lambda: ClusterPlan.model_validate({}))
    workload: Workload = Field(default_factory=lambda: SCENARIOS[DEFAULT].model_validate({}))
    limits: LimitsPlan = Field(default_factory=lambda: LimitsPlan.model_validate({}))
    faults: tuple[FaultPlan, ...] = ()
    operations: tuple[Any, ...] | None = None
    """If given, these operations replace the workload's rate as the load. They are the workload's own NamedTuples."""

    @model_validator(mode="before")
    @classmethod
    def _of_the_workload(cls, values: Any) -> Any:
        """Read operations with the workload's own model."""
        given = values.get("operations") if isinstance(values, Mapping) else None
        name = _which(values.get("workload", {})) if given else None
        if name not in SCENARIOS:
            return values
        return {**values, "operations": _operations(name).validate_python(given)}

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if self.workload.replication_factor > self.cluster.nodes:
            raise ValueError(
                f"workload.replication_factor {self.workload.replication_factor} needs as many nodes; "
                f"cluster.nodes is {self.cluster.nodes}"
            )
        self._check_target()
        self._check_volumes()
        for number, fault in enumerate(self.faults):
            if fault.at_s >= self.time_s:
                raise ValueError(f"fault {number} begins at {fault.at_s:g} s, after the load of {self.time_s:g} s")
        self.timeline()
        self._check_operations()
        return self

    def _check_external(self) -> None:
        """Refuse settings that only an external cluster can have, and those that it cannot have."""
        if self.runtime != "external":
            if self.bootstrap or self.compose or self.cluster.ids or self.target == "other":
                raise ValueError('bootstrap, compose, cluster.ids and target = "other" are of runtime = "external"')
            return
        if not self.bootstrap:
            raise ValueError('an external cluster is found by its bootstrap servers: bootstrap = "HOST:PORT"')
        if self.target == "squall":
            raise ValueError('an external cluster is nobody\'s to trust: target = "kafka" or "other"')
        if len(self.cluster.ids) != self.cluster.nodes:
            raise ValueError(
                f"cluster.ids names {len(self.cluster.ids)} brokers; cluster.nodes is {self.cluster.nodes}"
            )
        if self.workload.zones > 1:
            raise ValueError("workload.zones: an external cluster advertises one address of each broker: 1 zone")
        if self.cluster.settings:
            raise ValueError("cluster.settings: an external cluster has its own, which cannot be given")

    def _check_volumes(self) -> None:
        """Volumes belong to the container engine: faults of files cannot reach data in them."""
        if not self.cluster.volume_mib:
            return
        if self.runtime != "docker":
            raise ValueError('cluster.volume_mib is of runtime = "docker": elsewhere data has no volumes')
        if beyond := sorted({fault.action for fault in self.timeline() if Trait.NEEDS_FILES in fault.traits}):
            raise ValueError(f"cluster.volume_mib: {', '.join(beyond)} need brokers' data in folders of this machine")

    def _check_target(self) -> None:
        """Check broker settings with our broker's own rules. Other brokers check theirs when they start."""
        self._check_external()
        if self.target == "squall":
            check_broker_settings(self.cluster.settings)
            check_topic_settings(self.workload.topic_settings)
        elif self.runtime == "sim":
            raise ValueError(f'the simulator runs Squall\'s own broker only: target = "{self.target}" needs processes')
        elif self.runtime == "docker":
            raise ValueError(f'there are images of Squall\'s own broker only: target = "{self.target}" needs processes')
        client = self.workload.client
        if client != "squall" and self.runtime == "sim":
            raise ValueError(f'the simulator runs our own client only: client = "{client}" needs processes')

    def _check_operations(self) -> None:
        """Each operation must be one that the workload can do."""
        for number, op in enumerate(self.operations or ()):
            here = f"operation {number}"
            if not -self.warmup_s <= op.at_s < self.time_s:
                raise ValueError(f"{here}: at {op.at_s:g} s, outside {-self.warmup_s:g} s to {self.time_s:g} s")
            if wrong := self.workload.wrong(op):
                raise ValueError(f"{here}: {wrong}")

    @property
    def nodes(self) -> tuple[int, ...]:
        """Broker ids."""
        return self.cluster.ids or tuple(range(1, self.cluster.nodes + 1))

    def timeline(self) -> tuple[Fault, ...]:
        """The faults, checked, in order of their begin. FaultError for one that cannot be."""
        made = []
        for number, f in enumerate(self.faults):
            fault = make_fault(number, f.at_s, f.duration_s, f.action, f.target, f.params)
            check_feasible(f.target, self.nodes, self.workload.zones, self._places(), f"fault {number} ({f.action})")
            self._check_possible(fault)
            made.append(self._triggered(fault, f))
        return tuple(sorted(made, key=lambda fault: (fault.at_s, fault.id)))

    def _check_possible(self, fault: Fault) -> None:
        """Refuse a fault that this cluster or this runtime cannot have. Raises FaultError."""
        here, kind = f"fault {fault.id} ({fault.action})", fault.kind
        if self.runtime == "external":
            check_external(fault, compose=self.compose, client=self.workload.client)
        elif self.runtime not in kind.worlds:
            where = " or ".join(sorted(kind.worlds & OUR_WORLDS))
            why = f" ({kind.nowhere_else})" if kind.nowhere_else else ""
            raise FaultError(f"{here}: not possible in runtime {self.runtime!r}: use {where}{why}")
        nodes, replicas = self.cluster.nodes, self.workload.replication_factor
        setting = Setting(self.runtime, self.target, nodes, replicas, self.upgrade_to)
        if why := kind.refuse(fault.params, setting):
            raise FaultError(f"{here}: {why}")
        needed = kind.needs_nodes(fault.params)
        if nodes < needed:
            few = "a cluster of one has no links between brokers" if needed == 2 else f"it needs {needed} brokers"
            raise FaultError(f"{here}: {few}")
        if self.target != "squall" and Trait.NEEDS_OUR_BROKER in fault.traits:
            raise FaultError(f"{here}: only Squall's own broker can be made to: leave it out")

    def _places(self) -> list[str]:
        """The workload's partitions, as TOPIC-NUMBER."""
        return [f"{topic}-{number}" for topic, number in self.workload.places()]

    def _triggered(self, fault: Fault, f: FaultPlan) -> Fault:
        here = f"fault {fault.id} ({f.action})"
        if f.when is None:
            if f.within_s is not None:
                raise FaultError(f"{here}: within_s = {f.within_s:g}: there is no `when` to wait for")
            return fault
        world = triggers.PlanScope(
            len(self.faults), self._places(), self.nodes, triggers.uncounted(self.runtime, self.target)
        )
        triggers.check(here, f.when, fault.id, world)
        return replace(fault, when=f.when, within_s=min(f.within_s or triggers.WITHIN_S, self.time_s - f.at_s))

    def fault_classes(self) -> frozenset[str]:
        """Classes (P, N, ...) of the planned faults."""
        return frozenset(f.kind.fault_class for f in self.timeline())


def with_schedule(values: dict[str, Any], kinds: tuple[str, ...] | None) -> Plan:
    """A plan of these values; its seed draws `kinds` (None: the default ones, where there is room) into faults."""
    bare = make_plan(values)
    restart_s = RESTART_S[bare.target]
    external = bare.runtime == "external"
    if kinds is None:
        drawn = drawn_kinds(bare.compose, bare.workload.client) if external else _possible(DEFAULT_KINDS, bare)
        drawn += tuple(name for name in KINDS if bare.upgrade_to and _needs_second_version(name))
        try:
            faults = make_schedule(bare.seed, drawn, bare.time_s, restart_s=restart_s)
        except FaultError:
            faults = ()
    else:
        faults = make_schedule(bare.seed, kinds, bare.time_s, restart_s=restart_s)
    if bare.cluster.nodes == 1:
        faults = tuple(map(of_one_broker, faults))
    faults = tuple(in_a_zone(bare.seed, fault, bare.workload.zones) for fault in faults)
    faults = tuple(likely(bare.seed, fault, bare.workload.traffic().in_flight) for fault in faults)
    if bare.target != "squall":
        faults = tuple(for_others(fault, external=external) for fault in faults)
    listed = [
        {"at_s": f.at_s, "duration_s": f.duration_s, "action": f.action, "target": f.target, "params": dict(f.params)}
        for f in faults
    ]
    return make_plan({**values, "faults": listed})


def _needs_second_version(name: str) -> bool:
    return Trait.NEEDS_SECOND_VERSION in KINDS[name].traits


def _possible(names: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
    """The kinds of faults for which the cluster has enough brokers, with default parameters."""
    return tuple(n for n in names if KINDS[n].needs_nodes(KINDS[n].defaults) <= max(plan.cluster.nodes, 1))


def make_plan(values: Mapping[str, Any]) -> Plan:
    """A checked plan. PlanError lists everything that is wrong."""
    try:
        return Plan.model_validate(values)
    except ValidationError as error:
        lines = [f"{'.'.join(_where(e['loc'])) or 'plan'}: {_plain(e)}" for e in error.errors()]
        raise PlanError("\n".join(lines)) from None


def _where(loc: tuple[int | str, ...]) -> list[str]:
    """The path of a setting, as it stands in the plan: without the name of the model that checked it."""
    named = [str(part) for part in loc]
    return [named[0], *named[2:]] if named[:1] == ["workload"] and named[1:2] and named[1] in SCENARIOS else named


def _plain(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "union_tag_invalid":
        return unknown(error["ctx"]["tag"])
    if error["type"] == "extra_forbidden":
        return "there is no such setting"
    given = error.get("input")
    return message if isinstance(given, dict) else f"{message} (given: {given!r})"


def read_plan(path: Path) -> Plan:
    """The plan in a TOML file. PlanError for what cannot be read or run."""
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{path}: not TOML: {error}") from None
    try:
        return make_plan(values)
    except PlanError as error:
        raise PlanError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def write_plan(plan: Plan) -> str:
    """A plan as TOML; `read_plan` of it gives an equal plan."""
    data = plan.model_dump(mode="json")
    operations = data.pop("operations")
    lines = [f"{key} = {_toml(value)}" for key, value in data.items() if not isinstance(value, (dict, list))]
    if operations is not None:
        lines += ["operations = [", *(f"    {_toml(list(each))}," for each in operations), "]"]
    for key, value in data.items():
        if isinstance(value, dict):
            lines += _table(key, value)
    for fault in data["faults"]:
        lines += ["", "[[faults]]", *(f"{k} = {_toml(v)}" for k, v in fault.items() if v is not None)]
    return "\n".join(lines) + "\n"


def _table(name: str, values: dict[str, Any]) -> list[str]:
    plain = [f"{k} = {_toml(v)}" for k, v in values.items() if not isinstance(v, dict)]
    lines = ["", f"[{name}]", *plain]
    for key, value in values.items():
        if isinstance(value, dict):
            lines += ["", f"[{name}.{key}]", *(f"{_toml(k)} = {_toml(v)}" for k, v in value.items())]
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
