"""Checks what the page of a night answers first."""

from __future__ import annotations

from typing import Any

import pytest

from squall.reports.nightly.report import NightlyReport, report_of
from tests.support.nightly.rows import cell, finding, losing, night, run, tables


def report(runs: list[dict[str, Any]], findings: list[dict[str, Any]] | None = None, **head: Any) -> NightlyReport:
    """Return the report of one night."""
    given = tables([night(**{"planned": max(len(runs), 1), **head})], runs, findings or [])
    return report_of(given, "n1", [cell()] if runs else [], "Over this night.")


def test_a_night_without_findings_says_that_nothing_is_wrong() -> None:
    told = report([run("one"), run("two")])
    assert (told.word, told.headline) == ("valid", "Nothing is wrong")


def test_one_unknown_run_among_many_is_said_and_does_not_colour_the_night() -> None:
    told = report([*(run(str(n)) for n in range(9)), run("x", verdict="unknown")])
    assert told.word == "valid"
    assert told.sentences[-1] == "1 run ended without a verdict and proves nothing."


def test_an_empty_night_is_unknown_and_says_why() -> None:
    told = report([], ended="", not_run=["one"])
    assert (told.word, told.headline) == ("unknown", "Nothing ran")
    assert "was killed" in told.sentences[0]


def test_a_night_with_unknown_runs_only_proves_nothing() -> None:
    told = report([run(verdict="unknown"), run("two", verdict="no verdict")], exit=2)
    assert (told.word, told.headline) == ("unknown", "Too little is proven")
    assert told.sentences == [
        "Every run ended without a verdict, so nothing is known of the cluster. Each run below says why."
    ]


@pytest.mark.parametrize(("code", "word"), [(0, "valid"), (2, "unknown"), (None, "unknown")])
def test_the_nights_own_limit_decides_what_is_too_much_unknown(code: int | None, word: str) -> None:
    runs = [run("a"), run("b", verdict="unknown")]
    assert report(runs, exit=code).word == word


def test_an_unexpected_finding_of_a_valid_run_is_wrong() -> None:
    told = report([run()], [finding(permitted=True, unexpected=True)])
    assert (told.word, told.headline) == ("invalid", "One finding, in 1 run; it is new")


def test_the_headline_says_in_how_many_runs_a_finding_is() -> None:
    told = report([run("a"), run("b")], [finding("a", unexpected=True), finding("b", unexpected=True)])
    assert told.headline == "One finding, in 2 runs; it is new"


def test_an_invalid_run_whose_findings_cannot_be_read_is_wrong_all_the_same() -> None:
    told = report([run(verdict="invalid")])
    assert (told.word, told.headline) == ("invalid", "1 invalid run")


def test_a_run_that_shows_what_the_night_forbids_is_invalid_in_tiles_trends_and_its_row() -> None:
    told = report([run(unexpected=["lost-write"])], [finding(permitted=True, unexpected=True)])
    assert (told.verdicts["valid"], told.verdicts["invalid"], told.trends.nights[-1].invalid) == (0, 1, 1)
    assert told.runs[0]["why"] == (
        "lost-write: the configuration permits it, but this night forbids it (--never or [[expect]])"
    )
    assert told.unread == ()


def test_a_cell_with_what_the_night_forbids_is_no_cell_that_kept_its_promise() -> None:
    nights, runs = [night()], [run("one", unexpected=["lost-write"]), run("two")]
    told = report_of(tables(nights, runs, []), "n1", [losing()], "Over this night.")
    assert (told.cells[0].invalid, told.cells[0].broken) == (1, True)
    assert [each["verdict"] for each in told.cells[0].behind] == ["invalid", "valid"]
    kept = report_of(tables(nights, [run("one"), run("two")], []), "n1", [losing()], "Over this night.")
    assert not kept.cells[0].broken


def test_a_verdict_in_doubt_says_so_in_its_row() -> None:
    assert report([run(lost=3)]).runs[0]["why"] == "in doubt: its history shows 3 lost records, which is not permitted"


