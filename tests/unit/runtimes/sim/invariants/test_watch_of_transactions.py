"""The watch sees what real logs and real shards know of transactions, and says what is wrong with it; and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from squall.broker.coordinators.transactions import records
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import (
    V2,
    TransactionLogRecord,
    TransactionMetadata,
    TransactionSettings,
    TxnState,
)
from squall.broker.protocol.records import Record, encode_batch
from squall.chaos.runtimes.sim.invariants.batches import BatchIdentity, LogCopy
from squall.chaos.runtimes.sim.invariants.log_replay import LogReplay
from squall.chaos.runtimes.sim.invariants.models import PartitionModel
from squall.chaos.runtimes.sim.invariants.transaction_journal import TransactionJournal, TransactionRecord
from squall.chaos.runtimes.sim.invariants.txn_watch import COORDINATORS_LOG, TransactionWatch
from tests.support.clusters.known_partitions import one
from tests.support.clusters.txn_cases import data, mark
from tests.support.clusters.watched_world import TOPIC_ID, FakeNode, WatchedWorld
from tests.support.disks.batches import batch, marker

PRODUCER = 9


class TransactionHarness:
    """A partition on three nodes, and one producer's transactions in it."""

    def __init__(self, **settings: Any) -> None:
        self.world = WatchedWorld(**settings)
        self.sequence = 0

    @property
    def leader(self) -> FakeNode:
        return self.world.nodes[1]

    @property
    def producers(self) -> Any:
        return self.leader.hosted.log.producers

    def send(self, epoch: int = 0) -> None:
        h = self.leader.hosted
        sent = batch(1, pid=PRODUCER, epoch=epoch, seq=self.sequence, transactional=True)
        assert not h.log.append_as_leader(sent, 0, 1_000, client=False).error
        self.sequence += 1
        self.spread()

    def offsets(self, epoch: int) -> None:
        """As a group's coordinator writes them for the producer: without a sequence."""
        sent = batch(1, pid=PRODUCER, epoch=epoch, transactional=True)
        assert not self.leader.hosted.log.append_as_leader(sent, 0, 1_000, client=False).error
        self.spread()

    def mark(self, epoch: int = 0, *, commit: bool = False, coordinator: int = 0) -> None:
        """Write a marker, whether it may be written or not."""
        base = self.leader.hosted.log.log_end_offset
        self.leader.write_as_it_is(
            marker(PRODUCER, epoch, commit=commit, coordinator_epoch=coordinator, base=base, leader_epoch=0)
        )
        self.spread()

    def spread(self) -> None:
        h = self.leader.hosted
        h.state.appended(h.log.log_end_offset, self.world.now_ms)
        self.world.look()
        self.world.replicate()

    @property
    def names(self) -> list[str]:
        """Return the names of what is broken, but for decisions: no coordinator is here."""
        return [name for name in self.world.names if name != "marker-is-decided"]


def in_a_transaction(**settings: Any) -> TransactionHarness:
    """One was aborted, one committed, and one is open."""
    harness = TransactionHarness(**settings)
    for commit in (False, True):
        harness.send()
        harness.send()
        harness.mark(commit=commit)
    harness.send()
    assert harness.names == []
    return harness


def test_transactions_through_segments_restarts_and_truncations_break_nothing() -> None:
    harness = in_a_transaction(segment_bytes=200)
    harness.world.nodes[3].hosted.log.close(0)
    harness.world.nodes[3].kill()
    harness.world.look()
    harness.send()
    harness.world.nodes[3].start()
    harness.world.register(3)
    harness.world.look()
    harness.world.nodes[3].learn()
    harness.world.look()
    harness.world.replicate()
    follower = harness.world.nodes[2].hosted
    follower.log.truncate_to(follower.log.log_end_offset - 1)
    follower.state.truncated(follower.log.log_end_offset)
    harness.world.look()
    assert [name for name in harness.names if "replay" in name] == []


