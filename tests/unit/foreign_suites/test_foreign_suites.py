"""Checks how results of foreign suites are read, compared with the explained failures, and written into the page."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.foreign_suites import __main__ as foreign_suites
from tests.foreign_suites import known, page
from tests.foreign_suites.known import Known
from tests.foreign_suites.playing import FAILED, PASSED, SKIPPED, Played, parts_to_skip, read_go, read_junit
from tests.foreign_suites.suites import SUITES
from tests.support.gate.results import Result


def event(action: str, test: str, **more: object) -> str:
    return json.dumps({"Action": action, "Test": test, **more})


def row(test: str, *on: str, sometimes: bool = False) -> Known:
    return Known("kgo", test, on, "acls", "declined", "there are none", sometimes)


def result(test: str, came_to: str) -> Result:
    return Result(test, came_to, 0.0, 0.0)


def test_a_suite_whose_port_is_taken_has_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        suite = replace(SUITES["kafka-go"], port=port, fetch=lambda suite, folder: None)
        monkeypatch.setattr(foreign_suites, "SUITES", {suite.name: suite})
        assert foreign_suites.main(["--out", str(tmp_path / "out")]) == 2
    assert f"kafka-go: no result: port {port} is taken" in capsys.readouterr().out


def test_a_failed_part_of_a_go_test_is_one_failure_and_the_whole_is_not_a_second_one() -> None:
    lines = [
        event("run", "TestA"),
        event("run", "TestA/x"),
        event("output", "TestA/x", Output="=== RUN   TestA/x\n"),
        event("output", "TestA/x", Output="    a_test.go:1: no\n"),
        event("fail", "TestA/x", Elapsed=0.5),
        event("pass", "TestA/y", Elapsed=0.1),
        event("fail", "TestA", Elapsed=0.6),
        event("skip", "TestB", Elapsed=0.0),
    ]
    results = [
        Result("TestA/x", FAILED, 0.0, 0.5, "a_test.go:1: no"),
        Result("TestA/y", PASSED, 0.0, 0.1),
        Result("TestB", SKIPPED, 0.0, 0.0),
    ]
    assert read_go(lines) == (results, [])


def test_a_go_test_that_had_begun_when_the_program_ended_has_no_result() -> None:
    lines = ["panic: test timed out", event("run", "TestA"), event("output", "TestA", Output="panic: no\n"), "1"]
    assert read_go(lines) == ([], ["TestA"])


def test_a_part_that_ended_the_program_is_left_out_when_the_others_are_played_again() -> None:
    found = [result("TestA/bad", FAILED), result("TestA", FAILED), result("TestB/x", FAILED)]
    assert parts_to_skip(found, ["TestA/other"], []) == ["TestA/bad"]
    assert parts_to_skip(found, ["TestA/other"], ["TestA/bad"]) == []


def test_an_error_in_what_a_python_test_needs_is_its_failure() -> None:
    report = """<testsuites><testsuite>
      <testcase classname="t.a" name="x[1]" time="0.5"/>
      <testcase classname="t.a" name="y" time="0.1"><error message="no broker"/></testcase>
      <testcase classname="t.a" name="z" time="0.0"><skipped message="TLS"/></testcase></testsuite></testsuites>"""
    assert read_junit(report) == [
        Result("t.a::x[1]", PASSED, 0.0, 0.5),
        Result("t.a::y", FAILED, 0.0, 0.1, "no broker"),
        Result("t.a::z", SKIPPED, 0.0, 0.0),
    ]


def test_a_failure_needs_a_row_for_its_own_target() -> None:
    verdict = known.judge(
        "kgo", "squall", [result("A", FAILED), result("B", FAILED)], [row("A", "squall"), row("B", "kafka")]
    )
    assert [each.test for each in verdict.explained] == ["A"]
    assert [each.test for each in verdict.unexplained] == ["B"]


def test_a_row_whose_test_passes_can_go_unless_it_fails_only_now_and_then() -> None:
    rows = [row("A", "squall"), row("B", "squall", sometimes=True), row("C", "squall")]
    verdict = known.judge("kgo", "squall", [result("A", PASSED), result("B", PASSED), result("C", SKIPPED)], rows)
    assert [each.test for each in verdict.mended] == ["A"]


def test_each_row_is_of_a_suite_that_there_is() -> None:
    assert {each.suite for each in known.read()} <= set(SUITES)


def test_a_row_without_a_reason_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text('[[failure]]\nsuite="kgo"\ntest="A"\non=["squall"]\nkind="acls"\nwhose="declined"\nreason=""\n')
    with pytest.raises(AssertionError):
        known.read(file)


def test_the_page_has_one_row_for_each_suite_and_target_and_the_rest_of_it_stays(tmp_path: Path) -> None:
    there = tmp_path / "page.md"
    there.write_text(f"before\n\n{page.BEGIN}{page.END}after\n")
    kgo = SUITES["kgo"]
    page.write(kgo, "kafka", Played([result("A", PASSED)]), there)
    page.write(kgo, "squall", Played([result("A", FAILED)]), there)
    page.write(kgo, "squall", Played([result("A", PASSED), result("B", SKIPPED)], ["C"]), there)
    text = there.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    rows = [line.split(" | ")[1:6] for line in text.splitlines() if line.startswith(f"| kgo {kgo.version} | ")]
    assert rows[:2] == [["kafka", "1", "0", "0", "0"], ["squall", "1", "0", "1", "1"]]
