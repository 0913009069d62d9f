"""Checks that what was skipped is reported, one line for each reason, and --no-skips fails because of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.lacks import told_of_skipped, without

ROOT = Path(__file__).resolve().parents[3]
SKIPPING = """
import pytest
from tests.support.lacks import skip_without, without

@pytest.mark.parametrize("n", [1, 2])
def test_an_engine(n):
    skip_without("an engine", "as root: start one")

@pytest.mark.skipif(True, reason=without("jars", "fetch them"))
def test_jars(): ...

def test_that_runs(): ...
"""


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest, as `squall test` calls it, on four tests of which three are skipped."""
    file = folder / "test_skipping.py"
    file.write_text(SKIPPING)
    # A folder of its own, below no conftest.py of ours: the plugin alone.
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.lacks", "-c", str(ROOT / "pyproject.toml")]
    return subprocess.run([*command, *arguments, str(file)], cwd=ROOT, capture_output=True, text=True)


def test_each_reason_has_a_line_with_what_gets_it_and_no_skips_fails(tmp_path: Path) -> None:
    done = ran(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 tests were skipped: needs an engine; get it: as root: start one" in done.stdout
    assert "1 test was skipped: needs jars; get it: fetch them" in done.stdout
    done = ran(tmp_path, "--no-skips")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--no-skips: that fails it" in done.stdout


def test_where_nothing_was_skipped_it_passes(tmp_path: Path) -> None:
    done = ran(tmp_path, "--no-skips", "-k", "that_runs")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_commonest_reason_is_first() -> None:
    assert told_of_skipped(["b", "a", "a"]) == ["2 tests were skipped: a", "1 test was skipped: b"]
    assert told_of_skipped([]) == []
    assert without("x,\n y", "z") == "needs x, y; get it: z"
