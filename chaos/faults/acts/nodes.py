"""Faults of whole nodes: kill, stop, pause, power loss, a crash at a chosen point, a bent clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import trio

from chaos.errors import HarnessError
from chaos.faults.claims import came_back, down_and_up, up_after_trouble
from chaos.faults.stage import POLL_S, Play, Played, Stage
from chaos.faults.targets import Unresolved
from chaos.runtimes.contract import ClockWord, CrashOp, Evidence, FakingTime, NodeState

CAUGHT_UP_WITHIN_S = 60.0
SHARE_TOLERANCE = 0.2
CLOCK_TOLERANCE_MS = 9.0
"""Between a node's two looks at its clocks for one line of its trace it may have to wait for a CPU."""


async def kill(stage: Stage, p: Played) -> None:
    """SIGKILL, restart at the end."""
    await down_and_up(stage, p, stage.runtime.kill, "gone")


async def stop(stage: Stage, p: Played) -> None:
    """Controlled shutdown, restart at the end."""
    await down_and_up(stage, p, stage.runtime.stop_node, "controlled")


async def pause(stage: Stage, p: Played) -> None:
    """Held where it is, let go at the end; by the last one where several faults hold it."""
    runtime = stage.runtime
    await stage.begin_on_running_nodes(p, joins=NodeState.PAUSED)
    held: list[Any] = []
    resumed: list[Any] = []
    lost: list[str] = []

    already = {node for node in p.resolved if stage.others(p, node, "pause")}
    troubles: list[HarnessError] = []

    async def hold(node: int) -> Any:
        try:
            return await (_held_already(stage, node) if node in already else runtime.pause(node))
        except HarnessError as trouble:  # told when the others stand: nobody would let go one that only half does
            troubles.append(trouble)
            return None

    try:
        # All at once: with one after the other the first would be held for longer by as long as each takes to show it.
        held = await stage.together(hold, p.resolved)
        for trouble in troubles:
            raise trouble
        await stage.rest(p)
    finally:
        with trio.CancelScope(shield=True):
            for node in p.resolved:
                state, others = runtime.state(node), stage.others(p, node, "pause")
                stage.release(p, [node])
                if state is not NodeState.PAUSED:
                    lost.append(f"node {node} was {state.value} before it was let go")
                elif others:
                    resumed.append({"node": node, "held_by": sorted(others)})
                else:
                    resumed.append(await runtime.resume(node))
        p.ended = stage.now_ns()
    p.evidence = {"paused": held, "resumed": resumed}
    stopped = all(e.get("state") == "T" and not e["probe"]["ok"] for e in held)
    p.landed = stopped and len(resumed) == len(p.resolved)
    if not p.landed:
        p.error = ", ".join(lost) or "a node was not held, or answered while it should have been"


async def _held_already(stage: Stage, node: int) -> dict[str, Any]:
    """As the evidence of a pause, of a node that another fault holds: that it gives no answer over any link."""
    probes = await stage.probes([link for link in stage.runtime.links() if link.target == node])
    silent = all(not probe.ok for probe in probes)
    state = "T" if silent and stage.runtime.state(node) is NodeState.PAUSED else "?"
    return {"state": state, "joined": True, "probe": probes[0].evidence() if probes else {"ok": True}}


async def rolling(stage: Stage, p: Played) -> None:
    """Each target in turn, and the next one not before every partition is in sync: as brokers are restarted."""
    await _one_by_one(stage, p)


async def upgrade(stage: Stage, p: Played) -> None:
    """As `rolling`, and each comes up as the second version. What it is before and after is not ours to say: the
    machine or the engine says what runs, the broker what it speaks.
    """
    runtime = stage.runtime

    async def was(node: int) -> dict[str, Any]:
        return {"was": await runtime.software(node)}

    async def now(node: int) -> dict[str, Any]:
        return {"is": await runtime.software(node)}

    async def changed(node: int) -> dict[str, Any]:
        return {"changed": await runtime.upgrade_node(node)}

    await _one_by_one(stage, p, before=was, between=changed, after=now)
    steps: list[Any] = p.evidence["steps"]
    same = [step["node"] for step in steps if step["is"]["runs"] in (step["was"]["runs"], None)]
    if p.landed and same:
        p.landed, p.error = False, f"node {', '.join(map(str, same))} runs what it ran before"


Look = Callable[[int], Awaitable[dict[str, Any]]]


async def _nothing(node: int) -> dict[str, Any]:
    return {}


