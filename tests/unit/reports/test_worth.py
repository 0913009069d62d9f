"""The first screen of a valid run: what its verdict is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall.reports.checks import checks_of
from squall.reports.fault_words import fault_rows
from squall.reports.run_files import read_run
from squall.reports.worth import answers_of


def told(run_dir: Path, **verdict: Any) -> dict[str, str]:
    """The answers, by their question."""
    path = run_dir / "verdict.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **verdict}))
    files = read_run(run_dir)
    return {each.question: each.text for each in answers_of(files, checks_of(files), fault_rows(files))}


def test_a_valid_run_says_what_was_promised_tried_and_looked_at_and_what_that_is_worth(run_dir: Path) -> None:
    guarantee = {"row": "acks=all, min ISR 2 or more", "fault_classes": ["P", "W1"], "permitted": {}}
    answers = told(run_dir, guarantee=guarantee)
    assert list(answers) == ["What was promised", "What was tried", "What was looked at", "What that is worth"]
    assert answers["What was promised"] == (
        "acks=all, min ISR 2 or more, under faults of processes and power loss of one: no anomaly is permitted."
    )
    assert "1 of 1 faults landed: kill" in answers["What was tried"]
    assert "checks ran and found nothing." in answers["What was looked at"]
    assert answers["What that is worth"].startswith("Each of the 90 acknowledged records is accounted for.")


@pytest.mark.parametrize(
    ("guarantee", "expect", "said"),
    [
        ({"row": "acks=1", "permitted": {"lost-write": "x", "duplicate": "y"}}, "config",
         "acks=1: duplicate and lost-write may happen, and no other anomaly."),
        ({"row": "acks=1; idempotence off; idempotence off, more than one request in flight"}, "config",
         "acks=1, idempotence off, more than one request in flight: no anomaly is permitted."),
        ({"row": "acks=1", "permitted": {"lost-write": "x"}}, "safe",
         "acks=1: no anomaly was accepted (--expect safe)."),
    ],
)  # fmt: skip
def test_what_was_promised_depends_on_the_configuration_and_on_what_was_asked_for(
    run_dir: Path, guarantee: dict[str, Any], expect: str, said: str
) -> None:
    assert told(run_dir, guarantee=guarantee, expect=expect)["What was promised"] == said


def test_a_run_without_a_fault_says_that_it_says_nothing_of_failures(run_dir: Path) -> None:
    (run_dir / "nemesis.jsonl").write_text("")
    assert "No fault landed" in told(run_dir)["What that is worth"]


@pytest.mark.parametrize("word", ["invalid", "unknown"])
def test_another_verdict_has_its_reasons_instead(run_dir: Path, word: str) -> None:
    assert told(run_dir, verdict=word) == {}


def test_the_clients_are_counted_and_members_under_test_are_named_with_their_commits(run_dir: Path) -> None:
    load = '[workload]\nname = "command"\nproducers = 1\nreaders = 2\nmembers = 2\ncommand = "node orders.mjs"\n'
    for role, said in (("member", "1 producer, 2 readers and 2 members of a group (node orders.mjs)"),
                       ("producer", "1 producer and 2 readers")):  # fmt: skip
        (run_dir / "plan.toml").write_text(f'time_s = 8.0\n{load}role = "{role}"\n')
        metrics = json.loads((run_dir / "metrics.json").read_text())
        metrics["outcomes"] = {**metrics.get("outcomes", {}), "commit": {"ok": 153}}
        (run_dir / "metrics.json").write_text(json.dumps(metrics))
        answers = told(run_dir)
        assert f"sends, with {said}, in 8 s." in answers["What was tried"]
        assert ("The members committed positions 153 times." in answers["What was tried"]) is (role == "member")
        assert ("The members reported 0 records as processed" in answers["What that is worth"]) is (role == "member")
        assert "(squall nightly) find it" in answers["What that is worth"], "no simulation runs a program"


@pytest.mark.parametrize(("aborted", "said"), [(0, False), (3, True)])
def test_records_of_transactions_that_did_not_commit_are_named_as_not_looked_for(
    run_dir: Path, aborted: int, said: bool
) -> None:
    path = run_dir / "metrics.json"
    ended = {"committed": 9, "aborted": aborted}
    path.write_text(json.dumps({**json.loads(path.read_text()), "transactions": {"ended": ended}}))
    assert ("promised to no reader" in told(run_dir)["What that is worth"]) is said
