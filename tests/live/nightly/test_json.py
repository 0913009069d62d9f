"""`squall nightly --json` prints one object and nothing else on standard output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.json_output import checked
from tests.support.nightly.played import SMALL, nightly, results


@pytest.mark.night("a night of runs: minutes")
def test_a_night_is_told_run_by_run(tmp_path: Path) -> None:
    night = tmp_path / "night"
    code, out, errors = nightly(*SMALL, "--no-report", "--seed", "1", "--out", night, "--json")
    told = checked("nightly", out)
    assert told["exit"] == code == 0, errors
    assert "Nothing forbidden was found." in errors and told["sentence"].startswith("Nothing forbidden was found")
    (run,) = told["runs"]
    assert [run["attempts"], told["counts"]["valid"]] == [results(night), 1]
    assert json.loads((night / "summary.json").read_text()) == told
