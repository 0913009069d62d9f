"""A client that is stuck while fresh ones are served is named, and nothing is held against the cluster."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from squall.checkers.findings import Finding, Witness
from squall.checkers.history.tables import ClientProcess, ObservedPartition
from squall.checkers.history.values import AFTER_HEALING
from squall.checkers.plan_facts import facts_of
from squall.checkers.verdict import INVALID, UNKNOWN, decide, to_json
from squall.checkers.verdict_inputs import VerdictInputs
from squall.reports.checks import sentence
from squall.reports.junit import write_junit
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.terminal import summary
from tests.unit.checkers.test_guarantees import REACHED

PROGRAM = "the program under test"
PARTITION = ObservedPartition(0, "t", 0, "delete", -1)
ACKED = {"outcomes": {"send": {"ok": 8}}, "partitions": {"t-0": {"part": 0, "acked": 7}}}


def stuck(name: str, evidence: str, proc: int = -1) -> Finding:
    return Finding(name, evidence, proc, 1, (Witness(name, evidence, 0, -1, -1, -1, proc, 20 * 10**9),))


def case(*findings: Finding, client: str = "program", **settings: Any) -> VerdictInputs:
    """Return a run whose producer 0 and reader 1 use this client. The harness's own client wrote after healing."""
    load = [
        ClientProcess(0, "producer", client, "", "", settings),
        ClientProcess(1, "reader", client, "", "", settings),
    ]
    writer = ClientProcess(2, "producer", "squall", "", "", {AFTER_HEALING: True})
    plan = facts_of(REACHED["acks=all, min ISR 2 or more"])
    return VerdictInputs("r", findings, ACKED, plan=plan, partitions=[PARTITION], processes=[*load, writer])


@pytest.mark.parametrize(("client", "name"), [("program", PROGRAM), ("confluent", "the client library confluent")])
@pytest.mark.parametrize("finding", [stuck("stuck-producer", "client"), stuck("stuck-consumer", "client", 1)])
def test_a_client_that_stands_still_while_fresh_ones_are_served_is_named(
    finding: Finding, client: str, name: str
) -> None:
    verdict = decide(case(finding, client=client))
    (found,) = verdict.anomalies
    assert (verdict.verdict, verdict.exit_code, verdict.blames, found.blames) == (INVALID, 1, name, name)
    assert found.why == f"not permitted: {name} stood still while fresh clients were served"
    assert found.cell is not None and found.cell.row == f"progress of {name}"
    (safe,) = decide(replace(case(finding, client=client), expect="safe")).anomalies
    assert (safe.why, safe.blames) == (found.why, name), "no wish of --expect safe made it stand still"


def test_our_own_client_a_transactional_one_and_a_member_of_a_group_are_not_blamed() -> None:
    """The broker's part in what they do is not seen by a fresh client that writes and polls."""
    for finding, evidence in (
        (stuck("stuck-producer", "client"), "load"),
        (stuck("stuck-consumer", "client", 1), "live"),
    ):
        in_transactions = replace(case(finding), partitions=[replace(PARTITION, transactional=True)])
        for each in (case(finding, client="squall"), case(finding, group="g"), in_transactions):
            verdict = decide(each)
            assert [(found.evidence, found.blames) for found in verdict.anomalies] == [(evidence, "")]
            assert (verdict.verdict, verdict.blames) == (INVALID, "")


def test_a_gap_of_a_reader_is_its_own_only_where_it_outlasted_the_fresh_ones() -> None:
    gap = stuck("stuck-consumer", "", 1)
    assert decide(case(gap)).blames == ""
    assert decide(case(gap, stuck("stuck-consumer", "client", 1))).blames == PROGRAM


def test_what_is_found_against_the_cluster_too_leaves_the_verdict_without_a_name() -> None:
    verdict = decide(case(stuck("stuck-producer", "client"), stuck("stuck-producer", "writes")))
    assert (verdict.verdict, verdict.blames) == (INVALID, "")
    assert {each.evidence: each.blames for each in verdict.anomalies} == {"client": PROGRAM, "writes": ""}


@pytest.mark.parametrize("evidence", ["client", "load"])
def test_of_a_program_that_answers_nothing_at_all_nothing_is_known(evidence: str) -> None:
    silent = {**ACKED, "partitions": {"t-0": {"part": 0, "acked": 0}}}
    verdict = decide(replace(case(stuck("stuck-producer", evidence)), metrics=silent))
    assert verdict.verdict == UNKNOWN
    why = f"{PROGRAM} acknowledged no send: nothing shows what it does when the cluster is well"
    assert [each for each in verdict.reasons if why in each] == [why], "it is said once"
    assert [(each.permitted, each.why) for each in verdict.anomalies] == [(None, why)]
    refusing = {**silent, "outcomes": {"send": {"fail": 3}}}
    assert decide(replace(case(stuck("stuck-producer", evidence)), metrics=refusing)).verdict == INVALID


