"""ARCHITECTURE.md tells of every folder."""

from __future__ import annotations

import re

import pytest

from tests.architecture.source import PACKAGES, ROOT

FOLDERS = sorted(
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package, *(ROOT / package).rglob("*"))
    if path.is_dir() and any(path.glob("*.py")) and not (path / "scenario.py").exists()
)
"""A workload's folder has a page instead: `test_workloads.py`."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_has_a_sentence_in_the_map(folder: str) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    told = [line for line in text.splitlines() if re.search(rf"`{re.escape(folder)}/?`", line)]
    assert any(len(line.split()) >= 6 for line in told), f"ARCHITECTURE.md: a line with `{folder}/` and what it is for"
