"""Transactional ids whose producers are replaced: after transaction timeouts, crashes, and restarts of brokers."""

from __future__ import annotations

from typing import Any

import pytest

from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import ABORT, COMMIT, FAIL, INFO, NOT_ENDED, OK, SEND, History, Txn

BROKERS = {**FAST_FAILOVER, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
LOAD = {"name": "transactions", "producers": 1, "transaction_timeout_ms": 2000}


def played(operations: list[list[Any]], faults: list[dict[str, Any]], **load: Any) -> History:
    """Return the history of a run in which all faults took effect and no anomaly was found."""
    load["partitions"] = 1 + max(int(step[5:]) for each in operations for step in each[2].split(", ") if "send" in step)
    values = {"runtime": "sim", "seed": 3, "warmup_s": 0, "time_s": 14, "operations": operations, "faults": faults}
    result = simulate(make_plan({**values, "workload": {**LOAD, **load}, "cluster": {"settings": BROKERS}}))
    assert result.verdict == "valid", result.reasons
    return parse(result.run_files()["history.jsonl"].splitlines(keepends=True))


def txns_of(history: History) -> list[Txn]:
    return sorted(history.txns.rows())


def seen(history: History, txn: Txn, isolation: int) -> int:
    """Return how many of the transaction's records readers of this isolation level got."""
    values = {member.val for member in history.members.rows() if member.kind == SEND and member.txn == txn.op}
    return len({row.val for row in history.records.rows() if row.iso == isolation and row.val in values})


@pytest.mark.parametrize(("generation", "ended"), [(1, (FAIL, NOT_ENDED)), (2, (OK, ABORT))], ids=["V1", "V2"])
def test_a_transaction_that_outlives_its_time_out_is_aborted_before_its_producer_knows(
    generation: int, ended: tuple[int, int]
) -> None:
    operations = [
        [1.0, 0, "send 0, pause 4500, send 1", 100, "commit"],
        [6.0, 0, "send 0, send 1", 100, "commit"],
    ]
    history = played(operations, [], generation=generation)
    late, after = txns_of(history)
    # V1 asks for a partition and is refused. With V2 a record is refused, and asking for the abort again is no error.
    assert ((late.st, late.how), seen(history, late, 1), seen(history, late, 0)) == (ended, 0, 1)
    assert (after.st, after.how, seen(history, after, 1)) == (OK, COMMIT, 2)
    assert (
        after.proc != late.proc
        and after.id == late.id
        and (after.producer_id, after.epoch)
        > (
            late.producer_id,
            late.epoch,
        )
    )
    # The coordinator did it by itself: readers were let on while the producer still slept.
    stable = [told.t1 for told in history.told.rows() if told.part == 0 and told.iso == 1 and told.lso >= 2]
    assert min(stable) < late.t0 + 4.4e9


def test_one_that_only_polls_behind_its_time_out_learns_of_it_when_it_asks_for_its_commit() -> None:
    history = played([[1.0, 0, "send 0, pause 4500, poll", 100, "commit"]], [])
    (late,) = txns_of(history)
    assert (late.st, late.how, seen(history, late, 1)) == (FAIL, COMMIT, 0)


@pytest.mark.parametrize("generation", [1, 2], ids=["V1", "V2"])
def test_an_id_goes_on_after_its_process_has_crashed_and_its_coordinator_was_killed(generation: int) -> None:
    operations: list[list[Any]] = [[at_s / 2, 0, "send 0, poll, send 1", 100, "commit"] for at_s in range(2, 26)]
    operations.append([3.1, 0, "send 0, pause 1500, send 1", 100, "commit"])
    faults = [
        {"at_s": 3.6, "duration_s": 1.0, "action": "client", "target": "producer:0", "params": {"how": "crash"}},
        {"at_s": 7.0, "duration_s": 2.0, "action": "kill", "target": "coordinator:squall-0"},
    ]
    history = played(sorted(operations), faults, generation=generation)
    txns = txns_of(history)
    (crashed,) = [txn for txn in txns if txn.t1 < 0]
    assert (crashed.st, crashed.how, seen(history, crashed, 1), seen(history, crashed, 0)) == (INFO, NOT_ENDED, 0, 1)
    assert len({txn.id for txn in txns}) == 1 and len({init.id for init in history.inits.rows()}) == 1
    before = [txn for txn in txns if txn.committed and txn.op < crashed.op]
    after = [txn for txn in txns if txn.committed and txn.op > crashed.op]
    assert len(before) > 2 and len(after) > 10
    assert all(seen(history, txn, 1) == 2 for txn in before + after)
    assert {txn.proc for txn in after}.isdisjoint({crashed.proc})
    took_over = min(init.t for init in history.inits.rows() if init.t > crashed.t0)
    assert after[-1].t1 - took_over > 7e9, "also after the coordinator was killed"
    epochs = [(txn.producer_id, txn.epoch) for txn in txns if txn is not crashed]
    assert epochs == sorted(epochs)


def test_several_follow_each_other_without_a_breath() -> None:
    operations = [[1.0, 0, "send 0, send 1, send 2", 100, "commit" if n % 3 else "abort"] for n in range(30)]
    history = played(operations, [])
    txns = txns_of(history)
    assert len(txns) == 30 and all(txn.st == OK for txn in txns)
    gaps = [after.t0 - before.t1 for before, after in zip(txns, txns[1:], strict=False)]
    assert max(gaps) < 1e6, "each begins in the millisecond in which the one before it has ended"
    assert [seen(history, txn, 1) for txn in txns] == [3 if txn.how == COMMIT else 0 for txn in txns]
