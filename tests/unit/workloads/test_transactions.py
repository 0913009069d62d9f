"""The workload `transactions`: its operations, and a small simulated run, judged by what its readers saw."""

from __future__ import annotations

import json
import tomllib
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.commands.run import plan_of
from chaos.draws import rng_for
from chaos.plans.operations import concrete
from chaos.plans.plan import PlanError, make_plan, read_plan, write_plan
from chaos.plans.swarm import swarm_plan
from chaos.runs.saved import save
from chaos.runs.simulation import simulate
from checkers.history.parser import parse
from checkers.history.tables import ABORT, COMMIT, NOT_ENDED, OK, POLL, SEND, History
from checkers.plan_facts import facts_of
from workloads.transactions import TransactionsLoad, plain
from workloads.transactions.brokers import FACTOR
from workloads.transactions.operations import Step, Transaction, steps_of, text_of

LOAD = {"name": "transactions", "rate": 6, "producers": 2, "aborts": 0.3}


def values(history: History, hows: set[int]) -> set[int]:
    """What was sent in transactions whose end was asked for so."""
    chosen = {txn.op for txn in history.txns.rows() if txn.how in hows and (txn.how == NOT_ENDED or txn.st == OK)}
    return {member.val for member in history.members.rows() if member.kind == SEND and member.txn in chosen}


def seen(history: History, isolation: int, *, final: bool) -> set[int]:
    """What readers of an isolation level got."""
    return {
        record.val
        for record in history.records.rows()
        if record.iso == isolation and bool(record.final) is final and record.val >= 0
    }


