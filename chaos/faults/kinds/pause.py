"""Defines the fault `pause`: a process is stopped, as in a long garbage collection, and then continues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.chaos.errors import HarnessError
from squall.chaos.faults import proofs
from squall.chaos.faults.kind import EVERYWHERE, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.words import Json, mapping, objects, process, texts
from squall.chaos.runtimes.contract import NodeState

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Pause the nodes, and resume them at the end. If several faults hold a node, the last of them resumes it.

    Each process is inspected after it has been paused, at a random moment in the middle, and before the end. It must be
    stopped each time, and have done nothing in between.
    """
    runtime, looks = context.runtime, list[Any]()

    async def look() -> None:
        looks.append(await context.activities(p.resolved))

    await context.begin_on_running_nodes(p, joins=NodeState.PAUSED)
    held: list[Any] = []
    resumed: list[Any] = []
    lost: list[str] = []

    already = {node for node in p.resolved if context.others(p, node, FaultTrait.PAUSES)}
    troubles: list[HarnessError] = []

    async def hold(node: int) -> Any:
        try:
            return await (_held_already(context, node) if node in already else runtime.pause(node))
        except (
            HarnessError
        ) as trouble:  # Raised only once all nodes are paused: otherwise the paused nodes would not be resumed.
            troubles.append(trouble)
            return None

    try:
        # All at once: in turn, the first node would stay paused until all others have been inspected.
        held = await context.together(hold, p.resolved)
        for trouble in troubles:
            raise trouble
        await look()
        await context.rest(p, look)
        await look()
    finally:
        with context.shielded():
            for node in p.resolved:
                # No checkpoint before the release: of two faults that end together, one must find itself the last, and
                # resume.
                state, others = runtime.state(node), context.others(p, node, FaultTrait.PAUSES)
                context.release(p, [node])
                if state is not NodeState.PAUSED:
                    lost.append(f"node {node} was {state.value} before it was let go")
                elif others:
                    resumed.append({"node": node, "held_by": sorted(others)})
                else:
                    resumed.append(await runtime.resume(node))
        p.ended = context.now_ns()
    p.evidence = {"paused": held, "looks": looks, "resumed": resumed}
    missing = proofs.held(p.evidence, p.fault.params, p.resolved)
    p.error = ", ".join(lost) or missing or None
    p.landed = p.error is None


async def _held_already(context: FaultContext, node: int) -> dict[str, Any]:
    """Return the evidence of a pause for a node that another fault has already paused: the node answers no probe over
    any link.
    """
    probes = await context.probes([link for link in context.runtime.links() if link.target == node])
    silent = all(not probe.ok for probe in probes)
    state = "T" if silent and context.runtime.state(node) is NodeState.PAUSED else "?"
    return {"state": state, "joined": True, "probe": probes[0].evidence() if probes else {"ok": True}}


def describe_evidence(seen: Json) -> str:
    """Say what shows that each node was stopped, and in which state the node was found afterwards."""
    words = []
    for act in objects(seen.get("paused")):
        probe = mapping(act.get("probe"))
        answer = "it ANSWERED a probe" if probe.get("ok") else f"a probe got no answer ({probe.get('error')})"
        words.append(f"{_held(act)}; {answer}.")
    if (did := proofs.did_meanwhile(seen.get("looks"))) is not None:
        words.append(f"Between the first look and the last one {did}.")
    for act in objects(seen.get("resumed")):
        if "held_by" in act:
            words.append(f"Broker {act.get('node')} was left paused, by fault {', '.join(texts(act['held_by']))}.")
            continue
        if act.get("simulated"):
            words.append("Afterwards it ran again.")
            continue
        words.append(f"Afterwards in state {act.get('engine', act.get('state'))} again.")
    return " ".join(words)


def _held(act: Json) -> str:
    """Say what shows that a node was stopped: the kernel for a process, the container engine for a container, or the
    simulator. If another fault had already paused the node, say so. act: the evidence of the pause.
    """
    if act.get("joined"):
        return "Another fault held it already"
    if act.get("simulated"):
        return f"The simulator holds {process(act)}"
    if act.get("container"):
        return f"The engine shows container {act['container']} as {act.get('engine')}"
    return f"The kernel shows {process(act)} in state {act.get('state')}"


KIND = FaultKind(
    name="pause",
    place=3,
    title="SIGSTOP, SIGCONT at the end",
    fault_class="P",
    duration_s=NumericParameter(0.1, 60, 3),
    traits=frozenset({FaultTrait.PAUSES, FaultTrait.BY_SIGNAL, FaultTrait.OUT_OF_SYNC}),
    worlds=EVERYWHERE,
    draw=DrawRules(lasts_s=(1.0, 5.0), by_default=True, by_default_on_foreign=True, swarm="first"),
    play=play,
    verify=proofs.held,
    evidence="the process is stopped and answers nothing at the begin, and is stopped in the middle and at the end; it "
    "used no CPU time in between",
    middle="its state at a drawn moment, and its CPU time from begin to end (in a simulation: writes, fsyncs, sends)",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: "paused",
)
