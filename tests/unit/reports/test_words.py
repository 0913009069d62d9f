"""Checks what the traces and the nemesis's log become: lanes, sentences, rows, junit.xml and the terminal's tables."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from squall.chaos.screen import WIDE
from squall.checkers.anomalies.registry import FOUND
from squall.reports import checks
from squall.reports.fault_words import evidence_text, fault_rows
from squall.reports.junit import write_junit
from squall.reports.lanes import LaneSpan, broker_lanes, leader_epochs, partition_lanes
from squall.reports.page import render
from squall.reports.run_files import RunFiles, read_run
from squall.reports.terminal import summary
from tests.support.histories.nemesis_lines import spoken

S = 1_000_000_000


@pytest.fixture
def files(run_dir: Path) -> RunFiles:
    """The small run, read."""
    return read_run(run_dir)


def told(run_dir: Path) -> str:
    """Return what the terminal shows."""
    out = io.StringIO()
    summary(run_dir, Console(file=out, width=100))
    return out.getvalue()


def test_a_killed_broker_is_down_from_the_kill_until_it_is_ready_again(files: RunFiles) -> None:
    lane = broker_lanes(files, -2.0, 13.0)[0]
    assert [(round(s.begin, 3), round(s.end, 3), s.kind) for s in lane.states] == [
        (-2.0, -1.9, "down"),
        (-1.9, -1.8, "starting"),
        (-1.8, 3.0, "up"),
        (3.0, 5.0, "down"),
        (5.0, 6.0, "starting"),
        (6.0, 13.0, "up"),
    ]


def test_a_killed_controller_is_controller_no_longer(files: RunFiles) -> None:
    (span,) = broker_lanes(files, -2.0, 13.0)[0].controller
    assert (round(span.begin, 3), round(span.end, 3)) == (-1.7, 3.0)


def test_a_partitions_leader_changes_with_its_epoch(files: RunFiles) -> None:
    (lane,) = partition_lanes(files, -1.0, 13.0, {})
    assert [(round(s.begin, 3), s.kind) for s in lane.leaders] == [(-1.0, "1"), (4.0, "2")]
    assert [size for _, size in lane.isr] == [3, 2]


def test_of_the_coordinators_logs_those_have_lanes_that_had_something_to_do(files: RunFiles) -> None:
    log = {**files.traces[1][3], "topic": "__transaction_state"}
    files.traces[1] += [{**log, "partition": number} for number in range(5)]
    assert len(partition_lanes(files, -1.0, 13.0, {})) == 1
    files.traces[2].append({"t": 105.0, "e": "transaction_state", "transactional_id": "squall-3"})
    names = [lane.name for lane in partition_lanes(files, -1.0, 13.0, {})]
    assert names == ["__transaction_state-2", "appends-0-0"]


def test_a_late_word_of_an_old_epoch_changes_no_leader(files: RunFiles) -> None:
    late = {**files.traces[1][3], "t": files.traces[1][3]["t"] + 9, "isr": [1]}
    files.traces[3].append(late)
    (lane,) = partition_lanes(files, 1.0, 15.0, {})
    assert [s.kind for s in lane.leaders] == ["1", "2"]
    assert [size for _, size in lane.isr] == [3, 2]


def test_an_epoch_that_the_controller_gave_to_nobody_has_no_leader(files: RunFiles) -> None:
    lost = {
        "t": 109.0,
        "e": "leader_elected",
        "topic": "appends-0",
        "partition": 0,
        "leader": -1,
        "epoch": 2,
        "isr": [2],
    }
    files.traces[3].append(lost)
    assert [term.leader for term in leader_epochs(files)["appends-0-0"]] == [1, 2, -1]


def test_a_broker_without_a_trace_is_drawn_as_unknown(files: RunFiles) -> None:
    files.traces[3] = []
    assert broker_lanes(files, 0.0, 15.0)[2].states == [LaneSpan(0.0, 15.0, "unknown")]


def test_a_kills_evidence_is_told_in_plain_words(files: RunFiles) -> None:
    (row,) = fault_rows(files)
    assert row.state == "landed"
    assert row.evidence == (
        "Process 11 was gone 10 ms after the kill. Incarnation 2 (process 12) was ready 1.00 s after its start."
    )
    assert row.recovery_s == 1.2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"error": "no process"}, "No proof: no process."),
        ({"error": None}, "No proof: nothing was measured."),
        ({"asked": None, "ended": None}, "It was never asked for: the run ended before."),
        ({"ended": None}, "It has no end: the run stopped while it was on."),
    ],
)
def test_a_fault_without_evidence_has_not_landed(files: RunFiles, change: dict[str, Any], words: str) -> None:
    files.faults = [spoken({**files.faults[0], "evidence": None, "seen": {}, **change})]
    assert evidence_text(files.faults[0]) == words
    assert fault_rows(files)[0].state != "landed"
    assert files.landed() == 0


@pytest.mark.parametrize(
    ("held", "let_go", "words"),
    [
        (
            {"pid": 7, "state": "T"},
            {"pid": 7, "state": "S"},
            "The kernel shows process 7 in state T; a probe got no answer (timed out). Afterwards in state S again.",
        ),
        (
            {"pid": 7, "state": "T", "container": "c", "engine": "paused"},
            {"pid": 7, "state": "R", "container": "c", "engine": "up"},
            "The engine shows container c as paused; a probe got no answer (timed out). Afterwards in state up again.",
        ),
    ],
    ids=["process", "container"],
)
def test_a_pause_is_told_by_who_saw_it(held: dict[str, Any], let_go: dict[str, Any], words: str) -> None:
    held["probe"] = {"ok": False, "error": "timed out"}
    seen = {"paused": [held], "resumed": [let_go]}
    assert evidence_text(spoken({"action": "pause", "asked": 1, "ended": 2, "error": None, "evidence": seen})) == words


def test_a_probe_that_was_answered_through_a_cut_is_counted_as_such() -> None:
    probes = [
        {"ok": True, "round_trip_ms": 2.0, "error": None},
        {"ok": False, "round_trip_ms": 700, "error": "timed out"},
    ]
    fault = {"action": "partition", "asked": 1, "ended": 2, "error": "a cut link answered",
             "seen": {"links": ["1->2", "2->1"], "during": probes, "after": []}}  # fmt: skip
    assert "1 of 2 probes got no answer while cut (timed out)" in evidence_text(spoken(fault))
    assert evidence_text(fault).startswith("No proof: a cut link answered.")


def test_checks_that_did_not_run_are_not_clean(files: RunFiles) -> None:
    files.verdict["notes"] = []
    assert {check.state for check in checks.checks_of(files)} == {checks.NOT_RUN}
    files.verdict["notes"] = ["looked for: lost-write", "the checks did not run to their end"]
    assert {check.state for check in checks.checks_of(files)} == {checks.NOT_RUN}
    assert {check.why for check in checks.checks_of(files)} == {"the checks did not run to their end"}


def test_where_no_check_ran_the_terminal_names_none(run_dir: Path, verdicts: dict[str, Any]) -> None:
    (run_dir / "verdict.json").write_text(json.dumps({**verdicts["unknown"], "anomalies": [], "notes": []}))
    text = told(run_dir)
    assert "\nNo check ran.\n" in text and "lost-write" not in text


def test_checks_that_did_not_run_say_why_on_the_terminal_on_the_page_and_in_junit(
    run_dir: Path, verdicts: dict[str, Any]
) -> None:
    no_transactions = "the history has no transactions"
    why = {"failed-yet-read": "the history has no sends that definitely failed", "G1a": no_transactions}
    listed = "looked for: " + ", ".join(name for name in FOUND if name not in (*why, "dirty-read"))
    said = {**verdicts["valid"], "notes": [listed], "not_run": {**why, "dirty-read": no_transactions}}
    (run_dir / "verdict.json").write_text(json.dumps(said))
    text = told(run_dir)
    at = text.index("3 checks did not run:\n")
    assert "\n  the history has no sends that definitely failed: failed-yet-read\n" in text[at:]
    names = [name for name in FOUND if name in ("G1a", "dirty-read")]
    assert f"\n  {no_transactions}: {', '.join(names)}\n" in text[at:]
    assert render(run_dir).read_text().count(no_transactions) == 2
    assert write_junit(run_dir).read_text().count(f"not run: {no_transactions}") == 2


def test_a_check_that_saw_a_part_only_is_neither_a_success_nor_a_failure_anywhere(
    run_dir: Path, verdicts: dict[str, Any]
) -> None:
    why = "no final read of t-0 reached its end"
    (run_dir / "verdict.json").write_text(json.dumps({**verdicts["valid"], "ran_on_little": {"lost-write": why}}))
    assert f"1 check found nothing and saw little:\n  {why}: lost-write\n" in told(run_dir)
    assert '<span class="tag off">ran on little</span>' in render(run_dir).read_text()
    skipped = ElementTree.parse(write_junit(run_dir)).getroot()[0].find("testcase[@name='lost-write']/skipped")
    assert skipped is not None and skipped.get("message") == f"ran on little: {why}"


def test_what_nobody_could_judge_is_neither_permitted_nor_failed(files: RunFiles, verdicts: dict[str, Any]) -> None:
    entry = {**verdicts["invalid"]["anomalies"][0], "permitted": None}
    files.verdict = {**verdicts["unknown"], "anomalies": [entry]}
    assert checks.checks_of(files)[0].state == checks.UNJUDGED


def test_junit_fails_what_is_not_permitted_with_its_witnesses(run_dir: Path, verdicts: dict[str, Any]) -> None:
    (run_dir / "verdict.json").write_text(json.dumps(verdicts["invalid"]))
    suite = ElementTree.parse(write_junit(run_dir)).getroot()[0]
    failure = suite.find("testcase[@name='lost-write (reads)']/failure")
    assert failure is not None and "offset 60" in (failure.text or "")
    assert suite.get("failures") == "2"
    assert suite.find("testcase[@name='verdict']/failure") is not None


def test_junit_lets_nothing_pass_while_the_verdict_is_unknown(run_dir: Path, verdicts: dict[str, Any]) -> None:
    for verdict in (verdicts["unknown"], {}):
        (run_dir / "verdict.json").write_text(json.dumps(verdict))
        suite = ElementTree.parse(write_junit(run_dir)).getroot()[0]
        assert all(case.find("skipped") is not None or case.find("error") is not None for case in suite)
        assert suite.get("errors") == "1"


def test_junit_of_a_valid_run_has_a_passing_case_for_each_check(run_dir: Path) -> None:
    suite = ElementTree.parse(write_junit(run_dir)).getroot()[0]
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "0")
    assert suite.find("testcase[@name='lost-write']") is not None


def test_junit_holds_text_that_xml_cannot(run_dir: Path, verdicts: dict[str, Any]) -> None:
    (run_dir / "verdict.json").write_text(json.dumps({**verdicts["unknown"], "reasons": ["a\x00b\ud800"]}))
    ElementTree.parse(write_junit(run_dir))


@pytest.mark.parametrize(("word", "repeats"), [("valid", False), ("invalid", True), ("unknown", True)])
def test_the_terminal_tells_how_to_repeat_what_is_not_valid(
    run_dir: Path, verdicts: dict[str, Any], word: str, repeats: bool
) -> None:
    (run_dir / "verdict.json").write_text(json.dumps(verdicts[word]))
    shown = told(run_dir)
    assert word.upper() in shown
    assert ("repeat: ./squall run --plan" in shown) is repeats


def test_a_copy_of_a_run_is_repeated_with_its_own_plan(run_dir: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(run_dir, copy)
    info = json.loads((copy / "run.json").read_text())
    first = {**info, "command": "./squall run --plan '/runs of old/r/plan.toml' --keep"}
    (copy / "run.json").write_text(json.dumps(first))
    (copy / "plan.toml").touch()
    assert read_run(copy).command == f"./squall run --plan {copy / 'plan.toml'} --keep"
    (copy / "plan.toml").unlink()
    assert read_run(copy).command == first["command"], "there is no other plan"


def test_the_terminal_says_unknown_of_an_empty_directory(tmp_path: Path) -> None:
    shown = told(tmp_path)
    assert "UNKNOWN" in shown and "VALID " not in shown
    assert "not known" in shown


def test_sent_is_what_was_acknowledged_failed_or_unknown_after_healing_too(files: RunFiles, run_dir: Path) -> None:
    # The counters of run.json are the load's; the history has the writes after healing as well.
    metrics = {**files.metrics, "outcomes": {"send": {"ok": 96, "fail": 4, "info": 6, "error 19": 4}}}
    (run_dir / "metrics.json").write_text(json.dumps(metrics))
    figures = checks.figures_of(read_run(run_dir))
    assert (figures.sent, figures.acked, figures.failed, figures.unknown) == (106, 96, 4, 6)
    assert re.search(r"sent \(6 of them after healing\) +106\n", told(run_dir))
    assert "6 more records were sent after healing" in render(run_dir).read_text()
    (run_dir / "metrics.json").unlink()
    figures = checks.figures_of(read_run(run_dir))
    assert (figures.sent, figures.acked) == (100, 90)


def test_an_unknown_run_lists_as_many_reasons_as_it_counts_from_the_first_line_on(
    run_dir: Path, verdicts: dict[str, Any]
) -> None:
    finding = {"name": "stuck-producer", "evidence": "load", "count": 1, "permitted": None, "why": "it is not proven"}
    reasons = ["stuck-producer (load): 1, it is not proven", "a fault did not land"]
    unknown = {**verdicts["unknown"], "anomalies": [finding], "reasons": reasons}
    (run_dir / "verdict.json").write_text(json.dumps(unknown))
    lines = told(run_dir).split("\n")
    assert lines[0].strip() == "Load"
    at = next(number for number, line in enumerate(lines) if line.endswith("for 2 reasons:"))
    assert lines[at + 1 : at + 3] == [f"  - {each}" for each in reasons]


def test_in_a_pipe_no_line_of_the_checks_is_longer_than_what_it_says(run_dir: Path, verdicts: dict[str, Any]) -> None:
    (run_dir / "verdict.json").write_text(json.dumps(verdicts["invalid"]))
    out = io.StringIO()
    summary(run_dir, Console(file=out, width=WIDE))
    lines = out.getvalue().splitlines()
    assert all(line == line.rstrip() for line in lines)
    at = lines.index("Checks")
    rows = lines[at + 1 : lines.index("", at)]
    assert rows[0].split() == ["check", "found", "judged", "why"]
    table = [line for line in rows if " found nothing: " not in line and " did not run: " not in line]
    assert all(len(line) < 200 for line in table)
    assert all(line.count("not permitted") <= 1 for line in lines)
    below = lines[lines.index("", at) :]
    assert not [line for line in below if "not permitted" in line], "the table has said it"
    assert len([line for line in rows if " found nothing: " in line]) == 1
