"""Defines the fault `bit_rot`: bits flip in data that was written long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import ChoiceParameter, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.targets import UnresolvedTargetError
from squall.chaos.faults.words import Json, objects
from squall.chaos.runtimes.damage import Where

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Flip bits in a closed segment of each target. Nothing undoes this. The duration is the time in which the cluster
    may notice the damage.
    """
    context.begun(p)
    bits, where = int(p.fault.params["bits"]), cast(Where, p.fault.params["where"])
    rotten = [await context.runtime.rot(node, bits=bits, where=where) for node in p.resolved]
    if not any(each.get("path") for each in rotten):
        raise UnresolvedTargetError("there is no closed segment to rot")
    await context.rest(p)
    p.ended = context.now_ns()
    p.evidence = {"rotten": rotten}
    p.landed = any(each.get("before") != each.get("after") for each in rotten)
    if not p.landed:
        p.error = "the files are what they were"


def describe_evidence(seen: Json) -> str:
    """Name the files, and where in them bits were flipped."""
    rotten = [each for each in objects(seen.get("rotten")) if each.get("path")]
    flipped = (f"{each['path']} at byte {each.get('offset')}" for each in rotten)
    return f"Flipped: {', '.join(flipped) or 'nothing'}."


KIND = FaultKind(
    name="bit_rot",
    place=20,
    title="bits flip in a closed segment of a partition",
    fault_class="D",
    duration_s=NumericParameter(0.1, 600, 1),
    params={"bits": NumericParameter(1, 1000, 1), "where": ChoiceParameter(("checked", "epoch"), "checked")},
    traits=frozenset({FaultTrait.DAMAGES_FILES, FaultTrait.NEEDS_FILES}),
    draw=DrawRules(params=lambda rng: {"bits": rng.choice((1, 8))}),
    play=play,
    verify=proofs.rotten,
    evidence="the file's digest before and after",
    middle="none: the bits flip in one moment, and nothing flips them back",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: "losing bits on its disk",
)
