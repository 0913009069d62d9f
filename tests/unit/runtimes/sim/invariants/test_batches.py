"""Checks how far a replica's log is the committed one."""

from __future__ import annotations

import pytest

from squall.chaos.runtimes.sim.invariants.batches import BatchIdentity, CommittedBatches, LogCopy
from tests.support.clusters.known_partitions import one, run

OWN = (one(2, mark=7), one(3, mark=7))
"""What a follower has of an epoch that committed nothing."""


def ledger_of(end: int, low: int = 0) -> CommittedBatches:
    ledger = CommittedBatches(run(end))
    ledger.deleted(low)
    return ledger


def matched(batches: tuple[BatchIdentity, ...], ledger: CommittedBatches) -> int:
    return LogCopy(0, batches).compare(ledger)


@pytest.mark.parametrize(("low", "end"), [(0, 2), (3, 3), (4, 8), (6, 8)])
def test_what_differs_counts_as_matched_only_where_the_leader_has_deleted_it(low: int, end: int) -> None:
    assert matched((*run(2), *OWN, *run(8, start=4)), ledger_of(8, low)) == end


def test_a_batch_that_reaches_beyond_the_log_start_must_be_the_committed_one() -> None:
    assert matched((*run(2), BatchIdentity(2, 4, 1, 99), *run(8, start=4)), ledger_of(8, low=3)) == 2


def test_batches_of_other_sizes_below_the_log_start_do_not_shift_what_is_compared_above_it() -> None:
    longer = CommittedBatches((BatchIdentity(0, 4, 1, 50), *run(8, start=4)))
    longer.deleted(4)
    assert matched(run(8), longer) == 8
    assert matched((*run(6), one(6, mark=7), one(7)), longer) == 6


def test_a_log_that_ends_below_the_log_start_goes_on_from_there() -> None:
    ledger, copy = ledger_of(8, low=5), LogCopy(0, (*run(2), *OWN, one(4)))
    assert copy.compare(ledger) == 5
    copy.add(run(8, start=5))
    assert copy.compare(ledger) == 8
    copy.add((one(8, mark=7),))
    ledger.add(one(8))
    assert copy.compare(ledger) == 8


def test_a_log_start_that_is_told_later_makes_good_what_differed() -> None:
    ledger, copy = ledger_of(8), LogCopy(0, (*run(2), *OWN, *run(8, start=4)))
    assert copy.compare(ledger) == 2
    ledger.deleted(4)
    assert copy.compare(ledger) == 8


def test_after_a_permitted_loss_nothing_above_the_new_end_counts_as_deleted() -> None:
    ledger, copy = ledger_of(8, low=6), LogCopy(0, (*run(4), one(4, mark=7), one(5, mark=7)))
    assert copy.compare(ledger) == 6
    ledger.cut(4)
    ledger.add(one(4))
    copy.ledger_was_cut(ledger)
    assert copy.matched == 4


def test_more_batches_than_the_committed_ones_below_the_log_start_do_not_shift_what_comes_later() -> None:
    longer, copy = CommittedBatches((BatchIdentity(0, 4, 1, 50), *run(8, start=4))), LogCopy(0, run(6))
    longer.deleted(4)
    assert copy.compare(longer) == 6
    copy.add(run(8, start=6))
    assert copy.compare(longer) == 8
