"""Golden scripts of replication, played by the real state machine.

The format: `tests/support/replication/replication_script.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.replication.replication_script import run_script

UNSAFE = "truncation=high-watermark"
SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_story_is_told_as_before(path: Path, update: bool) -> None:
    said = path.read_text()
    now = run_script(said)
    if update:
        path.write_text(now)
    else:
        assert now == said


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_nothing_goes_wrong_but_where_a_rule_is_broken(path: Path) -> None:
    told = path.read_text()
    assert ("WRONG" in told) == ("broken=" in told or UNSAFE in told)


@pytest.mark.parametrize("path", [path for path in SCRIPTS if UNSAFE in path.read_text()], ids=lambda path: path.stem)
def test_the_same_story_with_leader_epochs_goes_well(path: Path) -> None:
    """E4 (truncation by leader epochs): the same commands happen, and nothing is lost."""
    assert "WRONG" not in run_script(path.read_text().replace(UNSAFE, "truncation=epoch"))