def test_what_a_groups_coordinator_writes_in_transactions_has_no_sequence_and_breaks_nothing() -> None:
    harness = TransactionHarness()
    for epoch in (0, 1, 2):
        harness.offsets(epoch)
        harness.offsets(epoch)
        harness.mark(epoch, commit=epoch != 1)
    harness.world.nodes[3].hosted.log.close(0)
    harness.world.nodes[3].kill()
    harness.world.look()
    harness.world.nodes[3].start()
    harness.world.register(3)
    harness.world.look()
    assert [name for name in harness.names if "producer" in name or "appended" in name] == []


def forget(producers: Any) -> None:
    del producers.entries[PRODUCER]


def go_back(producers: Any) -> None:
    producers.entries[PRODUCER].next_sequence -= 1


def close_it(producers: Any) -> None:
    producers.entries[PRODUCER].txn_first_offset = -1


def lose_order(producers: Any) -> None:
    producers.ongoing.clear()


@pytest.mark.parametrize("harm", [forget, go_back, close_it, lose_order])
def test_what_a_log_knows_of_producers_is_compared_when_it_changes(harm: Callable[[Any], None]) -> None:
    harness = in_a_transaction()
    harm(harness.world.nodes[2].hosted.log.producers)
    leader = harness.world.nodes[1]
    leader.write_as_it_is(batch(1, pid=8, epoch=0, seq=0, base=leader.hosted.log.log_end_offset, leader_epoch=0))
    if harm in (go_back, close_it):
        harness.mark()
    harness.spread()
    assert "producer-state-is-a-replay" in harness.names


def test_what_was_loaded_is_compared_with_all_batches() -> None:
    harness = in_a_transaction()
    node = harness.world.nodes[3]
    node.hosted.log.close(0)
    node.kill()
    harness.world.look()
    node.start()
    go_back(node.hosted.log.producers)
    harness.world.look()
    assert harness.names == ["producer-state-is-a-replay"]


def test_what_a_truncation_leaves_is_compared_with_all_batches() -> None:
    harness = in_a_transaction()
    log = harness.world.nodes[3].hosted.log
    log.truncate_to(5)
    log.producers.entries[PRODUCER].coordinator_epoch = 3
    harness.world.look()
    assert "producer-state-is-a-replay" in harness.names


@pytest.mark.parametrize("change", ["lost", "twice", "another"])
def test_the_index_of_aborted_transactions_is_compared_at_each_marker(change: str) -> None:
    harness = in_a_transaction()
    index = harness.leader.hosted.log.segments[0].aborted
    entry = next(iter(index))
    index.cut(0)
    for kept in {"lost": [], "twice": [entry, entry], "another": [entry._replace(first_offset=1)]}[change]:
        index.add_aborted(kept)
    harness.mark(commit=True)
    assert harness.names == ["aborted-index-is-a-replay"]


def test_a_last_stable_offset_beyond_an_open_transaction_is_seen() -> None:
    harness = in_a_transaction()
    harness.producers.ongoing.clear()
    harness.leader.write()
    harness.spread()
    assert harness.names == ["stable-offset-is-a-replay"]


def test_a_marker_of_an_epoch_or_a_coordinator_that_is_over_is_seen() -> None:
    for wrong in ({"epoch": 1}, {"epoch": 2, "coordinator": 4}):
        harness = TransactionHarness()
        harness.send(epoch=2)
        harness.mark(2, coordinator=5)
        harness.sequence = 1
        harness.send(epoch=2)
        harness.mark(**wrong)
        assert harness.names[0] == "marker-epochs"


def test_a_second_marker_is_seen_and_one_of_the_next_transaction_is_none() -> None:
    harness = in_a_transaction()
    harness.mark()
    assert harness.names == []
    harness.mark()
    assert harness.names == ["marker-once"]


# ------------------------------------------------------------------------------------------------------- coordinators

