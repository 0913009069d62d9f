"""Defines a plan: everything that is needed to repeat a run, as data. Each run directory holds its plan as `plan.toml`.

A plan is checked completely when it is read. If anything in it is wrong, it is refused, with all its errors at once.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from math import isnan
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import BaseModel, ValidationError, ValidationInfo, model_validator

from squall.chaos.faults.kind import Fault, FaultError, FaultTrait
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.targets import CoordinatorKeys, check_target
from squall.chaos.faults.timeouts import longer_s
from squall.chaos.faults.vocabulary import kind_of
from squall.chaos.nearest import nearest
from squall.chaos.plans.external import adapted_to_foreign_brokers, drawn_kinds
from squall.chaos.plans.lines import with_line
from squall.chaos.plans.mistakes import mistakes, possible_fault
from squall.chaos.plans.parts import ClusterPlan, FaultSpec, LimitsPlan, PlanParts, which_workload
from squall.chaos.plans.schedule import (
    DEFAULT_KINDS,
    coordinated,
    in_a_zone,
    likely,
    make_schedule,
    needed_load_s,
    of_loads,
    of_one_broker,
    of_transactions,
)
from squall.chaos.plans.words import in_plain_words
from squall.workloads.registry import DEFAULT, SCENARIOS, unknown

SCHEMA = 1
RUN_INFO = "run.json"
"""Names the file that a run writes beside its plan when it begins. If it exists, the plan was accepted."""

RESTART_S: Mapping[str, float] = {"squall": 0.0, "kafka": 8.0, "other": 8.0}
"""Maps a plan's `target` to how much longer its brokers take to restart than Squall's, in s: a JVM has to warm up.
Measured with several brokers on two cores.
"""


class PlanError(ValueError):
    """Reports a plan that cannot be run. The message lists what is wrong, one line each."""


class Plan(PlanParts):
    """Describes a whole run: cluster, workload, limits and faults. Making one checks that its parts fit together."""

    @model_validator(mode="after")
    def _relations(self, info: ValidationInfo) -> Self:
        if wrong := mistakes(self, as_recorded=bool(info.context)):
            raise ValueError("\n".join(wrong))
        return self

    def timeline(self) -> tuple[Fault, ...]:
        """Return the faults, checked, in the order in which they begin. Raise FaultError for an impossible fault."""
        made = [possible_fault(self, number, fault) for number, fault in enumerate(self.faults)]
        return tuple(sorted(made, key=lambda fault: (fault.at_s, fault.id)))

    @property
    def how_many(self) -> str:
        """Returns how many faults the plan has, such as "3 faults"."""
        return "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"

    def fault_classes(self) -> frozenset[str]:
        """Return the letters of the planned faults' classes (P, N, ...: see docs/faults.md)."""
        return frozenset(f.kind.fault_class for f in self.timeline())


def with_schedule(values: dict[str, Any], kinds: tuple[str, ...] | None, count: int | None = None) -> Plan:
    """Return a plan of these values, with faults of `kinds` drawn by its seed. kinds: None means the default kinds that
    this cluster can have.

    count: draw exactly so many faults, and raise FaultError if they do not fit. None: as many as fit.
    """
    bare = make_plan(values)
    restart_s = RESTART_S[bare.target]
    external = bare.runtime == "external"
    if kinds is None:
        drawn = drawn_kinds(bare.compose, bare.workload.client) if external else _possible(DEFAULT_KINDS, bare)
        drawn += tuple(name for name in KINDS if bare.upgrade_to and _needs_second_version(name))
        drawn += () if external else of_transactions(bare.workload.traffic().zombies)
        drawn += of_loads(bare.workload.traffic().loads)
        try:
            faults = make_schedule(bare.seed, drawn, bare.time_s, restart_s=restart_s, count=count)
        except FaultError:
            if count is not None:
                raise
            faults = ()
    else:
        faults = make_schedule(bare.seed, kinds, bare.time_s, restart_s=restart_s, count=count)
    if bare.cluster.nodes == 1:
        faults = tuple(map(of_one_broker, faults))
    traffic = bare.workload.traffic()
    names = CoordinatorKeys(traffic.ids, traffic.groups, traffic.coordinator_apis)
    faults = tuple(coordinated(bare.seed, fault, names) for fault in faults)
    faults = tuple(in_a_zone(bare.seed, fault, bare.workload.zones) for fault in faults)
    faults = tuple(likely(bare.seed, fault, bare.workload.traffic().in_flight) for fault in faults)
    if bare.target != "squall":
        faults = tuple(adapted_to_foreign_brokers(fault, external=external) for fault in faults)
    listed = [
        {"at_s": f.at_s, "duration_s": f.duration_s, "action": f.action, "target": f.target, "params": dict(f.params)}
        for f in faults
    ]
    return make_plan({**values, "faults": listed})


