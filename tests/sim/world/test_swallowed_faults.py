"""Every kind of fault in simulated worlds that swallow it (`swallowing`): it has no effect there, or is undone too
early.

Then measurements show no fault, so none may count as effective. A new kind of fault must name such a world in
`SWALLOWED`, or a test here fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import pytest
import trio
import trio.testing

from squall.chaos.faults.kinds import KINDS
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import simulate
from squall.chaos.runtimes.contract import NodeState, StreamDirection
from squall.checkers.fault_classes import not_landed
from tests.sim.world.swallowing import (
    LASTS_S,
    alive_between,
    bits_that_stay,
    blind_wires,
    childless_zombie,
    clock_true_between,
    cut_in,
    deaf,
    deaf_controller,
    deaf_to_topics,
    files_that_stay,
    freed_quota,
    immortal,
    immortal_client,
    immortal_load,
    lazy_successor,
    let_go_between,
    let_go_early,
    let_go_for_a_moment,
    never_paused,
    no_crash_point,
    no_twin,
    polite_member,
    restless_client,
    restless_zombie,
    same_version,
    sleeping_zombie,
    steady_clock,
    twin_of_another_name,
    unlimited_cpu,
    whole_disk,
    wires_healed_between,
    wires_healed_soon,
)
from tests.sim.world.test_every_kind import drawn, plan_of
from tests.unit.faults import test_acts

Patch = pytest.MonkeyPatch
NEVER_SIMULATED = {kind.name for kind in KINDS.values() if "sim" not in kind.worlds}
"""Kinds that the simulator cannot play. `tests.unit.faults.test_acts` swallows them."""


@dataclass(frozen=True)
class Swallowed:
    """A world that swallows faults of a kind, and the faults to try: by default those that seeds draw."""

    how: str
    by: Callable[[Patch], None]
    params: dict[str, Any] = field(default_factory=dict)
    target: str = ""
    lasts_s: float = 0.0
    """The duration of the fault in seconds; 0: as drawn."""
    found: tuple[str, ...] = ()
    """Anomalies that the run may find besides."""


LINKS = (Swallowed("blind", blind_wires),)
SWALLOWED: dict[str, Sequence[Swallowed]] = {
    "kill": (Swallowed("immortal", immortal), Swallowed("alive-between", alive_between, lasts_s=LASTS_S)),
    "stop": (Swallowed("deaf", deaf),),
    "pause": (
        Swallowed("never", never_paused),
        Swallowed("let-go", let_go_early),
        Swallowed("let-go-between", let_go_between, lasts_s=LASTS_S),
        Swallowed("let-go-for-a-moment", let_go_for_a_moment, lasts_s=LASTS_S),
    ),
    "partition": tuple(
        Swallowed(f"{name}-{manner}", by, {"shape": "isolate", "manner": manner, "side": "both"}, "node:2")
        for manner in ("refuse", "drop", "hold")
        for name, by in (("blind", blind_wires), ("healed", wires_healed_soon))
    )
    + tuple(
        Swallowed(f"healed-between-{manner}", wires_healed_between, {"manner": manner}, "node:2", LASTS_S)
        for manner in ("refuse", "drop")
    )
    + (
        *(
            Swallowed(f"answers-alone-{manner}", cut_in(StreamDirection.BACK), {"manner": manner}, "node:2")
            for manner in ("drop", "hold")
        ),
        Swallowed("both-ways", cut_in(StreamDirection.BOTH), {"shape": "one-way", "manner": "drop"}, "node:2"),
    ),
    "crash_at": (Swallowed("no-point", no_crash_point),),
    "power_loss": (Swallowed("immortal", immortal),),
    "clock": (
        Swallowed("steady", steady_clock),
        Swallowed("steady-strobe", steady_clock, {"strobe_ms": 300}),
        Swallowed("true-between", clock_true_between, lasts_s=LASTS_S),
    ),
    "slow": (Swallowed("unlimited", unlimited_cpu), Swallowed("freed", freed_quota)),
    "disk": tuple(
        Swallowed(f"whole-{how}-{op}", whole_disk, {"how": how, "op": op, "nth": 1})
        for how, op in (("EIO", "fsync"), ("slow", "write"), ("ENOSPC", "write"))
    ),
    "bit_rot": (Swallowed("kept", bits_that_stay),),
    "damage": (
        Swallowed("kept", files_that_stay, {"how": "file"}),
        Swallowed("uncut", files_that_stay, {"how": "tail"}),
    ),
    "leadership": tuple(
        Swallowed(f"accepted-{how}", deaf_controller, {"how": how}, "controller" if how == "resign" else "")
        for how in ("preferred", "move", "resign")
    ),
    "topics": tuple(
        Swallowed(
            f"accepted-{how}",
            deaf_to_topics,
            {"how": how, "value": value},
            found=found,
        )
        for how, value, found in (
            ("churn", 0, ("stuck-producer",)),
            ("partitions", 0, ("stuck-producer",)),
            ("delete_records", 0, ("offset-regression",)),
            ("min_isr", 1, ()),
            ("retention", 1000, ()),
        )
    ),
    "client": (
        Swallowed("immortal", immortal_client, {"how": "crash"}, "producer"),
        Swallowed("restless", restless_client, {"how": "pause"}, "producer"),
        Swallowed("restless-reader", restless_client, {"how": "pause"}, "reader"),
    ),
    "zombie": (
        Swallowed("restless", restless_zombie),
        Swallowed("sleeping", sleeping_zombie),
        Swallowed("childless", childless_zombie),
        Swallowed("lazy-successor", lazy_successor),
    ),
    "member_crash": (Swallowed("immortal", immortal_client), Swallowed("polite", polite_member, target="member:0")),
    "load_kill": (Swallowed("immortal", immortal_load),),
    "member_twin": (Swallowed("alone", no_twin), Swallowed("nameless", twin_of_another_name)),
    "rolling": (Swallowed("deaf", deaf, {"how": "stop"}), Swallowed("immortal", immortal, {"how": "kill"})),
    "upgrade": (Swallowed("same", same_version),),
    "reset": LINKS,
    **dict.fromkeys(
        ("packet_loss", "protocol", "bandwidth", "slicer", "limit_data", "reset_peer", "slow_close"), LINKS
    ),
    **dict.fromkeys(("flapping", "zone_isolation"), (*LINKS, Swallowed("healed", wires_healed_soon))),
    "latency": (
        *LINKS,
        Swallowed("healed", wires_healed_soon),
        Swallowed("healed-between", partial(wires_healed_between, since_s=0.7, until_s=2.9), lasts_s=LASTS_S),
    ),
}
CASES = [
    pytest.param(name, case, id=f"{name}-{case.how}")
    for name, cases in SWALLOWED.items()
    if name not in NEVER_SIMULATED
    for case in cases
]


def test_each_kind_has_a_world_that_swallows_it() -> None:
    assert set(SWALLOWED) == set(KINDS)
    assert all(SWALLOWED.values())


def honest(name: str, case: Swallowed) -> Plan:
    """Return a plan whose only fault takes effect in an unpatched world."""
    return _honest(name, tuple(sorted(case.params.items())), case.target, case.lasts_s)


@cache
def _honest(name: str, params: tuple[tuple[str, Any], ...], target: str, lasts_s: float) -> Plan:
    tried = []
    for seed in range(8):
        plan = _asked(name, dict(params), target, lasts_s, seed)
        result = simulate(plan, stop_at_first=False)
        assert result.judgement is not None
        (fault,) = result.judgement.faults
        why = not_landed(fault)
        if why is None:
            return plan
        tried.append(why)
    raise AssertionError(f"no seed lands: {tried}")


def _asked(name: str, params: Mapping[str, Any], target: str, lasts_s: float, seed: int) -> Plan:
    kind = KINDS[name]
    plan, fault = plan_of(kind, seed), drawn(kind, seed)
    fault |= {"params": {**fault["params"], **params}, "target": target or fault["target"]}
    fault["duration_s"] = lasts_s or fault["duration_s"]
    return make_plan({**plan.model_dump(mode="json"), "faults": [fault]})


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_fault_that_is_swallowed_has_not_landed(name: str, case: Swallowed, monkeypatch: Patch) -> None:
    plan = honest(name, case)
    case.by(monkeypatch)
    result = simulate(plan, stop_at_first=False)
    assert result.judgement is not None
    (fault,) = result.judgement.faults
    assert not_landed(fault), fault
    # What accepts a request and does nothing may also be a finding about the cluster: then it is one.
    assert result.verdict == ("invalid" if case.found else "unknown"), (result.verdict, result.reasons)
    assert result.anomalies == case.found


@pytest.mark.parametrize("name", sorted(NEVER_SIMULATED))
async def test_a_fault_that_no_simulation_has_is_swallowed_as_well(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    honest_world, world = test_acts.World(), test_acts.World(hits=0)
    assert (await test_acts.played(honest_world, name))[-1]["evidence"]
    last = (await test_acts.played(world, name))[-1]
    assert last["evidence"] is None
    assert last["error"]
    assert set(world.states.values()) == {NodeState.RUNNING}
