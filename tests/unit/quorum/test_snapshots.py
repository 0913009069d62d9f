"""A log that no longer holds its beginning, and how followers get by without it (KIP-630)."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.quorum.effects import InstallSnapshot, Ready, WriteSnapshotChunk
from squall.broker.quorum.log_extent import LogExtent
from squall.broker.quorum.messages import (
    BeginEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    SnapshotId,
    Vote,
    VoteReply,
)
from squall.broker.quorum.raft import Raft
from tests.unit.quorum.cores import OK, core, fetch, lead, ready, said, tell

TEN = SnapshotId(10, 3)


def trimmed_leader() -> Raft:
    """Leads epoch 4; its log starts at 10, after a snapshot of epoch 3; records up to 15."""
    raft = core(log=((1, 0), (3, 5)), end=15)
    lead(raft)
    raft.synced(16, 0, 0)
    fetch(raft, 2, 16, raft.epoch)
    raft.snapshot_taken(TEN)
    raft.trim(TEN)
    ready(raft)
    return raft


def follower(leader: int = 2, epoch: int = 4, end: int = 0) -> tuple[Raft, Ready]:
    """Node 1, which has just heard who leads, and what it asked."""
    raft = core(log=((1, 0),) if end else (), end=end)
    raft.synced(end, 0, 0)
    return raft, tell(raft, leader, BeginEpoch(epoch))


def has_left(raft: Raft, offset: int, last_epoch: int) -> SnapshotId | None:
    [reply] = said(fetch(raft, 3, offset, last_epoch), FetchReply)
    return reply.snapshot


@pytest.mark.parametrize(
    ("offset", "last_epoch", "left"),
    [
        (0, 0, True),
        (9, 3, True),
        (10, 3, False),
        (10, 1, True),  # ends where the log starts, in another epoch
        (12, 1, True),  # an epoch that only the snapshot knows
        (12, 3, False),
        (16, 4, False),
    ],
)
def test_what_follows_is_in_a_snapshot_only(offset: int, last_epoch: int, left: bool) -> None:
    assert trimmed_leader().log.has_left(offset, last_epoch) is left


def test_a_fetcher_that_is_too_far_behind_is_told_the_newest_snapshot() -> None:
    raft = trimmed_leader()
    newest = SnapshotId(12, 3)
    raft.snapshot_taken(newest)
    assert has_left(raft, 0, 0) == newest


def test_a_log_that_parts_behind_the_snapshot_is_told_where() -> None:
    [reply] = said(fetch(trimmed_leader(), 3, 20, 3), FetchReply)
    assert reply.snapshot is None and reply.diverging is not None
    assert (reply.diverging.epoch, reply.diverging.end_offset) == (3, 15)


def test_asking_for_a_snapshot_counts_as_being_heard() -> None:
    raft = trimmed_leader()
    later = raft._timers.for_majority() - 1
    reply = tell(raft, 3, FetchSnapshot(raft.epoch, TEN, 0), later)
    [answer] = said(reply, FetchSnapshotReply)
    assert (answer.error, answer.snapshot, answer.position) == (OK, TEN, 0)
    raft.tick(later + 1)
    assert raft.leadership is not None


def test_snapshots_are_given_by_the_leader_of_the_epoch_only() -> None:
    raft = trimmed_leader()
    for epoch, error in ((3, ErrorCode.FENCED_LEADER_EPOCH), (9, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        [answer] = said(tell(raft, 3, FetchSnapshot(epoch, TEN, 0)), FetchSnapshotReply)
        assert answer.error is error
    raft.resign(0)
    [answer] = said(tell(raft, 3, FetchSnapshot(raft.epoch, TEN, 0)), FetchSnapshotReply)
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def piece(raft: Raft, request: Any, length: int, size: int = 100, **changes: Any) -> FetchSnapshotReply:
    """Return the leader's answer to a request for a piece."""
    fields: dict[str, Any] = {
        "error": OK,
        "epoch": raft.epoch,
        "leader_id": raft.leader_id,
        "snapshot": request.snapshot,
        "position": request.position,
        "size": size,
        "length": length,
        "payload": "x" * length,
    }
    return FetchSnapshotReply(**{**fields, **changes})


def answer(raft: Raft, request: Any, reply: Any, now_ms: int = 2) -> Ready:
    return tell(raft, request.receiver, reply, now_ms, ticket=request.ticket)


def request_to(effects: Ready, receiver: int) -> Any:
    """The one request for records or a snapshot."""
    (only,) = [m for m in effects.messages if isinstance(m.body, Fetch | FetchSnapshot) and m.receiver == receiver]
    return only


