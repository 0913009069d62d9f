"""Finds all mistakes in a plan at once: mostly parts that are valid by themselves but contradict each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from squall.chaos.faults import triggers
from squall.chaos.faults.kind import OUR_WORLDS, Fault, FaultError, FaultTrait, PlanCapabilities
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.targets import CoordinatorKeys, WorkloadClients, check_clients, check_feasible, check_target
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.external import check_external
from squall.chaos.plans.parts import FAILOVER, HOLDS, FaultSpec, PlanParts, least_limits
from squall.chaos.plans.settings import wrong_broker_settings, wrong_topic_settings
from squall.chaos.runtimes.broker_settings import too_high

OPERATIONS_SAID = 3
"""Limits how many invalid operations are reported: a load has thousands, and all may have the same mistake."""
AROUND_FAULTS = frozenset({"runtime", "target", "compose", "upgrade_to", "cluster", "workload"})
"""Names the parts of a plan that decide whether its cluster can have a fault. If one could not be parsed, each fault is
checked by itself.
"""

Found = Iterator[str]


def mistakes(
    plan: PlanParts, *, unread: Collection[str] = (), numbers: Sequence[int] | None = None, as_recorded: bool = False
) -> list[str]:
    """Return one sentence for each mistake in a plan.

    unread: parts of the plan's file that could not be parsed. `plan` has their defaults instead, and checks that depend
    on them are left out.

    numbers: the numbers of the faults in `plan`, if some faults of the file could not be parsed; None: all could.

    as_recorded: the plan is from a run that was accepted, so time limits and limits of clients are not checked again.
    """
    found: list[str] = []
    for parts, look in _LOOKS:
        if not parts & set(unread) and not (as_recorded and look in (_clients, _limits)):
            found += look(plan)
    alone = bool(AROUND_FAULTS & set(unread))
    for number, fault in zip(numbers or range(len(plan.faults)), plan.faults, strict=True):
        found += _of_fault(plan, number, fault, alone=alone, others_known=numbers is None)
        if "time_s" not in unread and fault.at_s >= plan.time_s:
            found.append(f"fault {number} begins at {fault.at_s:g} s, after the load of {plan.time_s:g} s")
    return _together(found)


_ONE_FAULT = re.compile(r"fault (\d+)( \(.*)", re.DOTALL)


def _together(found: Iterable[str]) -> list[str]:
    """Merge sentences about the same mistake of several faults into one, which names all these faults."""
    numbers: dict[str, list[str]] = {}
    for each in found:
        one = _ONE_FAULT.fullmatch(each)
        numbers.setdefault(one[2] if one else each, []).extend([one[1]] if one else [])
    return [
        f"fault{'s' if len(those) > 1 else ''} {', '.join(those)}{said}" if those else said
        for said, those in numbers.items()
    ]


def _replicas(plan: PlanParts) -> Found:
    if plan.workload.replication_factor > plan.cluster.nodes:
        yield (
            f"workload.replication_factor {plan.workload.replication_factor} needs as many nodes; "
            f"cluster.nodes is {plan.cluster.nodes}"
        )


def _voters(plan: PlanParts) -> Found:
    if plan.cluster.voters is not None and plan.runtime == "external":
        yield "cluster.voters: an external cluster has its own voters, which cannot be given"
    elif (plan.cluster.voters or 0) > plan.cluster.nodes:
        yield f"cluster.voters {plan.cluster.voters} needs as many nodes; cluster.nodes is {plan.cluster.nodes}"


def _external(plan: PlanParts) -> Found:
    """Yield mistakes in settings that are for an external cluster only, or not allowed for one."""
    if plan.runtime != "external":
        if plan.bootstrap or plan.compose or plan.cluster.ids or plan.target == "other":
            yield 'bootstrap, compose, cluster.ids and target = "other" are of runtime = "external"'
        return
    if not plan.bootstrap:
        yield 'an external cluster is found by its bootstrap servers: bootstrap = "HOST:PORT"'
    if plan.target == "squall":
        yield 'an external cluster is nobody\'s to trust: target = "kafka" or "other"'
    if len(plan.cluster.ids) != plan.cluster.nodes:
        yield f"cluster.ids names {len(plan.cluster.ids)} brokers; cluster.nodes is {plan.cluster.nodes}"
    if plan.workload.zones > 1:
        yield "workload.zones: an external cluster advertises one address of each broker: 1 zone"
    if plan.cluster.settings:
        yield "cluster.settings: an external cluster has its own, which cannot be given"


def _target(plan: PlanParts) -> Found:
    """Yield mistakes in the broker and topic settings, by the rules of Squall's broker, and brokers or clients that the
    runtime cannot run. Brokers that are not Squall's check their settings themselves when they start.
    """
    if plan.target == "squall":
        yield from (f"cluster.settings: {wrong}" for wrong in wrong_broker_settings(plan.cluster.settings))
        yield from (f"workload.topic_settings: {wrong}" for wrong in wrong_topic_settings(plan.workload.topic_settings))
    elif plan.runtime == "sim":
        yield f'the simulator runs Squall\'s own broker only: target = "{plan.target}" needs processes'
    elif plan.runtime == "docker":
        yield f'there are images of Squall\'s own broker only: target = "{plan.target}" needs processes'
    client = plan.workload.client
    if client != "squall" and plan.runtime == "sim":
        yield f'the simulator runs our own client only: client = "{client}" needs processes'
    if not plan.workload.SIMULATED and plan.runtime == "sim":
        yield f"the simulator runs our own clients only: the workload {plan.workload.name} needs processes (squall run)"


def _brokers(plan: PlanParts) -> Found:
    """Yield broker settings with which the workload cannot work, because they ask for more brokers than there are."""
    for why in too_high(plan.cluster.settings, plan.cluster.nodes, plan.workload.COORDINATOR_LOGS):
        yield f"workload {plan.workload.name}: {why}"


def _clients(plan: PlanParts) -> Found:
    """Yield broker limits that the workload's clients exceed, so that brokers would refuse these clients every time."""
    given = {**plan.cluster.settings, **plan.workload.topic_settings}
    for limit in plan.workload.broker_limits() if plan.runtime != "external" else ():
        text = given.get(limit.setting, "")
        if not text.isdecimal() or (int(text) <= limit.asked if limit.least else int(text) >= limit.asked):
            continue  # the broker itself refuses what is no number
        side, bound = ("above", "at most") if limit.least else ("below", "at least")
        yield (
            f"workload {plan.workload.name}: {limit.setting} is {text}, {side} the {limit.asked} of {limit.asked_by}, "
            f"so {limit.refused}: set {limit.setting} to {bound} {limit.asked}"
        )


