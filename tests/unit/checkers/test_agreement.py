"""Checks what run.json, the plan, nemesis.jsonl and the history say of each other."""

from __future__ import annotations

from dataclasses import replace

from squall.checkers import agreement, run_facts
from squall.checkers.history.partition import ObservedPartition
from squall.checkers.history.tables import ClientProcess, History, HistoryProblem, RecordedFault
from squall.checkers.history.values import AFTER_HEALING
from squall.checkers.plan_facts import facts_of

FAULT = RecordedFault(0, "kill", "P", (), "", (), {}, 1, 2, 3, {"x": 1}, "")
LESS = {"faults": {"planned": 1, "landed": 0}}


def test_faults_that_the_nemesis_says_did_not_land_are_told_once() -> None:
    unproven = RecordedFault(0, "kill", "P", (), "", (), {}, 1, 2, 3, None, "")
    assert agreement.disagreements(History(), LESS, None, [unproven], {}) == []
    said = "run.json: of 1 planned faults 0 landed, and nemesis.jsonl says that all did"
    assert agreement.disagreements(History(), LESS, None, [FAULT], {}) == [said]


def test_of_a_history_that_was_cut_nothing_is_counted() -> None:
    told = {"history": {"outcomes": {"send": {"ok": 1, "fail": 0, "info": 0}}, "processes": 1, "partitions": []}}
    told["history"]["declared"] = 0
    assert len(agreement.edited(History(), told)) == 2
    assert agreement.edited(History(problem=HistoryProblem("history.jsonl", 3, "cut")), told) == []


def test_counts_that_have_no_form_are_left_out_and_told() -> None:
    lines = [{"topic": "t", "index": 0, "cleanup": "delete", "retention_ms": "7"}]
    for told in ({"processes": 1}, {"processes": 1, "partitions": lines, "outcomes": {}, "declared": 1}):
        facts = run_facts.facts_of({"history": told})
        assert (facts.info, facts.troubles) == ({}, ("run.json: history has not the form that a run gives it",))


def test_a_run_of_a_version_that_counted_nothing_is_not_held_to_it() -> None:
    assert agreement.edited(History(), {}) == []


def test_added_partitions_took_a_write_after_healing_as_well() -> None:
    """Runs of versions that do not count what the history holds did not write there."""
    own, added = ObservedPartition(0, "t", 0, "delete", -1), ObservedPartition(1, "t", 1, "delete", -1, added=True)
    writer = ClientProcess(0, "producer", "squall", "1", "", {AFTER_HEALING: True})
    history = History(partitions=[own, added], processes=[writer])
    info = {"writes_after_healing": {"ok": True}, "history": {}}
    adds = [replace(FAULT, params={"how": "partitions"})]
    said = "run.json: writes_after_healing says that every partition took a write, and history.jsonl has 0 of them to "
    for took, told, lacks in (
        ((1, 1), info, []),
        ((1, 0), info, [f"{said}t-1"]),
        ((0, 0), info, [f"{said}t-0", f"{said}t-1"]),
        ((1, 0), {"writes_after_healing": {"ok": True}}, []),
    ):
        figures = {each.name: {"acked_after_healing": n} for each, n in zip((own, added), took, strict=True)}
        assert agreement.disagreements(history, told, None, adds, {"partitions": figures}) == lacks
    gone = replace(history, partitions=[own, replace(added, deleted=True)])
    figures = {"t-0": {"acked_after_healing": 1}, "t-1": {"acked_after_healing": 0}}
    assert agreement.disagreements(gone, info, None, adds, {"partitions": figures}) == []


def test_settings_in_force_are_those_that_the_plan_made_its_topics_with() -> None:
    plan = facts_of({"workload": {"min_isr": 2, "topic_settings": {"retention.ms": "3600000"}}})
    kept = ObservedPartition(0, "t", 0, "delete", 3_600_000, min_isr=2, unclean=0)
    less = replace(kept, retention_ms=4_000, min_isr=1)
    said = "history.jsonl: brokers said that {} of t-0 is {}, and plan.toml has {}"
    expected = [said.format("retention.ms", 4000, 3600000), said.format("min.insync.replicas", 1, 2)]
    altered = replace(FAULT, action=agreement.ALTERING)
    for partition, faults, lacks in (
        (kept, [FAULT], []),
        (less, [FAULT], expected),
        (less, [altered], []),
        (replace(less, added=True), [replace(altered, params={"how": "churn"})], []),
        (replace(kept, min_isr=-1, retention_ms=-1), [], []),
    ):
        assert agreement.disagreements(History(partitions=[partition]), {}, plan, faults, {}) == lacks
