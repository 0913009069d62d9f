"""The columns that the converter derives from a history's lines agree with an independent derivation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from squall.checkers import nemesis_log
from squall.checkers.anomalies.transactions import ended_late
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import ABORT, COMMIT, LISTED, POLL, History, IntegerTable
from tests.support.effort import examples
from tests.support.histories import group_reader
from tests.support.histories.anomaly_cases import CASES, PLANTS
from tests.support.histories.builder import generate, merged
from tests.support.histories.drawn_groups import group_histories
from tests.support.histories.line_reader import Marks, Read, derive
from tests.support.histories.spoilers import retire_doubled


def hold(lines: Sequence[bytes]) -> None:
    """Assert that both derivations of the lines agree."""
    history, derived = parse(lines), derive(lines)
    assert history.problem is None
    reads = [Read(r.op, r.idx, r.part, r.off, r.before, r.inside) for r in history.records.rows() if r.kind == POLL]
    assert sorted(reads) == sorted(derived.reads)
    assert {row.val: row.tries for row in history.records.rows() if row.tries >= 0} == derived.tries
    told_marks = [told for told in history.told.rows() if told.kind <= LISTED]
    marks = [Marks(told.op, told.idx, told.hw_before, told.lso_before) for told in told_marks]
    assert sorted(marks) == sorted(derived.marks)
    late = {
        txn.op: {how for how, flag in ((COMMIT, txn.late_commit), (ABORT, txn.late_abort)) if flag}
        for txn in history.txns.rows()
    }
    assert late == ended_late(history)
    for partition in history.partitions:
        cover = partition.cover_from, partition.cover_to, partition.cover_t0
        assert cover == derived.covers.get(partition.part, (-1, -1, -1))
        assert partition.seen == derived.seen.get(partition.part, -1)
        assert partition.log_start == derived.log_start.get(partition.part, -1)
    hold_of_groups(lines)


def hold_of_groups(lines: Sequence[bytes], nemesis: Sequence[bytes] = ()) -> None:
    """Assert that both derivations of group ownership, and of committed and fetched offsets, agree."""
    faults, trouble = nemesis_log.parse_faults(nemesis)
    history, derived = parse(lines, nemesis_log.apart(faults)), group_reader.derive(lines, nemesis)
    assert history.problem is trouble is None
    assert _named(history, history.holds) == sorted(derived.holds)
    assert _named(history, history.commits) == sorted(derived.commits)
    assert _named(history, history.fetches) == sorted(derived.fetches)
    assert history.owned == {each.part for each in derived.holds}
    assert history.owners == {each.proc for each in derived.holds}
    assert history.resumed == sum(each.begun for each in derived.holds)


def _named(history: History, table: IntegerTable) -> list[Any]:
    """Return the table's rows, sorted, with names of groups instead of numbers."""
    return sorted(row._replace(group=history.names[row.group]) for row in table.rows())


@pytest.mark.parametrize("sentence", CASES)
def test_of_every_short_history(sentence: str) -> None:
    hold(CASES[sentence].build().lines())


@pytest.mark.parametrize("seed", range(12))
def test_of_generated_histories(seed: int) -> None:
    hold(generate(seed, sends=60, partitions=3, cleanup="compact" if seed % 3 == 0 else "delete").lines())


@pytest.mark.parametrize("name", PLANTS)
def test_of_spoiled_histories(name: str) -> None:
    planted = generate(3)
    PLANTS[name](planted)
    hold(planted.lines())


def test_of_histories_in_which_retention_takes_its_part() -> None:
    histories = [generate(seed, sends=60) for seed in range(20, 23)]
    for each in histories:
        retire_doubled(each)
    hold(merged(histories))


@given(group_histories())
@settings(max_examples=examples(500))
def test_of_drawn_histories_of_groups(drawn: tuple[list[bytes], list[bytes]]) -> None:
    hold_of_groups(*drawn)