def _volumes(plan: PlanParts) -> Found:
    """Yield faults that act on brokers' files although the data is in volumes, which belong to the container engine and
    cannot be reached.
    """
    if not plan.cluster.volume_mib:
        return
    if plan.runtime != "docker":
        yield 'cluster.volume_mib is of runtime = "docker": elsewhere data has no volumes'
    kinds = (KINDS[fault.action] for fault in plan.faults if fault.action in KINDS)
    if beyond := sorted({kind.name for kind in kinds if FaultTrait.NEEDS_FILES in kind.traits}):
        yield f"cluster.volume_mib: {', '.join(beyond)} need brokers' data in folders of this machine"


def _operations(plan: PlanParts) -> Found:
    """Yield mistakes in the plan's list of operations: operations that the workload cannot carry out."""
    wrong = [f"operation {n}: {why}" for n, op in enumerate(plan.operations or ()) if (why := _wrong(plan, op))]
    yield from wrong[:OPERATIONS_SAID]
    if len(wrong) > OPERATIONS_SAID:
        yield f"{len(wrong) - OPERATIONS_SAID} more of the {len(plan.operations or ())} operations are wrong"


def _wrong(plan: PlanParts, op: Any) -> str:
    kind = plan.workload.OPERATION
    if not isinstance(op, kind):
        fields = ", ".join(kind._fields)  # type: ignore[attr-defined]
        return f"{op!r} is no operation of the workload {plan.workload.name}, which is [{fields}]"
    if not -plan.warmup_s <= op.at_s < plan.time_s:  # type: ignore[attr-defined]
        return f"at {op[0]:g} s, outside {-plan.warmup_s:g} s to {plan.time_s:g} s"
    return plan.workload.wrong(op)


