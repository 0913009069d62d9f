"""The simulation's invariants over random histories of the little world of replicas: silent over a sound broker, and
loud over broken rules, as that world's own checks are."""

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
"""What a few hundred walks find. The others need thousands, or a plan that provokes them: `squall hunt`."""


def test_no_invariant_is_broken_on_random_walks_of_a_sound_broker() -> None:
    for seed in range(examples(300)):
        judged = judged_walk(seed)
        assert not judged.broken, f"judged_walk({seed}): {judged.broken}"


@pytest.mark.parametrize("machine", [m for m in BROKEN if m in SOON], ids=lambda machine: machine.__name__)
def test_random_walks_break_an_invariant_where_a_rule_is_broken(machine: type[Partition]) -> None:
    assert any(judged_walk(seed, machine).broken for seed in range(300))
