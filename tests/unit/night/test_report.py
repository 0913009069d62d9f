"""The report of a night of tests: what is new, what is flaky, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.night.report import Report, report_of

Row = dict[str, Any]


def of_test(night: str, test: str, result: str, **more: Any) -> Row:
    return {"night": night, "test": test, "result": result, "cpu_s": 1.0, "wall_s": 1.0, "flaky": False, "why": "",
            "commit": "abc", **more}  # fmt: skip


def played(night: str, part: str, result: str) -> Row:
    return {"night": night, "part": part, "result": result, "exit": 0, "seconds": 1.0, "command": "./x", "why": "why"}


def report(*tests: Row, parts: tuple[Row, ...] = (), exit_code: int = 0, not_asked: tuple[str, ...] = ()) -> Report:
    """Return the report of the last of these nights."""
    nights = sorted({row["night"] for row in (*tests, *parts)})
    known: Mapping[str, list[Row]] = {
        "test_nights": [{"night": each, "exit": exit_code, "problems": []} for each in nights],
        "parts": list(parts),
        "tests": list(tests),
    }
    return report_of(known, nights[-1], not_asked=not_asked)


def test_a_failure_that_the_night_before_did_not_have_is_new_and_stands_first() -> None:
    told = report(
        of_test("n1", "a", "failed"),
        of_test("n1", "b", "passed"),
        of_test("n1", "c", "failed"),
        of_test("n1", "gone", "passed"),
        of_test("n2", "a", "failed"),
        of_test("n2", "b", "failed"),
        of_test("n2", "c", "passed"),
        of_test("n2", "more", "passed"),
    )
    assert [(row["test"], told.is_new(row)) for row in told.failed] == [("b", True), ("a", False)]
    assert (told.repaired, told.added, told.removed) == (["c"], ["more"], ["gone"])
    assert told.sentences[0] == "Of 4 tests 2 failed (1 new); skipped: 0."


def test_a_night_is_compared_with_the_last_one_that_played_tests() -> None:
    told = report(of_test("n1", "a", "failed"), of_test("n3", "a", "failed"), parts=(played("n2", "seeds", "passed"),))
    assert told.before_night == "n1"
    assert not told.is_new(told.failed[0])


@pytest.mark.parametrize(
    ("earlier", "later", "flaky"),
    [
        ({"result": "failed"}, {"result": "passed"}, [("a", "failed in 1 of 2 nights at commit abc")]),
        ({"result": "passed"}, {"result": "failed"}, [("a", "failed in 1 of 2 nights at commit abc")]),
        ({"result": "failed"}, {"result": "passed", "commit": "def"}, []),
        ({"result": "failed", "commit": "a-dirty"}, {"result": "passed", "commit": "a-dirty"}, []),
        ({"result": "skipped"}, {"result": "passed"}, []),
        ({"result": "failed"}, {"result": "failed"}, []),
        ({"result": "passed"}, {"result": "failed", "flaky": True}, [("a", "failed tonight, and passed alone")]),
    ],
)
def test_a_test_is_flaky_that_fails_and_passes_at_one_commit(
    earlier: dict[str, Any], later: dict[str, Any], flaky: list[tuple[str, str]]
) -> None:
    assert list(report(of_test("n1", "a", **earlier), of_test("n2", "a", **later)).flaky) == flaky


def test_the_most_costly_tests_stand_beside_what_they_cost_before() -> None:
    told = report(
        of_test("n1", "a", "passed", cpu_s=2.0),
        of_test("n2", "a", "passed", cpu_s=1.0),
        of_test("n2", "b", "passed", cpu_s=3.0),
    )
    assert [(row["test"], before) for row, before in told.costly] == [("b", None), ("a", 2.0)]
    assert told.cpu_s == 4.0


def test_reasons_of_skips_are_counted() -> None:
    told = report(*(of_test("n1", str(n), "skipped", why="needs root" if n else "needs Java") for n in range(3)))
    assert told.skip_reasons == [("needs root", 2), ("needs Java", 1)]


@pytest.mark.parametrize(
    ("results", "code", "headline"),
    [
        (("passed", "passed"), 0, "Everything passed"),
        (("passed", "not here"), 0, "Nothing failed"),
        (("passed", "unknown"), 2, "Too little is proven"),
        (("failed", "unknown"), 1, "Failed: part0"),
    ],
)
def test_the_headline_says_how_it_went(results: tuple[str, ...], code: int, headline: str) -> None:
    rows = tuple(played("n1", f"part{n}", result) for n, result in enumerate(results))
    assert report(parts=rows, exit_code=code).headline == headline


@pytest.mark.parametrize(
    ("results", "code", "headline"),
    [
        (("passed", "passed"), 0, "All that was asked for passed: part0, part1"),
        (("passed", "not here"), 0, "Nothing failed of what was asked for: part0, part1"),
        (("passed", "unknown"), 2, "Too little is proven"),
        (("failed", "passed"), 1, "Failed: part0"),
    ],
)
def test_a_night_of_some_parts_names_the_others(results: tuple[str, ...], code: int, headline: str) -> None:
    rows = tuple(played("n1", f"part{n}", result) for n, result in enumerate(results))
    told = report(parts=rows, exit_code=code, not_asked=("part2", "part3"))
    assert told.headline == headline
    assert told.sentences[0] == "Not asked for: part2, part3."
