"""Faults of the workload's clients: one crashes without a close, or stands still. The harness does both."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from chaos.faults.stage import POLL_S, Play, Played, Stage
from chaos.faults.targets import Unresolved
from chaos.faults.vocabulary import check_target
from workloads.control import Handle

FOLLOWED_WITHIN_S = 10.0
"""Until a client that may go on, or be followed, has done something."""


async def client(stage: Stage, p: Played) -> None:
    """As its parameter says."""
    handle = _handle(stage, p)
    await (_crash if p.fault.params["how"] == "crash" else _pause)(stage, p, handle)


async def _crash(stage: Stage, p: Played, handle: Handle) -> None:
    """The process is gone at once, and has a successor at the end: with another id in the history."""
    me = p.fault.id
    stage.begun(p)
    gone = handle.crash(me)
    if gone is None:
        raise Unresolved(f"{handle.name} has no process just now")
    try:
        await stage.rest(p)
    finally:
        handle.replace(me)
        p.ended = stage.now_ns()
    at_end = len(handle.processes)
    with trio.move_on_after(FOLLOWED_WITHIN_S):
        while handle.processes[-1] == gone:
            await trio.sleep(POLL_S)
    p.evidence = {"client": handle.name, "process": gone, "followed_by": handle.processes[-1]}
    p.landed = handle.processes[-1] != gone and handle.processes[at_end - 1] == gone
    if not p.landed:
        p.error = f"process {gone} of {handle.name} has no successor, or had one before it was over"


async def _pause(stage: Stage, p: Played, handle: Handle) -> None:
    """It begins nothing until the end. What counts as proof is the gap: something before, nothing then, more after."""
    me = p.fault.id
    stage.begun(p)
    before = handle.done
    handle.hold(me)
    try:
        await stage.rest(p)
    finally:
        during = handle.done - before
        handle.let_go(me)
        p.ended = stage.now_ns()
    with trio.move_on_after(FOLLOWED_WITHIN_S):
        while handle.done == before + during:
            await trio.sleep(POLL_S)
    after = handle.done - before - during
    p.evidence = {"client": handle.name, "before": before, "during": during, "after": after}
    p.landed = before > 0 and during == 0 and after > 0
    if not p.landed:
        p.error = f"{handle.name} did not stand still, or has done nothing before or after"


def _handle(stage: Stage, p: Played) -> Handle:
    kind, number = check_target("target", p.fault.target)
    if stage.clients is None:
        raise Unresolved("there is no workload")
    all_of = stage.clients.producers if kind == "producer" else stage.clients.readers
    if number and int(number) >= len(all_of):
        raise Unresolved(f"there is no {kind} {number}: the workload has {len(all_of)}")
    return all_of[int(number)] if number else stage.rng(p, "target").choice(all_of)


ACTS: Mapping[str, Play] = {"client": client}
