"""The invariants' reading of a group log agrees with the coordinator's own replay, and says which member owns what."""

from __future__ import annotations

from squall.broker.coordinators.groups import records
from squall.broker.coordinators.groups.consumer.members import CurrentAssignment, CurrentAssignmentRecord
from squall.broker.coordinators.groups.ledger import ReplayedGroupState
from squall.broker.coordinators.groups.values import (
    GroupLogRecord,
    GroupMetadataRecord,
    GroupRecord,
    MemberRecord,
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from squall.broker.protocol.records import Record, encode_batch
from squall.chaos.runtimes.sim.invariants.group_journal import GroupJournal, PartitionOwners
from squall.chaos.runtimes.sim.invariants.headers import TxnMarkerBatch
from squall.chaos.runtimes.sim.invariants.inspection import group_states_of, groups_of
from squall.workloads.client.groups.assignors import encode_assignment
from tests.support.clusters.known_partitions import one

TRANSACTIONAL, CONTROL = 0x10, 0x30
PLACE, OTHER = ("t", 0), ("t", 1)
TOPIC_ID = b"t" * 16


class Both:
    """A journal and a ledger of one log."""

    def __init__(self) -> None:
        self.journal, self.ledger, self.end = GroupJournal(), ReplayedGroupState(), 0

    def write(self, *written: GroupLogRecord, producer: int = -1) -> None:
        """A batch."""
        made = [Record(self.end + n, 1_000, *records.encode(each)) for n, each in enumerate(written)]
        data = bytearray(encode_batch(made, base_offset=self.end))
        attributes = 0 if producer < 0 else TRANSACTIONAL
        header = one(self.end, attributes=attributes, producer_id=producer)
        for n, each in enumerate(written):
            self.ledger.replay(each, self.end + n, producer)
        self.end += len(written)
        self.journal.take(header, memoryview(data))
        self.compare()

    def mark(self, producer: int, *, commit: bool) -> None:
        marker = TxnMarkerBatch(commit, 0)
        header = one(self.end, attributes=CONTROL, producer_id=producer, marker=marker)
        self.ledger.end_transaction(producer, commit, self.end)
        self.end += 1
        self.journal.take(header, memoryview(b""))
        self.compare()

    def compare(self) -> None:
        names = {*groups_of(self.ledger), *self.journal.groups()}
        assert self.journal.states(names) == group_states_of(self.ledger, names)


def at(offset: int | None, place: tuple[str, int] = PLACE, group: str = "g") -> OffsetCommitRecord:
    return OffsetCommitRecord(group, place, None if offset is None else OffsetAndMetadata(offset, 0, "", 100))


def generation(number: int, **owners: list[tuple[str, int]]) -> GroupMetadataRecord:
    members = tuple(
        MemberRecord(m, None, "c", "h", 9, 9, b"", encode_assignment(places)) for m, places in owners.items()
    )
    return GroupMetadataRecord("g", GroupRecord("consumer", number, "range", "m", 7, members))


def test_a_journal_is_what_a_ledger_is_whatever_comes() -> None:
    both = Both()
    both.write(generation(1, m=[PLACE]), at(3), at(4, OTHER))
    both.write(at(5), producer=9)
    both.write(at(6, OTHER), producer=8)
    both.write(at(7))
    both.mark(9, commit=True)
    both.mark(8, commit=False)
    both.write(at(8), at(9, OTHER, "h"), producer=9)
    both.write(at(None))
    both.mark(9, commit=True)
    both.write(at(None, OTHER), GroupMetadataRecord("g", None))
    assert both.journal.groups() == ["h"]


def test_only_offsets_of_a_committed_transaction_have_their_marker() -> None:
    both = Both()
    both.write(at(5), producer=9)
    both.write(at(6), producer=8)
    assert both.journal.unmarked == {0: 9, 1: 8}
    both.mark(9, commit=True)
    both.mark(8, commit=False)
    assert both.journal.unmarked == {1: 8}


def test_each_record_of_a_generation_says_who_owns_what_and_what_was_before() -> None:
    both = Both()
    both.write(generation(1, m=[PLACE], n=[OTHER]))
    both.write(generation(2, m=[PLACE, OTHER]))
    first = PartitionOwners(1, {"m": frozenset([PLACE]), "n": frozenset([OTHER])})
    second = PartitionOwners(2, {"m": frozenset([PLACE, OTHER])})
    assert [(step.before, step.after) for step in both.journal.news] == [(None, first), (first, second)]


def test_what_is_yet_to_be_revoked_is_owned_and_a_batch_counts_as_a_whole() -> None:
    both = Both()
    both.write(
        CurrentAssignmentRecord(
            "g", "m", CurrentAssignment(3, 2, assigned={(TOPIC_ID, 0): 1}, revoking={(TOPIC_ID, 1): 1})
        )
    )
    both.write(
        CurrentAssignmentRecord("g", "n", CurrentAssignment(3, 3, assigned={(TOPIC_ID, 1): 3})),
        CurrentAssignmentRecord("g", "m", None),
    )
    zero, one_ = (TOPIC_ID, 0), (TOPIC_ID, 1)
    assert [step.after.owners for step in both.journal.news] == [
        {"m": frozenset([zero, one_])},
        {"n": frozenset([one_])},
    ]