OPEN = TransactionMetadata("x", PRODUCER, 0, 4_000, TxnState.ONGOING, (("t", 0),), 10, 20, PRODUCER, client_version=V2)
PREPARED = replace(OPEN, state=TxnState.PREPARE_COMMIT, epoch=1)
COMPLETE = replace(PREPARED, state=TxnState.COMPLETE_COMMIT, partitions=())


class Coordinator(TransactionHarness):
    """A partition of the coordinators' log, and the shard that node 1 has made of it."""

    def __init__(self) -> None:
        super().__init__(topic=COORDINATORS_LOG)
        self.machine = TransactionCoordinatorShard(TransactionSettings())
        self.shard = SimpleNamespace(machine=self.machine, serves=False)
        self.leader.node.transactions.shards[0] = self.shard

    def append(self, transaction: TransactionMetadata | None, *, known: TransactionMetadata | None = None) -> None:
        """To the log, and to the shard (as `known`, if that is something else)."""
        key, value = records.encode(TransactionLogRecord("x", transaction), V2)
        log = self.leader.hosted.log
        done = log.append_as_leader(memoryview(bytearray(encode_batch([Record(0, 1_000, key, value)]))), 0, 1_000)
        assert not done.error
        self.machine.replay(TransactionLogRecord("x", known or transaction), done.base_offset)
        self.spread()


def serving() -> Coordinator:
    harness = Coordinator()
    harness.append(OPEN)
    harness.shard.serves = True
    harness.world.look()
    harness.append(PREPARED)
    assert harness.names == []
    return harness


def test_a_shard_is_compared_after_each_of_its_records() -> None:
    serving().append(COMPLETE)
    harness = serving()
    harness.append(COMPLETE, known=replace(COMPLETE, epoch=2))
    assert harness.names == ["coordinator-state-is-a-replay"]


def test_a_shard_is_compared_as_a_whole_once_it_serves_and_not_before() -> None:
    harness = Coordinator()
    harness.append(OPEN)
    harness.machine.transactions.clear()
    harness.world.look()
    assert harness.names == []
    harness.shard.serves = True
    harness.world.look()
    assert harness.names == ["coordinator-state-is-a-replay"]


# --------------------------------------------------------------------------------------------- both logs are one story