def test_what_the_night_forbade_stays_wrong_when_the_run_directory_is_gone() -> None:
    gone = {"unexpected": ["lost-write"], "why": "its run directory is gone", "run": "", "measured": False}
    told = report([run("gone", **gone), run("two")])
    assert (told.word, told.headline) == ("invalid", "1 invalid run")
    assert told.sentences == ["What they found cannot be read any more: begin with the red runs below."]
    assert told.runs[0]["why"].endswith("this night forbids it (--never or [[expect]]); its run directory is gone")


@pytest.mark.parametrize("left", [[], [run("two")]])
def test_a_night_that_ended_red_stays_red_without_the_line_of_its_finding(left: list[dict[str, Any]]) -> None:
    told = report(left, exit=1)
    assert (told.word, told.headline) == ("invalid", "Something went wrong, and what it was is gone")
    assert "ended with exit code 1" in told.sentences[0]


def test_beside_findings_it_says_how_many_invalid_runs_cannot_be_read() -> None:
    runs = [run("one", verdict="invalid"), run("gone", verdict="invalid", run="", measured=False)]
    told = report(runs, [finding("one")])
    assert told.unread == ("gone",)
    assert told.sentences[1] == "Of 1 more invalid run nobody can read any more what was found."


ENTRY = {"fingerprint": "f1", "owner": "alice", "until": "2026-07-20", "why": "KAFKA-17754"}


@pytest.mark.parametrize(
    ("ended", "word", "headline", "state"),
    [
        ("2026-07-20T23:59:59+00:00", "valid", "Nothing is wrong except 1 accepted finding", "accepted"),
        ("2026-07-21T00:00:01+00:00", "invalid", "One finding, in 1 run; it is known", "expired"),
    ],
)
def test_an_accepted_finding_does_not_make_the_night_red_until_its_last_day_is_over(
    ended: str, word: str, headline: str, state: str
) -> None:
    rows = [night("n1"), night("n2", ended=ended)]
    given = tables(rows, [run(name="n2", verdict="invalid")], [finding(name="n1"), finding(name="n2")])
    told = report_of(given, "n2", [cell()], "", accepted=[ENTRY])
    assert (told.word, told.headline) == (word, headline)
    (card,) = told.cards
    assert (card.state, card.accepted) == (state, (ENTRY,))
    assert (told.new, told.known + told.accepted) == ([], [card])


def test_beside_an_accepted_finding_another_one_or_another_invalid_run_makes_the_night_red() -> None:
    runs = [run(verdict="invalid"), run("two", verdict="invalid")]
    given = tables([night()], runs, [finding()])
    told = report_of(given, "n1", [cell()], "", accepted=[ENTRY])
    assert (told.word, told.headline) == ("invalid", "1 invalid run")
    other = finding("two", fingerprint="f2", cause="another")
    told = report_of(tables([night()], runs, [finding(), other]), "n1", [cell()], "", accepted=[ENTRY])
    assert (told.word, told.headline) == ("invalid", "One finding, in 1 run; it is new")
    assert [card.state for card in told.cards] == ["new", "accepted"]


def test_a_retried_run_counts_by_its_last_attempt() -> None:
    told = report([run(verdict="unknown", counts=False), run(attempt=2)])
    assert (told.word, told.retried, told.verdicts["valid"]) == ("valid", 1, 1)


def test_runs_that_did_not_run_are_said() -> None:
    told = report([run()], not_run=["two", "three"], planned=3, left_out=["two: no time"])
    assert told.sentences[-2] == "2 of 3 planned runs (67%) did not run. Left out: 1 x no time."
    assert told.sentences[-1] == "Without any run: 2 configurations, two, three."


