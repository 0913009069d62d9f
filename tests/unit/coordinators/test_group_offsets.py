"""Committed offsets: which members may commit, what is read, what expires, and what a transaction leaves pending."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.coordinators.groups import records
from squall.broker.coordinators.groups.values import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupLogRecord,
    GroupMetadataRecord,
    GroupRecord,
    GroupState,
    MemberRecord,
    OffsetAndMetadata,
    OffsetCommitRecord,
    TxnOffsetCommit,
)
from squall.broker.protocol.errors import ErrorCode
from tests.unit.coordinators.group_harness import T0, T1, WALL_MS, GroupHarness

WEEK_MS = 7 * 24 * 3_600_000
PID = 7


def in_transaction(
    harness: GroupHarness, offset: int, where: tuple[str, int] = T0, producer_id: int = PID
) -> ErrorCode:
    committed = OffsetAndMetadata(offset, 0, "", harness.now.wall_ms, topic_id=harness.topic_id(where[0]))
    error: ErrorCode = harness.do(
        "txn", TxnOffsetCommit("g", -1, "", None, ((where, committed),), producer_id, 0)
    ).error
    return error


# ---------------------------------------------------------------------------------------------------------- who may


def test_somebody_who_is_no_member_commits_for_a_group_without_members() -> None:
    harness = GroupHarness()
    assert harness.commit(5) == ErrorCode.NONE
    assert harness.offset() == 5
    assert harness.offset(T1) is None
    harness.stable("a")
    assert harness.commit(6) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.offset() == 5


def test_members_commit_in_their_own_generation_only() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    assert harness.commit(5, a) == ErrorCode.NONE
    harness.join("b")
    assert harness.commit(6, a) == ErrorCode.NONE, "before it joins again it commits what it has read"
    assert (
        harness.do("c", CommitOffsets("g", 99, a.member_id, None, ((T0, OffsetAndMetadata(6)),))).error
        == ErrorCode.ILLEGAL_GENERATION
    )
    assert (
        harness.do("c", CommitOffsets("g", 1, "who", None, ((T0, OffsetAndMetadata(6)),))).error
        == ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert harness.offset() == 6


def test_a_member_of_a_group_that_is_gone_is_refused() -> None:
    for version, error in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        request = CommitOffsets("g", 3, "a", None, ((T0, OffsetAndMetadata(6)),), version)
        assert GroupHarness().do("c", request).error == error


def test_nobody_commits_in_a_generation_whose_assignments_are_not_known() -> None:
    harness = GroupHarness()
    harness.join("a")
    assert harness.commit(5, harness.joined("a")) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_was_replaced_commits_nothing() -> None:
    harness = GroupHarness()
    harness.join("a", instance_id="A")
    harness.assign("a")
    before = harness.joined("a")
    harness.join("a2", instance_id="A")
    request = CommitOffsets("g", before.generation, before.member_id, "A", ((T0, OffsetAndMetadata(6)),))
    assert harness.do("c", request).error == ErrorCode.FENCED_INSTANCE_ID
    assert harness.offset() is None


def test_an_offset_that_could_not_be_written_is_not_committed() -> None:
    harness = GroupHarness()
    harness.commit(5)
    harness.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.commit(6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.offset() == 5


def test_what_is_told_rests_on_the_groups_last_record() -> None:
    harness = GroupHarness()
    harness.commit(5)
    harness.commit(6)
    assert harness.machine.ledger.required_offset("g") == 1
    assert harness.machine.ledger.required_offset("other") == -1
    harness.do("d", DeleteGroup("g"))
    assert harness.machine.ledger.required_offset("g") == harness.machine.ledger.required_offset("other") == 2, (
        "that it is gone, too"
    )


# --------------------------------------------------------------------------------------------- topics that are gone


def sweep(harness: GroupHarness) -> int:
    """Forget what topics have left behind. How many requests that took."""
    found = 0
    for request in harness.machine.expiring(harness.now.wall_ms, retention=False):
        if request is not None:
            found += 1
            harness.do("sweep", request)
    return found


@pytest.mark.parametrize("made_again", [True, False])
def test_an_offset_goes_with_its_topic(made_again: bool) -> None:
    """A group whose topic was deleted and made again skipped the first records of the next one."""
    harness = GroupHarness()
    harness.commit(20)
    harness.commit(3, where=("u", 0))
    del harness.topics.table["t"]
    if made_again:
        harness.topics.table["t"] = (b"n" * 16, 4)
    assert harness.offset() is None, "even before its tombstone is written"
    listed = harness.do("all", FetchOffsets("g", None)).offsets
    assert [where for where, _, _ in listed] == [("u", 0)]
    assert sweep(harness) == 1
    assert sweep(harness) == 0
    assert list(harness.replayed().offsets["g"]) == [("u", 0)]
    assert harness.machine.ledger.inspect() == harness.replayed().inspect()


def test_an_offset_without_the_id_of_its_topic_goes_when_no_topic_has_its_name() -> None:
    harness = GroupHarness()
    committed = OffsetAndMetadata(20, 0, "", WALL_MS)
    harness.do("c", CommitOffsets("g", -1, "", None, ((T0, committed),)))
    harness.topics.table["t"] = (b"n" * 16, 4)
    assert sweep(harness) == 0
    assert harness.offset() == 20
    del harness.topics.table["t"]
    assert sweep(harness) == 1
    assert harness.machine.ledger.inspect() == harness.replayed().inspect() == ({}, {}, {})


def test_a_pending_offset_goes_with_its_topic_and_never_counts() -> None:
    harness = GroupHarness()
    in_transaction(harness, 20)
    harness.topics.table["t"] = (b"n" * 16, 4)
    assert sweep(harness) == 1
    harness.end(PID, commit=True)
    assert harness.offset() is None
    assert harness.machine.ledger.inspect() == harness.replayed().inspect() == ({}, {}, {})


def test_a_pending_offset_of_the_next_topic_outlives_the_offset_of_the_one_before() -> None:
    """A tombstone would take both: the outputs of a transaction would be there, and their inputs come again."""
    harness = GroupHarness()
    harness.commit(20)
    harness.topics.table["t"] = (b"n" * 16, 4)
    in_transaction(harness, 7)
    assert sweep(harness) == 0
    assert harness.offset(stable=False) is None
    harness.end(PID, commit=True)
    assert harness.offset() == 7


def test_a_pending_offset_that_its_marker_commits_after_its_topic_went_is_not_told() -> None:
    harness = GroupHarness()
    in_transaction(harness, 20)
    harness.topics.table["t"] = (b"n" * 16, 4)
    harness.end(PID, commit=True)
    assert harness.offset() is None
    assert sweep(harness) == 1


def test_offsets_of_a_topic_of_many_partitions_go_some_at_a_time() -> None:
    harness = GroupHarness()
    harness.topics.table["t"] = (b"t" * 16, 250)
    for index in range(250):
        harness.commit(5, where=("t", index))
    harness.topics.table["t"] = (b"n" * 16, 250)
    assert sweep(harness) == 3
    assert harness.replayed().inspect() == ({}, {}, {})


def test_a_group_outlives_its_last_topic_until_its_offsets_are_looked_at_for_their_age() -> None:
    """As with Kafka, whose next clean-up takes the group."""
    harness = GroupHarness()
    (a,) = harness.stable("a")
    harness.commit(5, a)
    harness.leave(a)
    harness.topics.table["t"] = (b"n" * 16, 4)
    assert sweep(harness) == 1
    assert harness.do("d", DescribeGroup("g")).error == ErrorCode.NONE
    expire(harness)
    assert harness.machine.groups == {}


# ------------------------------------------------------------------------------------------------------ transactions


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_count_once_it_is_committed(commit: bool) -> None:
    harness = GroupHarness()
    harness.commit(5)
    assert in_transaction(harness, 9) == ErrorCode.NONE
    assert harness.offset() == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert harness.offset(stable=False) == 5
    assert harness.offset(T1) is None, "of another partition all is known"
    harness.end(PID, commit=commit)
    assert harness.offset() == (9 if commit else 5)
    assert harness.machine.ledger.inspect() == harness.replayed().inspect()


def test_an_offset_that_was_committed_after_the_transactions_own_is_the_later_word() -> None:
    harness = GroupHarness()
    in_transaction(harness, 9)
    harness.commit(12)
    harness.end(PID, commit=True)
    assert harness.offset() == 12


def test_each_transaction_ends_for_itself() -> None:
    harness = GroupHarness()
    in_transaction(harness, 9)
    in_transaction(harness, 20, T1, producer_id=8)
    harness.end(PID, commit=True)
    assert harness.offset() == 9
    assert harness.offset(T1) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    harness.end(8, commit=False)
    assert harness.offset(T1) is None
    harness.end(8, commit=True)
    assert harness.offset(T1) is None, "the next transaction has none"


def test_a_member_that_was_replaced_cannot_commit_in_a_transaction_either() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    offsets = ((T0, OffsetAndMetadata(9)),)
    assert (
        harness.do("t", TxnOffsetCommit("g", 99, a.member_id, None, offsets, PID, 0)).error
        == ErrorCode.ILLEGAL_GENERATION
    )
    assert harness.do("t", TxnOffsetCommit("g", 1, "who", None, offsets, PID, 0)).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.do("t", TxnOffsetCommit("g", -1, "", None, offsets, PID, 0)).error == ErrorCode.NONE, (
        "its producer fences it"
    )


def test_a_group_that_is_deleted_takes_its_pending_offsets_along() -> None:
    harness = GroupHarness()
    in_transaction(harness, 9)
    assert harness.do("d", DeleteGroup("g")).error == ErrorCode.NONE
    harness.end(PID, commit=True)
    assert harness.offset() is None
    assert harness.machine.ledger.inspect() == harness.replayed().inspect() == ({}, {}, {})


# ------------------------------------------------------------------------------------------------ deleting and expiry


def test_only_a_group_without_members_is_deleted() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    harness.commit(5, a)
    assert harness.do("d", DeleteGroup("g")).error == ErrorCode.NON_EMPTY_GROUP
    harness.leave(a)
    assert harness.do("d", DeleteGroup("g")).error == ErrorCode.NONE
    assert harness.do("d", DeleteGroup("g")).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.do("d", DescribeGroup("g")).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.offset() is None


def test_offsets_of_topics_that_members_read_are_not_deleted() -> None:
    harness = GroupHarness()
    harness.commit(3, where=("u", 0))
    (a,) = harness.stable("a")
    harness.commit(5, a)
    answer = harness.do("d", DeleteOffsets("g", (T0, ("u", 0))))
    assert dict(answer.errors) == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): ErrorCode.NONE}
    assert (harness.offset(), harness.offset(("u", 0))) == (5, None)


def expire(harness: GroupHarness) -> None:
    for request in harness.machine.expiring(harness.now.wall_ms):
        if request is not None:
            harness.do("expire", request)


def test_offsets_of_a_live_group_are_spared_however_old_they_are() -> None:
    harness = GroupHarness()
    harness.commit(3, where=("u", 0))
    (a,) = harness.stable("a")
    harness.commit(5, a)
    harness.group.members[a.member_id].deadline_ms = None
    harness.wait(WEEK_MS)
    expire(harness)
    assert harness.offset() == 5
    assert harness.offset(("u", 0)) is None, "nobody reads that topic any more"


def test_offsets_expire_a_week_after_the_last_member_went() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    harness.commit(5, a)
    harness.wait(1000)
    harness.leave(a)
    harness.wait(WEEK_MS - 1)
    expire(harness)
    assert harness.offset() == 5
    harness.wait(1)
    expire(harness)
    assert harness.offset() is None
    assert harness.machine.groups == {}
    assert harness.machine.ledger.inspect() == harness.replayed().inspect() == ({}, {}, {})


def test_offsets_of_nobodys_group_expire_a_week_after_their_commit_and_pending_ones_never() -> None:
    harness = GroupHarness()
    harness.commit(5)
    harness.commit(6, where=T1)
    in_transaction(harness, 9, T1)
    harness.wait(WEEK_MS)
    expire(harness)
    assert harness.offset() is None
    assert harness.offset(T1, stable=False) == 6


def test_a_group_is_listed_in_its_state() -> None:
    harness = GroupHarness()
    harness.commit(5)
    assert harness.machine.listed() == [("g", "", GroupState.EMPTY, "classic")]
    harness.stable("a")
    assert harness.machine.listed() == [("g", "consumer", GroupState.STABLE, "classic")]


# ------------------------------------------------------------------------------------------------------------ records

MEMBER = MemberRecord("m", "i", "c", "/h", 30_000, 10_000, b"sub", b"owns")
RECORDS: tuple[GroupLogRecord, ...] = (
    OffsetCommitRecord("g", T0, OffsetAndMetadata(5, 3, "meta", WALL_MS, topic_id=bytes(range(16)))),
    OffsetCommitRecord("g", T0, OffsetAndMetadata(5, -1, "", WALL_MS, WALL_MS + 1)),
    OffsetCommitRecord("g", T0, None),
    GroupMetadataRecord("g", GroupRecord("consumer", 4, "range", "m", WALL_MS, (MEMBER,))),
    GroupMetadataRecord("g", GroupRecord("consumer", 5, None, None, WALL_MS)),
    GroupMetadataRecord("g", None),
)


@pytest.mark.parametrize("written", RECORDS, ids=str)
def test_a_record_is_read_as_it_was_written(written: GroupLogRecord) -> None:
    assert records.decode(*records.encode(written)) == written


def test_records_stand_in_kafkas_bytes() -> None:
    key, value = records.encode(OffsetCommitRecord("g", ("t", 2), OffsetAndMetadata(5, 3, "m", 9, topic_id=b"i" * 16)))
    assert key == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\2"
    tagged = b"\1\0\x10" + b"i" * 16
    assert value == b"\0\4" + (5).to_bytes(8) + (3).to_bytes(4) + b"\2m" + (9).to_bytes(8) + tagged
    key, value = records.encode(GroupMetadataRecord("g", GroupRecord("consumer", 1, None, None, 9)))
    assert key == b"\0\2" + b"\0\1g"
    assert value == b"\0\3\0\x08consumer\0\0\0\1\xff\xff\xff\xff" + (9).to_bytes(8) + b"\0\0\0\0"


def test_a_record_of_another_type_is_passed_over() -> None:
    unknown: Any = b"\0\x63g"
    assert records.decode(unknown, None) is None
