"""valid, invalid, unknown: on values, and on run directories that lack something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from squall.checkers.anomalies import replica_divergence
from squall.checkers.anomalies.registry import find_all
from squall.checkers.findings import SCHEMA, Finding, Witness, findings_of, to_json
from squall.checkers.history import conversion
from squall.checkers.history.tables import ClientProcess, ObservedPartition, RecordedFault
from squall.checkers.leaderships import Leaderships
from squall.checkers.measures import measure
from squall.checkers.mechanisms import MechanismSign
from squall.checkers.metrics import context_of, shape
from squall.checkers.nemesis_log import parse_faults
from squall.checkers.plan_facts import UNLIMITED, facts_of, read_plan
from squall.checkers.signs import RunCircumstances
from squall.checkers.verdict import INVALID, UNKNOWN, VALID, Verdict, decide, judge, judge_run
from squall.checkers.verdict import to_json as verdict_to_json
from squall.checkers.verdict_inputs import VerdictInputs, WorkloadFacts
from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.nemesis_lines import fault_line

PLAN: dict[str, Any] = {
    "workload": {"acks": -1, "min_isr": 2, "replication_factor": 3, "idempotence": True, "max_in_flight": 5},
    "faults": [{"action": "kill", "at_s": 1.0, "duration_s": 1.0}],
}
PLAN_TOML = """
expect = "config"
[workload]
acks = -1
min_isr = 2
replication_factor = 3
[limits]
stuck_s = 15
[[faults]]
action = "kill"
at_s = 1.0
duration_s = 1.0
"""


EVERY_SIGN = MechanismSign(sum(MechanismSign))
HAPPENED = RunCircumstances(Leaderships(unknown=""), everywhere=EVERY_SIGN)
"""Each mechanism explains each finding."""


def finding(name: str, evidence: str = "", proc: int = 0, count: int = 1, signs: MechanismSign = EVERY_SIGN) -> Finding:
    witness = Witness(name, evidence, 0, 7, 3, 1, proc, -1, signs)
    return Finding(name, evidence, proc, count, (witness,), ((0, count),), signs)


def good(*findings: Finding, **more: Any) -> VerdictInputs:
    """Return inputs of a valid run, with these findings and the fields of `more` replaced."""
    landed, _ = parse_faults([fault_line()])
    case = VerdictInputs(
        run="r",
        findings=findings,
        metrics={"partitions": {"t-0": {"part": 0, "acked": 5}}},
        plan=facts_of(PLAN),
        partitions=[ObservedPartition(0, "t", 0, "delete", -1, False, cover_from=0, cover_to=9, cover_t0=100)],
        processes=[
            ClientProcess(0, "producer", "squall", "1", "", {"acks": -1, "idempotence": True}),
            ClientProcess(1, "producer", "squall", "1", "", {"acks": 1, "idempotence": False, "max_in_flight": 1}),
            ClientProcess(2, "reader", "squall", "1", "", {"isolation": 0}),
        ],
        faults=landed,
        circumstances=HAPPENED,
    )
    return replace(case, **more)


def test_enough_history_and_nothing_found_is_valid() -> None:
    verdict = decide(good())
    assert (verdict.verdict, verdict.reasons, verdict.exit_code) == (VALID, (), 0)


def test_transactions_of_which_no_read_committed_final_read_saw_the_end_are_unknown() -> None:
    ended = good().partitions[0]
    unread = [replace(ended, topic="x", transactional=True)]
    final = ClientProcess(3, "final", "squall", "1", "", {"isolation": 1})
    case = good(partitions=unread, processes=[*good().processes, final], metrics={"partitions": {"x-0": {"acked": 5}}})
    assert decide(case).reasons == ("no final read of x-0 at read_committed reached its end",)
    assert decide(replace(case, partitions=[replace(unread[0], committed_t0=100)])).verdict == VALID
    # Where no such reader was asked for, the checks that need it are not among those that ran.
    assert decide(replace(case, processes=good().processes)).verdict == VALID
    # What held the reader back is the finding: it needs no second reason.
    held = replace(finding("hanging-txn"), parts=((0, 1),))
    assert decide(replace(case, findings=[held])).notes == ()


def test_something_unpermitted_is_invalid_with_its_witnesses() -> None:
    verdict = decide(good(finding("duplicate", "final", proc=0, count=30)))
    assert (verdict.verdict, verdict.exit_code) == (INVALID, 1)
    (judged,) = verdict.anomalies
    assert (judged.name, judged.permitted, judged.count, len(judged.witnesses)) == ("duplicate", False, 30, 1)
    assert verdict.reasons == ("duplicate (final): 30, not permitted: idempotence",)


def test_the_same_finding_is_judged_by_the_settings_of_its_process() -> None:
    verdict = decide(good(finding("lost-write", proc=0), finding("lost-write", proc=1)))
    assert verdict.verdict == INVALID
    assert [(each.permitted, each.processes) for each in verdict.anomalies] == [(False, (0,)), (True, (1,))]


def test_what_the_configuration_permits_is_reported_and_does_not_fail() -> None:
    verdict = decide(good(finding("lost-write", proc=1), finding("duplicate", "final", proc=1)))
    assert verdict.verdict == VALID
    assert all(each.permitted and each.why for each in verdict.anomalies)


def test_what_is_nobodys_in_particular_is_judged_by_the_weakest_producer() -> None:
    assert decide(good(finding("stale-ack", "acks", proc=-1))).verdict == VALID
    assert decide(good(finding("stale-ack", "final", proc=-1))).verdict == INVALID


@pytest.mark.parametrize(("written", "verdict"), [(True, VALID), (False, INVALID)])
def test_a_producer_may_wait_for_a_marker_only_where_transactions_write(written: bool, verdict: str) -> None:
    planned = facts_of(PLAN)
    in_transactions = replace(planned, configuration=replace(planned.configuration, transaction_version=2))
    stuck = finding("stuck-producer", "load", proc=-1)
    partitions = [replace(each, transactional=written) for each in good().partitions]
    assert decide(good(stuck, plan=in_transactions, partitions=partitions)).verdict == verdict
    assert decide(good(stuck, partitions=partitions)).verdict == INVALID, "nobody has transactions"


def _lost(path: str, action: str = "damage", how: str = "file") -> RecordedFault:
    (landed,), _ = parse_faults([fault_line()])
    evidence = {"damaged": {"path": path}, "isr": {}, "caught_up_ns": -1}
    return replace(landed, action=action, fault_class="D", params={"how": how}, evidence=evidence)


@pytest.mark.parametrize(
    ("lost", "verdict"),
    [
        (_lost("1/t-0/00000000000000000000.log"), VALID),
        (_lost("1/t-1/00000000000000000000.log"), INVALID),
        (_lost("1/t-0/00000000000000000000.index"), INVALID),
        (_lost("1/t-0/00000000000000000000.log", how="tail"), INVALID),
        (_lost("1/t-0/00000000000000000000.log", action="bit_rot"), INVALID),
    ],
)
def test_a_reader_may_skip_only_in_a_log_that_lost_a_segment(lost: RecordedFault, verdict: str) -> None:
    one = facts_of({"workload": {"acks": -1, "min_isr": 1, "replication_factor": 1}, "faults": PLAN["faults"]})
    skipped = finding("poll-skip", proc=2)
    assert decide(good(skipped, plan=one, faults=[lost])).verdict == verdict
    elsewhere = replace(skipped, parts=((0, 1), (7, 1)))
    assert decide(good(elsewhere, plan=one, faults=[lost])).verdict == INVALID, "nor in another one beside it"
    assert decide(good(skipped, faults=[lost])).verdict == INVALID, "the others have it"


def test_a_readers_finding_is_not_excused_by_how_others_produce() -> None:
    assert decide(good(finding("poll-skip", proc=2))).verdict == INVALID


def test_expect_safe_says_who_asked_for_it_and_how_the_configuration_alone_judges() -> None:
    asked = "not permitted: you asked for --expect safe, which permits no anomaly"
    weak, strong = finding("lost-write", proc=1), finding("lost-write", proc=0)

    def why(*findings: Finding, **more: Any) -> str:
        (reason,) = decide(good(*findings, expect="safe", **more)).reasons
        return reason.partition(asked)[2]

    safe = "acks=all, min ISR 2 or more"
    assert why(weak) == "; the configuration alone (acks=1) would permit it"
    assert why(weak, strong) == f"; the configuration alone ({safe}; acks=1) would permit some of it"
    assert why(strong) == f"; the configuration alone ({safe}) does not permit it either"
    assert why(weak, plan=None) == "", "nobody knows the configuration"


def test_expect_loss_is_valid_with_a_loss_and_unknown_without() -> None:
    assert decide(good(finding("lost-write", proc=0), expect="loss")).verdict == VALID
    verdict = decide(good(expect="loss"))
    assert (verdict.verdict, verdict.reasons) == (UNKNOWN, ("a loss was expected, and none was found",))


def test_expect_loss_excuses_no_other_anomaly() -> None:
    assert decide(good(finding("lost-write"), finding("phantom", proc=-1), expect="loss")).verdict == INVALID


UNREAD = ObservedPartition(0, "t", 0, "delete", -1, False, cover_from=0, cover_to=9)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"findings": None}, "the checks did not run to their end"),
        ({"partitions": []}, "the history names no partition"),
        ({"metrics": {"partitions": {"t-0": {"part": 0, "acked": 0}}}}, "no write to t-0 was acknowledged"),
        ({"metrics": {}}, "no write to t-0 was acknowledged"),
        ({"partitions": [UNREAD]}, "no final read of t-0 reached its end: the furthest came to 9"),
        ({"partitions": [replace(UNREAD, cover_to=-1)]}, "no final read of t-0 reached its end: there was none"),
        ({"faults": []}, "1 fault was planned, and nemesis.jsonl has none"),
        ({"troubles": ["history.jsonl: line 4: what"]}, "history.jsonl: line 4: what"),
        ({"plan": None, "troubles": ["plan.toml: there is none"]}, "plan.toml: there is none"),
    ],
)
def test_what_is_missing_makes_it_unknown_and_is_named(more: dict[str, Any], why: str) -> None:
    verdict = decide(good(**more))
    assert (verdict.verdict, verdict.reasons, verdict.exit_code) == (UNKNOWN, (why,), 2)


def test_a_fault_without_evidence_makes_it_unknown_and_is_named() -> None:
    faults, _ = parse_faults([fault_line(evidence=None, error="a probe answered")])
    verdict = decide(good(faults=faults))
    assert (verdict.verdict, verdict.reasons) == (UNKNOWN, ("fault 0 (kill leader): a probe answered",))


def test_a_fault_of_unknown_class_leaves_everything_open() -> None:
    faults, _ = parse_faults([fault_line(action="meteor")])
    verdict = decide(good(finding("lost-write"), faults=faults))
    assert verdict.verdict == UNKNOWN
    assert verdict.anomalies[0].permitted is None
    assert "meteor" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("told", "verdict", "permitted"),
    [
        ({"evidence": None, "error": "no node answered"}, UNKNOWN, None),
        ({"evidence": {"lost": 3, "isr": {}}}, UNKNOWN, None),
        ({"evidence": {"isr": {"t-0": [1, 2]}}}, INVALID, False),
        ({"evidence": {"isr": {"t-0": [2]}}}, VALID, True),
    ],
    ids=["nothing told", "nobody's ISR told", "another one in sync", "nobody else in sync"],
)
def test_a_loss_is_judged_by_who_was_in_sync_when_the_power_went(
    told: dict[str, Any], verdict: str, permitted: bool | None
) -> None:
    faults, _ = parse_faults([fault_line(action="power_loss", **told)])
    decided = decide(good(finding("lost-write"), faults=faults))
    assert (decided.verdict, decided.anomalies[0].permitted) == (verdict, permitted)
    assert decide(good(finding("phantom"), faults=faults)).verdict == INVALID, "no power loss permits that"
    assert decide(good(finding("lost-write"), faults=faults, expect="safe")).verdict == INVALID


def test_a_power_loss_that_does_not_tell_who_was_in_sync_is_no_matter_where_nothing_was_lost() -> None:
    faults, _ = parse_faults([fault_line(action="power_loss", evidence={"lost": 3})])
    assert decide(good(faults=faults)).verdict == VALID


def test_an_anomaly_in_a_history_with_too_little_in_it_is_still_invalid() -> None:
    verdict = decide(good(finding("phantom", proc=-1), partitions=[UNREAD], faults=[], troubles=["cut short"]))
    assert verdict.verdict == INVALID
    assert [reason.partition(":")[0] for reason in verdict.reasons] == ["phantom"]
    assert {"cut short", "1 fault was planned, and nemesis.jsonl has none"} <= set(verdict.notes)


@pytest.mark.parametrize("name", ["stuck-producer", "stuck-consumer", "not-converged"])
def test_what_stood_still_while_the_harness_had_trouble_may_be_its_doing(name: str) -> None:
    shaken = ("Toxiproxy ended with -9, which nobody asked it to: every link was cut",)
    case = good(finding(name))
    assert decide(case).verdict == "invalid"
    told = decide(replace(case, harness_troubles=shaken, troubles=shaken))
    assert told.verdict == "unknown"
    assert any("may be the harness's doing: Toxiproxy ended" in each for each in told.reasons)


def test_no_trouble_of_the_harness_excuses_a_loss() -> None:
    shaken = ("the harness had trouble: the disk is full",)
    assert decide(replace(good(finding("lost-write")), harness_troubles=shaken, troubles=shaken)).verdict == "invalid"


def test_faults_that_nobody_could_tell_of_excuse_what_they_would() -> None:
    planned = facts_of({**PLAN, "faults": [{"action": "power_loss"}, {"action": "power_loss"}]})
    weak = replace(planned, configuration=replace(planned.configuration, min_isr=1))
    assert decide(good(finding("lost-write"), plan=weak, faults=[], nemesis_read=False)).verdict == UNKNOWN
    assert decide(good(finding("lost-write"), plan=weak, faults=[], nemesis_read=True)).verdict == INVALID


def test_two_owners_are_not_proven_where_a_fault_that_nobody_told_of_may_have_kept_brokers_apart() -> None:
    planned = facts_of({**PLAN, "faults": [{"action": "partition"}]})
    here = good(finding("dual-ownership"), plan=planned)
    assert decide(here).verdict == INVALID
    for unread in (replace(here, nemesis_read=False), replace(here, faults=[])):
        assert decide(unread).verdict == UNKNOWN
        assert any("nobody told of may have kept brokers apart" in each for each in decide(unread).reasons)


def test_expect_safe_needs_no_plan_to_find_a_fault() -> None:
    assert decide(good(finding("lost-write", proc=1), plan=None, expect="safe")).verdict == INVALID


def test_the_plan_says_what_is_expected_unless_somebody_else_does() -> None:
    plan = facts_of({**PLAN, "expect": "safe"})
    assert decide(good(finding("lost-write", proc=1), plan=plan)).verdict == INVALID
    assert decide(good(finding("lost-write", proc=1), plan=plan, expect="config")).verdict == VALID


# ------------------------------------------------------------------------------------------------------- run directory


def run_directory(path: Path, *, lose: bool = False) -> Path:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    read = [(0, values[0])] if lose else list(enumerate(values))
    h.final(read)
    (path / "history.jsonl").write_bytes(b"".join(h.lines()))
    (path / "nemesis.jsonl").write_bytes(fault_line(began_ms=1, ended_ms=2))
    (path / "plan.toml").write_text(PLAN_TOML)
    conversion.convert(path)
    return path


def analysed(path: Path) -> tuple[list[Finding], dict[str, Any]]:
    kept, faults = conversion.load(path)
    context = context_of(kept, faults)
    return findings_of(find_all(kept)), shape(measure(kept, context), context)


def verdict_json(path: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((path / "verdict.json").read_text())
    return written


def test_a_run_directory_with_everything_in_it_is_valid(tmp_path: Path) -> None:
    verdict = judge(run_directory(tmp_path), *analysed(tmp_path))
    assert (verdict.verdict, verdict.reasons) == (VALID, ())
    written = verdict_json(tmp_path)
    assert (written["schema"], written["run"], written["verdict"]) == (1, "test", "valid")
    assert written["guarantee"]["fault_classes"] == ["P"]


def test_a_loss_is_written_with_its_witnesses_and_the_partitions_name(tmp_path: Path) -> None:
    judge(run_directory(tmp_path, lose=True), *analysed(tmp_path))
    written = verdict_json(tmp_path)
    assert written["verdict"] == "invalid"
    (anomaly,) = [each for each in written["anomalies"] if each["name"] == "unseen"]
    assert (anomaly["count"], anomaly["permitted"]) == (2, False)
    assert [(each["partition"], each["off"]) for each in anomaly["witnesses"]] == [("t-0", 1), ("t-0", 2)]


def test_what_an_analysis_left_is_judged(tmp_path: Path) -> None:
    findings, metrics = analysed(run_directory(tmp_path))
    stored = {"schema": SCHEMA, "run": "test", "findings": to_json(findings)}
    (tmp_path / "findings.json").write_text(json.dumps(stored))
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    assert judge_run(tmp_path).verdict == VALID
    for odd, why in (({"schema": 1}, "is of schema 1"), ({"run": "other"}, "about the run 'other'")):
        (tmp_path / "findings.json").write_text(json.dumps({**stored, **odd}))
        verdict = judge_run(tmp_path)
        assert verdict.verdict == UNKNOWN
        assert any(why in reason for reason in verdict.reasons)
    (tmp_path / "findings.json").write_text('{"deep":' + "[" * 100_000 + "]" * 100_000 + "}")
    assert judge_run(tmp_path).verdict == UNKNOWN


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"findings":[{}]}', '{"findings":3}'])
def test_an_analysis_that_left_nothing_readable_is_unknown(tmp_path: Path, text: str | None) -> None:
    run_directory(tmp_path)
    if text is not None:
        (tmp_path / "findings.json").write_text(text)
    verdict = judge_run(tmp_path, troubles=["spark_analysis ended with code 1"])
    assert verdict.verdict == UNKNOWN
    assert "spark_analysis ended with code 1" in verdict.reasons


def test_an_empty_directory_is_unknown_and_says_all_that_is_missing(tmp_path: Path) -> None:
    verdict = judge_run(tmp_path)
    assert verdict.verdict == UNKNOWN
    assert {
        "plan.toml: there is none, so it is not known what was promised",
        "the history was not converted",
        "the analysis left no findings.json",
    } <= set(verdict.reasons)
    assert verdict_json(tmp_path)["run"] == tmp_path.name


@pytest.mark.parametrize("name", ["partitions.parquet", "processes.parquet", "conversion.json"])
def test_a_damaged_conversion_is_unknown(tmp_path: Path, name: str) -> None:
    found = analysed(run_directory(tmp_path))
    (tmp_path / "history" / name).write_bytes(b"damaged")
    assert judge(tmp_path, *found).verdict == UNKNOWN


def test_a_malformed_line_is_named_in_the_verdict(tmp_path: Path) -> None:
    run_directory(tmp_path)
    path = tmp_path / "history.jsonl"
    path.write_bytes(path.read_bytes() + b'{"e":"c","op":999,"st":0,"t":5}\n')
    conversion.convert(tmp_path)
    verdict = judge(tmp_path, *analysed(tmp_path))
    assert verdict.verdict == UNKNOWN
    assert len(verdict.reasons) == 1
    assert verdict.reasons[0].startswith("history.jsonl: line ")


def test_a_torn_last_line_is_a_note_and_no_reason(tmp_path: Path) -> None:
    run_directory(tmp_path)
    path = tmp_path / "history.jsonl"
    path.write_bytes(path.read_bytes() + b'{"e":"c","op":99')
    conversion.convert(tmp_path)
    verdict = judge(tmp_path, *analysed(tmp_path))
    assert verdict.verdict == VALID
    assert any("unfinished line of 16 bytes" in note for note in verdict.notes)


def test_a_malformed_nemesis_line_is_unknown(tmp_path: Path) -> None:
    run_directory(tmp_path)
    path = tmp_path / "nemesis.jsonl"
    path.write_bytes(path.read_bytes() + b"nonsense\n")
    conversion.convert(tmp_path)
    verdict = judge(tmp_path, *analysed(tmp_path))
    assert (verdict.verdict, len(verdict.reasons)) == (UNKNOWN, 1)


def test_replicas_that_differ_are_invalid(tmp_path: Path) -> None:
    found = analysed(run_directory(tmp_path))
    replica_divergence.write(tmp_path, [finding("replica-divergence", "content", proc=-1)], {})
    verdict = judge(tmp_path, *found)
    assert [each.name for each in verdict.anomalies] == ["replica-divergence"]
    assert verdict.verdict == INVALID


def test_replicas_that_were_not_compared_are_told_of(tmp_path: Path) -> None:
    verdict = judge(run_directory(tmp_path), *analysed(tmp_path))
    assert "the replicas' logs were not compared" in verdict.notes
    assert not any("replica-divergence" in note for note in verdict.notes)


def test_what_cannot_be_expected_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nonsense"):
        judge(tmp_path, [], {}, expect="nonsense")


def test_verdicts_are_replaced_whole(tmp_path: Path) -> None:
    run_directory(tmp_path)
    first: Verdict = judge(tmp_path, None, None)
    second: Verdict = judge(tmp_path, *analysed(tmp_path))
    assert (first.verdict, second.verdict, verdict_json(tmp_path)["verdict"]) == (UNKNOWN, VALID, VALID)
    assert [path.name for path in tmp_path.glob("verdict*")] == ["verdict.json"]


@pytest.mark.parametrize("limit", ["nan", "inf", "-1", "0", "'x'"])
def test_a_limit_that_is_no_number_of_seconds_makes_the_verdict_unknown(tmp_path: Path, limit: str) -> None:
    run_directory(tmp_path)
    analysis = analysed(tmp_path)
    assert judge(tmp_path, *analysis).verdict == VALID
    (tmp_path / "plan.toml").write_text(PLAN_TOML.replace("stuck_s = 15", f"stuck_s = {limit}"))
    verdict = judge(tmp_path, *analysis)
    assert verdict.verdict == UNKNOWN
    assert any(each.startswith("plan.toml: ") for each in verdict.reasons)


def test_a_plan_without_the_limit_is_noted_and_nobody_is_said_to_have_looked(tmp_path: Path) -> None:
    run_directory(tmp_path)
    analysis = analysed(tmp_path)
    assert UNLIMITED not in judge(tmp_path, *analysis).notes
    (tmp_path / "plan.toml").write_text(PLAN_TOML.replace("stuck_s = 15", ""))
    notes = judge(tmp_path, *analysis).notes
    assert UNLIMITED in notes
    assert not any("stuck-" in note for note in notes if note.startswith("looked for: "))


@pytest.mark.parametrize(("run", "other"), [("sim-seed7", 1), ("20260102T030405-seed8", 1), ("x-seed9-2", 0), ("r", 0)])
def test_the_plan_of_another_seed_is_of_another_run(run: str, other: int) -> None:
    said = facts_of({**PLAN, "seed": 9}).of_another_run(run)
    assert len(said) == other
    assert all(each.startswith("plan.toml: seed = 9, ") and repr(run) in each for each in said)


def test_a_plan_of_another_run_makes_the_verdict_unknown(tmp_path: Path) -> None:
    run_directory(tmp_path)
    history = (tmp_path / "history.jsonl").read_text().replace('"run":"test"', '"run":"sim-seed7"', 1)
    (tmp_path / "history.jsonl").write_text(history)
    conversion.convert(tmp_path)
    for seed, verdict in ((7, VALID), (8, UNKNOWN)):
        (tmp_path / "plan.toml").write_text(f"seed = {seed}\n{PLAN_TOML}")
        assert judge(tmp_path, *analysed(tmp_path)).verdict == verdict


def test_limits_come_from_the_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN_TOML)
    assert read_plan(tmp_path).limits.stuck_producer_s == 15


def test_a_workload_whose_history_cannot_show_what_it_is_there_for_is_unknown_in_one_sentence() -> None:
    why = "the history has no members of groups that owned partitions"
    own = WorkloadFacts(meant_for=("commit-ahead", "stuck-group", "eos-duplicate"))
    silent = decide(good(workload=own, not_run={"commit-ahead": why, "stuck-group": why, "G1c": "no transactions"}))
    said = f"commit-ahead, stuck-group could not be judged: {why}"
    assert (silent.verdict, silent.reasons) == (UNKNOWN, (said,))
    assert decide(good(workload=own, not_run={"G1c": "no transactions"})).verdict == VALID
    assert decide(good(not_run={"commit-ahead": why})).verdict == VALID


def test_a_workload_says_which_checks_are_meant_for_it_and_what_it_measured() -> None:
    case = good(finding("lost-write"), finding("duplicate"))
    own = WorkloadFacts({"name": "some", "lost_s": 4}, ("duplicate",))
    said = verdict_to_json(decide(replace(case, workload=own)))
    assert [each["name"] for each in said["anomalies"]] == ["duplicate"]
    assert said["workload"] == {"name": "some", "lost_s": 4}
    assert "lost-write" in own.left_out() and "duplicate" not in own.left_out()