def test_a_configuration_that_ran_with_another_seed_is_not_without_any_run() -> None:
    told = report([run("squall-sim.appends.kill.seed1")], not_run=["squall-sim.appends.kill.seed2"], planned=2)
    assert told.untouched == []
    assert told.sentences[-1] == "1 of 2 planned runs (50%) did not run."


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ({"lost": 3}, "3 lost records, which is not permitted"),
        ({"duplicated": 1}, "1 duplicated record, which is not permitted"),
        ({"lost": 1, "duplicated": 2}, "1 lost record and 2 duplicated records, which is not permitted"),
    ],
)
def test_a_valid_run_whose_history_lost_records_puts_the_night_in_doubt(shown: dict[str, int], said: str) -> None:
    told = report([run("one", **shown, permitted=[]), run("two")])
    assert (told.word, told.headline) == ("unknown", "A verdict is in doubt")
    assert told.sentences[1] == f"one is judged valid, but its history shows {said}."


def test_what_may_be_lost_contradicts_no_verdict_and_a_finding_stays_graver_than_a_doubt() -> None:
    assert report([run(lost=3, permitted=["unseen"])]).word == "valid"
    assert report([run(lost=3, permitted=[], measured=False)]).word == "valid"
    assert report([run(lost=3, verdict="invalid", permitted=[])]).contradicted == []
    told = report([run("one", lost=3, permitted=[]), run("two", verdict="invalid", lost=1)], [finding("two")])
    assert told.word == "invalid"
    assert told.sentences[-1].startswith("one is judged valid, but its history shows 3 lost records")


def test_a_permitted_loss_stands_in_the_headline_and_in_a_sentence_with_its_share() -> None:
    permitted = {"permitted": ["lost-write"], "acknowledged": 845}
    told = report([run("one", lost=200, **permitted), run("two", lost=60, **permitted), run("three")])
    assert (told.word, told.headline) == ("valid", "Nothing is wrong, and records were lost as permitted")
    said = "2 valid runs lost 260 of 1,690 acknowledged records (15 %): their configuration permits it."
    assert said in told.sentences
    assert report([run("one", lost=3, verdict="unknown", **permitted), run("two")]).loss == ""
    wrong = report([run("one", lost=3, **permitted), run("two", verdict="invalid")], [finding("two")])
    assert wrong.headline == "One finding, in 1 run; it is new"
    assert wrong.sentences[-1].startswith("1 valid run lost 3 of 845 acknowledged records (less than 1 %): its ")


def test_a_night_that_played_too_little_says_that_it_is_that() -> None:
    told = report([run("one")], exit=2, not_run=["two", "three"], planned=3)
    assert (told.word, told.headline) == ("unknown", "Too little is proven")
    assert told.sentences[0] == "No run found anything that is not permitted, but too little of the plan was played."


def test_lost_records_are_counted_by_whether_they_may_be() -> None:
    rows = [cell(lost=3, invalid=1), losing(), losing(target="kafka")]
    told = report_of(tables([night()], [run()], []), "n1", rows, "")
    assert (told.lost_against, told.lost_permitted) == (3, 160)
    assert told.cells[0].broken
    assert told.places == ["kafka, process", "squall, process"]
    assert [(configuration, len(found)) for configuration, _, found in told.beside] == [("acks=1, min ISR 1 of 3", 2)]


def test_later_nights_are_not_compared_with() -> None:
    given = tables([night("n1"), night("n2"), night("n3")], [run(name="n2")], [finding(name="n3"), finding(name="n2")])
    told = report_of(given, "n2", [], "")
    assert [row["night"] for row in told.nights] == ["n1", "n2"]
    assert [card.state for card in told.cards] == ["new"]


def test_what_is_gone_because_nothing_forbids_it_any_more_is_told_as_that() -> None:
    before = finding(name="n1", permitted=True, unexpected=True)
    for tonight, said in (([finding(name="n2", permitted=True)], "as well"), ([], "without it")):
        given = tables([night("n1"), night("n2")], [run(name="n2")], [before, *tonight])
        ((_, why),) = report_of(given, "n2", [], "").vanished
        assert said in why
