"""The page says what only the night runs, by folder, and why."""

from __future__ import annotations

from pathlib import Path

from tests.support.gate import night_list
from tests.support.gate.costs import Cost
from tests.support.gate.playing import Selected

SELECTED = [
    Selected("tests/unit/log/test_a.py::test_x[1]", "night", ""),
    Selected("tests/unit/log/test_a.py::test_x[2]", "gate", ""),
    Selected("tests/unit/log/test_b.py::test_y", "night", "it kills a night"),
    Selected("tests/interop/test_c.py::test_z", "night", ""),
]


def test_a_row_has_a_folder_and_a_reason(tmp_path: Path) -> None:
    page = tmp_path / "testing.md"
    page.write_text(f"before\n{night_list.BEGIN}old\n{night_list.END}after\n")
    night_list.write(page, SELECTED, {each.test: Cost(2.4, 9) for each in SELECTED})
    assert page.read_text().splitlines()[:1] == ["before"]
    assert page.read_text().splitlines()[-1:] == ["after"]
    assert page.read_text().splitlines()[4:-2] == [
        "| `tests/interop` | 1 | 2 | foreign programs; the gate has one client through one failover |",
        "| `tests/unit/log` | 1 | 2 | above 0.5 CPU s |",
        "| `tests/unit/log` | 1 | 2 | it kills a night |",
    ]


def test_what_measures_time_is_named(tmp_path: Path) -> None:
    assert "how long" in night_list.reason_of(Selected("tests/unit/a.py::test_x", "quiet", ""))
