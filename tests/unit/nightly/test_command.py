"""Checks what `squall nightly` prints before anything begins: a list, and what is wrong with the request."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import tomli_w

from squall.chaos import cli
from squall.chaos.commands import durability, night_end, nightly
from squall.chaos.nightly import scheduling
from squall.chaos.nightly.accepted import AcceptedFinding
from squall.chaos.nightly.budget import CostModel
from squall.chaos.nightly.directory import NightDirectory, nights_beside
from squall.chaos.nightly.matrix import make_matrix, read_matrix
from squall.chaos.nightly.plugin import case_of
from squall.chaos.nightly.scheduling import ScheduledNight
from squall.chaos.screen import console
from squall.chaos.toolchain import allure
from squall.checkers.nightly.night import read_night
from squall.checkers.nightly.results import RunAttempt
from squall.reports.nightly.standing import compare_findings
from tests.support.nightly.rows import finding
from tests.unit.nightly.test_player import flags, night, played

SMALL = ("nightly", "--vary", "runtime=sim", "--time", "8", "--faults", "kill")


def test_a_list_says_what_would_run_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    night = tmp_path / "night"
    words = [*SMALL, "--vary", "acks=all,1", "--vary", "idempotence=on", "--out", str(night), "--list"]
    assert cli.run(words) == 0
    out = capsys.readouterr().out
    assert "1 run over 1 configuration, seeds from" in out
    assert "excluded: runtime=sim acks=1 idempotence=on: workload: idempotence needs acks=all (-1)" in out
    assert "MiB stay on disk" in out
    assert not night.exists()


def test_an_axis_that_is_named_twice_has_the_values_of_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "--vary", "acks=all", "--vary", "acks=1,0", "--out", str(tmp_path / "night"), "--list"]
    assert cli.run(words) == 0
    assert "3 runs over 3 configurations" in capsys.readouterr().out


def test_a_list_says_which_expectation_no_run_meets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = tmp_path / "m.toml"
    runs = '[[runs]]\naxes = { runtime = "sim", acks = ["all", "0"] }\n'
    matrix.write_text(runs + "".join(f'[[expect]]\nwhere = {{ acks = {n} }}\nnever = ["unseen"]\n' for n in (0, 1)))
    assert cli.run(["nightly", "--matrix", str(matrix), "--out", str(tmp_path / "night"), "--list"]) == 0
    out = capsys.readouterr().out
    assert "no run has acks=1: what is expected there cannot fail this night" in out
    assert "no run has acks=0" not in out


def test_it_says_beforehand_that_the_disk_is_too_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, "--out", str(tmp_path / "not/yet/there"), "--list"]
    assert cli.run(words) == 0
    assert "are free there" not in capsys.readouterr().out
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    assert cli.run(words) == 0
    assert "only 1 MiB are free there: the disk may be full before the night is over" in capsys.readouterr().out


def test_a_night_that_goes_on_at_another_commit_notes_that_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "night.json").write_text('{"schema": 1, "night": "n", "commit": "aaa", "items": []}')
    monkeypatch.setattr(scheduling, "commit", lambda: "aaa")
    assert scheduling.note_commit(NightDirectory(tmp_path)) == ""
    monkeypatch.setattr(scheduling, "commit", lambda: "bbb")
    told = scheduling.note_commit(NightDirectory(tmp_path))
    assert told == "it began at commit aaa; what is played now is of bbb"
    assert scheduling.note_commit(NightDirectory(tmp_path)) == ""
    assert json.loads((tmp_path / "night.json").read_text())["commits_since"] == ["bbb"]


def test_a_list_says_what_the_budget_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = [*SMALL, "--seeds", "3", "--budget", "8s", "--out", str(tmp_path / "night"), "--list"]
    assert cli.run(words) == 0
    assert "of which the report takes about" in capsys.readouterr().out
    assert cli.run([*words, "--no-report"]) == 0
    out = capsys.readouterr().out
    assert out.split()[0] == out.split("\n")[0].split()[0] == "configuration", "the first line says something"
    assert "likely to be left out at the end: 1, for want of time or room\ntime for all of them: --budget 1m\n" in out
    assert "no time: such a run takes about" in out


def test_a_list_shows_what_a_selection_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "--vary", "acks=all,1,0", "--out", str(tmp_path / "night"), "--list"]
    assert cli.run([*words, "-k", "acks and not nothing"]) == 0
    assert "2 runs over 2 configurations" in capsys.readouterr().out
    assert cli.run([*words, "-k", "docker"]) == 3
    assert "no run of this night has such a name" in capsys.readouterr().err
    for name in ("acks=1", "squall/sim appends acks=1", "squall-sim.appends.acks-1.kill.seed5"):
        assert cli.run([*words, "--seed", "5", "-k", name]) == 0
        assert "1 run over 1 configuration, seeds from 5" in capsys.readouterr().out
    assert cli.run([*words, "-k", "acks and ("]) == 3
    assert not (tmp_path / "night").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--vary", "akcs=1"), "Error: --vary akcs: there is no such axis: did you mean 'acks'?"),
        (("--vary", "acks=2"), "Error: --vary acks: '2' is not possible: one of all, 1, 0"),
        (
            ("--vary", "acks=1", "--faults", "kill,partiton,lateny"),
            "'partiton': did you mean 'partition'? --faults: unknown fault 'lateny': did you mean 'latency'?",
        ),
        (("--vary", "group-protocol=consumer"), "means nothing to the workload appends: name one"),
        (("--vary", "workload=group", "--vary", "group-protocol=consumer"), "one of appends"),
        (("--vary", "acks"), "AXIS=VALUE,VALUE is wanted"),
        (("--vary", "mutant=999"), "there is no mutant '999'"),
        (("--resume", "nowhere"), "no night is there: it has no night.json"),
        (("--resume", "nowhere", "--seeds", "3"), "--resume continues the planned night"),
        (("--resume", "nowhere", "--never", "unseen"), "--resume continues the planned night"),
        (
            ("--never", "lost-writes,unsen"),
            "'lost-writes': did you mean 'lost-write'? --never: there is no anomaly 'unsen': did you mean 'unseen'?",
        ),
        (("--budget", "soon"), "is no time"),
        (("--budget", "5"), "'5' is no time: write it as 90s, 20m or 1h"),
        (("--run-limit", "0m"), "'0m' must be more than 0"),
        (("--matrix", "nowhere.toml"), "there is no such file"),
        (("--faults", "kill"), "need --vary, and no --matrix"),
    ],
)
def test_wrong_usage_is_said_before_anything_begins(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = () if "--resume" in words else ("--out", str(tmp_path / "night"))
    assert cli.run(["nightly", *words, *out]) == 3
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "night").exists()


def test_an_external_cluster_is_left_out_until_somebody_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["nightly", "--vary", "target=external", "--out", str(tmp_path / "night"), "--list"]
    assert cli.run(words) == 0
    assert "left out: 1 x no external cluster is named" in capsys.readouterr().out
    assert cli.run([*words, "--bootstrap", "127.0.0.1:9092"]) == 0
    assert "to play: 1" in capsys.readouterr().out


def test_a_folder_that_has_a_night_is_not_begun_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "night.json").write_text("{}")
    assert cli.run([*SMALL, "--out", str(tmp_path)]) == 3
    assert "there is a night already: --resume goes on with it" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file/night"):
        assert cli.run([*SMALL, "--out", str(place)]) == 3
        assert f"{place}: the night's folder cannot be made: " in " ".join(capsys.readouterr().err.split())


def test_a_summary_that_cannot_be_written_any_more_changes_no_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    player = night(tmp_path, {1: ["valid"]})
    played(player)
    opened = ScheduledNight("n1", player.matrix, tuple(player.items), (), {}, CostModel(), 1)
    given = flags(report=False, summary=tmp_path / "gone/s.md", mail=tmp_path / "gone/m.txt")
    assert night_end.end(player.directory, opened, player, given, interrupted=False) == 0
    told = capsys.readouterr()
    for flag, file in (("summary", "s.md"), ("mail", "m.txt")):
        assert f"--{flag} {tmp_path}/gone/{file} cannot be written: No such file or directory" in told.err
    assert "1 of 1 run played: 1 valid" in told.out
    assert json.loads((tmp_path / "summary.json").read_text())["exit"] == 0


def test_a_night_of_another_schema_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "night.json").write_text('{"schema": 2, "night": "n", "items": []}')
    assert cli.run(["nightly", "--resume", str(tmp_path)]) == 3
    assert "is of schema 2, and this version of Squall reads 1" in " ".join(capsys.readouterr().err.split())


def test_a_verdict_in_doubt_makes_a_clean_night_end_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    doubt = "one is judged valid, but its history shows 3 lost records, which is not permitted."
    for contradicted, code in (((), 0), ((doubt,), 2)):
        player = night(tmp_path, {1: ["valid"]})
        played(player)
        opened = ScheduledNight("n1", player.matrix, tuple(player.items), (), {}, CostModel(), 1)
        report = SimpleNamespace(found=(), contradicted=contradicted)
        monkeypatch.setattr(night_end, "pages", lambda directory, say, room, told=report: ("index.html", told))
        assert night_end.end(player.directory, opened, player, flags(), interrupted=False) == code
        told = json.loads(player.directory.end.read_text())
        assert (told["exit"], told["contradicted"]) == (code, list(contradicted))
    assert doubt in capsys.readouterr().out
    assert f"**{doubt}**" in player.directory.summary.read_text()


def test_a_report_that_is_interrupted_leaves_the_results_and_the_command_that_makes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    player = night(tmp_path, {1: ["valid"]})
    played(player)
    opened = ScheduledNight("n1", player.matrix, tuple(player.items), (), {}, CostModel(), 1)
    monkeypatch.setattr(durability, "make_report", interrupted)
    monkeypatch.setattr(allure, "make_page", lambda results, folder, name, say: folder)
    given = flags(metrics=tmp_path / "night.prom")
    assert night_end.end(player.directory, opened, player, given, interrupted=False) == 130
    out = capsys.readouterr().out
    assert "1 of 1 run played: 1 valid" in out
    assert f"nightly --resume {tmp_path}" in out
    assert json.loads(player.directory.end.read_text())["interrupted"]
    assert "squall_nightly_exit_code 130.0" in (tmp_path / "night.prom").read_text()


@pytest.mark.parametrize(
    ("nights", "until", "fail_on", "code", "word"),
    [
        (("n1",), None, "any", 1, "FOUND"),
        (("n1",), None, "new", 1, "FOUND"),
        (("n0", "n1"), None, "any", 1, "FOUND"),
        (("n0", "n1"), None, "new", 0, "TOLERATED"),
        (("n1",), date.max, "any", 0, "TOLERATED"),
        (("n0", "n1"), date.min, "new", 1, "FOUND"),
    ],
)
def test_the_exit_code_tells_new_findings_from_known_and_accepted_ones(
    nights: tuple[str, ...],
    until: date | None,
    fail_on: str,
    code: int,
    word: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    player = night(tmp_path, {1: ["invalid"], 2: ["valid"]})
    played(player)
    rows = [finding(name=each, item=player.items[0].item, fingerprint="0123456789ab") for each in nights]
    print_ = rows[0]["fingerprint"]
    accepted = {} if until is None else {print_: AcceptedFinding(fingerprint=print_, owner="al", until=until, why="w")}
    report = SimpleNamespace(found=compare_findings(rows, nights)[0], contradicted=())
    monkeypatch.setattr(night_end, "pages", lambda directory, say, room: ("index.html", report))
    opened = ScheduledNight("n1", player.matrix, tuple(player.items), (), {}, CostModel(), 1)
    given = flags(accepted=accepted, fail_on=fail_on)
    case = 'classname="{}" name="{}"'.format(*case_of(player.items[0]))
    player.directory.junit.write_text(
        f"<testsuites><testsuite><testcase {case}><failure/></testcase></testsuite></testsuites>"
    )
    assert night_end.end(player.directory, opened, player, given, interrupted=False) == code
    (shown,) = ElementTree.parse(player.directory.junit).findall(".//testcase/*")
    assert shown.tag == ("failure" if code else "skipped")
    assert f"{word}  squall/process appends, faults kill, seed 1" in capsys.readouterr().out
    told = json.loads((tmp_path / "summary.json").read_text())
    assert (told["exit"], told["fail_on"]) == (code, fail_on)
    assert json.loads(player.directory.end.read_text())["exit"] == code
    (one,) = told["findings"]
    assert (one["fingerprint"], one["nights"]) == (print_, list(nights))
    assert [run["run"] for run in one["runs"]] == [str(tmp_path / player.attempts[player.items[0].item][0].run)]


@pytest.mark.parametrize(("runtime", "announced"), [("process", True), ("sim", False)])
def test_a_long_run_is_announced_when_it_begins(
    runtime: str, announced: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    player = night(tmp_path, {1: ["valid"]}, runtime)
    player.on_begun = lambda item, log: nightly._say_begun(console(stderr=True), player, item, log)
    played(player)
    (item,) = player.items
    line = f"begins: {item.configuration}, kill, seed 1: about "
    err = capsys.readouterr().err
    assert (line in err, f"said/{item.item}.txt" in err) == (announced, announced)


def test_a_night_learns_from_the_nights_before_how_long_its_report_takes(tmp_path: Path) -> None:
    before = planned(tmp_path / "20260703T010000")
    (item,) = before.planned()[1]
    before.add(RunAttempt(item.item, 1, "valid", 0, "", "2026-07-03T01:00:00+00:00", 3.0, ""))
    matrix = read_matrix(before.matrix)
    after = NightDirectory(tmp_path / "20260704T010000")

    def report_s() -> float:
        costs = scheduling.plan(matrix, after, 1, None).costs
        costs.report = True
        return costs.report_s(1)

    usual = report_s()
    before.write(before.facts, {"report_s": None})
    assert report_s() == usual, "it made none"
    before.write(before.facts, {"report_s": 7 * usual})
    assert report_s() == pytest.approx(7 * usual)


def test_the_last_night_is_the_last_that_began_whatever_its_name(tmp_path: Path) -> None:
    for day, name in enumerate(("red", "red2", "acc", "20260101T010000"), 1):
        head = {"schema": 1, "night": name, "began": f"2026-07-0{day}T01:00:00+00:00", "items": []}
        (tmp_path / name).mkdir()
        (tmp_path / name / "night.json").write_text(json.dumps(head))
    (tmp_path / "zzz").mkdir()
    (tmp_path / "zzz/night.json").write_text("{")
    names = [each.path.name for each in nights_beside(tmp_path / "new")]
    assert names == ["20260101T010000", "acc", "red2", "red", "zzz"]


def test_a_finding_that_the_report_does_not_explain_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    player = night(tmp_path, {1: ["invalid"], 2: ["invalid"]})
    played(player)
    rows = [finding(name=each, item=player.items[0].item, fingerprint="0123456789ab") for each in ("n0", "n1")]
    report = SimpleNamespace(found=compare_findings(rows, ("n0", "n1"))[0], contradicted=())
    monkeypatch.setattr(night_end, "pages", lambda directory, say, room: ("index.html", report))
    opened = ScheduledNight("n1", player.matrix, tuple(player.items), (), {}, CostModel(), 1)
    assert night_end.end(player.directory, opened, player, flags(fail_on="new"), interrupted=False) == 1
    told = json.loads((tmp_path / "summary.json").read_text())["findings"]
    assert [(each["state"], each["cause"]) for each in told][1] == ("new", "for a reason")


def test_a_finding_of_a_night_without_a_report_names_its_anomalies(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["invalid"]})
    played(player)
    (attempt,) = player.attempts[player.items[0].item]
    shown = [{"name": "lost-write", "permitted": False}, {"name": "duplicate", "permitted": True},
             {"name": "stale-ack", "evidence": "acks", "permitted": False}]  # fmt: skip
    (tmp_path / attempt.run / "verdict.json").write_text(json.dumps({"verdict": "invalid", "anomalies": shown}))
    opened = ScheduledNight("n1", player.matrix, tuple(player.items), (), {}, CostModel(), 1)
    night_end.end(player.directory, opened, player, flags(), interrupted=True)
    (found,) = json.loads((tmp_path / "summary.json").read_text())["findings"]
    assert (found["anomalies"], found["state"]) == (["lost-write", "stale-ack (acks)"], "new")


def planned(path: Path) -> NightDirectory:
    """A night that was planned and not played."""
    words = {"runtime": ["sim"], "acks": [1]}
    matrix = make_matrix(
        {"runs": [{"axes": words}], "expect": [{"where": {"acks": 1}, "never": ["unseen"]}], "budget": 60}
    )
    directory = NightDirectory(path)
    scheduling.write(directory, scheduling.plan(matrix, directory, 1, None))
    return directory


def test_a_night_that_goes_on_has_the_flags_with_which_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = {"fingerprint": "0123456789ab", "owner": "al", "until": "2026-12-31", "why": "w"}
    Path("ours.toml").write_text("[[accepted]]\n" + tomli_w.dumps({**entry, "until": date(2026, 12, 31)}))
    began = ["--no-report", "--budget", "1s", "--accepted", "ours.toml", "--notify", "false"]
    began += ["--metrics", "night.prom", "--summary", "s.md", "--mail", "m.txt"]
    assert cli.run([*SMALL, "--out", "n", *began]) == 2
    assert "squall/sim appends: not played, 1 left out" in capsys.readouterr().out
    written = [Path(name) for name in ("night.prom", "s.md", "m.txt")]
    for each in written:
        each.unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cli.run(["nightly", "--resume", "../n", "--no-report", "--mail", "other.txt"]) == 2
    assert "--notify false: exit code 1" in capsys.readouterr().err
    assert [(tmp_path / each).exists() for each in written] == [True, True, False]
    assert Path("other.txt").exists()
    flags = json.loads((tmp_path / "n/night.json").read_text())["flags"]
    assert (flags["accepted"], flags["mail"]) == (str(tmp_path / "ours.toml"), str(tmp_path / "elsewhere/other.txt"))
    assert cli.run(["nightly", "--resume", "../n", "--no-report", "--fail-on", "new"]) == 3
    assert read_night(tmp_path / "n").accepted == (entry,), "for the page"
    (tmp_path / "ours.toml").unlink()
    assert cli.run(["nightly", "--resume", "../n", "--no-report"]) == 3
    assert "ours.toml: cannot be read" in capsys.readouterr().err


def test_a_night_goes_on_with_the_matrix_it_was_planned_by(tmp_path: Path) -> None:
    directory = planned(tmp_path / "n")
    matrix = scheduling.planned_matrix(directory)
    assert matrix == read_matrix(directory.matrix)
    assert directory.matrix.read_text().startswith("# The matrix that this night was planned by")
    directory.matrix.unlink()
    assert scheduling.planned_matrix(directory) == matrix


def test_a_night_without_a_readable_matrix_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = planned(tmp_path / "n")
    directory.write(directory.night, {**directory.planned()[0], "matrix": None})
    assert cli.run(["nightly", "--resume", str(directory.path)]) == 3
    assert "night.json: its matrix cannot be read" in " ".join(capsys.readouterr().err.split())


def test_a_page_of_allure_that_would_not_fit_is_not_made_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, made = NightDirectory(tmp_path), []
    directory.allure.mkdir()
    (directory.allure / "attachment.html").write_bytes(b"x" * 1000)
    monkeypatch.setattr(allure, "make_page", lambda results, folder, name, say: made.append(folder))
    night_end._allure(directory, console(stderr=True), room=1399)
    assert not made
    assert "Allure's page would take 0 MiB, more than --keep-mib leaves: not made" in capsys.readouterr().err
    night_end._allure(directory, console(stderr=True), room=1400)
    assert made == [tmp_path / "allure"]


def test_what_a_night_forbids_is_known_again_when_it_goes_on_whatever_its_results_say(tmp_path: Path) -> None:
    directory = planned(tmp_path / "n")
    (item,) = directory.planned()[1]
    run = directory.runs / "one"
    run.mkdir()
    (run / "verdict.json").write_text('{"verdict": "valid", "anomalies": [{"name": "lost-write", "permitted": true}]}')
    directory.add(RunAttempt(item.item, 1, "valid", 0, "runs/one", "2026-07-04T01:00:00+00:00", 1.0, ""))
    (attempt,) = scheduling.ended(directory)
    assert (attempt.unexpected, attempt.fails) == (("lost-write",), True)
