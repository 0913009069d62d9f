"""A broken invariant of groups is reported in words: the group, the field, its value, and the value after a replay."""

from __future__ import annotations

import re
from pathlib import Path

from squall.chaos.mutants import find
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.reports.run_files import read_run
from squall.reports.run_list import one
from squall.reports.story_index import rendered_stories

SAID = re.compile(
    r"group squall-group: committed offset of groups-0-\d is (\d+) \(record (\d+)\), "
    r"and a replay of the log gives (\d+) \(record (\d+)\)(; also differs?: (groups-0-\d(, )?)+(, \d more)?)?"
)


def test_a_coordinator_that_is_not_its_log_is_told_by_its_group_its_partition_and_their_records(tmp_path: Path) -> None:
    result = simulate(find("40").plan(0), mutant="40")
    assert result.failure is not None
    assert result.failure.name == "group-state-is-a-replay"
    said = SAID.fullmatch(result.violations[0].message)
    assert said, result.violations[0].message
    known, replayed = int(said[2]), int(said[4])
    run = save(result, tmp_path, "again", latest=False).path
    (telling,) = rendered_stories(read_run(run))
    assert telling.summary == f"Group{said[0].removeprefix('group')}."
    written = next(answer.text for answer in telling.answers if answer.question == "When it was written")
    assert (
        f"Record {known} of {telling.problem.where}: as the coordinator knew it, it commits {said[1]} for " in written
    )
    assert f"Record {replayed} of {telling.problem.where}: in the log, it commits {said[3]} for groups-0-" in written
    assert f"Record {known}: as the coordinator knew it" in telling.text
    assert max(map(len, one(run).findings)) <= 200
