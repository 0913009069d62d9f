"""The matrix of guarantees: each row as the documents have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from squall.checkers.anomalies.registry import CATALOG, FOUND
from squall.checkers.guarantees import (
    ACKED_ONLY,
    ADDED,
    BASE,
    COMMITTED,
    FaultClass,
    GuaranteeRow,
    PermittedAnomalies,
    RunConfiguration,
    check_matrix,
    guarantee_for,
    union_of,
)
from squall.checkers.history.tables import LATE_END, ClientProcess
from squall.checkers.in_memory import judge_bytes
from squall.checkers.plan_facts import configuration_of, facts_of
from squall.checkers.verdict import INVALID, VALID, Verdict
from tests.support.histories.builder import HistoryBuilder, merged, transacted
from tests.support.histories.late_ends import REQUEST_TIMEOUT_MS, Second, in_a_row

SAFE = RunConfiguration(acks=-1, min_isr=2, replication_factor=3)
LOSS = {"lost-write", "unseen"}
HOLES = {"poll-skip", "int-poll-skip"}
"""Damage may take a file from inside the log."""


def permitted(config: RunConfiguration, *classes: str) -> set[str]:
    """Return the permitted anomalies, without those that only follow from a loss."""
    found = guarantee_for(config, classes).permitted
    return {name for name in found if "/" not in name}


def shadows(config: RunConfiguration, *classes: str) -> set[str]:
    return {name for name in guarantee_for(config, classes).permitted if "/" in name}


def test_every_permitted_name_is_in_the_catalogue() -> None:
    check_matrix()


@pytest.mark.parametrize("row", [*BASE, *ADDED], ids=lambda row: row.name)
def test_every_cell_gives_a_reason_and_a_source(row: object) -> None:
    for name in ("always", "w1", "wm", "d"):
        cell = getattr(row, name)
        assert cell.source
        assert all(cell.permits.values())


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("min_isr", [1, 2])
@pytest.mark.parametrize("flush", [None, 1])
def test_every_configuration_has_exactly_one_base_row(acks: int, min_isr: int, flush: int | None) -> None:
    config = RunConfiguration(acks=acks, min_isr=min_isr, replication_factor=3, flush_messages=flush)
    assert guarantee_for(config, ()).row == next(row.name for row in BASE if row.holds(config))


@pytest.mark.parametrize("classes", [(), ("P",), ("N",), ("C",), ("P", "N", "C"), ("W1",), ("P", "W1")])
def test_acks_all_with_two_in_sync_promises_everything_short_of_several_power_losses(classes: tuple[str, ...]) -> None:
    assert guarantee_for(SAFE, classes).permitted == {}


def test_acks_all_with_two_in_sync_may_lose_when_several_lose_power() -> None:
    assert permitted(SAFE, "P", "WM") == LOSS
    assert shadows(SAFE, "P", "WM") == set(COMMITTED)


def test_acks_all_with_flush_promises_everything_also_then() -> None:
    assert permitted(RunConfiguration(acks=-1, min_isr=2, replication_factor=3, flush_messages=1), "WM", "W1") == set()
    assert permitted(RunConfiguration(acks=-1, min_isr=1, replication_factor=3, flush_messages=1), "WM", "W1") == set()


def test_acks_all_with_one_in_sync_may_lose_with_one_power_loss_but_not_with_kills() -> None:
    config = RunConfiguration(acks=-1, min_isr=1, replication_factor=3)
    assert permitted(config, "P", "N", "C") == set()
    assert permitted(config, "W1") == LOSS
    assert permitted(config, "D") == LOSS | HOLES


@pytest.mark.parametrize("which", ["high watermark", "last stable offset"])
def test_where_what_readers_got_may_be_lost_the_offsets_that_they_were_told_may_go_back(which: str) -> None:
    config = RunConfiguration(acks=-1, min_isr=1, replication_factor=1, transaction_version=2)
    assert guarantee_for(config, ["W1"]).ways_of("offset-regression", which)
    assert not guarantee_for(config, ["P", "N"]).ways_of("offset-regression", which)
    assert not guarantee_for(replace(config, acks=1, flush_messages=1), ["P"]).ways_of("offset-regression", which)


def test_more_in_sync_than_there_are_replicas_is_as_many_as_there_are() -> None:
    assert permitted(RunConfiguration(acks=-1, min_isr=2, replication_factor=1), "W1") == LOSS


def test_acks_1_may_lose_what_no_reader_got() -> None:
    config = RunConfiguration(acks=1, min_isr=2, replication_factor=3)
    assert permitted(config, "P") == LOSS
    assert shadows(config, "P") == set(ACKED_ONLY)
    assert shadows(config, "W1") == set(COMMITTED)


def test_acks_0_may_lose_and_reorder_and_with_disk_damage_show_it() -> None:
    config = RunConfiguration(acks=0)
    assert permitted(config) == LOSS | {"send-reorder"}
    assert permitted(config, "D") == LOSS | HOLES | {"send-reorder", "corrupt", "wrong-lookup"}


def test_unclean_election_may_lose_but_never_disagree_after_it_converged() -> None:
    config = RunConfiguration(acks=-1, min_isr=2, replication_factor=3, unclean=True)
    assert permitted(config, "P") == LOSS | {"wrong-offset", "offset-regression"}
    guarantee = guarantee_for(config, ["P"])
    assert guarantee.ways_of("inconsistent-offset", "reads")
    assert not guarantee.ways_of("inconsistent-offset", "final")


def test_a_doubled_record_may_lose_its_acknowledged_half_where_loss_and_duplicates_are_permitted() -> None:
    doubled = RunConfiguration(acks=-1, min_isr=2, replication_factor=3, idempotence=False, max_in_flight=1)
    once = replace(doubled, idempotence=True)
    assert guarantee_for(doubled, ["WM"]).ways_of("wrong-offset", "final")
    assert not guarantee_for(doubled, ["P"]).ways_of("wrong-offset", "final")
    assert not guarantee_for(once, ["WM"]).ways_of("wrong-offset", "final")


def test_without_idempotence_duplicates_are_permitted_and_reordering_if_several_are_in_flight() -> None:
    one = RunConfiguration(acks=-1, min_isr=2, replication_factor=3, idempotence=False, max_in_flight=1)
    several = RunConfiguration(acks=-1, min_isr=2, replication_factor=3, idempotence=False, max_in_flight=5)
    assert permitted(one, "P") == {"duplicate"}
    assert permitted(several, "P") == {"duplicate", "send-reorder"}


def test_truncation_to_the_high_watermark_may_lose_and_diverge() -> None:
    found = permitted(RunConfiguration(min_isr=2, replication_factor=3, hw_truncation=True), "P")
    assert found == LOSS | {"inconsistent-offset", "replica-divergence"}


def test_a_permission_with_one_kind_of_evidence_is_none_for_another() -> None:
    guarantee = guarantee_for(RunConfiguration(acks=1), ["P"])
    assert guarantee.ways_of("stale-ack", "acks")
    assert not guarantee.ways_of("stale-ack", "final")
    assert guarantee.ways_of("lost-write", "")


def test_expect_safe_permits_nothing_to_anybody() -> None:
    assert (
        guarantee_for(RunConfiguration(acks=0, unclean=True, idempotence=False), list(FaultClass), "safe").permitted
        == {}
    )


def test_expect_loss_permits_a_loss_and_what_it_looks_like_and_nothing_more() -> None:
    guarantee = guarantee_for(SAFE, (), "loss")
    assert set(guarantee.permitted) == LOSS | set(COMMITTED)


def test_what_cannot_be_expected_is_refused() -> None:
    with pytest.raises(ValueError, match="'sfae'"):
        guarantee_for(SAFE, (), "sfae")
    with pytest.raises(ValueError, match="W7"):
        guarantee_for(SAFE, ["W7"])


def test_nobody_in_particular_may_see_what_anybody_may() -> None:
    weak, strong = guarantee_for(RunConfiguration(acks=1), ["P"]), guarantee_for(SAFE, ["P"])
    assert union_of([strong, weak]).permitted == weak.permitted
    assert union_of([]) == PermittedAnomalies("", {}, ())


def test_jepsen_has_the_same_names_where_it_has_them() -> None:
    same = [name for name in FOUND if CATALOG[name].jepsen == name]
    assert {"lost-write", "unseen", "duplicate", "poll-skip", "nonmonotonic-poll", "int-poll-skip"} <= set(same)


def test_marks_that_kafka_tells_one_after_the_other_are_permitted_of_kafka_only() -> None:
    assert "lso-violation" not in permitted(SAFE, "P", "N")
    assert permitted(replace(SAFE, foreign_brokers=True), "P", "N") == {"lso-violation"}


def test_whose_brokers_they_were_is_read_from_the_plan() -> None:
    plan = {"workload": {"min_isr": 2, "replication_factor": 3}}
    assert not facts_of(plan).configuration.foreign_brokers
    assert facts_of({**plan, "target": "kafka"}).configuration.foreign_brokers


# ---------------------------------------------------------------------------------------------- each row, from a plan


def _plan(workload: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"workload": {"acks": -1, "min_isr": 2, "replication_factor": 3, **(workload or {})}, **more}


def _settings(**settings: str) -> dict[str, Any]:
    return _plan(cluster={"settings": {name.replace("_", "."): value for name, value in settings.items()}})


FLUSHED = {"topic_settings": {"flush.messages": "1"}}
REACHED: dict[str, dict[str, Any]] = {
    "acks=0": _plan({"acks": 0, "idempotence": False}),
    "acks=1": _plan({"acks": 1, "idempotence": False}),
    "acks=all, min ISR 2 or more, flush.messages=1": _plan(FLUSHED),
    "acks=all, flush.messages=1": _plan({**FLUSHED, "min_isr": 1}),
    "acks=all, min ISR 2 or more": _plan(),
    "acks=all, min ISR 1": _plan({"min_isr": 1}),
    "unclean leader election": _plan({"topic_settings": {"unclean.leader.election.enable": "true"}}),
    "unclean elections by request": _plan(faults=[{"action": "leadership", "params": {"how": "unclean"}}]),
    "requests that arrive twice": _plan(faults=[{"action": "protocol", "params": {"act": "duplicate"}}]),
    "idempotence off": _plan({"idempotence": False, "max_in_flight": 1}),
    "idempotence off, more than one request in flight": _plan({"idempotence": False, "max_in_flight": 5}),
    "read_uncommitted": _plan(),
    "transactions V1": _plan({"generation": 1}),
    "auto-commit": _plan({"commits": "auto"}),
    "positions committed before outputs (at most once)": _plan({"commits": "before"}),
    "positions committed after outputs (at least once)": _plan({"commits": "after"}),
    "positions committed in transactions (exactly once)": _plan({"commits": "transaction"}),
    "truncation to the high watermark": _settings(squall_replication_truncation="high-watermark"),
    "Apache Kafka's fetch answers": _plan(target="kafka"),
    "ISR by messages": _settings(replica_lag_max_messages="4000"),
}
"""For each row, a plan to which it applies, by its producers or by a reader at read_uncommitted."""
NEXT_TO: dict[str, dict[str, Any]] = {
    "unclean elections by request": _plan(faults=[{"action": "leadership", "params": {"how": "preferred"}}]),
    "requests that arrive twice": _plan(faults=[{"action": "protocol", "params": {"act": "drop"}}]),
    "transactions V1": _plan({"generation": 2}),
    "auto-commit": _plan({"commits": "after"}),
    "positions committed before outputs (at most once)": _plan({"commits": "after"}),
    "positions committed after outputs (at least once)": _plan({"commits": "before"}),
    "positions committed in transactions (exactly once)": _plan({"commits": "after"}),
    "truncation to the high watermark": _settings(squall_replication_truncation="epoch"),
    "ISR by messages": _settings(replica_lag_max_messages="-1"),
}


def _rows(plan: dict[str, Any], *, isolation: int) -> set[str]:
    facts = facts_of(plan)
    reader = ClientProcess(1, "reader", "squall", "1", "", {"isolation": isolation})
    configurations = [facts.configuration, configuration_of(reader, facts.configuration)]
    return {row.name for row in (*BASE, *ADDED) for each in configurations if row.holds(each)}


@pytest.mark.parametrize("row", [*BASE, *ADDED], ids=lambda row: row.name)
def test_every_row_is_reached_by_a_plan(row: GuaranteeRow) -> None:
    assert row.name in _rows(REACHED[row.name], isolation=0)


def test_no_plan_reaches_a_row_that_is_not_there() -> None:
    assert REACHED.keys() == {row.name for row in (*BASE, *ADDED)}


@pytest.mark.parametrize("name", NEXT_TO)
def test_the_nearest_plan_does_not_reach_it(name: str) -> None:
    assert name not in _rows(NEXT_TO[name], isolation=1)
    assert "read_uncommitted" not in _rows(NEXT_TO[name], isolation=1)


def test_clients_of_transactions_v2_speak_v1_where_the_cluster_has_no_version_2() -> None:
    features = {"squall.bootstrap.features": "transaction.version=1, metadata.version=29"}
    plan = _plan({"generation": 2}, cluster={"settings": features})
    assert "transactions V1" in _rows(plan, isolation=1)
    assert "transactions V1" not in _rows(_plan(cluster={"settings": features}), isolation=1), "nobody speaks them"


def test_where_records_of_transactions_may_be_lost_their_transactions_may_be_torn_and_markers_skipped() -> None:
    follows = {"torn-txn", "lost-txn", "poll-skip", "int-poll-skip", "hanging-txn", "stuck-consumer"}
    follows |= {"G1a", "dirty-read", "G1c", "zombie-write"}  # epochs that the coordinator's log lost are given again
    writes = replace(SAFE, transaction_version=2)
    assert follows <= permitted(writes, "WM")
    assert not follows & permitted(writes, "P", "N", "W1")
    assert not follows & permitted(SAFE, "WM"), "without transactions a loss tears none"
    held_back = {"hanging-txn", "stuck-consumer"}
    assert follows & permitted(replace(writes, isolation=0), "WM") == follows - held_back


def test_where_epochs_may_be_lost_a_producer_may_wait_for_ever_for_a_marker() -> None:
    writes = replace(SAFE, transaction_version=2)
    assert "stuck-producer/load" in shadows(writes, "WM")
    assert "stuck-producer" not in permitted(writes, "WM"), "the harness's own write has no transaction to wait for"
    assert "stuck-producer/load" not in shadows(writes, "P", "N", "W1") | shadows(SAFE, "WM")


def test_where_decisions_may_be_lost_a_group_may_wait_for_ever_for_positions_of_a_transaction() -> None:
    in_transactions = replace(SAFE, transaction_version=2, commits="transaction")
    assert "stuck-group" in permitted(in_transactions, "WM")
    assert "stuck-group" not in permitted(in_transactions, "P", "N", "W1")
    assert "stuck-group" not in permitted(replace(in_transactions, commits="after"), "WM")


def test_where_committed_records_may_be_lost_both_watermarks_may_go_back() -> None:
    both = {"offset-regression/high watermark", "offset-regression/last stable offset"}
    assert both <= shadows(SAFE, "WM")
    assert not both & shadows(SAFE, "P", "N", "W1")


# ---------------------------------------------------------------------------------------- transactions, by process

DELAYED_END = {"G1a", "dirty-read", "torn-txn", "lost-txn", "G1c"}


def _judged(plan: dict[str, Any], *histories: HistoryBuilder, faults: bytes = b"") -> Verdict:
    """Return the verdict on a run of this plan that contains all of these histories."""
    return judge_bytes("r", b"".join(merged(histories)), faults, plan).verdict


def _found(verdict: Verdict) -> set[tuple[str, str, bool | None]]:
    return {(each.name, each.evidence, each.permitted) for each in verdict.anomalies}


def _transactional(**workload: Any) -> dict[str, Any]:
    return _plan({"generation": 2, **workload}, limits={"stuck_s": 15})


def test_v1_permits_what_a_late_end_of_a_transaction_does_and_v2_does_not() -> None:
    first, second = (replace(SAFE, transaction_version=version) for version in (1, 2))
    for name in DELAYED_END:
        assert guarantee_for(first, ["N"]).ways_of(name, LATE_END)
        assert not guarantee_for(second, ["N"]).ways_of(name, LATE_END)


@pytest.mark.parametrize("evidence", ["", "final", "reads"])
def test_v1_permits_nothing_of_a_transaction_before_which_no_end_was_asked_for_twice(evidence: str) -> None:
    guarantee = guarantee_for(replace(SAFE, transaction_version=1), list("PNC"))
    assert not [name for name in (*DELAYED_END, "zombie-write", "hanging-txn") if guarantee.ways_of(name, evidence)]


def test_a_plan_of_v1_names_what_a_late_end_did_and_a_plan_of_v2_is_broken_by_it() -> None:
    torn = in_a_row("abort", Second("commit", visible=(False, True)), plain=True)
    named = _judged(_transactional(generation=1), torn)
    assert _found(named) == {("torn-txn", LATE_END, True)}
    assert "KAFKA-17754" in " ".join(named.guarantee.sources if named.guarantee else ())
    assert named.verdict == VALID
    broken = _judged(_transactional(generation=2), torn)
    assert _found(broken) == {("torn-txn", LATE_END, False)}
    assert broken.verdict == INVALID


def test_a_plan_of_v1_is_broken_by_a_torn_transaction_before_which_every_end_was_answered_in_time() -> None:
    torn = in_a_row("abort", Second("commit", visible=(False, True)), waits_ms=1)
    assert _judged(_transactional(generation=1), torn).verdict == INVALID


@pytest.mark.parametrize(
    ("waits_ms", "unanswered", "verdict"),
    [
        (1, 1, VALID),
        (REQUEST_TIMEOUT_MS, 1, VALID),
        (REQUEST_TIMEOUT_MS, 0, INVALID),
        (10 * REQUEST_TIMEOUT_MS, 0, INVALID),
    ],
)
def test_where_the_client_tells_what_was_never_answered_how_long_it_took_says_nothing(
    waits_ms: int, unanswered: int, verdict: str
) -> None:
    second = Second("commit", visible=(False, True))
    torn = in_a_row("abort", second, waits_ms=waits_ms, unanswered=unanswered, plain=True)
    assert _judged(_transactional(generation=1), torn).verdict == verdict


def test_client_libraries_write_as_v1_does_whatever_the_plan_allows() -> None:
    plan = facts_of(_transactional()).configuration
    versions = {
        client: configuration_of(ClientProcess(1, "producer", client, "1", "", {}), plan).transaction_version
        for client in ("squall", "confluent", "aiokafka", "kafka-python")
    }
    assert versions == {"squall": 2, "confluent": 1, "aiokafka": 1, "kafka-python": 1}
    nobody = facts_of(_plan()).configuration
    library = ClientProcess(1, "producer", "confluent", "1", "", {})
    assert configuration_of(library, nobody).transaction_version == 0, "without transactions it has no version"


@pytest.mark.parametrize("isolation", [0, 1])
def test_of_two_readers_of_aborted_records_only_the_one_at_read_committed_breaks_the_promise(isolation: int) -> None:
    h, (val,) = transacted(end="abort")
    h.poll(h.reader(isolation=isolation), [(0, val)])
    h.poll(h.reader(isolation=0), [(0, val)])
    after = 2, h.sent(h.producer(), 2)
    h.final([(0, val), after])
    h.final([after], isolation=1)
    verdict = _judged(_transactional(), h)
    assert verdict.verdict == (INVALID if isolation else VALID), verdict.reasons
    assert _found(verdict) == ({("G1a", "reads", False)} if isolation else set())


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_read_before_the_commit_breaks_the_promise_to_a_reader_at_read_committed_only(isolation: int) -> None:
    h = HistoryBuilder()
    p = h.producer()
    h.initialised(p)
    txn = h.begin(p)
    val = h.ok(h.send(p, txn=txn), 0).val
    h.poll(h.reader(isolation=isolation), [(0, val)])
    h.end(txn, "commit")
    h.final([(0, val)], end=2, position=2)
    h.final([(0, val)], end=2, position=2, isolation=1)
    assert _judged(_transactional(), h).verdict == (INVALID if isolation else VALID)
