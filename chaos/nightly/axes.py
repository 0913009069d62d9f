"""Defines the axes of a matrix: the values of each axis, the flags that a value gives a run, and the default. This
module does no I/O.

A cell is a configuration: a map from each axis to its value, both as text. A cell contains every axis that affects its
runs, also those that the matrix does not name, so that equal configurations are equal cells in each night.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from squall.chaos.errors import PreconditionError
from squall.chaos.mutants import find
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.plans.plan import Plan, PlanError, make_plan
from squall.checkers.nightly.matrix import axis_word
from squall.workloads.registry import DEFAULT, SCENARIOS

Cell = Mapping[str, str]
UNCLEAN, FLUSH = "unclean.leader.election.enable", "flush.messages"
EXTERNAL = "external"


@dataclass(frozen=True, slots=True)
class MatrixAxis:
    """Describes one axis of a matrix, such as `workload` or `acks`. `values`: the possible values. Empty: any whole
    number above 0 if the axis is `numeric`, else any name.
    """

    name: str
    values: tuple[str, ...]
    flags: Callable[[str], tuple[str, ...]]
    """Returns the flags of `squall run` or `squall sim` that set the axis to a value."""
    default: str = ""
    """Is the value if the matrix does not name the axis. An axis with a `setting` does not use it, but takes the
    default of the workload.
    """
    setting: str = ""
    """Names the setting of the workload that this axis varies. Workloads without that setting do not have the axis."""
    numeric: bool = False


def _flag(name: str) -> Callable[[str], tuple[str, ...]]:
    return lambda value: (f"--{name}", value)


def _target(value: str) -> tuple[str, ...]:
    return ("--target", value) if value == "kafka" else ()


def _unclean(value: str) -> tuple[str, ...]:
    return ("--topic-set", f"{UNCLEAN}=true") if value == "on" else ()


def _flush(value: str) -> tuple[str, ...]:
    return () if value == "os" else ("--topic-set", f"{FLUSH}={value}")


def _switch(name: str) -> Callable[[str], tuple[str, ...]]:
    return lambda value: (f"--{name}" if value == "on" else f"--no-{name}",)


_ALL = (
    MatrixAxis("workload", tuple(SCENARIOS), _flag("workload"), DEFAULT),
    MatrixAxis("target", ("squall", "kafka", EXTERNAL), _target, "squall"),
    MatrixAxis("runtime", ("process", "docker", "sim", EXTERNAL), lambda value: ("--runtime", value), "process"),
    MatrixAxis("nodes", (), _flag("nodes"), "3", numeric=True),
    MatrixAxis("replication-factor", (), _flag("replication-factor"), setting="replication_factor", numeric=True),
    MatrixAxis("min-isr", (), _flag("min-isr"), setting="min_isr", numeric=True),
    MatrixAxis("acks", ("all", "1", "0"), _flag("acks"), setting="acks"),
    MatrixAxis("idempotence", ("on", "off"), _switch("idempotence"), setting="idempotence"),
    MatrixAxis("isolation", ("read_committed", "read_uncommitted", "both"), _flag("isolation"), setting="isolation"),
    MatrixAxis("generation", ("1", "2"), _flag("generation"), setting="generation"),
    MatrixAxis("codec", ("none", "gzip", "snappy", "lz4", "zstd"), _flag("codec"), setting="codec"),
    MatrixAxis("client", ("squall", "confluent", "aiokafka", "kafka-python"), _flag("client"), setting="client"),
    MatrixAxis("group-protocol", ("classic", "consumer", "mixed"), _flag("group-protocol"), setting="group_protocol"),
    MatrixAxis("static-members", ("on", "off"), _switch("static-members"), setting="static_members"),
    MatrixAxis("command", (), _flag("command"), setting="command"),
    MatrixAxis("unclean", ("off", "on"), _unclean, "off"),
    MatrixAxis("flush", (), _flush, "os"),
    MatrixAxis("mutant", (), lambda value: () if value == "none" else ("--mutant", value), "none"),
)  # fmt: skip
AXES: Mapping[str, MatrixAxis] = {axis.name: axis for axis in _ALL}
"""Maps names to axes, in the order in which a configuration (cell) lists them."""
SHOWN = ("target", "runtime", "workload")
"""Lists the axes with which the name of a configuration begins. The name shows another axis only if its value is not
the default.
"""
PROMISED: Mapping[str, str] = {"acks": "all", "idempotence": "on"}
"""Maps an axis to its only possible value in a workload that has no setting for it."""


class ImpossibleCombination(Exception):
    """Is raised for a combination of values that cannot be run; the message says why."""


def word(axis: str, value: Any) -> str:
    """Return a value of an axis as text, as a configuration (cell) holds it. Raise ValueError for a value that the axis
    cannot have.
    """
    known = AXES[axis]
    said = axis_word(axis, value)
    if known.values and said not in known.values:
        raise ValueError(f"{axis}: {value!r} is not possible: one of {', '.join(known.values)}")
    if known.numeric and not (said.isdecimal() and int(said) > 0):
        raise ValueError(f"{axis}: {value!r} is not possible: a whole number above 0")
    if axis == "mutant" and said != "none":
        try:
            find(said)
        except PreconditionError:
            raise ValueError(f"mutant: there is no mutant {said!r}: docs/shown/mutants.md lists them") from None
    if axis == "flush" and said != "os" and not (said.isdecimal() and int(said) > 0):
        raise ValueError(
            f"flush: {value!r} is not possible: os (the system decides), or the records between two fsyncs"
        )
    return said


def workloads_of(axis: str) -> tuple[str, ...]:
    """Return the workloads that have this axis."""
    setting = AXES[axis].setting
    has_it = [name for name, scenario in SCENARIOS.items() if not setting or setting in scenario.model_fields]
    return tuple(SCENARIOS) if axis in PROMISED else tuple(has_it)


def cell_of(named: Mapping[str, str]) -> dict[str, str]:
    """Return the complete configuration, with the default of each axis that is not given. named: the given values by
    axis, such as {"acks": "1"}. Raise ImpossibleCombination if the configuration cannot be run.
    """
    workload = named.get("workload", DEFAULT)
    scenario = SCENARIOS[workload]
    given = dict(named)
    if EXTERNAL in (given.get("target"), given.get("runtime")):
        given.update(target=EXTERNAL, runtime=EXTERNAL)
    if given.get("mutant", "none") != "none":
        given.setdefault("runtime", "sim")
    cell = {}
    for name, axis in AXES.items():
        if axis.setting and axis.setting not in scenario.model_fields:
            if name in PROMISED and given.get(name, PROMISED[name]) != PROMISED[name]:
                said = f"{name}={given[name]}: the workload {workload} always has {name}={PROMISED[name]}"
                raise ImpossibleCombination(said)
            continue
        cell[name] = given.get(name) or _default(axis, given, workload)
    _check(cell)
    return cell


def _default(axis: MatrixAxis, given: Mapping[str, str], workload: str) -> str:
    if axis.name == "idempotence":
        # An idempotent producer needs acks=all (KIP-98).
        return "on" if given.get("acks", "all") == "all" else "off"
    # Client libraries speak transaction version 1 only.
    if axis.name == "generation" and given.get("client", "squall") != "squall":
        return "1"
    if not axis.setting:
        return axis.default
    usual = SCENARIOS[workload].model_fields[axis.setting].default
    if axis.name in ("min-isr", "replication-factor"):
        most = given.get("replication-factor" if axis.name == "min-isr" else "nodes", "3")
        usual = min(usual, int(most))
    return word(axis.name, usual)


def _check(cell: Cell) -> None:
    if cell["mutant"] != "none" and (cell["runtime"] != "sim" or cell["target"] != "squall"):
        raise ImpossibleCombination("a mutant is planted into Squall's own broker, in the simulator")
    if cell["mutant"] != "none" and find(cell["mutant"]).is_setting:
        raise ImpossibleCombination(
            f"mutant {cell['mutant']} is a setting that is called safe: take its axes, and an expectation"
        )
    if cell.get("command", "a program") == "":
        raise ImpossibleCombination(f"the workload {cell['workload']} needs a program: the axis command")
    if cell["runtime"] != EXTERNAL:
        plan_of(cell)


def plan_of(cell: Cell, **values: Any) -> Plan:
    """Return a plan of this configuration, without faults. values: further values of the plan, such as its seed. Raise
    ImpossibleCombination if the configuration is contradictory.
    """
    scenario = SCENARIOS[cell["workload"]]
    table: dict[str, Any] = {"name": cell["workload"], "topic_settings": _topic_settings(cell)}
    for name, axis in AXES.items():
        if axis.setting and name in cell:
            table[axis.setting] = _plain(name, cell[name])
    nodes = int(cell["nodes"])
    settings = {**FAST_FAILOVER, **scenario.BROKERS}
    try:
        return make_plan({**values, "runtime": cell["runtime"], "target": cell["target"], "workload": table,
                          "cluster": {"nodes": nodes, "settings": settings}})  # fmt: skip
    except PlanError as wrong:
        raise ImpossibleCombination("; ".join(str(wrong).splitlines())) from None


def _topic_settings(cell: Cell) -> dict[str, str]:
    pairs = [*_unclean(cell["unclean"]), *_flush(cell["flush"])]
    return dict(each.split("=", 1) for each in pairs if "=" in each)


def _plain(name: str, value: str) -> Any:
    if name == "acks":
        return -1 if value == "all" else int(value)
    if name in ("idempotence", "static-members"):
        return value == "on"
    return int(value) if value.isdecimal() else value


def flags_of(cell: Cell) -> tuple[str, ...]:
    """Return the flags of `squall run` or `squall sim` for a configuration. Default values are left out."""
    flags: list[str] = []
    for name, value in cell.items():
        # `squall sim` has no such flag, and a process is the default of `squall run`.
        if name == "runtime" and value in ("sim", "process"):
            continue
        if name in ("runtime", "workload") or value != usual(cell, name):
            flags += AXES[name].flags(value)
    return tuple(flags)


def usual(cell: Cell, name: str) -> str:
    """Return the default of the axis `name` in a configuration (cell) whose other axes have these values."""
    return _default(AXES[name], {each: value for each, value in cell.items() if each != name}, cell["workload"])


def title(cell: Cell) -> str:
    """Return the name of a configuration: target and runtime, workload, and all values that are not the default."""
    where = "/".join(dict.fromkeys((cell["target"], cell["runtime"])))
    first = [where, cell["workload"]]
    rest = [f"{name}={value}" for name, value in cell.items() if name not in SHOWN and value != usual(cell, name)]
    return " ".join([*first, *rest])


def slug(cell: Cell) -> str:
    """Return the name of a configuration in a form that file names can hold."""
    words = (re.sub(r"[^\w.+\-]+", "-", word).strip("-.") for word in title(cell).replace("_", "-").split(" "))
    return ".".join(filter(None, words))
