"""The script that makes fresh machines: what it copies, what it tells of the tests, and its exit code for several."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests/fresh/machine.sh"


def test_runs_and_nights_are_ignored_by_git_and_packages_of_that_name_are_not() -> None:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/runs/", "/nights/"} <= set(lines)
    assert not {"runs/", "nights/", "runs", "nights"} & set(lines)


def test_a_checkout_without_git_is_copied_without_its_runs_and_nights(tmp_path: Path) -> None:
    there = ("chaos/nights/order.py", "chaos/runs/x.py", "squall", "runs/1/history.jsonl", "nights/1/said/x.txt")
    for name in there:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = re.search(r"find \. .*?-print0", SCRIPT.read_text(), re.DOTALL)
    assert found is not None
    done = subprocess.run(["sh", "-c", found[0]], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split("\0")[:-1]) == ["./chaos/nights/order.py", "./chaos/runs/x.py", "./squall"]
