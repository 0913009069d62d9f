"""Defines the fault `clock`: a broker's wall clock is wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from squall.chaos.errors import HarnessError
from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    ChoiceParameter,
    DrawRules,
    FaultKind,
    FaultTrait,
    NumericParameter,
    Params,
    PlanCapabilities,
    listed,
)
from squall.chaos.faults.targets import UnresolvedTargetError
from squall.chaos.faults.words import Json, mapping, number
from squall.chaos.runtimes.capabilities import fakes_time
from squall.chaos.runtimes.contract import ClockReport, Evidence

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

LEAST_STROBE_MS = 200
"""Is the smallest interval at which a clock may change between wrong and right, in ms: a broker process reads its clock
offset every 50 ms.
"""
CLOCK_TOLERANCE_MS = 9.0
"""Is the accepted error of a clock's offset, in ms. A node reads two clocks for one line of its trace, and may have to
wait for a CPU between the two.
"""
FROM_BELOW = "faketime"


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Make the targets' wall clocks jump by `offset_ms` and run at `rate`. If `strobe_ms` is not 0, change them between
    wrong and right at this interval. All clocks are right again at the end.

    Only the nodes' own traces prove the fault. Each must show that the node's clock is off by `offset_ms`, and by what
    `rate` has added since the trace first showed this setting.
    """
    offset_ms, rate = float(p.fault.params["offset_ms"]), float(p.fault.params["rate"])
    strobe_s = float(p.fault.params["strobe_ms"]) / 1000
    runtime, bend = context.runtime, _clock_setter(context, str(p.fault.params["how"]))
    before = {node: len(runtime.clock_reports(node)) for node in p.resolved}
    for node in p.resolved:
        if context.others_alike(p, node):
            raise UnresolvedTargetError(f"the clock of node {node} is bent already")
    context.claim(p)
    context.begun(p)
    shifted: list[Any] = []
    try:
        shifted = [await bend(node, offset_ms, rate) for node in p.resolved]
        away = True
        while strobe_s and context.left_s(p) > strobe_s:
            await context.sleep(strobe_s)
            away = not away
            for node in p.resolved:
                await bend(node, offset_ms if away else 0, rate if away else 1.0)
        await context.rest(p)
    finally:
        # Before the clocks are right again: later lines would count as other orders.
        words = {node: list(runtime.clock_reports(node))[before[node] :] for node in p.resolved}
        with context.shielded():
            for node in p.resolved:
                await bend(node, 0, 1.0)
        p.ended = context.now_ns()
    said = {str(node): clock_evidence(words[node], offset_ms, rate) for node in p.resolved}
    p.evidence = {"bent": shifted, "said": said}
    silent = [node for node, each in said.items() if not each["off"] or (strobe_s and each["jumps"] < 2)]
    if silent:
        p.error = f"node {', '.join(silent)} did not show a bent clock in what it said itself"
    elif not strobe_s and (undone := [node for node, each in said.items() if each["undone"]]):
        p.error = f"the clock of node {', '.join(undone)} got other orders in between"
    p.landed = not p.error


def _clock_setter(context: FaultContext, how: str) -> Callable[[int, float, float], Awaitable[Evidence]]:
    """Return the function that changes a node's clock; it takes the node, the offset in ms and the rate. how: `offset`
    changes the clock by `Runtime.set_clock`; `faketime` does so by libfaketime, which cannot change the rate.
    """
    runtime = context.runtime

    async def by_file(node: int, offset_ms: float, rate: float) -> Evidence:
        return await runtime.set_clock(node, offset_ms, rate=rate)

    async def from_below(node: int, offset_ms: float, rate: float) -> Evidence:
        assert fakes_time(runtime), "it was looked at"
        return await runtime.fake_time(node, offset_ms)

    if how == FROM_BELOW and not fakes_time(runtime):
        raise HarnessError("how = 'faketime': there is no libfaketime under these brokers")
    return from_below if how == FROM_BELOW else by_file


