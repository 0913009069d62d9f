"""Adapts a plan of drawn faults to the speed of this machine: a fault must last long enough to prove its effect by
probes (requests over links).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from squall.chaos.faults.timeouts import PROBE_AT_MOST_S, longer_s, probe_timeout_s
from squall.chaos.plans.plan import Plan, lengthened_for_proofs, write_plan
from squall.chaos.runs.run_store import RunStore
from squall.chaos.runtimes.contract import Link, Runtime

ROUNDS = 3
"""Gives how often each link is probed. In each round all links are probed at the same time, as during a fault."""
LEAST_MS = 0.1
"""Is the smallest value, in ms, that a plan gets as `probe_ms`, the time of this machine's slowest probe."""


async def adapt_to_machine(plan: Plan, runtime: Runtime, store: RunStore, say: Callable[[str], None]) -> Plan:
    """Return the plan with faults that last long enough to prove their effect, at the speed of the probes in this
    cluster, which has just started. Say how much longer each fault lasts.

    The new plan is written to plan.toml, with the measured time of the slowest probe. A plan without faults is
    unchanged, and so is a plan for brokers whose links cannot be probed.
    """
    if not plan.faults or not runtime.links():
        return plan
    probe_ms = max(LEAST_MS, round(await _slowest_ms(runtime), 1))
    longer = lengthened_for_proofs(plan, probe_ms)
    store.plan(write_plan(longer))
    if more_s := longer_s(probe_ms):
        say(
            f"a probe takes {probe_ms:,.0f} ms here: faults wait {probe_timeout_s(probe_ms):.1f} s for one, and last "
            f"{more_s:.1f} s longer each; {longer.time_s:g} s of load"
        )
    return longer


async def _slowest_ms(runtime: Runtime) -> float:
    """Return the time of the slowest probe, in ms. A probe without an answer counts as its time-out."""
    slowest = 0.0

    async def one(link: Link) -> None:
        nonlocal slowest
        began = trio.current_time()
        await runtime.probe(link, timeout_s=PROBE_AT_MOST_S)
        slowest = max(slowest, (trio.current_time() - began) * 1000)

    for _ in range(ROUNDS):
        async with trio.open_nursery() as nursery:
            for link in runtime.links():
                nursery.start_soon(one, link)
    return slowest
