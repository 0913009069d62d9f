"""The CPU of a command counts all of its processes, each side runs its own files, and mistakes are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.against import ComparedSide, command, slices
from bench.clusters import Squall
from squall.chaos import cli

BUSY = "sum(range(5_000_000))\n"


def side(tmp_path: Path, name: str, program: str) -> ComparedSide:
    root = tmp_path / name
    (root / "chaos").mkdir(parents=True)
    (root / "chaos/__init__.py").write_text("")
    (root / "chaos/__main__.py").write_text(program)
    return ComparedSide(name, Squall, tmp_path, root)


def test_each_side_runs_its_own_files_and_its_cpu_is_counted(tmp_path: Path) -> None:
    busy, idle = side(tmp_path, "busy", BUSY), side(tmp_path, "idle", "")
    _, much = command(busy, ("--help",))
    took, little = command(idle, ("--help",))
    assert much > little > 0
    assert took > 0


def test_a_command_that_cannot_be_run_has_no_figure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="odd: squall sim ended with 3"):
        command(side(tmp_path, "odd", "raise SystemExit(3)"), ("sim",))


def test_a_prototype_is_compared_by_loads_alone(tmp_path: Path) -> None:
    assert [len(group) for group in slices(tmp_path, 1.0, 12)] == [7, 6]
    (tmp_path / "broker.py").touch()
    assert [[each.name for each in group] for group in slices(tmp_path, 1.0, 12)] == [["1024 B", "100 B"], []]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--against", "no-such-commit"], "--against no-such-commit: neither a directory nor"),
        (["--against", "tests", "--only", ""], "--against tests: no checkout"),
        (["--against", ".", "--only", "nothing like it"], "nothing has this in its name; there are: 1024 B; 100 B"),
    ],
)
def test_a_mistake_is_told_before_anything_is_launched(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 3
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seconds", "nan"], "nan is no number of seconds"),
        (["--json", "no/such/folder/x.json"], "--json no/such/folder/x.json: its folder is not there"),
        (["--json", "."], "File '.' is a directory"),
        (["--pairs", "3"], "--pairs is for --against REV"),
        (["--against", "HEAD", "--rounds", "2"], "--rounds is not for --against REV"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_measured(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["bench", *words]) == 3
    assert told in capsys.readouterr().err
