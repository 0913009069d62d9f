"""Checks the result of a night, in Markdown and as plain text."""

from __future__ import annotations

from dataclasses import replace

from squall.chaos.nightly.items import PlannedRun, plan_night
from squall.chaos.nightly.matrix import make_matrix
from squall.chaos.nightly.outcome import NightResult, by_configuration, markdown, text
from squall.checkers.nightly.results import RunAttempt, by_item


def night() -> NightResult:
    """One run with a finding, one without a result, one that was unknown first, and one that is left out."""
    axes = {"runtime": "process", "acks": ["all", "1"]}
    items = plan_night(make_matrix({"runs": [{"axes": axes, "faults": ["kill"]}], "seeds": 2}), 1).items
    a, b, c, d = items
    attempts = [
        attempt(a, 1, "invalid", "2 of 10 acknowledged records | were lost."),
        attempt(b, 1, "unknown", "kill did not land"),
        attempt(b, 2, "unknown", "kill did not land"),
        attempt(c, 1, "unknown", "the disk was full"),
        attempt(c, 2, "valid", ""),
    ]
    return NightResult(
        "20260704T010000", items, by_item(attempts), {d.item: "no time: such a run takes about 38 s"}, 0.2, "nights/n"
    )


def attempt(item: PlannedRun, number: int, verdict: str, why: str) -> RunAttempt:
    run = f"runs/20260704T010000-{item.item}"
    return RunAttempt(item.item, number, verdict, 0, run, "2026-07-04T01:00:00+00:00", 3.0, why)


def test_the_sentence_says_whether_something_is_wrong_first() -> None:
    told = "3 of 4 runs played: 1 valid, 1 invalid, 1 unknown; 1 left out."
    assert night().sentence() == f"Something forbidden was found. {told}"
    assert night().exit == 1


def test_configurations_have_their_counts() -> None:
    assert by_configuration(night()) == {
        "squall/process appends": (2, 0, 1, 1, 0),
        "squall/process appends acks=1": (1, 1, 0, 0, 1),
    }


def test_markdown_has_a_row_for_each_finding_and_each_run_without_a_verdict() -> None:
    lines = markdown(night(), "report/index.html").splitlines()
    (finding,) = (line for line in lines if "were lost" in line)
    assert finding.startswith(
        "| squall/process appends | kill | 1 | 2 of 10 acknowledged records \\| were lost. | nights/n/runs/"
    )
    assert "| squall/process appends | kill | 2 | unknown: kill did not land |" in lines
    assert "| squall/process appends acks=1 | 1 | 1 | 0 | 0 | 1 |" in lines
    assert "- 1 x no time: such a run takes about 38 s" in lines
    assert "Tried again because the first attempt was unknown: 2 times." in lines
    assert lines[-1] == "Report: report/index.html"


def test_the_mail_begins_with_what_is_wrong_and_needs_no_wide_screen() -> None:
    lines = text(night()).splitlines()
    assert lines[0] == "Squall, night 20260704T010000"
    assert lines[3] == "FOUND  squall/process appends, faults kill, seed 1"
    assert lines[5].startswith("  ./squall explain nights/n/runs/20260704T010000-squall-process.appends.kill.seed1")
    assert "squall/process appends acks=1: 1 of 1 valid, 1 left out" in lines


def test_what_was_not_played_stands_in_the_last_lines_and_at_the_top_of_the_summary() -> None:
    outcome = night()
    outcome = replace(
        outcome, items=outcome.items, attempts={outcome.items[0].item: outcome.attempts[outcome.items[0].item]}
    )
    gaps = [
        "NOT PLAYED: 3 of 4 planned runs (75%).",
        "WITHOUT ANY RUN: 1 of 2 configurations: squall/process appends acks=1.",
    ]
    assert text(outcome).splitlines()[-2:] == gaps
    top = markdown(outcome).split("## ")[0]
    assert all(f"**{each}**" in top for each in gaps)


def test_a_night_that_played_everything_says_nothing_of_what_it_did_not() -> None:
    whole = night()
    whole = replace(whole, items=whole.items[:3])
    assert whole.gaps == []
    assert "NOT PLAYED" not in text(whole)


def test_a_contradicted_verdict_is_exit_code_2_unless_something_was_found() -> None:
    doubt = ("run x is judged valid, but its history shows 3 lost records, which is not permitted.",)
    assert replace(night(), contradicted=doubt).exit == 1
    well = replace(night(), items=night().items[2:3], contradicted=doubt)
    assert (well.exit, replace(well, contradicted=()).exit) == (2, 0)
    assert text(well).splitlines()[-1] == doubt[0]
    assert f"**{doubt[0]}**" in markdown(well)


def test_a_permitted_loss_is_told_in_the_sentence_and_in_a_line_and_fails_nothing() -> None:
    item = night().items[2]
    loss = "260 of 845 acknowledged records lost (31 %): acks=1 permits it"
    lost = replace(attempt(item, 1, "valid", ""), permitted_loss=loss)
    well = replace(night(), items=(item,), attempts=by_item([lost]), left_out={})
    assert well.exit == 0
    head = "Nothing forbidden was found. 1 valid run lost acknowledged records, as permitted."
    assert well.sentence() == f"{head} 1 of 1 run played: 1 valid."
    lines = text(well).splitlines()
    told = lines.index("LOST AS PERMITTED  squall/process appends acks=1, faults kill, seed 1")
    assert lines[told + 1] == f"  {loss}"
    row = f"| squall/process appends acks=1 | kill | 1 | {loss} | nights/n/{lost.run} |"
    assert row in markdown(well).splitlines(), "the path can be pasted in the folder where the night was begun"
    assert "Permitted losses" not in markdown(night())