def begin_download(raft: Raft, effects: Ready) -> Any:
    """Its leader says that it has nothing but a snapshot left; the request for its first piece."""
    first = request_to(effects, 2)
    assert isinstance(first.body, Fetch)
    request = request_to(answer(raft, first, FetchReply(OK, raft.epoch, 2, snapshot=TEN)), 2)
    assert request.body == FetchSnapshot(raft.epoch, TEN, 0)
    return request


def test_a_snapshot_comes_in_pieces_and_is_installed_when_it_is_whole() -> None:
    raft, effects = follower()
    request = begin_download(raft, effects)
    effects = answer(raft, request, piece(raft, request.body, 60))
    assert effects.log == (WriteSnapshotChunk(TEN, 0, "x" * 60),)
    request = request_to(effects, 2)
    assert request.body == FetchSnapshot(raft.epoch, TEN, 60)
    effects = answer(raft, request, piece(raft, request.body, 40))
    assert effects.log == (WriteSnapshotChunk(TEN, 60, "x" * 40), InstallSnapshot(TEN, 1))
    assert (raft.high_watermark, raft.log.start_offset, raft.log.end_offset, raft.log.last_epoch) == (10, 10, 10, 3)
    assert raft.snapshot == TEN
    next_fetch = request_to(effects, 2).body
    assert isinstance(next_fetch, Fetch) and (next_fetch.offset, next_fetch.last_epoch) == (10, 3)
    assert not raft.wants_sync, "what was installed is durable"


def test_a_download_that_was_interrupted_goes_on_where_it_stood() -> None:
    raft, effects = follower()
    request = begin_download(raft, effects)
    request = request_to(answer(raft, request, piece(raft, request.body, 60)), 2)
    raft.failed(2, request.ticket, 3)
    raft.tick(100)
    effects = ready(raft)
    assert request_to(effects, 2).body == FetchSnapshot(raft.epoch, TEN, 60)


@pytest.mark.parametrize(
    "wrong",
    [
        {"error": ErrorCode.SNAPSHOT_NOT_FOUND, "length": 0},
        {"error": ErrorCode.POSITION_OUT_OF_RANGE, "length": 0},
        {"snapshot": SnapshotId(11, 3)},
        {"position": 3},
        {"length": 0},
        {"length": 101},
    ],
)
def test_what_is_not_the_next_piece_begins_anew_with_a_fetch(wrong: dict[str, Any]) -> None:
    raft, effects = follower()
    request = begin_download(raft, effects)
    effects = answer(raft, request, piece(raft, request.body, **{"length": 60, **wrong}))
    assert not effects.log
    raft.tick(500)
    again = [*said(effects, Fetch), *said(ready(raft), Fetch)]
    assert [found.offset for found in again] == [0]


def test_another_snapshot_than_the_one_begun_is_begun_anew() -> None:
    raft, effects = follower()
    request = begin_download(raft, effects)
    request = request_to(answer(raft, request, piece(raft, request.body, 60)), 2)
    raft._following.wants(TEN)
    assert raft._following.download is not None and raft._following.download.position == 60
    raft._following.wants(SnapshotId(20, 3))
    assert raft._following.download.position == 0


def test_a_new_leader_is_asked_for_records_first() -> None:
    raft, effects = follower()
    begin_download(raft, effects)
    effects = tell(raft, 3, BeginEpoch(5), 3)
    assert isinstance(request_to(effects, 3).body, Fetch)


def test_downloading_keeps_the_leader() -> None:
    raft, effects = follower()
    request = begin_download(raft, effects)
    before = raft.next_deadline_ms()
    answer(raft, request, piece(raft, request.body, 1), now_ms=1000)
    assert raft.next_deadline_ms() > before
    [vote] = said(tell(raft, 3, Vote(raft.epoch, 9, 99, True), 1001), VoteReply)
    assert not vote.granted, "it hears its leader"


def test_votes_compare_the_epoch_of_a_snapshot_where_the_log_is_empty() -> None:
    raft = Raft(core()._settings, core()._timers._rng, core().member.state, LogExtent(10, (), 10, 3), 0, TEN)
    for last_epoch, end, granted in ((3, 10, True), (3, 9, False), (2, 99, False), (4, 1, True)):
        [vote] = said(tell(raft, 2, Vote(raft.epoch, last_epoch, end, True)), VoteReply)
        assert vote.granted is granted, (last_epoch, end)
    assert raft.high_watermark == 10, "what is in a snapshot is committed"


def test_a_snapshot_that_lacks_what_is_committed_is_a_bug_of_some_node() -> None:
    raft, _ = follower(end=20)
    with pytest.raises(AssertionError):
        raft._local.install(TEN, 11)


def test_a_snapshot_of_what_is_not_committed_is_a_bug() -> None:
    raft = trimmed_leader()
    with pytest.raises(AssertionError):
        raft.snapshot_taken(SnapshotId(17, 4))
