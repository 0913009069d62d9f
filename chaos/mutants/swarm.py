"""Draws the plans of `squall sim`. Most are random plans (`plans.swarm`). A small share are plans that were made to
hunt a mutant; they run on a broker without that mutant.

A plan that provokes one bug reaches code that random plans hardly reach, and so it also finds other bugs. One bug was
found in 0.3 CPU seconds by a plan for another mutant, after 110 CPU seconds of random plans had not found it.
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
    """Return the plan of one seed: a random plan or, for a small share of seeds, a plan made to hunt a mutant.
    workload: the workload's name; None: the seed draws it. mutant: the id or name of the mutant that is planted. If the
    seed draws a plan made for this mutant, it gets a random plan instead.
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