def test_the_terminal_the_page_junit_and_the_verdict_say_whose_it_is(tmp_path: Path) -> None:
    told = to_json(decide(case(stuck("stuck-producer", "client"))))
    assert told["blames"] == told["anomalies"][0]["blames"] == PROGRAM
    (tmp_path / "verdict.json").write_text(json.dumps(told))
    (tmp_path / "metrics.json").write_text(json.dumps({"schema": 1, **ACKED}))
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "run": "r", "began_ns": 10**12}))
    out = io.StringIO()
    summary(tmp_path, Console(file=out, width=10_000))
    banner = f"INVALID: {PROGRAM}"
    assert banner in out.getvalue()
    assert sentence(read_run(tmp_path)) == (
        "The program under test had acknowledged nothing in t-0 for too long, while a fresh client wrote there. "
        "Nothing was found against the cluster."
    )
    assert f"<h1>{banner}</h1>" in render(tmp_path).read_text()
    assert (
        f'message="{banner}: stuck-producer (client): 1, not permitted: {PROGRAM} stood'
        in write_junit(tmp_path).read_text()
    )


# ------------------------------------------------------------------------------------------------- members of groups

READ_WHOLE = replace(PARTITION, last_round=2)


def of_member(anomaly: str, evidence: str = "", proc: int = 1) -> Finding:
    return Finding(anomaly, evidence, proc, 1, (Witness(anomaly, evidence, 0, 4, 1, -1, proc, 6),), ((0, 1),))


def group_of(*findings: Finding, client: str = "program", partition: ObservedPartition = READ_WHOLE) -> VerdictInputs:
    """A run whose readers 1 and 2 are members of a group, beside a reader of Squall's own, 3."""
    members = [ClientProcess(each, "reader", client, "", "", {"group": "g"}) for each in (1, 2)]
    own = [ClientProcess(0, "producer", "squall", "", "", {}), ClientProcess(3, "reader", "squall", "", "", {})]
    plan = facts_of(REACHED["acks=all, min ISR 2 or more"])
    return VerdictInputs("r", findings, ACKED, plan=plan, partitions=[partition], processes=[*own, *members])


DID = [
    (of_member("commit-ahead", "own commit"), "it committed positions beyond all that it had processed"),
    (of_member("revoked-read"), "it processed records of partitions that it had released"),
    (of_member("poll-skip"), "it skipped records that Squall's own readers of the partition got"),
    (of_member("int-poll-skip"), "it skipped records that Squall's own readers of the partition got"),
    (of_member("commit-ahead", "skipped record"), "it skipped records that Squall's own readers of the partition got"),
]


@pytest.mark.parametrize(("finding", "did"), DID)
def test_a_member_under_test_is_named_for_what_its_own_reports_prove(finding: Finding, did: str) -> None:
    verdict = decide(group_of(finding))
    (found,) = verdict.anomalies
    assert (verdict.verdict, verdict.blames, found.blames) == (INVALID, PROGRAM, PROGRAM)
    assert found.why == f"not permitted: {PROGRAM} did this: {did}"
    assert found.cell is not None and "docs/workloads/command.md" in found.cell.source


@pytest.mark.parametrize("name", ["commit-ahead", "lost-position", "dual-ownership", "nonmonotonic-poll"])
def test_no_member_is_named_for_what_a_broker_may_have_done(name: str) -> None:
    assert decide(group_of(of_member(name))).blames == ""


@pytest.mark.parametrize("finding", [each for each, _ in DID])
def test_no_member_of_another_client_is_named(finding: Finding) -> None:
    for client in ("squall", "confluent"):
        assert decide(group_of(finding, client=client)).blames == ""


@pytest.mark.parametrize("finding", [each for each, did in DID if "skipped" in did])
def test_skips_are_a_members_own_only_where_every_reader_of_ours_got_all(finding: Finding) -> None:
    assert decide(group_of(finding, of_member("poll-skip", proc=3))).blames == ""
    assert decide(group_of(finding, partition=PARTITION)).blames == "", "no final read came to the end"


def test_the_sentence_says_what_a_member_did(tmp_path: Path) -> None:
    told = to_json(decide(group_of(DID[0][0])))
    (tmp_path / "verdict.json").write_text(json.dumps(told))
    (tmp_path / "metrics.json").write_text(json.dumps({"schema": 1, **ACKED}))
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "run": "r", "began_ns": 10**12}))
    said = sentence(read_run(tmp_path))
    assert said.startswith("1 record was ")
    assert said.endswith(
        "The program under test did this: it committed positions beyond all that it had processed. Nothing was found "
        "against the cluster."
    )
