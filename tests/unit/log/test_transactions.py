"""Transactions in a log: what restarts and truncations leave of them, and producers that are quiet during one."""

from __future__ import annotations

import tracemalloc

import pytest

from squall.broker.log.indexes import READ_ENTRIES
from squall.broker.log.log import Log
from squall.broker.log.markers import TxnMarker
from squall.broker.log.producers import ProducerStates
from squall.broker.protocol.records import read_header
from tests.support.disks.batches import batch, marker
from tests.support.disks.memory_fs import MemoryFs
from tests.support.disks.small_log import open_log, stable_offset

WALL_MS = 10_000


def begin(log: Log, pid: int, seq: int = 0) -> None:
    assert not log.append_as_leader(batch(2, pid=pid, seq=seq, transactional=True), 0, WALL_MS).error


def end(log: Log, pid: int, *, commit: bool, epoch: int = 0) -> None:
    assert not log.append_as_leader(marker(pid, epoch, commit=commit), 0, WALL_MS, client=False).error


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_is_not_committed_holds_readers_back_after_a_restart_too(clean: bool, commit: bool) -> None:
    fs = MemoryFs()
    log = open_log(fs)
    begin(log, 1)
    log.roll()
    begin(log, 2)
    end(log, 1, commit=commit)
    end(log, 2, commit=True)
    if clean:
        log.close(0)
    again = open_log(fs.after_crash(), clean=clean)
    again.recall_undecided(3)
    assert stable_offset(again.producers, 3) == 0
    assert stable_offset(again.producers, 5) == 2
    assert stable_offset(again.producers, 6) == 6


def test_a_truncation_keeps_what_is_undecided_and_reopens_what_has_lost_its_marker() -> None:
    log = open_log(MemoryFs())
    begin(log, 1)
    end(log, 1, commit=True)
    log.roll()
    begin(log, 2)
    end(log, 2, commit=False)
    log.append_as_leader(batch(), 0, WALL_MS)
    log.truncate_to(6)
    assert stable_offset(log.producers, 2) == 0
    log.truncate_to(5)
    assert list(log.producers.ongoing.items()) == [(3, 2)]
    assert log.aborted_transactions(0, 9) == []
    assert stable_offset(log.producers, 2) == 0
    assert stable_offset(log.producers, 5) == 3


def test_a_quiet_producer_is_forgotten_but_not_during_its_transaction() -> None:
    log = open_log(MemoryFs())
    begin(log, 1)
    assert log.producers.expire(WALL_MS * 1000, 100) == []
    assert list(log.producers.ongoing) == [0]


def test_the_timestamp_of_a_marker_keeps_a_producer_known() -> None:
    """KAFKA-9144: else a zombie of an older epoch would be taken for a new producer."""
    log = open_log(MemoryFs())
    begin(log, 1)
    log.append_as_leader(marker(1, 5, commit=False, timestamp=9_000), 0, WALL_MS, client=False)
    assert log.producers.expire(9_500, 1_000) == []
    assert log.producers.entries[1].epoch == 5
    assert log.producers.expire(11_000, 1_000) == [1]


def test_a_snapshot_knows_the_open_transactions() -> None:
    log = open_log(MemoryFs())
    begin(log, 2)
    begin(log, 1)
    again = ProducerStates.decode(log.producers.encode())
    assert again is not None
    assert list(again.ongoing.items()) == [(0, 2), (2, 1)]


def test_of_many_aborted_transactions_only_those_are_read_that_are_asked_for() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    count = 2 * READ_ENTRIES + 7
    for n in range(count):
        begin(log, 1, 2 * n)
        end(log, 1, commit=False)
    for segment in log.segments:
        segment.write_out()
    every = log.aborted_transactions(0, log.log_end_offset)
    assert [txn.first_offset for txn in every] == [3 * n for n in range(count)]
    assert [txn.first_offset for txn in log.aborted_transactions(3 * 200, 3 * 202)] == [600, 603]


def test_the_bound_of_what_is_read_is_behind_it_and_not_far() -> None:
    log = open_log(MemoryFs())
    for _ in range(40):
        log.append_as_leader(batch(2), 0, WALL_MS)
    end_offset = log.log_end_offset
    for offset in range(0, end_offset, 2):
        found = log.slice(offset, end_offset, 1, True)
        assert found is not None
        assert offset + 2 <= log.bound_of(found, offset) <= offset + 12


def test_a_producer_of_which_only_a_marker_is_known_takes_little_memory() -> None:
    """A transaction's end makes its producer known in every partition of it: 3 MB of requests, 768,000 times."""
    ended, many = read_header(marker(1, 0, commit=False), 0), 10_000
    states = ProducerStates()
    tracemalloc.start()
    try:
        for pid in range(many):
            states.ended(ended._replace(producer_id=pid + 1_000), TxnMarker(False, 0))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(states.entries) == many
    assert taken / many < 400
