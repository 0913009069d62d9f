"""Findings of a run, with fingerprints by which they are known again in another run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from squall.checkers.nightly.results import RunAttempt
from squall.checkers.nightly.runs import RunOfNight
from squall.reports.nightly.findings import findings_of, fingerprint, general
from squall.reports.nightly.standing import BROKEN, NO_CAUSE
from tests.support.nightly.files import BEGAN
from tests.unit.reports.conftest import KILL, TOPIC, at


def facts(path: Path, *unexpected: str) -> RunOfNight:
    """Return the facts of one valid run."""
    attempt = RunAttempt("one", 1, "invalid", 1, f"runs/{path.name}", BEGAN, 1.0, "", unexpected)
    axes = {"target": "squall", "runtime": "process", "workload": "appends"}
    return RunOfNight(attempt, True, path, "invalid", axes, "acks=all", "P", "acks=all, min ISR 2 or more", (), ())


def test_a_lost_record_is_known_by_its_truncation_and_the_fault_before(lost_dir: Path) -> None:
    (row,) = [each for each in findings_of("n1", [facts(lost_dir)]) if each["anomaly"] == "lost-write"]
    assert row["cause"] == "A broker truncates the partition from … to …: epoch … ends at …."
    assert row["place"] == "load with faults, after kill"
    assert row["permitted"] is False
    assert any("truncates appends-0-0 from 90 to 50" in line for line in row["story"])
    assert row["first_s"] <= row["last_s"] < 20


def loss(run: Path) -> dict[str, Any]:
    (row,) = [each for each in findings_of("n1", [facts(run)]) if each["anomaly"] == "lost-write"]
    return row


def test_a_crash_is_a_finding_beside_what_checks_find(lost_dir: Path) -> None:
    info = json.loads((lost_dir / "run.json").read_text())
    failure = {"kind": "crash", "name": "KeyError in append"}
    info["simulated"] = {"failure": failure, "told": ["broker 2 ended by itself: KeyError: 3"]}
    (lost_dir / "run.json").write_text(json.dumps(info))
    before = {row["anomaly"] for row in findings_of("n1", [facts(lost_dir)])}
    (row,) = [each for each in findings_of("n1", [facts(lost_dir)]) if each["anomaly"] == "crash"]
    assert (row["cause"], row["permitted"], row["promise"]) == ("KeyError in append", False, "")
    assert row["story"] == ["broker 2 ended by itself: KeyError: 3"]
    assert row["fingerprint"] == fingerprint("crash", "", "KeyError in append", "")
    assert "lost-write" in before
    info["simulated"]["failure"] = {"kind": "anomaly", "name": "lost-write"}
    (lost_dir / "run.json").write_text(json.dumps(info))
    assert {row["anomaly"] for row in findings_of("n1", [facts(lost_dir)])} == before - {"crash"}, "a check found it"


def test_a_known_bug_stays_known_when_another_fault_began_last_before_it(lost_dir: Path) -> None:
    first = loss(lost_dir)
    other = {**KILL, "id": 1, "action": "partition", "began": at(5.2), "ended": at(5.3)}
    with (lost_dir / "nemesis.jsonl").open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in ({**other, "ended": None, "evidence": None}, other))
    again = loss(lost_dir)
    assert (first["place"], again["place"]) == ("load with faults, after kill", "load with faults, after partition")
    assert again["fingerprint"] == first["fingerprint"]
    (lost_dir / "nemesis.jsonl").write_text("")
    calm = loss(lost_dir)
    assert (calm["place"], calm["cause"]) == ("load with faults, before any fault", first["cause"])
    assert calm["fingerprint"] != first["fingerprint"], "that it needs no fault makes another mistake of it"


def test_two_findings_of_unknown_cause_are_told_apart_by_the_faults_of_their_runs(lost_dir: Path) -> None:
    for trace in (lost_dir / "nodes").glob("*/trace.jsonl"):
        trace.unlink()
    links = replace(facts(lost_dir), classes="N")
    (other,) = [each for each in findings_of("n1", [links]) if each["anomaly"] == "lost-write"]
    assert other["cause"] == NO_CAUSE
    assert other["fingerprint"] != loss(lost_dir)["fingerprint"]


def test_other_offsets_brokers_and_partitions_make_the_same_words() -> None:
    one = general("Broker 1 truncates t-0 from 90 to 50, which covers 77: epoch 3 ends at 50.", ["t-0", "t-1"])
    other = general("Broker 3 truncates t-1 from 8 to 7, which covers 7: epoch 0 ends at 7.", ["t-0", "t-1"])
    assert one == other


def test_lost_write_and_unseen_have_one_fingerprint_and_others_their_own() -> None:
    assert fingerprint("lost-write", "", "c", "p") == fingerprint("unseen", "", "c", "p")
    marks = {fingerprint(*each) for each in (("lost-write", "", "c", "p"), ("duplicate", "final", "c", "p"),
             ("duplicate", "reads", "c", "p"), ("lost-write", "", "d", "p"), ("lost-write", "", "c", "q"))}  # fmt: skip
    assert len(marks) == 5


def test_a_finding_that_the_matrix_forbids_is_unexpected(lost_dir: Path) -> None:
    verdict: dict[str, Any] = json.loads((lost_dir / "verdict.json").read_text())
    for each in verdict["anomalies"]:
        each["permitted"] = True
    (lost_dir / "verdict.json").write_text(json.dumps(verdict))
    rows = findings_of("n1", [facts(lost_dir, "lost-write")])
    assert {(row["anomaly"], row["permitted"], row["unexpected"]) for row in rows} == {("lost-write", True, True)}


def test_a_run_without_a_verdict_has_no_findings(tmp_path: Path) -> None:
    assert findings_of("n1", [facts(tmp_path)]) == []
    (tmp_path / "verdict.json").write_text("[")
    assert findings_of("n1", [facts(tmp_path)]) == []


def test_a_finding_whose_traces_are_gone_says_that_nobody_knows_its_cause(lost_dir: Path) -> None:
    for trace in (lost_dir / "nodes").glob("*/trace.jsonl"):
        trace.unlink()
    (row,) = [each for each in findings_of("n1", [facts(lost_dir)]) if each["anomaly"] == "lost-write"]
    assert row["cause"] == NO_CAUSE


def test_a_broken_invariant_has_its_definition_for_a_cause_and_the_story_up_to_its_moment(lost_dir: Path) -> None:
    broken = {"name": "weak-isr", "message": "high watermark 2", "t": 6.5, "node": 2, "topic": TOPIC, "partition": 0}
    known = {"definition": "Each member of the ISR holds what is committed.", "source": "KIP-497"}
    (lost_dir / "violations.json").write_text(json.dumps([{**broken, **known}]))
    (row,) = [each for each in findings_of("n1", [facts(lost_dir)]) if each["anomaly"] == "invariant weak-isr"]
    assert row["cause"] == BROKEN + known["definition"]
    assert "weak-isr is broken: high watermark 2" in row["story"][-1]
    assert len(row["story"]) > 3, row["story"]
    later = {**broken, "t": 7.5, "partition": 0, "message": "high watermark 3"}
    (lost_dir / "violations.json").write_text(json.dumps([{**later, **known}]))
    (again,) = [each for each in findings_of("n2", [facts(lost_dir)]) if each["anomaly"] == "invariant weak-isr"]
    assert again["fingerprint"] == row["fingerprint"]


def test_what_has_no_cause_in_a_run_with_a_broken_invariant_came_of_that(lost_dir: Path) -> None:
    broken = {
        "name": "weak-isr",
        "message": "high watermark 2",
        "t": 6.5,
        "definition": "The rule.",
        "source": "KIP-497",
    }
    (lost_dir / "violations.json").write_text(
        json.dumps([{**broken}, {**broken, "name": "other", "definition": "Else."}])
    )
    with_cause = loss(lost_dir)
    assert with_cause["cause"].startswith("A broker truncates"), "its own cause says more"
    for trace in (lost_dir / "nodes").glob("*/trace.jsonl"):
        trace.unlink()
    rows = {row["anomaly"]: row for row in findings_of("n1", [facts(lost_dir)])}
    assert {rows[name]["cause"] for name in ("invariant weak-isr", "invariant other", "lost-write")} == {
        f"{BROKEN}The rule."
    }
    assert len({row["fingerprint"] for row in rows.values()}) == len(rows)
