"""What both engines take from the converter is what the lines say, by a second way that shares nothing with it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checkers.anomalies.transactions import ended_late
from checkers.history.parser import parse
from checkers.history.tables import ABORT, COMMIT, POLL
from tests.support.histories.anomaly_cases import CASES, PLANTS
from tests.support.histories.builder import generate, merged
from tests.support.histories.line_reader import Marks, Read, derive
from tests.support.histories.spoilers import retire_doubled


def hold(lines: Sequence[bytes]) -> None:
    """AssertionError where they differ."""
    history, derived = parse(lines), derive(lines)
    assert history.problem is None
    reads = [Read(r.op, r.idx, r.part, r.off, r.before, r.inside) for r in history.records.rows() if r.kind == POLL]
    assert sorted(reads) == sorted(derived.reads)
    marks = [Marks(told.op, told.idx, told.hw_before, told.lso_before) for told in history.told.rows()]
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
