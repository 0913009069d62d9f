"""A folder of runs as rows: what each file says, what is kept, and the page."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from squall.chaos import cli
from squall.chaos.commands.runs import command
from squall.reports.run_list import NO_VERDICT, compared, runs_in, to_remove
from squall.reports.runs_page import render
from tests.unit.reports.conftest import PLAN

NOW = datetime(2026, 7, 20, tzinfo=UTC)


def put(root: Path, name: str, days_ago: float, verdict: str, size: int = 0, **more: Any) -> Path:
    """A run directory with the files that a row is read from."""
    path = root / name
    path.mkdir(parents=True)
    (path / "plan.toml").write_text(PLAN)
    began = (NOW - timedelta(days=days_ago)).timestamp() * 1000
    info = {"began_wall_ms": began, "counters": {"acked": 5}, "faults": {"planned": 2, "landed": 1}}
    (path / "run.json").write_text(json.dumps(info))
    if verdict != NO_VERDICT:
        latency, gap = {"all": {"p99": 12.5}}, {"overall": {"s": 3.25}}
        told = {"verdict": verdict, "metrics": {"latency_ms": latency, "unavailable": gap}, **more}
        (path / "verdict.json").write_text(json.dumps(told))
    (path / "filler").write_bytes(bytes(size))
    return path


LOST = {"name": "lost-write", "evidence": "", "count": 7, "permitted": False}
PERMITTED = {"name": "duplicate", "evidence": "acks", "count": 3, "permitted": True}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "runs"
    put(made, "a-old", 30, "valid", 3 << 20)
    put(made, "b-bad", 20, "invalid", 3 << 20, anomalies=[LOST, PERMITTED], reasons=["lost-write: 7, not permitted"])
    put(made, "c-open", 10, "unknown", 3 << 20, reasons=["a fault did not land"])
    put(made, "d-new", 1, "valid", 3 << 20)
    put(made, "e-cut", 2, NO_VERDICT)
    (made / "latest").symlink_to("d-new")
    (made / "no-run").mkdir()
    return made


def test_a_run_that_shows_what_its_night_forbids_is_not_valid_and_stays(root: Path) -> None:
    line = {"item": "a", "attempt": 1, "verdict": "valid", "exit": 0, "began": "2026-07-04T01:00:00+00:00",
            "seconds": 1.0, "why": "", "run": "runs/a-old", "unexpected": ["lost-write"]}  # fmt: skip
    (root.parent / "results.jsonl").write_text(json.dumps(line) + "\n")
    rows = {row.name: row for row in runs_in(root)}
    assert (rows["a-old"].verdict, rows["d-new"].verdict) == ("invalid", "valid")
    assert rows["a-old"].findings[0] == "lost-write, which this night forbids"
    assert [row.name for row in to_remove(runs_in(root), NOW, 0, None)] == ["d-new"]


def test_a_verdict_that_no_run_can_have_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["runs", "--runs", str(root), "--verdict", "invlaid"]) == 3
    assert "'invlaid' is not one of" in capsys.readouterr().err


def test_each_run_is_a_row_and_the_newest_comes_first(root: Path) -> None:
    rows = {row.name: row for row in runs_in(root)}
    assert list(rows) == ["d-new", "e-cut", "c-open", "b-bad", "a-old"]
    row = rows["b-bad"]
    assert (row.verdict, row.seed, row.faults, row.landed_of) == ("invalid", 8, ("kill",), "1/2")
    assert (row.acked, row.p99_ms, row.unavailable_s, row.configuration) == (5, 12.5, 3.25, "min ISR 2 of 3")
    assert row.findings == ("lost-write: 7",), "what is permitted is no finding"
    assert row.permitted == ("duplicate (acks): 3",)
    assert rows["c-open"].findings == ("a fault did not land",)
    assert rows["e-cut"].verdict == NO_VERDICT


def test_the_program_under_test_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "a", 1, "valid")
    (path / "plan.toml").write_text('[workload]\nname = "command"\nrole = "member"\ncommand = "node mine.js ahead"\n')
    (row,) = runs_in(tmp_path)
    assert row.configuration == "member `node mine.js ahead`"


def test_a_reason_of_several_lines_has_one_in_the_list(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, "unknown", reasons=["the program ended; it last said:\nTraceback:\n  line 5"])
    assert runs_in(tmp_path)[0].findings == ("the program ended; it last said: Traceback: line 5",)


def test_what_was_acknowledged_after_healing_counts_as_on_the_runs_own_page(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, "valid", metrics={"outcomes": {"send": {"ok": 11}}})
    put(tmp_path, "b", 2, NO_VERDICT)
    assert [row.acked for row in runs_in(tmp_path)] == [11, 5], "of the second one only the load's own counter is known"


def test_the_longest_unavailability_is_that_of_the_worst_partition(tmp_path: Path) -> None:
    gaps = {"overall": {"s": 0.1}, "partitions": {"t-0": {"s": 1.5}, "t-1": {"s": 4.25}, "t-2": {"s": None}}}
    put(tmp_path, "a", 1, "valid", metrics={"unavailable": gaps})
    assert runs_in(tmp_path)[0].unavailable_s == 4.25


def test_a_simulation_that_broke_an_invariant_only_says_so(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, "invalid", anomalies=[PERMITTED], reasons=["invariant one-leader: 1"])
    assert runs_in(tmp_path)[0].findings == ("invariant one-leader: 1",)


def test_who_names_a_folder_of_runs_as_a_run_is_told_what_to_type(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root.parent)
    assert cli.run(["runs", "runs"]) == 3
    assert "squall runs --runs runs; " in capsys.readouterr().err
    assert cli.run(["runs", "--runs", "runs"]) == 0


@pytest.mark.parametrize("words", [["--runs", "runs"], ["runs/a-old", "runs/b-bad"], ["a-old", "b-bad"]])
@pytest.mark.parametrize("width", ["80", "200"])
def test_the_first_line_says_something(
    words: list[str], width: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root.parent)
    monkeypatch.setenv("COLUMNS", width)
    assert cli.run(["runs", *words]) == 0
    assert capsys.readouterr().out.split("\n")[0].strip()


def test_a_finding_whose_judgement_is_a_reason_is_told_once(tmp_path: Path) -> None:
    why = ["stuck-producer (client): 1, it may be the harness's doing: x", "a fault did not land", "third", "fourth"]
    finding = {"name": "stuck-producer", "evidence": "client", "count": 1, "permitted": None}
    put(tmp_path, "a", 1, "unknown", anomalies=[finding], reasons=why[:3])
    put(tmp_path, "b", 2, "unknown", anomalies=[finding], reasons=why[1:])
    put(tmp_path, "c", 3, "unknown", anomalies=[finding], reasons=why)
    assert [row.findings for row in runs_in(tmp_path)] == [
        (*why[:2], "and 1 more reason"),
        ("stuck-producer (client): 1", *why[1:3], "and 1 more reason"),
        (*why[:2], "and 2 more reasons"),
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 169, 200])
def test_on_a_terminal_of_any_width_each_run_is_told_whole(root: Path, width: int) -> None:
    done = CliRunner().invoke(command, ["--runs", str(root)], standalone_mode=False, env={"COLUMNS": str(width)})
    assert done.exception is None
    lines = done.output.splitlines()
    assert max(len(line) for line in lines if not line.startswith("page: ")) <= width
    assert "…" not in done.output
    words = " ".join(done.output.split())
    for told in ("b-bad", "lost-write: 7", "duplicate (acks): 3", "a fault did not land", "5 runs, "):
        assert told in words


def test_files_that_cannot_be_read_leave_cells_empty(tmp_path: Path) -> None:
    path = put(tmp_path, "torn", 1, "valid")
    for name in ("plan.toml", "run.json", "verdict.json"):
        (path / name).write_text("{ 'torn")
    (row,) = runs_in(tmp_path)
    assert (row.verdict, row.seed, row.acked, row.began, row.p99_ms) == (NO_VERDICT, None, None, None, None)


def test_only_valid_runs_are_removed_by_age_and_by_size(root: Path) -> None:
    rows = runs_in(root)
    assert [row.name for row in to_remove(rows, NOW, 5, None)] == ["a-old"]
    assert [row.name for row in to_remove(rows, NOW, None, 10 << 20)] == ["a-old"]
    assert [row.name for row in to_remove(rows, NOW, None, 0)] == ["a-old", "d-new"]
    assert to_remove(rows, NOW, 40, 1 << 40) == []


def test_runs_stand_beside_each_other(root: Path) -> None:
    rows = {row.name: row for row in runs_in(root)}
    told = dict(compared([rows["a-old"], rows["b-bad"], rows["e-cut"]]))
    assert told["verdict"] == ("valid", "invalid", NO_VERDICT)
    assert told["p99, ms"] == ("12.5", "12.5", "")
    assert told["findings"][:2] == ("", "lost-write: 7")


def test_the_page_says_what_is_worst_first_and_escapes_what_it_shows(root: Path) -> None:
    put(root, "f-odd", 0, "unknown", reasons=["<script>alert(1)</script>"])
    text = render(root, runs_in(root)).read_text()
    assert "1 invalid, 2 unknown, 1 no verdict, 2 valid" in text
    assert "begin with the red rows" in text
    assert "<script>alert" not in text
    assert text.index("f-odd") < text.index("b-bad")


def test_the_command_removes_what_it_said_that_it_would(root: Path) -> None:
    def told(*flags: str) -> str:
        done = CliRunner().invoke(command, ["--runs", str(root), *flags], standalone_mode=False)
        assert done.exception is None, done.output
        return done.output

    assert "would remove" in told("--prune", "--keep-mib", "0", "--dry-run")
    assert (root / "a-old").exists()
    assert "2 runs, 6.0 MiB. Runs that are not valid stay." in told("--prune", "--keep-mib", "0")
    assert sorted(path.name for path in root.iterdir() if path.is_dir() and not path.is_symlink()) == [
        *("b-bad", "c-open", "e-cut", "no-run"),
    ]
    only = told("--verdict", "invalid")
    assert "b-bad" in only
    assert "c-open" not in only


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--older-than", "3"), "add --prune"),
        (("--prune",), "--prune needs --older-than"),
        (("one",), "two to 6 runs can be compared"),
        (("1", "2", "3", "4", "5", "6", "7"), "two to 6 runs can be compared"),
        (("--runs", "nowhere"), "there is no such folder of runs"),
    ],
)
def test_wrong_usage_is_told(flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["runs", *flags]) == 3
    assert said in capsys.readouterr().err


def test_files_of_a_run_may_say_anything_and_its_row_stands(root: Path) -> None:
    strange = put(root, "f-strange", 1, "valid", anomalies="x", reasons=5)
    (strange / "run.json").write_text('{"began_wall_ms": 1e30, "faults": 3, "counters": "x"}')
    (strange / "plan.toml").write_bytes(b"\xff\xfe")
    listed = put(root, "g-folder", 1, "valid")
    (listed / "verdict.json").unlink()
    (listed / "verdict.json").mkdir()
    rows = {row.name: row for row in runs_in(root)}
    assert (rows["f-strange"].began, rows["f-strange"].seed) == (None, None)
    assert rows["g-folder"].verdict == NO_VERDICT
    result = CliRunner().invoke(command, ["--runs", str(root)])
    assert result.exit_code == 0
    assert "no runs, because they have no plan.toml: no-run" in result.output


def test_a_run_that_is_removed_is_whole_or_no_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed = []

    def killed(path: Path, ignore_errors: bool = False) -> None:
        removed.append(Path(path).name)
        if not ignore_errors:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", killed)
    words = ["runs", "--runs", str(root), "--prune", "--older-than", "14"]
    assert cli.run(words) == 2
    assert (sorted(removed), (root / "a-old").exists()) == ([".removing-a-old", ".removing-d-new"], False)
    assert "a-old" not in {row.name for row in runs_in(root)}
    monkeypatch.undo()
    assert cli.run(words) == 0
    assert not list(root.glob(".removing-*"))
