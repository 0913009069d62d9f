"""The story of an input that was read twice gives the reason: its reader was answered an old committed offset."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from squall.chaos.runs.recorded import save_at
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.reports.run_files import read_run
from squall.reports.story_index import rendered_stories
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
    [text] = [each.text for each in rendered_stories(files) if each.problem.name == "eos-duplicate"]
    plain = re.sub(r"\s+", " ", text)
    again = re.search(r"At ([\d.]+) s process \d+ \(.*?\).*?, was told to go on from position (\d+), and so reads the "
                      r"input once more\. Position (\d+) was committed at ([\d.]+) s", plain)  # fmt: skip
    assert again is not None, text
    told_s, told, committed, committed_s = map(float, again.groups())
    assert told < committed
    assert committed_s < told_s
    assert re.search(rf"process \d+ was told position {told:.0f} of pipeline-in-0-0, though position {committed:.0f} "
                     "had been committed: so it read that input again", plain)  # fmt: skip
    assert re.search(rf"Process \d+ is told position {told:.0f} of pipeline-in-0-0, though position", plain)
    begun = set(re.findall(r"Broker (\d) is paused", plain))
    assert set(re.findall(r"Broker (\d) is no longer paused", plain)) == begun
    assert len(re.findall(r"\(member ", plain)) <= len(set(re.findall(r"by process (\d+)", plain)))
    assert set(re.findall(r"Process \d+ sends (\w+)", plain)) == set(re.findall(r"^(\w+): record", text, re.M))
    assert len(re.findall(r"^\w+: record", text, re.M)) == plain.count("Output ")


def test_the_story_of_a_shrunk_run_names_the_broker_that_told_the_old_position(tmp_path: Path) -> None:
    """The run records every message between nodes, so the answer is in it."""
    runs = (simulate(plan, stop_at_first=False, messages=True) for plan in seeds(shown(NAMES[1]).plan, SEEDS))
    result = next(run for run in runs if "eos-duplicate" in found(run))
    files = read_run(save_at(result, tmp_path / "run", "told").path)
    [text] = [each.text for each in rendered_stories(files) if each.problem.name == "eos-duplicate"]
    plain = re.sub(r"\s+", " ", text)
    hit = files.faults[0]["target"]["resolved"][0]
    assert re.search(rf"was told position \d+ of pipeline-in-0-0 by broker {hit} \(paused from [\d.]+ s to", plain)
    assert re.search(rf"Process \d+ is told position \d+ of pipeline-in-0-0 \(by broker {hit}\)", plain)
    assert f", asked broker {hit}, was told to go on from position" in plain
    assert f"Broker {hit} is paused" in plain and f"Broker {hit} is no longer paused" in plain