async def _one_by_one(
    stage: Stage, p: Played, *, before: Look = _nothing, between: Look = _nothing, after: Look = _nothing
) -> None:
    """Take each target down, start it, wait until every partition is in sync. before, between, after: what is seen or
    done while it still runs, while it is down and once it runs again, which becomes part of its step.
    """
    runtime = stage.runtime
    take = runtime.kill if p.fault.params["how"] == "kill" else runtime.stop_node
    proof = "gone" if p.fault.params["how"] == "kill" else "controlled"
    await stage.begin_on_running_nodes(p)
    steps: list[dict[str, Any]] = []
    p.evidence = {"steps": steps}
    for node in p.resolved:
        # One at a time is its own: what has another one down brings that up, whatever becomes of this.
        stage.release(p)
        await _its_turn(stage, p, node)
        stage.claim(p, [node])
        step: dict[str, Any] = {"node": node, **await before(node)}
        with stage.taking_down(p, [node]):  # and up at once: who would have it down meanwhile has it afterwards
            step |= {"down": await take(node), **await between(node)}
            steps.append(step)
            step["up"] = await stage.up(node)
        step |= await after(node)
        with trio.move_on_after(max(0.0, stage.left_s(p))):
            while not await _in_sync(stage, runtime.nodes):
                await trio.sleep(POLL_S)
            step["in_sync_ns"] = stage.now_ns()
        if "in_sync_ns" not in step:
            raise HarnessError(f"node {node} was not in sync again within the {p.fault.duration_s:g} s that all have")
    p.ended = stage.now_ns()
    p.landed = all(step["down"].get(proof) and step["up"].get("ready_ns") for step in steps)
    if not p.landed:
        p.error = f"no evidence that every node was {proof}"


async def _its_turn(stage: Stage, p: Played, node: int) -> None:
    """Until a node runs that another fault has down, or is just starting. HarnessError where the time is over first."""
    while stage.is_turning(node) or stage.runtime.state(node) is not NodeState.RUNNING:
        if stage.left_s(p) <= 0:
            raise HarnessError(f"node {node} was {stage.runtime.state(node).value} when it was its turn")
        await trio.sleep(POLL_S)


async def slow(stage: Stage, p: Played) -> None:
    """A share of a CPU; all of it again at the end. It must have been held often enough for that share to be true."""
    name, share = f"fault-{p.fault.id}", float(p.fault.params["share"])
    await stage.begin_on_running_nodes(p)
    begun: list[Any] = []
    healed: list[Any] = []
    try:
        begun = [await stage.runtime.slow_cpu(name, node, share) for node in p.resolved]
        await stage.rest(p)
    finally:
        with trio.CancelScope(shield=True):
            for node in p.resolved:
                healed.append(await stage.runtime.heal_cpu(name, node))
        p.ended = stage.now_ns()
    p.evidence = {"slowed": begun, "healed": healed}
    p.landed = all(each["stops"] and each["ran_share"] <= share + SHARE_TOLERANCE for each in healed)
    if not p.landed:
        p.error = "a node ran for more of the time than it should have"


async def power_loss(stage: Stage, p: Played) -> None:
    """Power goes, for all the targets at one moment; what was not synced may be gone. Power comes back at the end.

    What was before and what follows decides whether some partition had nobody in sync who kept power: so evidence has
    each one's ISR before (`isr`), and the fault's record is kept open until the nodes have again what the others have
    (`caught_up_ns`; -1: not within the time there was).
    """
    await stage.begin_on_running_nodes(p)
    with stage.taking_down(p, p.resolved):
        lost = await stage.runtime.power_loss(p.resolved)
    # It has landed when the nodes have ended: what is taken out of their files then is no part of that.
    async with up_after_trouble(stage, p):
        stage.check_landed(p, cast(int, lost.get("ended_ns") or stage.now_ns()))
    await trio.sleep(max(0.0, stage.left_s(p)))
    up = await stage.up_again(p, p.resolved)
    p.ended = stage.now_ns()
    isr = {name: list(ids) for name, ids in p.view.isr.items()} if p.view is not None else {}
    p.evidence = {"lost": lost, "up": up, "isr": isr, "caught_up_ns": -1}
    told: Any = lost.get("nodes", {})
    p.landed = all("bytes_pending" in told.get(str(node), {}) for node in p.resolved) and came_back(up)
    if not p.landed:
        p.error = "not every node said what was pending on its disk when the power went, and came back"
    stage.note(p)
    with trio.move_on_after(CAUGHT_UP_WITHIN_S):
        while not await _in_sync(stage, p.resolved):
            await trio.sleep(POLL_S)
        p.evidence["caught_up_ns"] = stage.now_ns()


async def _in_sync(stage: Stage, nodes: tuple[int, ...]) -> bool:
    view = await stage.cluster.view()
    held = [name for name, replicas in view.replicas.items() if set(nodes) & set(replicas)]
    return all(view.leaders[name] >= 0 and set(view.replicas[name]) == set(view.isr[name]) for name in held)


