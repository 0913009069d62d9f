"""A small simulated run of the workload `transactions`, judged by what its readers got."""

from __future__ import annotations

import json

import pytest

from squall.chaos.commands.run import plan_of
from squall.chaos.plans.operations import concrete
from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import ABORT, COMMIT, NOT_ENDED, OK, POLL, SEND, History
from squall.workloads.transactions import plain

pytestmark = pytest.mark.gate

LOAD = {"name": "transactions", "rate": 6, "producers": 2, "aborts": 0.3}


def values(history: History, hows: set[int]) -> set[int]:
    """Return the values sent in transactions whose client asked for one of these ends (commit or abort)."""
    chosen = {txn.op for txn in history.txns.rows() if txn.how in hows and (txn.how == NOT_ENDED or txn.st == OK)}
    return {member.val for member in history.members.rows() if member.kind == SEND and member.txn in chosen}


def seen(history: History, isolation: int, *, final: bool) -> set[int]:
    """Return the values that readers of an isolation level got."""
    return {
        record.val
        for record in history.records.rows()
        if record.iso == isolation and bool(record.final) is final and record.val >= 0
    }


@pytest.fixture(scope="module", params=[1, 2], ids=["V1", "V2"])
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Return the history of a run without faults."""
    load = {**LOAD, "generation": request.param}
    plan = make_plan({"seed": 5, "runtime": "sim", "time_s": 12, "workload": load, "faults": []})
    result = simulate(plan)
    assert result.verdict == "valid", result.reasons
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


def test_one_broker_is_enough() -> None:
    flags = {"workload": "transactions", "nodes": 1, "seed": 2, "broker_settings": {}, "topic_settings": {}}
    result = simulate(plan_of(None, {**flags, "time_s": 5.0, "faults": "none", "rate": 5}, "sim"))
    assert result.verdict == "valid", result.reasons
    history = parse(result.files["history.jsonl"].splitlines(keepends=True))
    assert any(txn.committed for txn in history.txns.rows())


def test_a_plain_producer_writes_beside_transactions_to_its_own_topic_and_stays_when_these_are_renumbered() -> None:
    plan = make_plan({"seed": 3, "runtime": "sim", "time_s": 8, "workload": {**LOAD, "plain_rate": 4}, "faults": []})
    operations = concrete(plan).operations or ()
    plain_ones = [each for each in operations if each.end == plain.PLAIN]
    assert len(plain_ones) > 20
    result = simulate(plan)
    assert result.verdict == "valid", result.reasons
    lines = [json.loads(line) for line in result.run_files()["history.jsonl"].splitlines()]
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


def test_a_zombie_is_never_the_plain_producer() -> None:
    zombies = [{"at_s": at_s, "duration_s": 0.5, "action": "zombie", "target": "producer"} for at_s in (1, 4, 7, 10)]
    load = {**LOAD, "producers": 1, "plain_rate": 3}
    plan = make_plan({"seed": 4, "runtime": "sim", "time_s": 13, "workload": load, "faults": zombies})
    result = simulate(plan)
    assert result.verdict == "valid", result.reasons
    assert result.judgement is not None
    assert [fault.evidence["client"] for fault in result.judgement.faults] == ["producer 0"] * 4
