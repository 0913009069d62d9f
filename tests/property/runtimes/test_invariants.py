"""The simulation's invariants on random histories of `World`, the small world of replicas: nothing is found in correct
partitions, and broken rules are found as the world's own checks find them.
"""

from __future__ import annotations

import pytest

from squall.broker.replication import Partition
from tests.support.effort import examples
from tests.support.replication.broken_rules import (
    BROKEN,
    CommitsBelowMinIsr,
    TruncatesToHighWatermark,
    TrustsTheShrunkIsr,
)
from tests.support.replication.judged_world import judged_walk

SOON = {TruncatesToHighWatermark, TrustsTheShrunkIsr, CommitsBelowMinIsr}
"""Broken rules that a few hundred random walks find. The others need thousands, or a plan that provokes them: `squall
hunt`.
"""


def test_no_invariant_is_broken_on_random_walks_of_a_sound_broker() -> None:
    for seed in range(examples(300)):
        judged = judged_walk(seed)
        assert not judged.broken, f"judged_walk({seed}): {judged.broken}"


@pytest.mark.parametrize("machine", [m for m in BROKEN if m in SOON], ids=lambda machine: machine.__name__)
def test_random_walks_break_an_invariant_where_a_rule_is_broken(machine: type[Partition]) -> None:
    assert any(judged_walk(seed, machine).broken for seed in range(300))
