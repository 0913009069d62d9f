"""The incident of the tutorial loses records, and its remedy does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chaos import cli

pytestmark = pytest.mark.gate

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("remedy", "code"), [([], 1), (["--acks", "all", "--min-isr", "2"], 0)])
def test_the_incident_of_the_tutorial_loses_records_and_its_remedy_does_not(
    remedy: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(ROOT / "docs/examples/incident.toml")
    assert cli.run(["sim", "--plan", plan, "--expect", "safe", "--runs", str(tmp_path), *remedy]) == code
    said = capsys.readouterr().out
    page = (ROOT / "docs/tutorial.md").read_text()
    lost = re.search(r"\d+ of \d+ acknowledged\s+records\s+were\s+lost", said)
    assert bool(lost) == (code == 1)
    if lost:
        assert " ".join(lost[0].split()) in page
