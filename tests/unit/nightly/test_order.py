"""The order of a night: fair over configurations, and those first that tell most."""

from __future__ import annotations

from squall.chaos.nightly.items import PlannedRun, plan_night
from squall.chaos.nightly.matrix import make_matrix
from squall.chaos.nightly.order import DOUBTFUL, WELL, history_of, in_order
from squall.checkers.nightly.results import RunAttempt


def items(seeds: int = 2) -> tuple[PlannedRun, ...]:
    axes = {"runtime": "sim", "acks": ["all", "1", "0"]}
    return plan_night(make_matrix({"runs": [{"axes": axes, "faults": ["kill"]}], "seeds": seeds}), 1).items


def attempt(item: PlannedRun, verdict: str, *unexpected: str) -> RunAttempt:
    return RunAttempt(item.item, 1, verdict, 0, "", "2026-07-04T01:00:00+00:00", 3.0, "", unexpected)


def test_every_configuration_has_its_first_run_before_any_has_its_second() -> None:
    order = in_order(items(), {})
    assert [each.seed for each in order] == [1, 1, 1, 2, 2, 2]
    assert [each.cell["acks"] for each in order] == ["all", "1", "0"] * 2


def test_what_never_ran_comes_before_what_was_doubtful_and_that_before_what_was_well() -> None:
    a, b, c = items(seeds=1)
    order = in_order((a, b, c), {a.configuration: WELL, b.configuration: DOUBTFUL})
    assert order == [c, b, a]


def test_the_last_night_that_ran_a_configuration_says_how_it_was() -> None:
    a, b, c = items(seeds=1)
    newer = ((a, b), (attempt(a, "valid"), attempt(b, "valid", "lost-write")))
    older = ((a, b, c), (attempt(a, "invalid"), attempt(c, "unknown")))
    assert history_of([newer, older]) == {
        a.configuration: WELL,
        b.configuration: DOUBTFUL,
        c.configuration: DOUBTFUL,
    }