class Books:
    """Two partitions of topic t and the coordinators' log, all committed as soon as it is written."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.places = {("t", 0): PartitionModel("t", 0), ("t", 1): PartitionModel("t", 1)}
        self.coordinator = PartitionModel(COORDINATORS_LOG, 0, TOPIC_ID)
        self.copy = self.coordinator.copies[1] = LogCopy(journal=TransactionJournal(self.coordinator.records))
        partitions = {(bytes([known.partition + 1]) * 16, 0): known for known in self.places.values()}
        self.watch = TransactionWatch(lambda broken, *_: self.names.append(broken.name), partitions)
        self.log = SimpleNamespace(
            producers=SimpleNamespace(entries={}, ongoing={}),
            segments=(),
            config=SimpleNamespace(producer_id_expiration_ms=1),
        )

    def decide(self, transaction: TransactionMetadata, *, committed: bool = True) -> None:
        key, value = records.encode(TransactionLogRecord("x", transaction), V2)
        written = encode_batch([Record(0, 1_000, key, value)])
        header: BatchIdentity = one(self.copy.end, mark=self.copy.end)
        self.copy.add((header,))
        assert self.copy.journal is not None
        self.copy.journal.take(header, memoryview(bytearray(written)))
        if committed:
            self.coordinator.ledger.add(header)
        self.watch.log_changed(1, self.coordinator, self.copy, self.log, None)
        self.watch.settle([self.coordinator])

    def write(self, index: int, batch: BatchIdentity) -> None:
        """In every log, and committed."""
        known = self.places["t", index]
        known.ledger.add(batch)
        known.replay.take((batch,))
        copy = LogCopy()
        copy.replay = LogReplay()
        copy.replay.take(known.ledger.batches)
        copy.replay.changed_ids, copy.replay.news = {}, copy.replay.news[-1:]
        self.watch.log_changed(1, known, copy, self.log, None)
        self.watch.settle([known])

    @property
    def found(self) -> list[str]:
        return [name for name in self.names if "replay" not in name]


BOTH = replace(OPEN, partitions=(("t", 0), ("t", 1)))


def prepared(*, committed: bool = True) -> Books:
    """A transaction of epoch 0 is open in both partitions, and is to be committed in epoch 1."""
    books = Books()
    books.decide(BOTH)
    for index in (0, 1):
        books.write(index, data(0, 0, epoch=0))
    books.decide(replace(PREPARED, partitions=BOTH.partitions), committed=committed)
    assert books.found == []
    return books


def test_a_marker_before_its_decision_is_committed_or_against_it_is_seen() -> None:
    books = prepared()
    books.write(0, mark(1, 1, commit=True))
    assert books.found == []
    books.write(1, mark(1, 1, commit=False))
    assert books.found == ["marker-is-decided"]
    early = prepared(committed=False)
    early.write(0, mark(1, 1, commit=True))
    assert early.found == ["marker-is-decided"]


def test_a_transaction_that_is_complete_without_all_of_its_markers_is_seen() -> None:
    books = prepared()
    books.write(0, mark(1, 1, commit=True))
    books.decide(COMPLETE)
    assert books.found == ["completed-is-marked"]


def test_a_transaction_that_begins_while_the_one_before_is_open_elsewhere_is_seen() -> None:
    books = prepared()
    books.write(0, mark(1, 1, commit=True))
    books.write(0, data(2, 0, epoch=1))
    assert books.found == ["one-transaction-per-id"]


def test_a_second_marker_of_another_coordinator_is_seen_where_each_transaction_has_its_epoch() -> None:
    books = prepared()
    books.write(0, mark(1, 1, commit=True, coordinator=2))
    books.write(0, mark(2, 1, commit=True, coordinator=3))
    assert books.found == ["marker-once"]


def test_after_a_permitted_loss_in_the_coordinators_log_nothing_is_asked_of_both() -> None:
    books = prepared()
    books.coordinator.void_epoch = 1
    books.write(0, mark(1, 1, commit=False))
    books.write(0, data(2, 0, epoch=1))
    books.decide(COMPLETE)
    assert books.found == []


@pytest.mark.parametrize(("leader", "lost", "found"), [(1, True, True), (2, True, False), (2, False, True)])
def test_after_a_permitted_loss_a_marker_is_held_against_what_its_leader_knows(
    leader: int, lost: bool, found: bool
) -> None:
    """Swarm seed 1300198: a power loss took the leader's whole log, and a follower's knew a later producer epoch."""
    books = prepared()
    known = books.places["t", 0]
    known.leaders[1] = leader
    books.coordinator.void_epoch = 1
    known.void_epoch = 1 if lost else -1
    books.write(0, data(1, 0, epoch=4))
    books.write(0, mark(2, 3))
    assert books.found == (["marker-epochs"] if found else [])


def test_a_coordinator_that_loads_its_log_again_has_its_time_to_end_transactions() -> None:
    found: list[str] = []
    watch = TransactionWatch(lambda broken, wrong, *_: found.append(broken.name), {})
    journal = TransactionJournal(iter)
    journal.entries["x"] = TransactionRecord(PRODUCER, 0, 1_000, 1, (), 0, 0, None)
    known: Any = SimpleNamespace(copies={1: SimpleNamespace(journal=journal)})

    def look(shard: object, now_s: float) -> None:
        env = SimpleNamespace(wall_ms=lambda: int(now_s * 1000), mono=lambda: now_s)
        config = SimpleNamespace(transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000)
        seen: Any = SimpleNamespace(id=1, broker=SimpleNamespace(config=config), sim=SimpleNamespace(env=env))
        watch.look(seen, known, shard, able=True)

    first, again = object(), object()
    look(first, 2.0)
    look(again, 60.0)
    assert not found
    look(again, 66.0)
    assert found == ["transaction-times-out"]
