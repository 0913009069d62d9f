"""The table of runs that are shown: what counts as wrong, how it is resumed after a stop, and what was left is seen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.shown import __main__ as shown
from tests.shown import leftovers, row, table
from tests.shown.case import SETS, Case, runs_of
from tests.shown.row import Row

GOOD = Row("default-01", "default", 1, "./squall run --seed 1", "", "", "valid", 0, [], 60.0, 20_000, ["kill"], 1, [])
NOT_LANDED = "fault 0 (latency node:2): the round trips with and without it do not differ enough"


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, []),
        ({"verdict": "unknown", "exit_code": 2, "reasons": [NOT_LANDED]}, []),
        (
            {"verdict": "unknown", "exit_code": 2, "reasons": ["Spark ended with code 1: no memory"]},
            ["whose bug? Spark ended with code 1: no memory"],
        ),
        ({"verdict": "invalid", "exit_code": 1}, ["invalid"]),
        ({"exit_code": 2}, ["exit code 2 with valid"]),
        ({"verdict": "none", "exit_code": 130}, ["no verdict"]),
        ({"verdict": row.HUNG, "exit_code": -1}, [row.HUNG]),
        ({"verdict": row.REFUSED, "exit_code": 3}, [row.REFUSED]),
        ({"left": ["network squall-1"]}, ["left behind: network squall-1"]),
        ({"kill": "engine", "verdict": "unknown", "exit_code": 2, "reasons": ["the engine does not answer"]}, []),
        ({"kill": "engine", "verdict": "unknown", "exit_code": 1}, ["exit code 1 with unknown"]),
        ({"kill": "engine", "verdict": "invalid", "exit_code": 1}, ["invalid"]),
        ({"kill": "harness", "verdict": "none", "exit_code": -9, "judged_again": "unknown"}, []),
        ({"kill": "harness", "verdict": "none", "exit_code": -9}, ["judged again: not at all"]),
        ({"kill": "harness", "verdict": "none", "exit_code": -9, "judged_again": "valid"}, ["judged again: valid"]),
        (
            {"kill": "harness", "verdict": "none", "exit_code": -9, "judged_again": "invalid"},
            ["invalid", "judged again: invalid"],
        ),
    ],
)
def test_what_is_not_as_it_should_be_is_said(change: dict[str, object], wrong: list[str]) -> None:
    assert replace(GOOD, **change).wrong == wrong  # type: ignore[arg-type]


def test_runs_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    some = [GOOD, replace(GOOD, name="kafka-01", group="kafka", verdict="unknown", exit_code=2, reasons=["a | b"])]
    row.write(tmp_path / "table.json", some)
    assert row.read(tmp_path / "table.json") == some


def test_a_set_of_runs_is_one_row() -> None:
    unknown = replace(GOOD, seed=2, verdict="unknown", exit_code=2, reasons=[NOT_LANDED], wall_s=80.0, left=["x"])
    (cells,) = row.shown([replace(GOOD, commit="abc"), replace(unknown, commit="def")])
    told = dict(zip(row.RUNS.columns, cells, strict=True))
    assert (told["runs"], told["valid"], told["unknown"], told["no verdict"]) == (2, 1, 1, 0)
    assert (told["seeds"], told["left something"], told["to look at"]) == ("1 to 2", 1, 1)
    assert (told["wall s: median; longest"], told["commits"]) == ("70; 80", "abc, def")
    assert told["not valid, and why"] == f"seed 2: {NOT_LANDED}; left behind: x"


def test_a_second_start_goes_on_where_the_first_one_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []

    def play(case: Case, out: Path, commit: str) -> Row:
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append(case.name)
        return replace(GOOD, name=case.name, group=case.group, seed=case.seed, command=case.command)

    monkeypatch.setattr(shown, "play", play)
    wanted = ["--default", "2", "--kafka", "1", "--out", str(tmp_path), "--docs", str(tmp_path / "docs")]
    assert shown.main(wanted) == 130
    assert played == ["default-01", "default-02"]
    played.clear()
    assert shown.main(wanted) == 0
    assert played == ["kafka-01"]
    assert [each["name"] for each in json.loads((tmp_path / "table.json").read_text())["rows"]] == [
        "default-01",
        "default-02",
        "kafka-01",
    ]
    assert [cells[:1] for _, cells in table.read(row.RUNS, tmp_path / "docs")[1]] == [("default",), ("kafka",)]


def test_a_row_that_is_wrong_ends_with_1_and_an_order_for_nothing_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shown, "play", lambda case, out, commit: replace(GOOD, verdict="invalid", exit_code=1))
    assert shown.main(["--default", "1", "--out", str(tmp_path), "--docs", str(tmp_path / "docs")]) == 1
    assert "default-01: invalid" in capsys.readouterr().out
    assert shown.main(["--out", str(tmp_path)]) == 3


@pytest.mark.parametrize("group", SETS)
def test_each_set_is_a_command_of_the_program(group: str) -> None:
    from squall.chaos.commands.run import command

    (case,) = runs_of(group, 1, 7)
    context = command.make_context("run", [*case.arguments[1:]])
    assert context.params["seed"] == 7
    assert context.params["runtime"] == ("docker" if "docker" in group else None)
    assert context.params["target"] == ("kafka" if "kafka" in group else None)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that a run in `tmp_path` left behind."""
    popen = subprocess.Popen(["sleep", "60"], env={**os.environ, leftovers.MARK: str(tmp_path)})
    deadline = time.monotonic() + 30
    # The kernel shows a program's environment a little later than the program.
    while str(tmp_path).encode() not in Path(f"/proc/{popen.pid}/environ").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield popen
    popen.kill()
    popen.wait()


def test_what_is_left_is_seen_and_what_ends_in_time_is_not(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rules are the whole machine's: networks of other tests come and go meanwhile.
    monkeypatch.setattr(leftovers, "packet_rules", lambda inside: [])
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (tmp_path / "runs/one").mkdir(parents=True)
    (tmp_path / "runs/one/run.new").touch()
    (temporary / "spark-1").mkdir()
    found = leftovers.left(tmp_path, temporary, 0)
    assert [each.split()[0] for each in found] == ["process", "file", "file"]
    assert str(sleeper.pid) in found[0]
    assert "run.new" in found[1]
    assert "spark-1" in found[2]
    (tmp_path / "runs/one/run.new").unlink()
    (temporary / "spark-1").rmdir()
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    assert leftovers.left(tmp_path, temporary, 5) == []
