"""The script that makes fresh machines: what it copies, what it tells of the tests, and its exit code for several."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.gate import summary
from tests.support.gate.results import Result

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests/fresh/machine.sh"


def call(function: str, *arguments: str | Path, name: str = "machine.sh") -> subprocess.CompletedProcess[str]:
    """Call a function of the script. name: what it takes for itself."""
    found = re.findall(r"^\w+\(\) \{(?: .*\}|\n.*?\n\})$", SCRIPT.read_text(), re.MULTILINE | re.DOTALL)
    text = "\n".join(["set -eu", *found, f'{function} "$@"'])
    return subprocess.run(["/bin/sh", "-c", text, name, *arguments], capture_output=True, text=True)


def test_runs_and_nights_are_ignored_by_git_and_packages_of_that_name_are_not() -> None:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/runs/", "/nights/"} <= set(lines)
    assert not {"runs/", "nights/", "runs", "nights"} & set(lines)


def test_a_checkout_without_git_is_copied_without_its_runs_and_nights(tmp_path: Path) -> None:
    there = ("chaos/nightly/order.py", "chaos/runs/x.py", "squall", "runs/1/history.jsonl", "nights/1/said/x.txt")
    for name in there:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = re.search(r"find \. .*?-print0", SCRIPT.read_text(), re.DOTALL)
    assert found is not None
    done = subprocess.run(["sh", "-c", found[0]], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split("\0")[:-1]) == ["./chaos/nightly/order.py", "./chaos/runs/x.py", "./squall"]


def test_the_counts_are_those_of_the_gates_last_line(tmp_path: Path) -> None:
    results = [Result("tests/unit/x.py::a", "passed", 1.0, 1.0), Result("tests/unit/x.py::b", "skipped", 1.0, 1.0)]
    lines = ["squall: once more, alone: x", "1 passed in 0.31s", *summary.of(results, [], {}, [], table=True)]
    (tmp_path / "test.log").write_text("\n".join(lines) + "\n")
    assert call("counts_of", tmp_path / "test.log").stdout == "1 passed, 0 failed, 1 skipped\n"


@pytest.mark.parametrize(
    ("last", "counts"),
    [
        ("3 passed, 1 skipped in 12.34s", "3 passed, 1 skipped"),
        ("=== 1 failed, 3 passed in 75.10s (0:01:15) ===", "1 failed, 3 passed"),
        ("squall: no Python", ""),
    ],
)
def test_tests_that_are_named_end_with_the_counts_of_pytest(tmp_path: Path, last: str, counts: str) -> None:
    (tmp_path / "test.log").write_text(f"5 rows\n{last}\n")
    assert call("counts_of", tmp_path / "test.log").stdout.strip() == counts


@pytest.mark.parametrize(
    ("codes", "code"),
    [("0 0 0", 0), ("3 3 3", 3), ("3 0 0", 2), ("3 1 3", 1), ("0 0 1", 1), ("0 0 143", 1)],
)
def test_machines_that_cannot_be_made_are_no_failure(tmp_path: Path, codes: str, code: int) -> None:
    script = tmp_path / "machine.sh"
    script.write_text(
        f'#!/bin/sh\nset -- "$1" {codes}\ncase $1 in bookworm) exit $2 ;; trixie) exit $3 ;; esac; exit $4\n'
    )
    script.chmod(0o755)
    assert call("every", name=str(script)).returncode == code