def _limits(plan: PlanParts) -> Found:
    """Yield time limits of the plan that are shorter than a correct cluster may need."""
    failover_s = plan.cluster.failover_s()
    for name, least_s in least_limits(plan.workload, plan.cluster).items():
        limit_s = getattr(plan.limits, name)
        if limit_s < least_s:
            of_cluster = f"which {', '.join(FAILOVER)} give a sound cluster to recover"
            of_load = "for which the workload's time-outs and pauses keep its clients waiting on a sound cluster"
            why, safe = of_cluster if least_s == failover_s else of_load, f"{HOLDS * least_s:g}"
            option = f"--{name.replace('_', '-')} {safe}"
            low = f"limits.{name}: {limit_s:g} s is below {least_s:g} s"
            yield f"{low}, {why}: set it to {safe} ({option}), or shorten those"


def beyond_limits(plan: PlanParts) -> str:
    """Return why the time limits of a recorded plan would be refused in a new plan; empty if they would not. The
    recorded plan can be run all the same.
    """
    return next(iter(_limits(plan)), "")


_LOOKS: tuple[tuple[frozenset[str], Callable[[PlanParts], Found]], ...] = (
    (frozenset({"cluster", "workload"}), _replicas),
    (frozenset({"runtime", "cluster"}), _voters),
    (frozenset({"runtime", "target", "bootstrap", "compose", "cluster", "workload"}), _external),
    (frozenset({"runtime", "target", "cluster", "workload"}), _target),
    (frozenset({"target", "cluster", "workload"}), _brokers),
    (frozenset({"runtime", "cluster", "workload"}), _clients),
    (frozenset({"runtime", "cluster"}), _volumes),
    (frozenset({"limits", "workload", "cluster"}), _limits),
    (frozenset({"operations", "workload", "warmup_s", "time_s"}), _operations),
)
"""Lists each check with the parts of a plan that it depends on. If one of these could not be parsed, the check is left
out.
"""


# ------------------------------------------------------------------------------------------------------- one fault


def possible_fault(plan: PlanParts, number: int, planned: FaultSpec) -> Fault:
    """Check one fault of a plan, and return it. Raise FaultError that lists everything wrong with the fault, a line
    each. number: the fault's position in the plan, from 0.
    """
    if wrong := _of_fault(plan, number, planned):
        raise FaultError("\n".join(wrong))
    fault = _made(number, planned)
    if planned.when is None:
        return fault
    within_s = min(planned.within_s or triggers.WITHIN_S, plan.time_s - planned.at_s)
    return replace(fault, when=planned.when, within_s=within_s)


def _made(number: int, planned: FaultSpec) -> Fault:
    return make_fault(number, planned.at_s, planned.duration_s, planned.action, planned.target, planned.params)


def _of_fault(
    plan: PlanParts, number: int, planned: FaultSpec, *, alone: bool = False, others_known: bool = True
) -> list[str]:
    """Return what is wrong with one fault. number: the fault's position in the plan, from 0. alone: check only the
    fault itself, and not whether it fits the rest of the plan. others_known: False if other faults could not be parsed;
    then the fault's condition (`when`), which may name other faults, is not checked.
    """
    here = f"fault {number} ({planned.action})"
    wrong: list[str] = []
    try:
        fault = _made(number, planned)
    except FaultError as error:
        wrong += str(error).splitlines()
    else:
        if not alone:
            wrong += _impossible(plan, fault)
    if alone:
        return wrong
    try:
        check_target(here, planned.target)
    except FaultError:
        pass  # reported already
    else:
        zones, traffic = plan.workload.zones, plan.workload.traffic()
        names = CoordinatorKeys(traffic.ids, traffic.groups)
        wrong += _refused(check_feasible, planned.target, plan.nodes, zones, plan.partitions(), here, names)
        wrong += _of_clients(plan, here, planned)
    if others_known:
        wrong += _waiting(plan, number, planned)
    return wrong


