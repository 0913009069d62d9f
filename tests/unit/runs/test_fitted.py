"""Drawn faults last as long as the machine needs to prove them, and a plan says what was measured."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.faults.timeouts import PROBE_AT_MOST_S, PROBE_TIMEOUT_S, longer_s
from squall.chaos.plans.plan import Plan, lengthened_for_proofs, make_plan, read_plan, with_schedule
from squall.chaos.runs.fitted import adapt_to_machine
from squall.chaos.runs.run_store import PLAN, MemoryRunStore
from squall.chaos.runtimes.contract import Link, ProbeResult
from tests.unit.faults.test_nemesis import Asked, VirtualEnv, World

LINKS = ("partition", "latency")


class Slow(World):
    """Has probes that take this long, unless they may not."""

    def __init__(self, probe_s: float) -> None:
        super().__init__()
        self.probe_s, self.probes = probe_s, 0

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        self.probes += 1
        found = await super().probe(link, timeout_s=timeout_s)
        takes_s = self.probe_s + found.round_trip_ms / 1000 if found.ok else timeout_s
        await trio.sleep(min(takes_s, timeout_s))
        ok = found.ok and takes_s < timeout_s
        return ProbeResult(ok, min(takes_s, timeout_s) * 1000, None if ok else "timed out")


def drawn(**values: Any) -> Plan:
    return with_schedule({"seed": 7, **values}, LINKS)


async def on(world: World, plan: Plan) -> tuple[Plan, MemoryRunStore, list[str]]:
    papers, said = MemoryRunStore("a run"), list[str]()
    runtime: Any = world
    return await adapt_to_machine(plan, runtime, papers, said.append), papers, said


async def landed(world: World, plan: Plan) -> list[bool]:
    runtime: Any = world
    timeline = [fault for fault in plan.timeline() if fault.action == "partition"]
    made = Nemesis(
        runtime, timeline, 1, env=VirtualEnv(), cluster=Asked(), record=lambda line: None, probe_ms=plan.probe_ms
    )
    await made.play()
    return [each.landed for each in made.played]


async def test_a_quick_machine_plays_what_the_seed_drew(autojump_clock: trio.testing.MockClock) -> None:
    plan, papers, said = await on(Slow(0.02), drawn())
    assert plan.model_copy(update={"probe_ms": None}) == drawn()
    assert tomllib.loads(papers.files()[PLAN].decode())["probe_ms"] == plan.probe_ms == pytest.approx(20.5, abs=0.2)
    assert said == []


async def test_on_a_slow_machine_a_cut_lands_that_could_not_be_proven(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    world = Slow(0.75)
    assert not any(await landed(world, drawn())), "no probe answers within the time of a quick machine"
    plan, papers, said = await on(world, drawn())
    cuts = await landed(world, plan)
    assert cuts and all(cuts)
    assert "a probe takes 750 ms here: faults wait 2.8 s for one, and last 6.3 s longer each" in said[0]
    (tmp_path / PLAN).write_bytes(papers.files()[PLAN])
    assert read_plan(tmp_path / PLAN) == plan, "a replay has these faults, and needs no measurement"


@pytest.mark.parametrize("probe_ms", [0.5, 58.0, 59.0, 120.0, 9_000.0])
def test_each_fault_lasts_longer_and_the_gaps_between_them_stay(probe_ms: float) -> None:
    before, after = drawn(time_s=60), lengthened_for_proofs(drawn(time_s=60), probe_ms)
    more_s = longer_s(probe_ms)
    assert 0 <= more_s <= 3 * (PROBE_AT_MOST_S - PROBE_TIMEOUT_S)
    assert (more_s > 0) == (probe_ms > 58.4)
    for number, (was, now) in enumerate(zip(before.timeline(), after.timeline(), strict=True)):
        assert (now.action, now.target, now.params) == (was.action, was.target, was.params)
        assert now.duration_s == pytest.approx(was.duration_s + more_s, abs=0.02)
        assert now.at_s == pytest.approx(was.at_s + number * more_s, abs=0.02)
    assert after.time_s == pytest.approx(before.time_s + len(before.faults) * more_s, abs=0.02)


async def test_nothing_is_measured_where_nothing_is_to_be_proven(autojump_clock: trio.testing.MockClock) -> None:
    world, bare = Slow(0.75), make_plan({"seed": 7})
    plan, papers, said = await on(world, bare)
    assert (plan, world.probes, said) == (bare, 0, [])
    assert not papers.files()[PLAN]