def clock_evidence(reports: Sequence[ClockReport], offset_ms: float, rate: float) -> dict[str, Any]:
    """Return what a node's reports of its clock prove. offset_ms, rate: the fault's setting.

    The evidence has these values. `words`: the number of reports. `jumps`: the number of reports with another setting
    than the report before, plus one for the first report. `undone`: the number of reports with another setting after
    the fault's setting had appeared. `off`: True if most offsets under the fault's setting are as expected, and the
    largest is above `CLOCK_TOLERANCE_MS`. `shown_ms`: the first and the final one of these offsets.
    """
    away: list[float] = []
    matches, since, undone = 0, 0, 0
    last: ClockReport | None = None
    jumps = 0
    for report in reports:
        if last is None or (report.set_ms, report.rate) != (last.set_ms, last.rate):
            since, jumps = report.t_ns, jumps + 1  # a wrong rate adds to the offset only from here on
        if (report.set_ms, report.rate) == (offset_ms, rate):
            expected = offset_ms + (rate - 1.0) * (report.t_ns - since) / 1e6
            matches += abs(report.offset_ms - expected) <= CLOCK_TOLERANCE_MS
            away.append(report.offset_ms)
        else:
            undone += bool(away)
        last = report
    # Most of the readings and not all: a node that waits for a CPU between its two clocks is off by more than the
    # tolerance.
    off = 2 * matches > len(away) and max(map(abs, away)) > CLOCK_TOLERANCE_MS
    shown = [round(away[0], 1), round(away[-1], 1)] if away else None
    return {"words": len(reports), "jumps": jumps, "undone": undone, "off": off, "shown_ms": shown}


def check(params: Params) -> str:
    """Refuse a strobe that is too fast for broker processes, and a rate together with libfaketime."""
    if 0 < params["strobe_ms"] < LEAST_STROBE_MS:
        return f"strobe_ms = {params['strobe_ms']:g}: 0, or {LEAST_STROBE_MS} at least"
    if params["how"] == FROM_BELOW and params["rate"] != 1:
        return f"rate = {params['rate']:g}: libfaketime's begin with the broker: how = 'offset'"
    return ""


def refuse(params: Params, setting: PlanCapabilities) -> str:
    """Refuse libfaketime outside of containers: only the container images have it built in."""
    faked = params["how"] == FROM_BELOW and setting.runtime != "docker"
    return "libfaketime is in brokers' images only: how = 'offset'" if faked else ""


def describe_evidence(seen: Json) -> str:
    """Describe the wrong clock that each broker's trace shows."""
    words = []
    for node, each in mapping(seen.get("said")).items():
        report = mapping(each)
        shown = [number(ms) for ms in report.get("shown_ms") or ()]
        off = " to ".join(f"{ms / 1000:+,.3f} s" for ms in shown if ms is not None)
        lines = report.get("words")
        words.append(f"Broker {node}'s own trace shows its clock off by {off or 'nothing'}, in {lines} lines.")
    return " ".join(words)


KIND = FaultKind(
    name="clock",
    place=7,
    title="the wall clock jumps, runs faster or slower, or jumps back and forth",
    fault_class="C",
    duration_s=NumericParameter(0.2, 600, 4),
    params={
        "offset_ms": NumericParameter(-86_400_000, 86_400_000, 1000),
        "rate": NumericParameter(0.5, 2, 1),
        "strobe_ms": NumericParameter(0, 60_000, 0),
        "how": ChoiceParameter(("offset", FROM_BELOW), "offset"),
    },
    traits=frozenset({FaultTrait.NEEDS_NODE, FaultTrait.NEEDS_OUR_BROKER}),
    more_traits=lambda params: frozenset({FaultTrait.NEEDS_FAKE_TIME} if params.get("how") == FROM_BELOW else ()),
    check=check,
    refuse=refuse,
    draw=DrawRules(
        params=lambda rng: {
            "offset_ms": rng.choice((-3_600_000, -10_000, -500, 500, 10_000, 3_600_000)),
            "rate": rng.choice((1.0, 1.0, 0.9, 1.1)),
        },
        swarm="first",
    ),
    play=play,
    verify=proofs.clock_was_wrong,
    evidence="the node's own trace shows that its wall clock is wrong by the planned amount",
    middle="the node's trace shows its clock every half second; it shows no other order before the end",
    describe_evidence=describe_evidence,
    describe_effect=lambda params, node, links: f"given a wrong clock{listed(params)}",
)
