"""The Docker engine is killed during a run: the verdict says nothing about the cluster, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

from squall.chaos.toolchain.engine import DockerEngine
from tests.shown.kills import FAULT, kills_of
from tests.shown.playing import play
from tests.shown.private_engine import NoEngine
from tests.support.lacks import skip_without


def test_a_run_whose_engine_was_killed_is_unknown_and_its_containers_go_when_the_engine_is_back(
    engine: DockerEngine, tmp_path: Path
) -> None:
    (case,) = [each for each in kills_of("engine", 5, 1) if each.moment == FAULT]
    try:
        row = play(case, tmp_path, "")
    except NoEngine as lacking:
        skip_without(f"a second Docker engine: {lacking}", "call it as root")
    assert row.wrong == []
    assert (row.verdict, row.exit_code) == ("unknown", 2)
    assert any("the Docker engine is gone" in reason for reason in row.reasons), row.reasons
    assert row.acknowledged
