"""Adds the plans of hunts for mutants to the random plans of the swarm: some seeds run such a plan on a correct broker.

A plan that brings one bug to light reaches code paths that no independent draws reach. It also finds other bugs: one
was found by another mutant's plan in 0.3 CPU seconds, after the swarm had not found it in 110.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.draws import rng_for
from squall.chaos.mutants.hunt import sound
from squall.chaos.mutants.registry import MUTANTS, find
from squall.chaos.plans.swarm import swarm_plan, workload_of
from squall.workloads.registry import DEFAULT

if TYPE_CHECKING:
    from squall.chaos.plans.plan import Plan

SHARE = 0.06
"""Gives the share of the swarm's seeds whose plan is one made to hunt a mutant."""


def drawn_plan(seed: int, *, workload: str | None = DEFAULT, mutant: str | None = None) -> Plan:
    """Return the random plan of one seed. workload: None: the seed draws it. mutant: the id or name of a mutant that is
    hunted. Plans made for this mutant are not used: such a seed gets a plan of the swarm.
    """
    rng = rng_for(seed, "swarm", "hunts")
    if rng.random() < SHARE:
        load = workload_of(seed) if workload is None else workload
        plans = [each for each in MUTANTS.values() if each.workload == load and not each.is_setting]
        if plans:
            chosen = rng.choice(plans)
            if mutant is None or chosen is not find(mutant):
                return sound(chosen, chosen.plan(seed))
    return swarm_plan(seed, workload=workload)
