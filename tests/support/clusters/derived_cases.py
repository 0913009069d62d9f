"""Situations that break the invariants of derived state and of what is durable, each beside the nearest sound one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chaos.runtimes.sim.invariants.known import Known
from tests.support.clusters.known_partitions import decision, known
from tests.support.clusters.quorum_cases import Arguments, Case

NOTHING = known()


def decided(before: Any, now: Any, about: Known = NOTHING) -> Arguments:
    return before, now, about


DERIVED: dict[str, list[Case]] = {
    "image-is-a-replay": [("it is", ((1, "a"), (1, "b")), ((1, "a"), (1, "a")))],
    "reassignment-ends-in-sync": [
        (
            "an added replica is not in sync",
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1, 2))),
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1, 2, 3))),
        ),
        (
            "it goes on",
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1, 2))),
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1,), adding=(3,))),
        ),
        (
            "it is called off",
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1, 2))),
            decided(decision(isr=(1, 2), adding=(3,)), replace(decision(1, 1, 6, (1, 2)), replicas=(1, 2))),
        ),
    ],
}
