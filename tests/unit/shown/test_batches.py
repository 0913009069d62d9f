"""The tables of docs/shown: what is kept, what is replaced, and what is read from the commands that make them."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from squall.chaos.mutants import table as mutants_table
from squall.chaos.mutants.hunt import MutantHuntResult
from tests.shown import __main__ as shown
from tests.shown import batches, table
from tests.shown.table import Sitting, Table, add, read

FIRST = Sitting("2026-07-04 01:00", "abc", "2 cores", "`first`")
SECOND = replace(FIRST, date="2026-07-05 01:00", commit="def, changed", command="`second`")
KEYED = Table("keyed", "Keyed", "A row is a thing.", ("thing", "figure"), keys=1)
ADDED = replace(KEYED, name="added", keys=0)


def test_each_row_says_in_which_sitting_it_was_made(tmp_path: Path) -> None:
    add(ADDED, [("a", 1), ("b | c", 2)], FIRST, tmp_path)
    add(ADDED, [("a", 3)], SECOND, tmp_path)
    add(ADDED, [("d", 1234.56)], SECOND, tmp_path)
    sittings, rows = read(ADDED, tmp_path)
    assert sittings == {1: ("2026-07-04 01:00", "abc", "2 cores", "`first`"),
                        2: ("2026-07-05 01:00", "def, changed", "2 cores", "`second`")}  # fmt: skip
    assert rows == [(1, ("a", "1")), (1, ("b \\| c", "2")), (2, ("a", "3")), (2, ("d", "1,234.6"))]
    lines = ADDED.file(tmp_path).read_text().splitlines()
    assert lines[0] == "# Keyed"
    assert "| 1 | 2026-07-04 01:00 | abc | 2 cores | `first` |" in lines[:8], "before all rows"


def test_a_row_replaces_the_one_of_its_name_and_a_sitting_without_rows_goes(tmp_path: Path) -> None:
    add(KEYED, [("10", 1), ("9", 1)], FIRST, tmp_path)
    add(KEYED, [("9", 2)], SECOND, tmp_path)
    assert read(KEYED, tmp_path)[1] == [(2, ("9", "2")), (1, ("10", "1"))]
    add(KEYED, [("10", 2)], SECOND, tmp_path)
    assert list(read(KEYED, tmp_path)[0]) == [2]


def test_a_table_that_had_other_columns_begins_anew(tmp_path: Path) -> None:
    add(KEYED, [("a", 1)], FIRST, tmp_path)
    other = replace(KEYED, columns=("thing", "other"))
    add(other, [("b", 2)], SECOND, tmp_path)
    assert read(other, tmp_path)[1] == [(1, ("b", "2"))]


def test_the_commit_is_said_to_be_changed_unless_only_the_tables_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def git(*words: str) -> str:
        asked.append(words)
        return "abc" if words[0] == "rev-parse" else changed

    monkeypatch.setattr(table, "_git", git)
    changed = ""
    assert table.commit_of_checkout() == "abc"
    changed = " M chaos/cli.py"
    assert table.commit_of_checkout() == "abc, changed"
    assert asked[1][-1] == ":(exclude)docs/shown"


SAID_OF_SEEDS = """seed 1005: invariant strong-isr
20/20 seeds, 0.52/s, 36 virtual s a CPU second, 2 failed, 1 unknown; 2 invalid, 1 unknown, 17 valid
668 virtual s in 19 CPU s; 41 of 44 faults landed
  2 x invariant strong-isr, first by seed 1005
