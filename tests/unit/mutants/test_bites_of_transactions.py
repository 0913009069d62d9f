"""Each mutant (planted bug) of transactions has an effect in a unit of the broker: it gives another answer than the
correct code.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Fields
from typing import Any

import pytest

from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import (
    MAX_EPOCH,
    V2,
    AddPartitions,
    EndTransaction,
    InitProducer,
    TransactionLogRecord,
    TransactionMetadata,
    TransactionSettings,
    TxnState,
)
from squall.broker.log.markers import TxnMarker
from squall.broker.log.producer_rules import EndedTxn, VerificationStateEntry
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators import coordinator_log
from squall.chaos.mutants import find
from tests.support.disks.batches import NEWEST, batch, marker
from tests.support.disks.memory_fs import MemoryFs
from tests.support.disks.small_log import open_log
from tests.support.replication.partitions import leader

PID, EPOCH, NOW_MS = 7, 5, 1_000
OPEN = TransactionMetadata("x", PID, EPOCH, 60_000, TxnState.ONGOING, (("t", 0),), 900, 950)


def shard(transaction: TransactionMetadata) -> TransactionCoordinatorShard:
    found = TransactionCoordinatorShard(TransactionSettings())
    found.replay(TransactionLogRecord(transaction.transactional_id, transaction), 0)
    return found


def log_of_a_transaction(*, markers: int = 0) -> Any:
    """A log in which a producer's transaction is open, or has been ended in the epoch above."""
    log = open_log(MemoryFs())
    log.append_as_follower(batch(2, leader_epoch=0, pid=PID, epoch=EPOCH, seq=0, transactional=True), NEWEST)
    for _ in range(markers):
        end = log.log_end_offset
        log.append_as_follower(marker(PID, EPOCH + 1, commit=True, base=end, leader_epoch=0), NEWEST)
    return log


def test_25_asks_nobody_in_the_first_generation() -> None:
    rules = log_of_a_transaction().producers
    first, second = (
        VerificationStateEntry(EPOCH, 0, raises_epoch=False),
        VerificationStateEntry(EPOCH, 0, raises_epoch=True),
    )
    assert not rules.is_verified(first, EPOCH)
    with find("25").planted():
        assert rules.is_verified(first, EPOCH)
        assert not rules.is_verified(second, EPOCH)


def test_26_the_end_of_a_transaction_leaves_its_epoch() -> None:
    asked = EndTransaction("x", PID, EPOCH, commit=True, client_version=V2)
    assert shard(OPEN).decide(asked, NOW_MS).answer.epoch == EPOCH + 1
    with find("26").planted():
        assert shard(OPEN).decide(asked, NOW_MS).answer.epoch == EPOCH


def test_27_a_marker_of_the_epoch_in_use_is_in_time() -> None:
    rules = log_of_a_transaction().producers
    entry = rules.entries[PID]
    assert rules.is_marker_late(entry, EPOCH, V2)
    with find("27").planted():
        assert not rules.is_marker_late(entry, EPOCH, V2)
        assert rules.is_marker_late(entry, EPOCH - 1, V2)


def test_28_a_marker_that_is_there_is_refused() -> None:
    log = log_of_a_transaction(markers=1)
    again = (PID, EPOCH + 1, TxnMarker(commit=True, coordinator_epoch=0), V2, 0, NOW_MS)
    assert log.end_transaction(*again).error == ErrorCode.NONE
    with find("28").planted():
        assert log.end_transaction(*again).error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_29_a_client_gets_the_last_epoch() -> None:
    last = replace(OPEN, epoch=MAX_EPOCH - 1)
    asked = EndTransaction("x", PID, MAX_EPOCH - 1, commit=True, client_version=V2)
    assert shard(last).decide(asked, NOW_MS).needs_producer_id
    with find("29").planted():
        assert shard(last).decide(asked, NOW_MS).answer.epoch == MAX_EPOCH


