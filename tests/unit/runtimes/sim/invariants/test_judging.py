"""What is taken into the books of a partition when a node dies."""

from __future__ import annotations

import pytest

from chaos.runtimes.sim.invariants import Promise
from chaos.runtimes.sim.invariants.batches import Copy
from chaos.runtimes.sim.invariants.judging import Judge
from chaos.runtimes.sim.invariants.known import Known
from tests.support.known_partitions import known, run


def judge() -> Judge:
    def report(*wrong: object) -> None:
        pytest.fail(str(wrong))

    return Judge(report)


def left_with(start: int, *, end: int = 6, low: int = 0) -> Known:
    """Node 1 dies, all of 6 committed batches in its log, and its disk has these."""
    partition = known(6, copies={1: 6, 2: 6}, promise=Promise())
    partition.ledger.low = low
    judge().died(partition, 1, Copy(start, run(end, start)))
    return partition


def test_what_a_dying_node_has_deleted_by_its_retention_counts_as_deleted() -> None:
    partition = left_with(4)
    assert partition.ledger.low == 4
    assert partition.holds(1, 6)
    assert partition.lost == {}


def test_a_whole_disk_moves_no_log_start() -> None:
    assert left_with(0).ledger.low == 0
    assert left_with(0, low=3).ledger.low == 3


def test_what_a_dying_node_has_not_at_its_end_is_lost_and_not_deleted() -> None:
    partition = left_with(0, end=4)
    assert partition.ledger.low == 0
    assert partition.lost[1].upto == 6
