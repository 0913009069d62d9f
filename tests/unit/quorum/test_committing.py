"""Checks what counts as committed, and how soon all nodes learn of it (Raft section 5.4.2, KIP-595, KIP-1166)."""

from __future__ import annotations

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.quorum.effects import AppendLeaderBatch, AppendLeaderChange
from squall.broker.quorum.election import Role
from squall.broker.quorum.messages import BeginEpoch, BeginEpochReply, Diverging, EndEpoch, Fetch, FetchReply
from squall.broker.quorum.raft import Raft
from squall.broker.quorum.state import QuorumState
from tests.unit.quorum.cores import OK, asked, core, fetch, lead, ready, said, tell


def leader_of_epoch_4() -> Raft:
    """Leads five voters in epoch 4, after six records of epoch 2; its leader-change record is at 6."""
    raft = core(1, voters=(1, 2, 3, 4, 5), state=QuorumState(epoch=3), log=((2, 0),), end=6)
    lead(raft)
    raft.synced(7, 0, 0)
    ready(raft)
    return raft


def test_leader_begins_its_epoch_with_a_leader_change_record() -> None:
    raft = core(1)
    assert lead(raft).log == (AppendLeaderChange(0, 1, (1, 2, 3), (1, 2)),)


def test_majority_of_records_of_an_older_epoch_commits_nothing() -> None:
    """Raft figure 8: such records can still be overwritten by a leader elected without them."""
    raft = leader_of_epoch_4()
    fetch(raft, 2, 6, 2)
    fetch(raft, 3, 6, 2)
    assert raft.high_watermark == 0


def test_record_of_the_own_epoch_commits_all_before_it() -> None:
    raft = leader_of_epoch_4()
    fetch(raft, 2, 7, 4)
    fetch(raft, 3, 7, 4)
    assert raft.high_watermark == 7


def test_minority_commits_nothing() -> None:
    raft = leader_of_epoch_4()
    fetch(raft, 2, 7, 4)
    assert raft.high_watermark == 0


def test_leader_counts_itself_only_for_what_it_has_synced() -> None:
    raft = leader_of_epoch_4()
    raft.propose(1, "x", 0)
    for follower in (2, 3):
        fetch(raft, follower, 8, 4)
    assert raft.high_watermark == 7
    raft.synced(8, 0, 0)
    assert raft.high_watermark == 8


def test_majority_of_followers_commits_without_the_leaders_own_sync() -> None:
    raft = leader_of_epoch_4()
    raft.propose(1, "x", 0)
    for follower in (2, 3, 4):
        fetch(raft, follower, 8, 4)
    assert raft.high_watermark == 8


def test_observers_do_not_count() -> None:
    raft = leader_of_epoch_4()
    for observer in (6, 7, 8, 9):
        fetch(raft, observer, 7, 4)
    assert raft.high_watermark == 0


def test_sole_voter_commits_by_its_sync() -> None:
    raft = core(1, voters=(1,))
    raft.tick(0)
    assert raft.high_watermark == 0
    raft.synced(1, 0, 0)
    assert raft.high_watermark == 1


def test_parked_fetch_is_answered_when_records_come() -> None:
    raft = leader_of_epoch_4()
    assert not said(fetch(raft, 2, 7, 4, ticket=5), FetchReply)
    base = raft.propose(2, "two", 1)
    effects = ready(raft)
    assert effects.log == (AppendLeaderBatch(base, 4, 2, "two"),)
    answer = asked(effects, 2)
    assert (answer.ticket, answer.body) == (5, FetchReply(OK, 4, 1, 0, offset=7, limit=9))


def test_parked_fetch_is_answered_when_the_high_watermark_passes_what_the_fetcher_knows() -> None:
    raft = leader_of_epoch_4()
    fetch(raft, 2, 7, 4)
    effects = fetch(raft, 3, 7, 4)
    assert said(effects, FetchReply) == [FetchReply(OK, 4, 1, 7, offset=7, limit=7)] * 2