def _of_clients(plan: PlanParts, here: str, planned: FaultSpec) -> list[str]:
    """Return what is wrong with a fault's target if it is a client. here: how messages name the fault, such as "fault 3
    (kill)".
    """
    traffic, kind = plan.workload.traffic(), KINDS.get(planned.action)
    transactional = kind is not None and FaultTrait.NEEDS_TRANSACTIONS in kind.traits and bool(traffic.zombies)
    named = kind is not None and FaultTrait.NEEDS_INSTANCE_IDS in kind.traits and bool(traffic.static_members)
    clients = WorkloadClients(
        traffic.producers, traffic.readers, traffic.zombies, len(traffic.members), traffic.static_members, traffic.loads
    )
    return _refused(check_clients, planned.target, clients, here, transactional=transactional, named=named)


def _refused(check: Callable[..., object], *given: Any, **named: Any) -> list[str]:
    try:
        check(*given, **named)
    except FaultError as error:
        return str(error).splitlines()
    return []


def _impossible(plan: PlanParts, fault: Fault) -> Iterable[str]:
    """Yield reasons why the plan's cluster or runtime cannot have a fault."""
    here, kind = f"fault {fault.id} ({fault.action})", fault.kind
    if plan.runtime == "external":
        yield from _refused(check_external, fault, compose=plan.compose, client=plan.workload.client)
    elif plan.runtime not in kind.worlds:
        where = " or ".join(sorted(kind.worlds & OUR_WORLDS))
        why = f" ({kind.nowhere_else})" if kind.nowhere_else else ""
        yield f"{here}: not possible in runtime {plan.runtime!r}: use {where}{why}"
    nodes, replicas = plan.cluster.nodes, plan.workload.replication_factor
    traffic = plan.workload.traffic()
    setting = PlanCapabilities(
        plan.runtime,
        plan.target,
        nodes,
        replicas,
        plan.upgrade_to,
        transactional=bool(traffic.ids),
        zombies=bool(traffic.zombies),
        groups=bool(traffic.groups),
        loads=bool(traffic.loads),
        named=bool(traffic.static_members),
    )
    if why := kind.refuse(fault.params, setting):
        yield f"{here}: {why}"
    needed = kind.needs_nodes(fault.params)
    if nodes < needed:
        few = "a cluster of one has no links between brokers" if needed == 2 else f"it needs {needed} brokers"
        yield f"{here}: {few}"
    if plan.target != "squall" and plan.runtime != "external" and FaultTrait.NEEDS_OUR_BROKER in fault.traits:
        yield f"{here}: only Squall's own broker can be made to: leave it out"


def _waiting(plan: PlanParts, number: int, planned: FaultSpec) -> list[str]:
    """Return what is wrong with the condition (`when`) for which a fault waits."""
    here = f"fault {number} ({planned.action})"
    if planned.when is None:
        return [] if planned.within_s is None else [
            f"{here}: within_s = {planned.within_s:g}: there is no `when` to wait for"
        ]  # fmt: skip
    uncounted = triggers.uncounted(plan.runtime, plan.target)
    traffic = plan.workload.traffic()
    names = CoordinatorKeys(traffic.ids, traffic.groups)
    scope = triggers.ConditionScope(len(plan.faults), plan.partitions(), plan.nodes, uncounted, names)
    return _refused(triggers.check, here, planned.when, number, scope)
