"""Defines the fault `upgrade`: brokers are restarted one after the other with another version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    ChoiceParameter,
    DrawRules,
    FaultKind,
    FaultTrait,
    NumericParameter,
    Params,
    PlanCapabilities,
)
from squall.chaos.faults.link_faults import hit_by
from squall.chaos.faults.words import Json, mapping, objects, steps_in_turn

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Restart the brokers one by one as `rolling` does, each as the second version. The evidence names the versions
    before and after. They are observed and not taken from the plan: the machine or the engine reports which software
    runs, and the broker reports what it supports.
    """
    from squall.chaos.faults.acts.nodes import one_by_one

    runtime = context.runtime

    async def was(node: int) -> dict[str, Any]:
        return {"was": await runtime.software(node)}

    async def now(node: int) -> dict[str, Any]:
        return {"is": await runtime.software(node)}

    async def changed(node: int) -> dict[str, Any]:
        return {"changed": await runtime.upgrade_node(node)}

    await one_by_one(context, p, before=was, between=changed, after=now)
    steps: list[Any] = p.evidence["steps"]
    same = [step["node"] for step in steps if step["is"]["runs"] in (step["was"]["runs"], None)]
    if p.landed and same:
        p.landed, p.error = False, f"node {', '.join(map(str, same))} runs what it ran before"


def refuse(params: Params, setting: PlanCapabilities) -> str:
    """Refuse the fault if the plan names no second version."""
    return "" if setting.upgrade_to else "to which version? name it: --upgrade-to (upgrade_to)"


def describe_evidence(seen: Json) -> str:
    """Describe each step, and name the software that ran before and after."""
    steps = [step for step in objects(seen.get("steps")) if "is" in step]
    changes = [(mapping(step.get("was")), mapping(step.get("is"))) for step in steps]
    by = " and ".join(dict.fromkeys(str(now.get("by")) for _, now in changes))
    versions = {f"{_short(was.get('runs'))} before, {_short(now.get('runs'))} after" for was, now in changes}
    return f"{steps_in_turn(seen)} What ran was {'; '.join(sorted(versions))} ({by})."


def _short(runs: object) -> str:
    return str(runs).removeprefix("sha256:")[:16]


KIND = FaultKind(
    name="upgrade",
    place=23,
    title="as `rolling`, and each target starts as the version that --upgrade-to names",
    fault_class="P",
    duration_s=NumericParameter(1, 3600, 90),
    params={"how": ChoiceParameter(("stop", "kill"), "stop")},
    traits=frozenset({FaultTrait.ONE_BY_ONE, FaultTrait.ONCE, FaultTrait.NEEDS_SECOND_VERSION, FaultTrait.OUT_OF_SYNC}),
    worlds=frozenset({"process", "docker"}),
    nowhere_else="in a simulation there is one version of the broker, the one that simulates",
    refuse=refuse,
    draw=DrawRules(
        params=lambda rng: {"how": rng.choice(("stop", "stop", "kill"))},
        target=lambda rng, params: "all",
        lasts_s=(20.0, 22.0),
    ),
    play=play,
    verify=proofs.upgraded,
    evidence="as for `rolling`; the versions before and after, from engine or kernel, and the broker's ApiVersions",
    middle="none: each node starts again at once",
    describe_evidence=describe_evidence,
    describe_effect=hit_by("upgrade"),
)