def test_32_a_marker_that_is_not_replicated_decides() -> None:
    rules = log_of_a_transaction(markers=1).producers
    assert rules.is_undecided(EndedTxn(PID, 0, 2, aborted=False), high_watermark=2)
    with find("32").planted():
        assert not rules.is_undecided(EndedTxn(PID, 0, 2, aborted=False), high_watermark=2)


def test_33_a_marker_does_not_make_a_producer_younger() -> None:
    late = marker(PID, EPOCH + 1, commit=True, base=2, leader_epoch=0, timestamp=9_000)
    sound = log_of_a_transaction()
    sound.append_as_follower(late, NEWEST)
    assert not sound.producers.expire(9_500, 5_000)
    forgetful = log_of_a_transaction()
    with find("33").planted():
        forgetful.append_as_follower(late, NEWEST)
    assert forgetful.producers.expire(9_500, 5_000) == [PID]


def test_35_a_batch_of_a_new_epoch_is_an_old_one() -> None:
    again = batch(2, leader_epoch=0, pid=PID, epoch=EPOCH + 1, seq=0, transactional=True)
    sound = log_of_a_transaction(markers=1)
    assert sound.append_as_leader(again, 0, NOW_MS, client=False).base_offset == 3
    with find("35").planted():
        forgetful = log_of_a_transaction(markers=1)
        assert forgetful.append_as_leader(again, 0, NOW_MS, client=False).base_offset == 0


@pytest.mark.parametrize("mutant", ["37b", "48"])
def test_37b_48_the_last_stable_offset_is_another_one(mutant: str) -> None:
    partition = leader(log_end=9, high_watermark=4)
    assert (partition.last_stable_offset(2), partition.read_limit(1, 2), partition.read_limit(0, 2)) == (2, 2, 4)
    told = 3 if mutant == "37b" else 0
    with find(mutant).planted():
        assert (partition.last_stable_offset(2), partition.read_limit(1, 2)) == (told, told)
        assert partition.read_limit(0, 2) == 4


def test_37_what_is_appended_counts_as_committed() -> None:
    log = coordinator_log.CoordinatorLog.__new__(coordinator_log.CoordinatorLog)
    log.closed, log.epoch = False, 3
    log._h = Fields(state=Fields(is_leader=True, leader_epoch=3, high_watermark=0))  # type: ignore[assignment]
    said: list[ErrorCode] = []
    with find("37").planted():
        log.when_committed(8, said.append)
    assert said == [ErrorCode.NONE]


def test_50_a_coordinator_that_is_replaced_says_no() -> None:
    assert coordinator_log.error_for_clients(ErrorCode.NOT_LEADER_OR_FOLLOWER) == ErrorCode.NOT_COORDINATOR
    with find("50").planted():
        assert coordinator_log.error_for_clients(ErrorCode.NOT_LEADER_OR_FOLLOWER) == ErrorCode.INVALID_TXN_STATE
        assert coordinator_log.error_for_clients(ErrorCode.NONE) == ErrorCode.NONE


def test_59_each_attempt_to_fence_costs_an_epoch() -> None:
    asked = InitProducer("x", 60_000)
    sound, raised = shard(OPEN), shard(OPEN)
    fenced = [sound.decide(asked, NOW_MS).records[0].transaction for _ in range(2)]
    assert [found.epoch for found in fenced if found] == [EPOCH + 1, EPOCH + 1]
    with find("59").planted():
        fenced = [raised.decide(asked, NOW_MS).records[0].transaction for _ in range(2)]
        assert [found.epoch for found in fenced if found] == [EPOCH + 1, EPOCH + 2]


def test_60_the_next_transaction_begins_before_the_markers_are_written() -> None:
    prepared = replace(OPEN, state=TxnState.PREPARE_COMMIT)
    asked = AddPartitions("x", PID, EPOCH, (("t", 1),))
    assert shard(prepared).decide(asked, NOW_MS).answer.error == ErrorCode.CONCURRENT_TRANSACTIONS
    with find("60").planted():
        assert shard(prepared).decide(asked, NOW_MS).answer.error == ErrorCode.NONE