def lengthened_for_proofs(plan: Plan, probe_ms: float) -> Plan:
    """Return the plan with longer faults, so that the effect of each can be proven although a probe (a request over a
    link) takes up to `probe_ms`. Later faults, and the end of the load, move accordingly.
    """
    more_s = longer_s(probe_ms)
    values = plan.model_dump(mode="json")
    for number, fault in enumerate(sorted(values["faults"], key=lambda each: float(each["at_s"]))):
        fault["at_s"] = round(fault["at_s"] + number * more_s, 2)
        fault["duration_s"] = round(fault["duration_s"] + more_s, 2)
    time_s = round(plan.time_s + len(plan.faults) * more_s, 2)
    return make_plan({**values, "time_s": time_s, "probe_ms": probe_ms})


def kinds_without_room(plan: Plan, kinds: tuple[str, ...]) -> str:
    """Return a message that names the requested kinds of faults for which the load was too short, and the length that
    has room for all. Empty if the plan has a fault of each kind.
    """
    missing = [name for name in kinds if name not in {fault.action for fault in plan.faults}]
    if not missing:
        return ""
    needed_s = needed_load_s(plan.seed, kinds, RESTART_S[plan.target])
    return f"no room in {plan.time_s:g} s of load for {', '.join(missing)}; --time {needed_s} has room for all kinds"


def _needs_second_version(name: str) -> bool:
    return FaultTrait.NEEDS_SECOND_VERSION in KINDS[name].traits