"""


def test_a_batch_of_seeds_is_read_from_what_it_prints() -> None:
    told = batches.seeds_row("appends", "1000..1020", SAID_OF_SEEDS, 1, 38.4)
    failed = "2 x invariant strong-isr, first by seed 1005"
    assert told == ("appends", "1000..1020", 17, 1, 2, "41 of 44", 38, 19, 1, failed)
    clean = SAID_OF_SEEDS.replace(", 1 unknown;", ";").replace("2 failed", "0 failed").partition("  2 x")[0]
    assert batches.seeds_row("appends", "1000..1020", clean, 0, 38.4)[2:5] == (20, 0, 0)
    assert batches.seeds_row("appends", "1000..1020", "squall: no", 3, 1.0)[-2:] == (3, "it printed no result")


def test_seeds_of_a_workload_go_on_where_the_last_batch_of_it_ended(tmp_path: Path) -> None:
    assert batches.next_seed("appends", tmp_path) == batches.FIRST_SEED
    for workload, seeds in (("appends", "1000..1020"), ("appends", "1020..1040"), ("groups", "1000..1500")):
        add(batches.SEEDS, [batches.seeds_row(workload, seeds, SAID_OF_SEEDS, 0, 1.0)], FIRST, tmp_path)
    assert batches.next_seed("appends", tmp_path) == 1040


def test_hunts_are_read_from_the_page_that_they_update() -> None:
    results = mutants_table.results_table(
        [MutantHuntResult("9", 3, 1.25, seed=2, check="invariant weak-isr"), MutantHuntResult("2", 4, 9.0)]
    )
    page = f"{mutants_table.RESULTS_BEGIN}\n{results}{mutants_table.RESULTS_END}"
    rows = batches.mutant_rows(page)
    assert [(*row[:2], *row[3:7]) for row in rows] == [
        ("2", "ignore-answered-epoch", "nothing", "4", "9.0", "-"),
        ("9", "unconfirmed-shrink", "invariant weak-isr", "3", "1.2", "-"),
    ]
    assert {len(row) for row in rows} == {len(batches.MUTANTS.columns)}


def test_a_gate_is_read_from_what_it_prints() -> None:
    said = "lanes: a 1 s; 612 CPU s in 480 s\nFAILED tests/a.py::b: x\n9 passed, 1 failed, 2 skipped\n"
    told = batches.gate_row("gate", 2, said, 1, 500.4, 2.5)
    assert told == ("gate", 2, 2.5, 500, "480", "612", 1, "9", "1", "2", "FAILED tests/a.py::b: x")
    assert batches.gate_row("gate", 0, "ruff: FAILED", 1, 5.0, 0.1)[-2:] == ("?", "no test ran")


def test_a_night_is_one_row() -> None:
    parts = [("seeds", "passed", 3600.0, 3000), ("fresh", "not here", 0.0, None), ("hunts", "passed", 1800.0, None)]
    tables: dict[str, list[dict[str, object]]] = {
        "parts": [{"night": "n1", "part": p, "result": r, "seconds": s, "next_seed": n} for p, r, s, n in parts],
        "tests": [
            {"night": "n1", "result": "failed", "flaky": True},
            {"night": "n0", "result": "failed", "flaky": False},
        ],
    }
    told = batches.night_row({"night": "n1", "commit": "abcdef", "exit": 0}, tables)
    assert told == ("n1", "abcdef", 0, "passed: seeds, hunts; not here: fresh", 1.5, 1, 1, 1, 0, 3000)


def test_an_interrupted_command_ends_with_130_and_what_had_ended_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nkill -INT {os.getpid()}; sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(batches, "SQUALL", str(program))
    assert shown.main(["--gates", "1", "--docs", str(tmp_path)]) == 130
    program.write_text(f"#!{sys.executable}\nprint('3 passed, 0 failed, 0 skipped')\n")
    assert shown.main(["--gates", "2", "--hogs", "1", "--docs", str(tmp_path)]) == 0
    assert [cells[7] for _, cells in read(batches.GATES, tmp_path)[1]] == ["3", "3"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fresh-bugs", "nosuch"), "there is no set of fresh bugs 'nosuch': there are first, second"),
        (("--mutants", "nosuch"), "there is no mutant 'nosuch'"),
    ],
)
def test_what_does_not_exist_is_refused(
    words: tuple[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown.main([*words, "--docs", str(tmp_path)]) == 3
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
