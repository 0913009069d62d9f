"""A shard of the transaction coordinator keeps its invariants under any sequence of requests, and its successor
continues from its log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from squall.broker.coordinators.transactions import records
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import (
    AT_REST,
    MAX_EPOCH,
    PREPARED,
    AbortTimedOutTransaction,
    AddPartitions,
    EndTransaction,
    ExpireTransactionalId,
    InitProducer,
    MarkersWritten,
    Request,
    TransactionLogRecord,
    TransactionMetadata,
    TransactionSettings,
    TxnCoordinatorResult,
    TxnState,
    VerifyPartitions,
)
from squall.broker.protocol.errors import ErrorCode

NAMES = st.sampled_from(["x", "y"])
PARTITIONS = st.lists(st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 2)), max_size=3).map(tuple)
BACK = st.integers(0, 2)
"""How old the producer id and epoch of a client are: 0 are its newest, 1 those before, and so on."""
GENERATION = st.sampled_from([0, 2])


class Coordinators(RuleBasedStateMachine):
    """The successive coordinators of one partition, on one log. Clients keep all producer ids and epochs that they ever
    got.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shard = TransactionCoordinatorShard(TransactionSettings(expiration_ms=1_000))
        self.log: list[tuple[bytes, bytes | None]] = []
        self.handles: dict[str, list[tuple[int, int]]] = {"x": [(7, 7)], "y": [(7, 7)]}
        """All (producer id, epoch) of each transactional id, oldest first. The first pair belongs to no producer."""
        self.now = 0
        self.next_id = 100
        self.ever: dict[int, int] = {}
        """The highest epoch of each producer id so far."""

    def ask(self, request: Request) -> TxnCoordinatorResult:
        before = dict(self.shard.transactions)
        decision = self.shard.decide(request, self.now, self.next_id)
        assert self.shard.transactions == before, "deciding changes nothing"
        assert len(decision.records) <= 1
        for written in decision.records:
            self.shard.replay(written, len(self.log))
            self.log.append(records.encode(written, 2))
            self.note(written)
        if decision.used_producer_id:
            self.next_id += 1
        return decision

    def note(self, written: TransactionLogRecord) -> None:
        found = written.transaction
        if found is None:
            return
        assert found.epoch >= self.ever.get(found.producer_id, 0), "an epoch goes back"
        self.ever[found.producer_id] = found.epoch

    def handle(self, name: str, back: int) -> tuple[int, int]:
        return self.handles[name][max(0, len(self.handles[name]) - 1 - back)]

    @rule(name=NAMES, claims=st.booleans(), back=BACK)
    def init(self, name: str, claims: bool, back: int) -> None:
        """Start a producer, or let one bump the epoch that it has."""
        had = self.handle(name, back) if claims else (-1, -1)
        answer = self.ask(InitProducer(name, 500, *had)).answer
        if not answer.error:
            got = answer.producer_id, answer.epoch
            assert answer.epoch < MAX_EPOCH
            if not claims:
                assert got not in self.handles[name], "two producers have one handle"
            self.handles[name].append(got)

    @rule(name=NAMES, back=BACK, partitions=PARTITIONS, generation=GENERATION)
    def add(self, name: str, back: int, partitions: Any, generation: int) -> None:
        """Add partitions to a transaction, perhaps by a zombie."""
        had, before = self.handle(name, back), self.shard.transactions.get(name)
        answer = self.ask(AddPartitions(name, *had, partitions, generation)).answer
        if not answer.error:
            assert before is not None
            assert (before.producer_id, before.epoch) == had
            assert before.state not in PREPARED, "the transaction before was not complete"
            verified = self.ask(VerifyPartitions(name, *had, partitions)).answer
            assert all(error == ErrorCode.NONE for _, error in verified.partitions)

    @rule(name=NAMES, back=BACK, commit=st.booleans(), generation=GENERATION)
    def end(self, name: str, back: int, commit: bool, generation: int) -> None:
        """End a transaction, perhaps by a zombie, perhaps for the second time."""
        had, before = self.handle(name, back), self.shard.transactions.get(name)
        decision = self.ask(EndTransaction(name, *had, commit, generation))
        if decision.records:
            assert before is not None
            assert (before.producer_id, before.epoch) == had, "only the current producer decides"
            assert before.state == TxnState.ONGOING or (generation == 2 and not commit)
        if generation == 2 and not decision.answer.error:
            assert decision.answer.epoch < MAX_EPOCH
            self.handles[name].append((decision.answer.producer_id, decision.answer.epoch))

    @rule(name=NAMES)
    def complete(self, name: str) -> None:
        """Write all markers of a transaction that was decided."""
        before = self.shard.transactions.get(name)
        if before is not None and before.state in PREPARED:
            self.ask(MarkersWritten(name, before.producer_id, before.epoch))
            assert self.shard.transactions[name].state in AT_REST

    @rule(name=NAMES, ms=st.integers(1, 400))
    def pass_time(self, name: str, ms: int) -> None:
        """Advance the clock, and abort transactions that have timed out."""
        self.now += ms
        due: list[AbortTimedOutTransaction | ExpireTransactionalId] = [
            *self.shard.timed_out(self.now),
            *self.shard.expired(self.now),
        ]
        for request in due:
            assert self.ask(request).records

    @rule(name=NAMES, left=st.integers(1, 2))
    def use_up_epochs(self, name: str, left: int) -> None:
        """Raise the epoch until only `left` are left, as tens of thousands of transactions do."""
        found = self.shard.transactions.get(name)
        if found is not None and found.state == TxnState.EMPTY and found.epoch < MAX_EPOCH - 3:
            late = replace(found, epoch=MAX_EPOCH - left, last_epoch=-1)
            self.shard.replay(TransactionLogRecord(name, late), len(self.log))
            self.log.append(records.encode(TransactionLogRecord(name, late), 2))
            self.note(TransactionLogRecord(name, late))
            self.handles[name].append((late.producer_id, late.epoch))

    @rule()
    def fail_over(self) -> None:
        """Replace the coordinator by one that replays the log."""
        again = TransactionCoordinatorShard(self.shard.settings)
        for offset, (key, value) in enumerate(self.log):
            written = records.decode(key, value)
            assert written is not None
            again.replay(written, offset)
        assert again.inspect() == self.shard.inspect()
        assert again.awaiting_markers() == self.shard.awaiting_markers()
        self.shard = again

    @invariant()
    def every_transaction_is_well_formed(self) -> None:
        """Assert: one producer, at most one open transaction, and no epoch that cannot be fenced."""
        for found in self.shard.transactions.values():
            self.check(found)

    def check(self, found: TransactionMetadata) -> None:
        assert 0 <= found.epoch <= MAX_EPOCH
        assert not found.partitions or found.state not in AT_REST
        assert len(set(found.partitions)) == len(found.partitions)
        assert found.state != TxnState.ONGOING or found.epoch < MAX_EPOCH
        assert (found.next_producer_id >= 0) <= (found.state in PREPARED)


TestCoordinators = Coordinators.TestCase