def test_fetch_that_knows_the_high_watermark_waits_out_its_time() -> None:
    raft = leader_of_epoch_4()
    fetch(raft, 2, 7, 4)
    fetch(raft, 3, 7, 4)
    assert not said(fetch(raft, 2, 7, 4, now_ms=10, hw=7), FetchReply)
    raft.tick(509)
    assert not said(ready(raft), FetchReply)
    raft.tick(510)
    assert said(ready(raft), FetchReply) == [FetchReply(OK, 4, 1, 7, offset=7, limit=7)]


def test_newer_fetch_of_a_replica_releases_its_older_one() -> None:
    raft = leader_of_epoch_4()
    fetch(raft, 2, 7, 4, ticket=1)
    assert [m.ticket for m in fetch(raft, 2, 7, 4, ticket=2).messages] == [1]


def test_diverging_fetcher_is_told_where_the_epochs_part() -> None:
    raft = leader_of_epoch_4()
    effects = fetch(raft, 2, 9, 3)  # It followed a leader of epoch 3 whose records no other node has.
    assert said(effects, FetchReply) == [FetchReply(OK, 4, 1, diverging=Diverging(2, 6))]
    assert raft.leadership is not None
    assert raft.leadership.voters[2].end_offset == -1, "a log that diverges counts for nothing"


def test_fetch_of_another_epoch_is_refused_with_the_leader() -> None:
    raft = leader_of_epoch_4()
    assert said(tell(raft, 2, Fetch(3, 0, 0, 0, 500)), FetchReply) == [FetchReply(ErrorCode.FENCED_LEADER_EPOCH, 4, 1)]
    assert said(tell(raft, 2, Fetch(5, 0, 0, 0, 500)), FetchReply) == [FetchReply(ErrorCode.UNKNOWN_LEADER_EPOCH, 4, 1)]


def test_leader_resigns_when_no_majority_has_fetched_for_one_and_a_half_fetch_timeouts() -> None:
    """KAFKA-15489: it cannot see that the others have a new leader."""
    raft = core(1)
    lead(raft)
    fetch(raft, 2, 0, 0, now_ms=1000)
    raft.tick(3999)
    leads_until_then = raft.role is Role.LEADER
    raft.tick(4000)
    assert leads_until_then
    assert raft.role is Role.RESIGNED


def test_leader_that_one_of_two_others_fetches_from_stays() -> None:
    raft = core(1)
    lead(raft)
    for now_ms in range(0, 20_000, 1000):
        fetch(raft, 3, 0, 0, now_ms=now_ms)
        raft.tick(now_ms)
    assert raft.role is Role.LEADER


def test_resigning_leader_releases_fetches_and_names_successors() -> None:
    raft = leader_of_epoch_4()
    fetch(raft, 3, 7, 4)
    fetch(raft, 2, 6, 2, ticket=9)
    raft.resign(1)
    effects = ready(raft)
    assert said(effects, EndEpoch) == [EndEpoch(4, (3, 2, 4, 5))] * 4
    assert said(effects, FetchReply) == [FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, 4, NO_NODE)]


def test_voter_that_does_not_fetch_is_told_again_who_leads() -> None:
    raft = core(1)
    begun = lead(raft)
    for message in begun.messages:
        tell(raft, message.receiver, BeginEpochReply(OK, 1, 1), ticket=message.ticket)
    fetch(raft, 2, 0, 0, now_ms=900)
    raft.tick(1000)
    again = [m.receiver for m in ready(raft).messages if isinstance(m.body, BeginEpoch)]
    assert again == [3]


def test_sync_that_began_before_a_truncation_counts_for_nothing() -> None:
    raft = core(3, state=QuorumState(epoch=5, leader_id=1), log=((2, 0),), end=6)
    raft.synced(6, 0, 0)
    request = asked(ready(raft), 1)
    tell(raft, 1, FetchReply(OK, 5, 1, diverging=Diverging(2, 3)), ticket=request.ticket)
    assert raft.log.end_offset == 3
    raft.synced(3, 0, 0)
    assert raft._local.generation == 1
    assert raft._local.synced_offset == 3, "what stands below the cut was durable already"