async def crash_at(stage: Stage, p: Played) -> None:
    """Killed just before the n-th fsync, write or send since the fault began; restarted at the end."""
    if len(p.resolved) != 1:
        raise HarnessError(f"a crash point is of one node: {p.fault.target} is {len(p.resolved)}")
    (node,) = p.resolved
    await stage.begin_on_running_nodes(p)
    op, nth = cast(CrashOp, p.fault.params["op"]), int(p.fault.params["nth"])
    down = await stage.runtime.crash_at(node, op, nth, within_s=p.fault.duration_s)
    p.evidence = {"down": down}
    if not down.get("gone"):
        p.error = f"node {node} came to no {nth}. {op} within {p.fault.duration_s:g} s"
        return
    stage.has_down(p, [node])
    await trio.sleep(max(0.0, stage.left_s(p)))
    (p.evidence["up"],) = up = await stage.up_again(p, [node])
    p.landed = came_back(up)


async def clock(stage: Stage, p: Played) -> None:
    """The wall clock jumps by an offset and runs at a rate, or jumps to and fro; true again at the end.

    Proven by the nodes' own words only: each must say that it is off by what it was told, and by what its rate has
    added since it said so first.
    """
    offset_ms, rate = float(p.fault.params["offset_ms"]), float(p.fault.params["rate"])
    strobe_s = float(p.fault.params["strobe_ms"]) / 1000
    runtime, bend = stage.runtime, _bender(stage, str(p.fault.params["how"]))
    before = {node: len(runtime.clock_words(node)) for node in p.resolved}
    for node in p.resolved:
        if stage.others(p, node, "clock"):
            raise Unresolved(f"the clock of node {node} is bent already")
    stage.claim(p)
    stage.begun(p)
    bent: list[Any] = []
    try:
        bent = [await bend(node, offset_ms, rate) for node in p.resolved]
        away = True
        while strobe_s and stage.left_s(p) > strobe_s:
            await trio.sleep(strobe_s)
            away = not away
            for node in p.resolved:
                await bend(node, offset_ms if away else 0, rate if away else 1.0)
        await stage.rest(p)
    finally:
        words = {node: list(runtime.clock_words(node))[before[node] :] for node in p.resolved}
        with trio.CancelScope(shield=True):
            for node in p.resolved:
                await bend(node, 0, 1.0)
        p.ended = stage.now_ns()
    said = {str(node): clock_evidence(words[node], offset_ms, rate) for node in p.resolved}
    p.evidence = {"bent": bent, "said": said}
    p.landed = all(each["off"] and (not strobe_s or each["jumps"] > 1) for each in said.values())
    if not p.landed:
        silent = [node for node, each in said.items() if not each["off"]]
        p.error = f"node {', '.join(silent) or 'clocks'} did not show a bent clock in what it said itself"


def _bender(stage: Stage, how: str) -> Callable[[int, float, float], Awaitable[Evidence]]:
    """What bends a node's clock: its offset file, or libfaketime, which knows no rates."""
    runtime = stage.runtime

    async def by_file(node: int, offset_ms: float, rate: float) -> Evidence:
        return await runtime.set_clock(node, offset_ms, rate=rate)

    async def from_below(node: int, offset_ms: float, rate: float) -> Evidence:
        assert isinstance(runtime, FakingTime), "it was looked at"
        return await runtime.fake_time(node, offset_ms)

    if how == "faketime" and not isinstance(runtime, FakingTime):
        raise HarnessError("how = 'faketime': there is no libfaketime under these brokers")
    return from_below if how == "faketime" else by_file


def clock_evidence(words: Sequence[ClockWord], offset_ms: float, rate: float) -> dict[str, Any]:
    """What a node's words prove: how many it said, what it showed first and last while it was away, how often it came
    away or back, and `off`: that most of what it showed is what it was told, and not the true time.
    """
    away: list[float] = []
    matches, since = 0, 0
    last: ClockWord | None = None
    jumps = 0
    for word in words:
        if last is None or (word.set_ms, word.rate) != (last.set_ms, last.rate):
            since, jumps = word.t_ns, jumps + 1
        if (word.set_ms, word.rate) == (offset_ms, rate):
            expected = offset_ms + (rate - 1.0) * (word.t_ns - since) / 1e6
            matches += abs(word.offset_ms - expected) <= CLOCK_TOLERANCE_MS
            away.append(word.offset_ms)
        last = word
    off = 2 * matches > len(away) and max(map(abs, away)) > CLOCK_TOLERANCE_MS
    shown = [round(away[0], 1), round(away[-1], 1)] if away else None
    return {"words": len(words), "jumps": jumps, "off": off, "shown_ms": shown}


ACTS: Mapping[str, Play] = {
    "kill": kill,
    "stop": stop,
    "pause": pause,
    "rolling": rolling,
    "upgrade": upgrade,
    "slow": slow,
    "power_loss": power_loss,
    "crash_at": crash_at,
    "clock": clock,
}
