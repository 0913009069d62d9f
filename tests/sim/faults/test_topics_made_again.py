"""A topic is deleted and created again while groups read it: with a broker that forgets the groups' offsets, and with
one that keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from squall.chaos.mutants.group_plans import GROUPS_LOAD, PIPELINE_LOAD, group_plan
from squall.chaos.mutants.hunt_plans import fault
from squall.chaos.runs.simulation import simulate


@pytest.mark.parametrize("load", [GROUPS_LOAD, PIPELINE_LOAD], ids=lambda load: load["name"])
@pytest.mark.parametrize("mutant", [None, "81"])
def test_a_group_that_begins_in_the_new_topic_where_it_was_in_the_old_one_is_found(
    load: Mapping[str, Any], mutant: str | None
) -> None:
    again = fault(2.5, 2.0, "topics", "all", how="remake")
    result = simulate(group_plan(1, [again], [], time_s=8.0, load=load), mutant=mutant, stop_at_first=False)
    assert result.verdict == ("invalid" if mutant else "valid"), result.reasons
    # A commit that was under way when its process crashed may explain the position, but not that nothing is there.
    assert set(result.anomalies) <= {"lost-position", "thrown-back"}
