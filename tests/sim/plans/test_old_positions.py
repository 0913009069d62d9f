"""The story of an input that was read twice names why: its reader was told an old position."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chaos.runs.saved import save
from chaos.runs.simulation import simulate
from reports.run_files import read_run
from reports.telling import tellings_of
from tests.sim.plans.test_plans import SEEDS, found, seeds, shown

NAMES = [
    "a_coordinator_that_has_a_successor_tells_old_positions",
    "a_coordinator_that_stood_still_tells_old_positions",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_story_says_who_was_told_an_old_position_and_when_a_newer_one_was_committed(
    name: str, tmp_path: Path
) -> None:
    runs = (simulate(plan, stop_at_first=False) for plan in seeds(shown(name).plan, SEEDS))
    result = next(run for run in runs if "eos-duplicate" in found(run))
    files = read_run(save(result, tmp_path, "told", tables=False).path)
    [text] = [each.text for each in tellings_of(files) if each.problem.name == "eos-duplicate"]
    plain = re.sub(r"\s+", " ", text)
    again = re.search(r"At ([\d.]+) s process \d+ \(.*?\).*?, was told to go on from position (\d+), and so reads the "
                      r"input once more\. Position (\d+) was committed at ([\d.]+) s", plain)  # fmt: skip
    assert again is not None, text
    told_s, told, committed, committed_s = map(float, again.groups())
    assert told < committed
    assert committed_s < told_s
