"""A night of tests: what is played, what is recorded, how it is resumed, and what its page and the store say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from squall.chaos.errors import PreconditionError
from tests.night import __main__ as night
from tests.night import collecting
from tests.night.parts import EVERYTHING, PARTS, SEEDS, Part
from tests.night.player import play
from tests.night.record import FAILED, INTERRUPTED, NOT_HERE, PASSED, UNKNOWN, Folder, Head, Line, ended, to_play
from tests.night.report import verdict
from tests.support.gate import summary
from tests.support.gate.results import Result

HEAD = Head("n1", "2026-07-04T01:00:00+00:00", "abc", "2 cores, 24 GiB", "3.11.2", ("one", "two", "three"), 1000)


def line(part: str, result: str, seconds: float = 1.0) -> Line:
    """Return the line of a part that ended in this way."""
    return Line(part, result, 0, seconds, "abc", f"./{part}", "2026-07-04T01:00:00+00:00")


def part(name: str, script: str, **more: object) -> Part:
    """A part that is a script of the shell."""

    def command(folder: Folder, head: Head) -> list[str]:
        return ["/bin/sh", "-c", script, str(folder.tests)]

    return replace(Part(name, f"What {name} is.", 1, command), **more)  # type: ignore[arg-type]


def parts_of(*parts: Part) -> Mapping[str, Part]:
    return {each.name: each for each in parts}


# --------------------------------------------------------------------------------------------------------- the record


def test_a_night_goes_on_with_the_first_part_that_has_not_ended() -> None:
    lines = [line("one", PASSED), line("two", INTERRUPTED)]
    assert to_play(HEAD, lines) == ["two", "three"]
    assert to_play(HEAD, [*lines, line("two", FAILED), line("three", NOT_HERE)]) == []


def test_the_time_of_a_part_is_that_of_all_its_sessions() -> None:
    found = ended([line("one", INTERRUPTED, 10.0), line("two", PASSED, 5.0), line("one", PASSED, 3.0)])
    assert {name: each.seconds for name, each in found.items()} == {"one": 13.0, "two": 5.0}


def test_the_line_that_a_killed_session_was_writing_does_not_count(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin(HEAD)
    folder.note(line("one", PASSED))
    with folder.record.open("a") as file:
        file.write('{"part": "two", "resu')
    assert folder.read() == (HEAD, [line("one", PASSED)])
    folder.note(line("two", FAILED))
    assert folder.read()[1] == [line("one", PASSED), line("two", FAILED)]


def test_a_night_is_not_begun_twice_and_nothing_goes_on_where_none_is(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="no night of tests"):
        Folder(tmp_path).read()
    Folder(tmp_path).begin(HEAD)
    with pytest.raises(PreconditionError, match="already"):
        Folder(tmp_path).begin(HEAD)


@pytest.mark.parametrize(
    ("number", "change", "what"),
    [
        (1, {"parts": []}, "parts: a list of names"),
        (1, {"parts": ["one", "two", "one"]}, "parts: a list of names"),
        (1, {"parts": [1]}, "parts: a list of names"),
        (1, {"parts": "one"}, "parts: "),
        (1, {"night": "../n1"}, "night: the name of a folder"),
        (1, {"night": ".."}, "night: the name of a folder"),
        (1, {"first_seed": "1000"}, "first_seed: int is needed"),
        (2, {"part": "four"}, "part: one of one, two, three is needed"),
        (2, {"seconds": "many"}, "seconds: float is needed"),
        (2, {"result": "splendid"}, "result: one of passed, failed"),
        (2, {"exit": None}, "exit: int is needed"),
        (2, {"exit": True}, "exit: int is needed"),
        (2, {"verdict": "valid"}, "verdict: there is no such field"),
    ],
)
def test_a_record_that_no_night_writes_is_refused_with_its_line(
    tmp_path: Path, number: int, change: Mapping[str, object], what: str
) -> None:
    folder = Folder(tmp_path)
    folder.begin(HEAD)
    folder.note(line("one", PASSED))
    rows = [json.loads(text) for text in folder.record.read_text().splitlines()]
    rows[number - 1] |= change
    folder.record.write_text("".join(json.dumps(each) + "\n" for each in rows))
    with pytest.raises(PreconditionError, match=re.escape(f"{folder.record}, line {number}: {what}")):
        folder.read()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ": no line"),
        ("5\n", ", line 1: a JSON object"),
        ('\n{"part": "one"}\n', ", line 2: part: there is no such"),
    ],
)
def test_a_record_without_a_head_is_refused(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "record.jsonl").write_text(text)
    with pytest.raises(PreconditionError, match=re.escape(f"record.jsonl{what}")):
        Folder(tmp_path).read()


# -------------------------------------------------------------------------------------------------------- the results


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ((PASSED, PASSED), 0),
        ((PASSED, NOT_HERE), 0),
        ((NOT_HERE, NOT_HERE), 2),
        ((PASSED, UNKNOWN), 2),
        ((PASSED, UNKNOWN, FAILED), 1),
        ((NOT_HERE, FAILED), 1),
        ((), 2),
    ],
)
def test_the_verdict_of_a_night(results: tuple[str, ...], code: int) -> None:
    assert verdict(dict(enumerate(results))) == code  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "code", "result"),
    [
        ("hunts", 0, PASSED),
        ("hunts", 1, FAILED),
        ("seeds", 2, UNKNOWN),
        ("seeds", 3, FAILED),
        ("matrix", -9, FAILED),
        ("fresh", 1, FAILED),
        ("fresh", 2, UNKNOWN),
        ("fresh", 3, NOT_HERE),
        (EVERYTHING, 2, FAILED),
        (EVERYTHING, 0, UNKNOWN),
    ],
)
def test_an_exit_code_says_how_a_part_ended(tmp_path: Path, name: str, code: int, result: str) -> None:
    found, why = PARTS[name].result(Folder(tmp_path), code)
    assert found == result
    assert bool(why) == (result != PASSED)


def results(*rows: Mapping[str, object]) -> str:
    """Return the lines that `squall test --results` writes."""
    count = {"tests": len({each["test"] for each in rows})}
    return "".join(json.dumps(each) + "\n" for each in ({"commit": "abc"}, *rows, count))


def row(test: str, result: str, **more: object) -> Mapping[str, object]:
    return {"test": test, "result": result, "cpu_s": 1.0, "wall_s": 2.0, "flaky": False, "why": "", **more}


def test_a_failed_test_counts_more_than_the_exit_code(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.tests.write_text(results(row("a", "passed"), row("b", "failed")))
    assert PARTS[EVERYTHING].result(folder, 0) == (FAILED, "1 of 2 tests failed")


def gate(*troubles: str, order: int = 1) -> str:
    """Return what `squall test --all` prints if one test passed."""
    results_of = [Result("tests/unit/x.py::a", "passed", 1.0, 1.0)]
    return "\n".join([f"order: --randomly-seed={order}", *summary.of(results_of, [], {}, troubles, table=True)]) + "\n"


LANE = "lane cpu 1: pytest ended with exit code -11 in tests/unit/x.py::b, 12 tests without a result"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (gate(f"{LANE}\nFatal Python error: Segmentation fault"), LANE),
        (gate(LANE, "the gate takes 800 CPU s"), f"{LANE}; the gate takes 800 CPU s"),
        (f"squall: set-up\n{gate('an older trouble')}squall: interrupted\nsquall: set-up\n{gate(LANE, order=2)}", LANE),
        ("order: 1\nsquall: interrupted\nsquall: f.jsonl: line 3 is no result\n", "f.jsonl: line 3 is no result"),
        ("order: 1\n[ 15 s] 3 of 9 tests, 0 failed\n", "[ 15 s] 3 of 9 tests, 0 failed"),
        ("", "exit code 1"),
    ],
)
def test_tests_that_all_passed_and_an_exit_code_have_the_gates_own_reason(tmp_path: Path, said: str, why: str) -> None:
    folder = Folder(tmp_path)
    folder.tests.write_text(results(row("a", "passed")))
    folder.said(EVERYTHING).parent.mkdir()
    folder.said(EVERYTHING).write_text(said)
    assert PARTS[EVERYTHING].result(folder, 1) == (FAILED, why)


@pytest.mark.parametrize(("code", "result"), [(0, UNKNOWN), (1, FAILED)])
def test_results_that_cannot_be_read_leave_the_part_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, result: str
) -> None:
    monkeypatch.setattr("tests.support.gate.results.read", refuse)
    assert PARTS[EVERYTHING].result(Folder(tmp_path), code) == (result, "tests.jsonl: line 3 is no result")


def refuse(file: Path) -> list[Result]:
    raise PreconditionError(f"{file.name}: line 3 is no result")


def test_of_a_test_that_ran_twice_the_last_result_counts(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin(replace(HEAD, parts=(EVERYTHING,)))
    folder.note(line(EVERYTHING, PASSED))
    folder.tests.write_text(results(row("a", "failed"), row("b", "passed"), row("a", "failed", flaky=True)))
    found = collecting.rows_of(folder, datetime.now(UTC))["tests"]
    assert [(each["test"], each["flaky"], each["commit"]) for each in found] == [
        ("a", True, "abc"),
        ("b", False, "abc"),
    ]


def test_results_of_two_commits_are_of_no_known_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin(replace(HEAD, parts=(EVERYTHING,)))
    folder.note(line(EVERYTHING, INTERRUPTED))
    folder.note(replace(line(EVERYTHING, PASSED), commit="def"))
    folder.tests.write_text(results(row("a", "passed")))
    found = collecting.rows_of(folder, datetime.now(UTC))
    assert found["tests"][0]["commit"] == ""
    assert found["test_nights"][0]["problems"] == ["The night went on at another commit: abc, then def."]


# --------------------------------------------------------------------------------------------------- the whole of one


def stored(nights: Path) -> collecting.Tables:
    """The rows of all nights of tests in a store that is whole."""
    tables, problems = collecting.read_tables(nights / "store")
    assert problems == []
    return tables


def everything(*rows: Mapping[str, object], code: int = 0) -> Part:
    """The part `everything`, with these results."""
    text = results(*rows).replace("\n", "\\n")
    return part(EVERYTHING, f"printf '{text}' > $0; exit {code}")


def test_a_night_ends_with_a_page_and_a_table_in_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests = everything(row("a", "passed"), row("<b>", "failed", why="assert 1 == 2"), code=1)
    elsewhere = part("elsewhere", "exit 0", lacks=lambda: "needs root")
    out = tmp_path / "tests-n1"
    assert night.main(["--out", str(out)], parts_of(tests, part("fine", "exit 0"), elsewhere)) == 1
    tables = stored(tmp_path)
    assert {each["part"]: each["result"] for each in tables["parts"]} == {
        EVERYTHING: FAILED,
        "fine": PASSED,
        "elsewhere": NOT_HERE,
    }
    assert {each["test"]: (each["result"], each["cpu_s"]) for each in tables["tests"]} == {
        "a": ("passed", 1.0),
        "<b>": ("failed", 1.0),
    }
    assert tables["test_nights"][0]["exit"] == 1
    page = (out / "report/index.html").read_text()
    assert "Failed: everything" in page
    assert "needs root" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    said = capsys.readouterr().out
    assert "[2 of 3] fine: /bin/sh -c 'exit 0'" in said
    assert "1 failed (1 new)" in said


def test_an_interrupted_night_goes_on_where_it_stopped(tmp_path: Path) -> None:
    played = tmp_path / "played"
    first = part("first", f"echo first >> {played}")
    second = part("second", f"echo second >> {played}; kill -INT $PPID; sleep 600")
    out = tmp_path / "tests-n1"
    assert night.main(["--out", str(out)], parts_of(first, second)) == 130
    assert played.read_text().split() == ["first", "second"]
    assert stored(tmp_path)["parts"] == []
    second = part("second", f"echo second >> {played}")
    assert night.main(["--resume", str(out)], parts_of(first, second)) == 0
    assert played.read_text().split() == ["first", "second", "second"]
    assert [each["part"] for each in stored(tmp_path)["parts"]] == ["first", "second"]


def test_only_the_parts_that_were_asked_for_are_played_and_a_part_that_there_is_not_is_refused(tmp_path: Path) -> None:
    parts = parts_of(part("one", "exit 1"), part("two", "exit 0"))
    out = tmp_path / "tests-n1"
    assert night.main(["--out", str(out), "--only", "two"], parts) == 0
    page = (out / "report/index.html").read_text()
    assert "All that was asked for passed: two" in page
    assert "Not asked for: one." in page
    assert "the part <code>everything</code> was not played" in page
    assert [each["part"] for each in stored(tmp_path)["parts"]] == ["two"]
    with pytest.raises(SystemExit) as ended_with:
        night.main(["--only", "three"], parts)
    assert ended_with.value.code == 3
    assert night.main(["--resume", str(tmp_path / "nowhere")], parts) == 3


@pytest.mark.parametrize("more", [["--only", "one"], ["--out", "elsewhere"]])
def test_a_night_that_goes_on_has_its_parts_and_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    Folder(tmp_path).begin(replace(HEAD, parts=("one",)))
    with pytest.raises(SystemExit) as ended_with:
        night.main(["--resume", str(tmp_path), *more], parts_of(part("one", "exit 0")))
    assert ended_with.value.code == 3
    assert "leave out --out and --only" in capsys.readouterr().err
    assert Folder(tmp_path).read()[1] == []


def test_a_part_that_is_asked_for_twice_is_played_once(tmp_path: Path) -> None:
    folder, parts = Folder(tmp_path / "tests-n1"), parts_of(part("one", "exit 0"), part("two", "exit 0"))
    assert night.main(["--out", str(folder.path), "--only", "two", "one", "two"], parts) == 0
    assert folder.read()[0].parts == ("two", "one")
    assert [each.part for each in folder.read()[1]] == ["two", "one"]


def test_seeds_begin_where_the_last_night_ended(tmp_path: Path) -> None:
    asked = []

    def command(folder: Folder, head: Head) -> list[str]:
        asked.append(head.first_seed)
        return ["/bin/sh", "-c", "exit 0"]

    parts = parts_of(Part("seeds", "", 1, command, seeds=SEEDS))
    for number in range(2):
        assert night.main(["--out", str(tmp_path / f"tests-n{number}")], parts) == 0
    assert list(dict.fromkeys(asked)) == [collecting.FIRST_SEED, collecting.FIRST_SEED + SEEDS]


def test_results_that_are_gone_leave_the_night_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, parts = Folder(tmp_path / "tests-n1"), parts_of(everything(row("a", "passed")))
    assert night.main(["--out", str(folder.path)], parts) == 0
    folder.tests.unlink()
    assert night.main(["--resume", str(folder.path)], parts) == 2
    assert [each["result"] for each in stored(tmp_path)["parts"]] == [UNKNOWN]
    said, page = capsys.readouterr().out, (folder.path / "report/index.html").read_text()
    for where in (said, page):
        assert "everything is unknown: tests.jsonl has no result of a test" in where
        assert "The part everything was played, but tests.jsonl has no result of a test." in where
    assert "although the part <code>everything</code> was played" in page
    assert "not played" not in page


@pytest.mark.parametrize(
    ("gone", "why"),
    [(1, "has results of 1 of 2 tests"), (3, "does not say how many tests were to run: lines of its end are lost")],
)
def test_results_that_lost_lines_leave_the_night_unknown(tmp_path: Path, gone: int, why: str) -> None:
    folder, parts = Folder(tmp_path / "tests-n1"), parts_of(everything(row("a", "passed"), row("b", "passed")))
    assert night.main(["--out", str(folder.path)], parts) == 0
    lines = folder.tests.read_text().splitlines(keepends=True)
    folder.tests.write_text("".join(lines[:gone] + lines[gone + 1 :]))
    assert PARTS[EVERYTHING].result(folder, 0) == (UNKNOWN, f"tests.jsonl {why}")
    assert night.main(["--resume", str(folder.path)], parts) == 2
    tables = stored(tmp_path)
    assert [(each["result"], each["why"]) for each in tables["parts"]] == [(UNKNOWN, f"tests.jsonl {why}")]
    assert tables["test_nights"][0]["problems"] == [f"The part everything was played, but tests.jsonl {why}."]
    assert tables["tests"], "what is there is kept"


def test_a_part_that_failed_stays_failed_without_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.gate.results.read", refuse)
    folder = Folder(tmp_path)
    folder.begin(replace(HEAD, parts=(EVERYTHING,)))
    folder.note(line(EVERYTHING, FAILED))
    found = collecting.rows_of(folder, datetime.now(UTC))
    assert (found["parts"][0]["result"], found["test_nights"][0]["exit"]) == (FAILED, 1)
    (problem,) = found["test_nights"][0]["problems"]
    assert problem.endswith("but its results cannot be read: tests.jsonl: line 3 is no result.")


@pytest.mark.parametrize("where", ["lacks", "command"])
def test_a_part_that_the_night_cannot_play_is_failed_and_the_night_goes_on(tmp_path: Path, where: str) -> None:
    def broken(*_: object) -> list[str]:
        raise OSError("no engine answers")

    out = tmp_path / "tests-n1"
    parts = parts_of(part("one", "exit 0", **{where: broken}), part("two", "exit 0"))
    assert night.main(["--out", str(out)], parts) == 1
    one, two = stored(tmp_path)["parts"]
    assert (one["result"], one["why"]) == (FAILED, "the night could not play it: OSError: no engine answers")
    assert two["result"] == PASSED
    assert "in broken\n" in (out / "said/one.txt").read_text()
    assert "exit code 3" not in (out / "report/index.html").read_text()


def test_a_night_with_a_part_that_there_is_not_does_not_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Folder(tmp_path).begin(replace(HEAD, parts=("fine", "gone")))
    assert night.main(["--resume", str(tmp_path)], parts_of(part("fine", "exit 1"))) == 3
    assert capsys.readouterr().out == f"squall: {tmp_path}/record.jsonl, line 1: parts: there is no part gone\n"


def test_an_interruption_before_a_part_has_begun_interrupts_the_night(tmp_path: Path) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    out = tmp_path / "tests-n1"
    assert night.main(["--out", str(out)], parts_of(part("one", "exit 0", lacks=interrupted))) == 130
    assert Folder(out).read()[1] == []


@pytest.mark.parametrize(("code", "next_seed"), [(0, 3000), (1, 3000), (2, 3000), (3, None), (-9, None)])
def test_seeds_of_a_part_that_could_not_do_its_work_are_not_counted_as_played(
    tmp_path: Path, code: int, next_seed: int | None
) -> None:
    script = f"exit {code}" if code >= 0 else f"kill {code} $$"
    folder = Folder(tmp_path)
    folder.begin(replace(HEAD, parts=("seeds",)))
    play(folder, parts_of(part("seeds", script, seeds=SEEDS)), lambda _: None)
    assert [each.next_seed for each in folder.read()[1]] == [next_seed]


def damage_a_night(nights: Path) -> Path:
    """Play a night, and damage what the store has of it."""
    assert night.main(["--out", str(nights / "tests-n0")], parts_of(part("fine", "exit 0"))) == 0
    (tables,) = (nights / "store").glob("tests=*/*")
    return tables / "parts.parquet"


def test_a_damaged_night_of_the_store_is_told_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := damage_a_night(tmp_path)).unlink()
    (tmp_path / "store/tests=zzz").touch()
    capsys.readouterr()
    out = tmp_path / "tests-n1"
    assert night.main(["--out", str(out)], parts_of(part("fine", "exit 0"))) == 0
    said = capsys.readouterr().out
    for where in (
        said.partition("[1 of 1]")[0],
        said.partition("[1 of 1]")[2],
        (out / "report/index.html").read_text(),
    ):
        assert f"{file.parent} cannot be read, and is left out" in where
        assert f"{tmp_path}/store/tests=zzz is no folder" in where


@pytest.mark.parametrize("how", ["in its middle", "another table"])
def test_a_table_that_cannot_be_read_to_its_end_is_left_out_too(tmp_path: Path, how: str) -> None:
    file = damage_a_night(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[:4] + bytes(200) + content[204:])
    if how == "another table":
        pq.write_table(pa.table({"seconds": [[1.0]]}), file)
    tables, (problem,) = collecting.read_tables(tmp_path / "store")
    assert not tables["test_nights"]
    assert f"{file.parent} cannot be read" in problem


def test_a_night_whose_own_collection_is_damaged_is_collected_again(tmp_path: Path) -> None:
    file = damage_a_night(tmp_path)
    file.write_bytes(b"PAR1")
    assert night.main(["--resume", str(tmp_path / "tests-n0")], parts_of(part("fine", "exit 0"))) == 0
    assert [each["part"] for each in collecting.read_tables(tmp_path / "store")[0]["parts"]] == ["fine"]


def test_a_store_that_cannot_be_written_is_refused_and_the_night_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").touch()
    parts = parts_of(part("fine", "exit 0"))
    assert night.main(["--out", str(tmp_path / "tests-n1")], parts) == 3
    assert f"{tmp_path}/store: the night cannot be collected" in capsys.readouterr().out
    (tmp_path / "store").unlink()
    assert night.main(["--resume", str(tmp_path / "tests-n1")], parts) == 0


def test_every_part_is_a_command_that_there_is(tmp_path: Path) -> None:
    from squall.chaos import cli

    for each in PARTS.values():
        program, *words = each.command(Folder(tmp_path / "tests-n1"), HEAD)
        assert (Path(__file__).parents[3] / program).exists()
        if program == "./squall" and words[0] != "test":
            with cli.squall.make_context("squall", list(words)) as context:
                command = cli.squall.get_command(context, words[0])
                assert command is not None
                command.make_context(words[0], list(words[1:]))