def _possible(names: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
    """Return those of the named kinds for which the cluster has enough brokers, with the kind's default parameters."""
    return tuple(n for n in names if KINDS[n].needs_nodes(KINDS[n].defaults) <= max(plan.cluster.nodes, 1))


def make_plan(values: Mapping[str, Any], *, as_recorded: bool = False) -> Plan:
    """Make a plan of these values and check it. Raise PlanError, which lists everything that is wrong.

    as_recorded: the plan is from a run that was accepted, so time limits and limits of clients are not checked again.
    """
    try:
        return Plan.model_validate(values, context={"recorded": True} if as_recorded else None)
    except ValidationError as error:
        raise PlanError("\n".join(dict.fromkeys([*_lines(error), *_beside(values, error)]))) from None


def _lines(error: ValidationError) -> list[str]:
    """Return pydantic's errors in words, one sentence for each mistake."""
    found = []
    for each in error.errors():
        where = f"{'.'.join(_where(each['loc']))}: " if each["loc"] else ""
        found += [f"{where}{line}" for line in _plain(each).splitlines()]
    return found


def _beside(values: Mapping[str, Any], error: ValidationError) -> list[str]:
    """Return the mistakes in those parts of a plan that pydantic could parse, although it could not parse others."""
    places = [each["loc"] for each in error.errors() if each["loc"]]
    if not places:
        return []  # all parts were readable, so they were already checked together
    unread = {str(loc[0]) for loc in places}
    kept = {name: value for name, value in values.items() if name in PlanParts.model_fields and name not in unread}
    found = _setting_contradictions(values.get("workload"), places)
    faults, numbers = values.get("faults", ()), None
    if "faults" in unread and isinstance(faults, list | tuple):
        bad = {int(loc[1]) for loc in places if loc[0] == "faults" and len(loc) > 1}
        numbers = tuple(number for number in range(len(faults)) if number not in bad) if bad else ()
        kept["faults"] = [faults[number] for number in numbers]
        found += [line for number in sorted(bad) for line in _action_and_target_mistakes(number, faults[number])]
    return found + mistakes(PlanParts.model_validate(kept), unread=unread - {"faults"}, numbers=numbers)


def _action_and_target_mistakes(number: int, fault: Any) -> list[str]:
    """Return what is wrong with the action and the target of a fault of which other fields could not be parsed. number:
    the fault's position in the plan, from 0. fault: what the plan's file has there.
    """
    found = []
    action, target = (fault.get(name) for name in ("action", "target")) if isinstance(fault, Mapping) else (None, None)
    if isinstance(action, str):
        found += _told(kind_of, f"fault {number}", action)
        if isinstance(target, str):
            found += _told(check_target, f"fault {number} ({action})", target)
    return found


def _told(check: Callable[[str, str], object], here: str, given: str) -> list[str]:
    try:
        check(here, given)
    except FaultError as error:
        return str(error).splitlines()
    return []


def _setting_contradictions(table: Any, places: list[tuple[int | str, ...]]) -> list[str]:
    """Return contradictions between the settings of a `[workload]` table, if some of its settings could not be parsed.
    Those count as their defaults, and messages that name one of them are left out. places: pydantic's paths of all
    errors.
    """
    unread = {str(loc[2]) for loc in places if loc[0] == "workload" and len(loc) > 2}
    scenario = SCENARIOS.get(which_workload(table) or "")
    if scenario is None or not unread:
        return []
    try:
        scenario.model_validate({name: value for name, value in table.items() if name not in unread})
    except ValidationError as error:
        lines = [line for each in error.errors() for line in _plain(each).splitlines()]
        return [f"workload: {line}" for line in lines if not any(name in line for name in unread)]
    return []


def _where(loc: tuple[int | str, ...]) -> list[str]:
    """Return the path of a setting as it is in the plan's file. Pydantic's path (`loc`) also contains the name of the
    workload.
    """
    named = [str(part) for part in loc]
    return [named[0], *named[2:]] if named[:1] == ["workload"] and named[1:2] and named[1] in SCENARIOS else named


def _plain(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "union_tag_invalid":
        return unknown(error["ctx"]["tag"])
    if error["type"] == "extra_forbidden":
        near = nearest(str(error["loc"][-1]), _names_beside(error["loc"]))
        return "there is no such setting" + (f": did you mean {near!r}?" if near else "")
    given = error.get("input")
    if error["type"] == "tuple_type" and error["loc"] == ("faults",):
        return "each fault is a table of its own, and begins with [[faults]]"
    if error["type"] == "union_tag_not_found":
        return f"it is a table, such as [workload] with name = {DEFAULT!r} (given: {given!r})"
    if error["type"] == "string_type" and error["loc"][-2:-1] in (("settings",), ("topic_settings",)):
        return f'values of settings are strings: write "{str(given).lower() if isinstance(given, bool) else given}"'
    if isinstance(given, float) and isnan(given):
        return "nan is no number"
    message = in_plain_words(error) or message
    return message if isinstance(given, dict) else f"{message} (given: {given!r})"


def _names_beside(loc: tuple[int | str, ...]) -> list[str]:
    """Return the setting names that are valid in the same table of a plan as an unknown name, so that one can be
    suggested. loc: pydantic's path of the unknown name, such as ("limits", "stuck").
    """
    models: dict[str, type[BaseModel]] = {"cluster": ClusterPlan, "limits": LimitsPlan, "faults": FaultSpec}
    if len(loc) < 2:
        return list(PlanParts.model_fields)
    model = SCENARIOS.get(str(loc[1])) if loc[0] == "workload" else models.get(str(loc[0]))
    return list(model.model_fields) if model else []


def read_plan(path: Path) -> Plan:
    """Return the plan in a TOML file. Raise PlanError if the plan cannot be read or run.

    The plan in a run directory belongs to a run that was accepted: it can be read even if its limits would be refused
    in a new plan (`beyond_limits`).
    """
    if path.is_dir():
        inside = path / "plan.toml"
        if not inside.exists():
            inside = path / "latest/plan.toml"
        raise PlanError(f"{path} is a folder" + (f": did you mean {inside}?" if inside.exists() else ""))
    if not path.exists():
        raise PlanError(f"{path}: there is no such file")
    try:
        text = path.read_text()
        values = tomllib.loads(text)
    except UnicodeDecodeError:
        raise PlanError(f"{path}: it is no text, and a plan is a TOML file") from None
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{path}: not TOML: {error}") from None
    if not values:
        raise PlanError(f"{path}: nothing is in it, and a plan says at least one thing, such as `seed = 7`")
    try:
        return make_plan(values, as_recorded=(path.parent / RUN_INFO).exists())
    except PlanError as error:
        raise PlanError("\n".join(f"{path}: {with_line(text, line)}" for line in str(error).splitlines())) from None


def write_plan(plan: Plan) -> str:
    """Return a plan as TOML text, from which `read_plan` makes an equal plan."""
    data = plan.model_dump(mode="json", exclude_none=True)
    operations = data.pop("operations", None)
    text = tomli_w.dumps(data)
    if operations is None:
        return text
    # A JSON array of numbers and strings is TOML, too. tomli-w has a line for each field of an operation.
    return "".join(["operations = [\n", *(f"    {json.dumps(each)},\n" for each in operations), "]\n", text])