@pytest.fixture(scope="module", params=[1, 2], ids=["V1", "V2"])
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Of a run without faults."""
    load = {**LOAD, "generation": request.param}
    plan = make_plan({"seed": 5, "runtime": "sim", "time_s": 12, "workload": load, "faults": []})
    result = simulate(plan)
    assert result.verdict == "valid", result.told
    directory = save(result, tmp_path_factory.mktemp("runs"), "again")
    with (directory.path / "history.jsonl").open("rb") as lines:
        return parse(lines)


def test_committed_records_are_read_at_both_isolations_and_aborted_ones_at_read_uncommitted_only(
    history: History,
) -> None:
    committed, aborted = values(history, {COMMIT}), values(history, {ABORT, NOT_ENDED})
    assert len(committed) > 20 and len(aborted) > 5
    for final in (False, True):
        assert committed <= seen(history, 1, final=final)
        assert committed | values(history, {ABORT}) <= seen(history, 0, final=final)
        assert not aborted & seen(history, 1, final=final)


def test_every_process_takes_over_its_id_and_most_have_several_transactions(history: History) -> None:
    assert len({history.names[init.id] for init in history.inits.rows()}) == 2
    assert {txn.proc for txn in history.txns.rows()} <= {init.proc for init in history.inits.rows()}
    assert len(list(history.txns.rows())) > 3 * len(list(history.inits.rows()))


def test_transactions_go_to_several_partitions(history: History) -> None:
    parts: dict[int, set[int]] = {}
    for member in history.members.rows():
        if member.kind == SEND:
            parts.setdefault(member.txn, set()).add(member.part)
    assert max(map(len, parts.values())) > 1


def test_transactions_poll_what_others_committed_and_go_on_where_they_were(history: History) -> None:
    inside = {member.op: member.txn for member in history.members.rows() if member.kind == POLL}
    txns = {txn.op: txn for txn in history.txns.rows()}
    polled = [row for row in history.records.rows() if row.kind == POLL and row.op in inside]
    committed, left = values(history, {COMMIT}), values(history, {ABORT, NOT_ENDED})
    at_committed = {row.val for row in polled if row.iso == 1}
    assert len(at_committed) > 10 and at_committed <= committed
    assert {row.val for row in polled if row.iso == 0} & left, "at read_uncommitted also what was aborted"
    assert all(txns[inside[row.op]].proc == row.proc for row in polled)
    assert all(txns[inside[row.op]].t0 <= row.t0 <= row.t1 for row in polled)
    of_several = {(row.proc, row.part): set() for row in polled}  # type: dict[tuple[int, int], set[int]]
    for row in polled:
        of_several[row.proc, row.part].add(inside[row.op])
        assert row.off > row.before, "no record comes twice"
    assert max(map(len, of_several.values())) > 2


def test_some_readers_begin_in_the_middle_at_the_end_and_at_the_start_at_both_isolations(history: History) -> None:
    ends = {part.part: part.seen for part in history.partitions}
    beginnings: dict[int, list[int]] = {}
    for each in history.assignments:
        if each.kind == "assign" and each.part == 0:
            beginnings.setdefault(each.proc, []).append(each.position)
    again = {proc: found for proc, found in beginnings.items() if len(found) > 3 and found[3] > 0}
    assert {process.isolation for process in history.processes if process.proc in again} == {0, 1}
    assert {process.role for process in history.processes if process.proc in again} == {"reader"}
    for found in again.values():
        for middle, end, start in zip(*(found[which::3] for which in range(3)), strict=False):
            assert start == 0 <= middle <= end <= ends[0] + 2
        assert 0 < found[3] < found[4]
    follow = [
        found for proc, found in beginnings.items() if history.processes[proc].role == "reader" and proc not in again
    ]
    assert follow == [[0], [0]]


@given(st.lists(st.sampled_from([Step("poll"), Step("send", 0), Step("send", 12), Step("pause", 250)]), min_size=1))
def test_steps_are_what_their_text_says(steps: list[Step]) -> None:
    assert list(steps_of(text_of(steps))) == steps


def test_every_drawn_transaction_is_an_operation_and_all_there_is_to_do_is_drawn() -> None:
    load = TransactionsLoad.model_validate({**LOAD, "rate": 50})
    drawn = load.drawn(partial(rng_for, 3), 0, 60)
    assert not any(map(load.wrong, drawn))
    steps = [[step.do for step in steps_of(each.steps)] for each in drawn]
    assert {len([do for do in each if do != "pause"]) for each in steps if len(each) < 5} == {1, 2, 3, 4}
    assert {do for each in steps for do in each} == {"send", "poll", "pause"}
    assert max(len(set(each.partitions)) for each in drawn) == 3
    assert {each.end for each in drawn} == {"commit", "abort", "leave"}
    longest = [max((step.number for step in steps_of(each.steps) if step.do == "pause"), default=0) for each in drawn]
    outliving = [each for each, pause in zip(drawn, longest, strict=True) if pause > load.transaction_timeout_ms]
    assert 0 < len(outliving) < len(drawn) / 50
    assert all(each.end == "commit" and len(each.steps.split("pause")[1].split(",")) > 1 for each in outliving)


def test_a_transaction_becomes_smaller_by_one_step_at_a_time() -> None:
    whole = [1.0, 0, "send 0, poll, pause 5", 100, "commit"]
    less = [each[2] for each in TransactionsLoad.lesser(whole)]
    assert less == ["poll, pause 5", "send 0, pause 5", "send 0, poll"]
    assert not list(TransactionsLoad.lesser([1.0, 0, "poll", 100, "commit"]))


def test_its_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    plan = concrete(make_plan({"workload": LOAD, "runtime": "sim"}))
    assert isinstance(plan.workload, TransactionsLoad)
    path = tmp_path / "plan.toml"
    path.write_text(write_plan(plan))
    assert read_plan(path) == plan
    assert {each.end for each in plan.operations or ()} == {"commit", "abort", "leave"}


@pytest.mark.parametrize(
    ("operation", "wrong"),
    [
        ([1, 2, "send 0", 100, "commit"], "producer 2"),
        ([1, 0, "", 100, "commit"], "'' is no step"),
        ([1, 0, "send 0, send", 100, "commit"], "'send' is no step"),
        ([1, 0, "send 0,, poll", 100, "commit"], "'' is no step"),
        ([1, 0, "poll 1", 100, "commit"], "'poll 1' is no step"),
        ([1, 0, "send -1", 100, "commit"], "'send -1' is no step"),
        ([1, 0, "send 3", 100, "commit"], "send 3: there are partitions 0 to 2"),
        ([1, 0, ", ".join(["poll"] * 17), 100, "commit"], "17 steps"),
        ([1, 0, "pause 60001", 100, "commit"], "pause 60001"),
        ([1, 0, "send 0", 3, "commit"], "bytes 3"),
        ([1, 0, "send 0", 100, "perhaps"], "end 'perhaps'"),
        ([1, 0, 2, 0, 100, 0, "commit"], r"is no operation of .* which is \[at_s, producer, steps, bytes, end\]"),
    ],
)
def test_what_is_no_operation_of_it_is_refused(operation: list[object], wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        make_plan({"workload": LOAD, "operations": [operation]})


@pytest.mark.parametrize(
    ("isolation", "levels"),
    [("both", {0, 1}), ("read_committed", {1}), ("read_uncommitted", {0})],
)
def test_its_readers_have_the_isolation_that_is_asked_for(isolation: str, levels: set[int]) -> None:
    load = TransactionsLoad.model_validate({**LOAD, "isolation": isolation})
    assert {load.level(number) for number in range(load.readers)} == levels


def test_another_isolation_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(PlanError, match="isolation: .*'read_committed', 'read_uncommitted' or 'both'.*serializable"):
        make_plan({"workload": {**LOAD, "isolation": "serializable"}})


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_small_cluster_gets_what_it_needs_from_flags_and_is_refused_without_in_a_file(nodes: int) -> None:
    flags = {"workload": "transactions", "nodes": nodes, "seed": 1, "broker_settings": {}, "topic_settings": {}}
    settings = plan_of(None, flags, "sim").cluster.settings
    assert settings["transaction.state.log.replication.factor"] == str(nodes)
    assert settings["broker.session.timeout.ms"] == "1800", "failover stays fast"
    workload = {**LOAD, "replication_factor": 1, "min_isr": 1}
    with pytest.raises(PlanError, match=f"set transaction.state.log.replication.factor={nodes} and .*min.isr=1"):
        make_plan({"cluster": {"nodes": nodes}, "workload": workload})
    make_plan({"cluster": {"nodes": nodes}, "target": "kafka", "workload": workload})


def test_what_is_set_by_hand_stays_so() -> None:
    given = {"transaction.state.log.min.isr": "1"}
    flags = {"workload": "transactions", "nodes": 3, "seed": 1, "broker_settings": given, "topic_settings": {}}
    assert plan_of(None, flags, "sim").cluster.settings.items() >= given.items()
    with pytest.raises(PlanError, match="is 3, and the cluster has 1 broker, so no producer would get its id"):
        plan_of(None, flags | {"nodes": 1, "broker_settings": {FACTOR: "3"}}, "sim")


def test_one_broker_is_enough() -> None:
    flags = {"workload": "transactions", "nodes": 1, "seed": 2, "broker_settings": {}, "topic_settings": {}}
    result = simulate(plan_of(None, {**flags, "time_s": 5.0, "faults": "none", "rate": 5}, "sim"))
    assert result.verdict == "valid", result.told
    history = parse(result.files["history.jsonl"].splitlines(keepends=True))
    assert any(txn.committed for txn in history.txns.rows())


def test_the_plan_of_a_client_library_says_that_it_speaks_the_first_generation() -> None:
    plan = make_plan({"workload": {**LOAD, "client": "confluent"}})
    assert isinstance(plan.workload, TransactionsLoad)
    assert plan.workload.generation == 1
    assert facts_of(tomllib.loads(write_plan(plan))).configuration.transaction_version == 1
    own = make_plan({"workload": LOAD})
    assert facts_of(tomllib.loads(write_plan(own))).configuration.transaction_version == 2
    with pytest.raises(PlanError, match="client confluent speaks generation 1 of transactions only"):
        make_plan({"workload": {**LOAD, "client": "confluent", "generation": 2}})


def test_swarms_of_it_are_plans_and_a_swarm_without_a_name_has_some_of_them() -> None:
    plans = [swarm_plan(seed, workload="transactions") for seed in range(60)]
    assert {plan.workload.name for plan in plans} == {"transactions"}
    assert len({plan.workload.model_dump_json() for plan in plans}) > 10
    small = [plan.cluster.settings for plan in plans if len(plan.nodes) < 3]
    # As many as a load's own topics may have: else decisions are lost where no record may be.
    assert {settings["transaction.state.log.min.isr"] for settings in small} == {"1", "2"}
    assert {swarm_plan(seed).workload.name for seed in range(60)} == {"appends"}
    of_any = [swarm_plan(seed, workload=None).workload for seed in range(100)]
    assert 10 <= sum(load.name == "transactions" for load in of_any) <= 30
    assert {load.name for load in of_any} == {"appends", "transactions", "groups", "pipeline", "semantics"}
    assert any(getattr(load, "plain_rate", 0) for load in of_any)


def test_a_plain_producer_writes_beside_transactions_to_its_own_topic_and_stays_when_these_are_renumbered() -> None:
    plan = make_plan({"seed": 3, "runtime": "sim", "time_s": 8, "workload": {**LOAD, "plain_rate": 4}, "faults": []})
    operations = concrete(plan).operations or ()
    plain_ones = [each for each in operations if each.end == plain.PLAIN]
    assert len(plain_ones) > 20
    result = simulate(plan)
    assert result.verdict == "valid", result.told
    lines = [json.loads(line) for line in result.papers()["history.jsonl"].splitlines()]
    own = {line["part"] for line in lines if line["e"] == "t" and line["topic"] == plain.TOPIC}
    loads = {line["p"] for line in lines if line["e"] == "p" and "producer" in line["settings"]}
    sends = [line for line in lines if line.get("f") == "send" and line["part"] in own and line["p"] in loads]
    assert len(sends) == len(plain_ones)
    assert not any("txn" in line for line in sends)
    listed = [list(each) for each in operations]
    for renumber in plan.workload.RENUMBERINGS:
        changed = renumber(plan.workload.model_dump(), listed)
        assert changed is not None
        assert [op for op in changed.operations if op[4] == plain.PLAIN] == [list(each) for each in plain_ones]


@pytest.mark.parametrize(
    ("operation", "rate", "why"),
    [
        ((1.0, -1, "send 0", 100, "plain"), 0, "there is no plain producer"),
        ((1.0, 0, "send 0", 100, "plain"), 3, "producer -1 and the one step"),
        ((1.0, -1, "send 0, poll", 100, "plain"), 3, "producer -1 and the one step"),
        ((1.0, -1, "jump", 100, "plain"), 3, "is no step"),
    ],
)
def test_what_is_no_record_of_the_plain_producer_is_refused(operation: tuple[object, ...], rate: int, why: str) -> None:
    load = TransactionsLoad.model_validate({**LOAD, "plain_rate": rate})
    assert why in load.wrong(Transaction(*operation))  # type: ignore[arg-type]
    assert not rate or not load.wrong(Transaction(1.0, -1, "send 0", 100, "plain"))


def test_a_zombie_is_never_the_plain_producer() -> None:
    zombies = [{"at_s": at_s, "duration_s": 0.5, "action": "zombie", "target": "producer"} for at_s in (1, 4, 7, 10)]
    load = {**LOAD, "producers": 1, "plain_rate": 3}
    plan = make_plan({"seed": 4, "runtime": "sim", "time_s": 13, "workload": load, "faults": zombies})
    result = simulate(plan)
    assert result.verdict == "valid", result.told
    assert result.judgement is not None
    assert [fault.evidence["client"] for fault in result.judgement.faults] == ["producer 0"] * 4
