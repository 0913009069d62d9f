"""A run that looked at little is `unknown`, and says what it did not see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from squall.checkers.history.tables import FAIL, OK, ObservedPartition
from squall.checkers.in_memory import judge_bytes
from squall.checkers.verdict import INVALID, STOPPED, UNKNOWN, VALID, Verdict, decide
from squall.checkers.verdict_inputs import VerdictInputs
from tests.support.histories.builder import MS, HistoryBuilder
from tests.support.histories.group_history import GROUP, GroupHistory
from tests.support.histories.nemesis_lines import fault_line
from tests.unit.checkers.anomalies.test_loss import KAFKAS, retired
from tests.unit.checkers.test_verdict import finding, good

PLAN: dict[str, Any] = {
    "workload": {"acks": -1, "min_isr": 2, "replication_factor": 3},
    "limits": {"stuck_s": 15},
    "faults": [],
}


def judged(h: HistoryBuilder, *faults: dict[str, Any]) -> Verdict:
    lines = b"".join(fault_line(**each) for each in faults)
    plan = {**PLAN, "faults": [{"action": "kill", "at_s": 1.0, "duration_s": 1.0} for _ in faults]}
    return judge_bytes("r", b"".join(h.lines()), lines, plan).verdict


def retained(*, left: int, isolation: int = 0) -> HistoryBuilder:
    """Five records were acknowledged, and retention took all but the last `left` of them before anybody read them, so
    far as readers of that isolation level see.
    """
    h = HistoryBuilder(retention_ms=1)
    p = h.producer()
    vals = [h.sent(p, off) for off in range(5)]
    for each in (0, 1):
        kept = left if each == isolation else 5
        pairs = [*enumerate(vals)][5 - kept :]
        h.final(pairs, at=5 - kept, log_start=5 - kept, end=5, position=5, isolation=each)
    return h


@pytest.mark.parametrize(("isolation", "name"), [(0, "read_uncommitted"), (1, "read_committed")])
def test_where_no_final_read_got_a_record_of_a_partition_it_is_unknown(isolation: int, name: str) -> None:
    why = f"5 writes to t-0 were acknowledged, and no final read at {name} got a record"
    assert why in judged(retained(left=0, isolation=isolation)).reasons
    assert judged(retained(left=1, isolation=isolation)).verdict == VALID


def begun_at_2(settings: dict[str, str]) -> HistoryBuilder:
    """Return the last of three records in the final reads, as the log begins there. These settings are in force."""
    h = retired(0)
    h.others[0].fields["settings"] = settings
    h.final([(2, h.sends[2].val)], at=2, log_start=2, isolation=1)
    return h


def test_where_no_broker_told_the_settings_of_a_topic_that_lost_its_beginning_it_is_unknown() -> None:
    found = judged(begun_at_2({}))
    assert found.verdict == UNKNOWN
    assert "t-0 begins at 2, and no broker reported its settings: what retention removed is not known" in found.reasons


def test_where_no_broker_told_the_settings_of_a_topic_that_has_its_beginning_nothing_is_missing() -> None:
    h = retained(left=5)
    h.event("topic_settings", topic="t", settings={})
    assert judged(h).verdict == VALID


def test_a_log_that_begins_too_late_is_named_beside_what_it_lost() -> None:
    found = judged(begun_at_2(KAFKAS))
    assert found.verdict == INVALID
    assert "t-0 begins at 2, and retention and requests could have removed nothing" in found.notes


@pytest.mark.parametrize("ends", [True, False])
def test_a_final_read_at_read_committed_that_starves_leaves_a_partition_without_transactions_unknown(
    ends: bool,
) -> None:
    h = HistoryBuilder()
    p = h.producer()
    pairs = [(off, h.sent(p, off)) for off in range(5)]
    h.final(pairs)
    if ends:
        h.final(pairs, isolation=1)
    else:
        h.poll(h.final_reader(isolation=1), pairs[:1], f="final_read", hw=5, lso=1)
    reasons = judged(h).reasons
    assert reasons == (() if ends else ("no final read of t-0 at read_committed reached its end",))


@pytest.mark.parametrize(("refused", "unknown"), [(5, False), (6, True)])
def test_where_most_sends_are_refused_without_a_fault_it_is_unknown(refused: int, unknown: bool) -> None:
    h = HistoryBuilder()
    p = h.producer()
    pairs = [(off, h.sent(p, off)) for off in range(5)]
    for _ in range(refused):
        h.fail(h.send(p))
    h.final(pairs)
    h.final(pairs, isolation=1)
    why = f"{refused} of {refused + 5} sends outside of faults were refused: all checks ran on little"
    assert judged(h).reasons == ((why,) if unknown else ())


@pytest.mark.parametrize(("refused", "faulty", "unknown"), [(5, False, False), (6, False, True), (6, True, False)])
def test_where_most_commits_are_refused_without_a_fault_it_is_unknown(
    refused: int, faulty: bool, unknown: bool
) -> None:
    h = GroupHistory()
    p = h.producer()
    pairs = [(off, h.sent(p, off)) for off in range(5)]
    member = h.reader(group=GROUP, member=0)
    for number in range(refused + 5):
        h.commit(member, {0: 0}, st=OK if number < 5 else FAIL)
    h.final(pairs)
    h.final(pairs, isolation=1)
    why = f"{refused} of {refused + 5} commits of positions outside of faults were refused: all checks ran on little"
    faults = [{"asked": 0, "began": 0, "ended": h.now}] if faulty else []
    assert (why in judged(h, *faults).reasons) is unknown


def test_sends_that_were_refused_during_a_fault_do_not_count() -> None:
    h = HistoryBuilder()
    p = h.producer()
    pairs = [(0, h.sent(p, 0))]
    began = h.tick()
    for _ in range(6):
        h.fail(h.send(p))
    h.final(pairs)
    assert judged(h, {"asked": began, "began": began, "ended": h.now}).verdict == VALID


def test_a_simulation_that_stopped_at_a_broken_invariant_lacks_the_rest_in_one_note() -> None:
    unread = ObservedPartition(0, "t", 0, "delete", -1, False)
    verdict = decide(VerdictInputs(run="r", findings=(), partitions=[unread], simulator_failures=["I1 broke"]))
    assert (verdict.verdict, verdict.reasons) == (INVALID, ("I1 broke",))
    assert verdict.notes == (STOPPED,)


@pytest.mark.parametrize(
    ("acks", "client", "found"),
    [(-1, "squall", True), (1, "squall", True), (0, "squall", False), (-1, "confluent", False)],
)
def test_an_acknowledgement_without_an_offset_is_a_finding_where_our_client_asked_for_one(
    acks: int, client: str, found: bool
) -> None:
    h = HistoryBuilder()
    p = h.producer(acks=acks, client=client)
    vals = [h.sent(p, off) for off in (-1, -1)]
    h.final([*enumerate(vals)])
    verdict = judged(h)
    [*findings] = [(each.name, each.evidence, each.count, each.permitted) for each in verdict.anomalies]
    assert findings == ([("wrong-offset", "no offset", 2, False)] if found else [])
    assert {"wrong-offset", "stale-ack"} <= verdict.not_run.keys(), "no acknowledgement has an offset to look at"


def test_one_acknowledgement_with_an_offset_is_enough_to_look_at() -> None:
    h = HistoryBuilder()
    p = h.producer()
    h.final([*enumerate(h.sent(p, off) for off in (-1, 1))])
    verdict = judged(h)
    assert [(each.name, each.witnesses[0].val) for each in verdict.anomalies] == [("wrong-offset", p << 40)]
    assert "stale-ack" not in verdict.not_run


@pytest.mark.parametrize("name", ["stuck-producer", "hanging-txn", "stuck-group"])
def test_what_took_too_long_while_the_harness_stood_still_is_unknown_and_else_it_is_a_note(name: str) -> None:
    still = ("the harness or the machine stood still for 14 s",)
    told = decide(replace(good(finding(name)), harness_troubles=still))
    assert told.verdict == "unknown"
    assert any(f"may be the harness's doing: {still[0]}" in each for each in told.reasons)
    calm = decide(replace(good(), harness_troubles=still))
    assert (calm.verdict, calm.notes) == (VALID, still)


@pytest.mark.parametrize(("client", "found"), [("squall", {"stuck-producer", "stuck-consumer"}), ("program", set())])
def test_without_a_fault_only_our_own_clients_are_held_to_the_limit(client: str, found: set[str]) -> None:
    """Check that a program that is stuck without a fault is not held to the limit: no fresh client shows whether it
    stopped by itself.
    """
    h = HistoryBuilder()
    p, reader = h.producer(client=client), h.process("reader", client, isolation=0)
    vals = [h.sent(p, 0)]
    h.poll(reader, [], at=0, hw=1)
    send = h.send(p)
    h.tick(30_000 * MS)
    vals.append(h.ok(send, 1).val)
    h.poll(reader, [], at=0, hw=2)
    h.final([*enumerate(vals)])
    assert {each.name for each in judged(h).anomalies} == found
