"""Each mutant (planted bug) has an effect in a unit of the broker: it gives another answer than the correct code."""

from __future__ import annotations

from types import SimpleNamespace as Fields
from typing import Any

import pytest

from squall.broker.control.kraft.quorum_storage import QuorumStorage
from squall.broker.controller import brokers, elections, leaders
from squall.broker.controller import isr as controller_isr
from squall.broker.controller.decision import Refusal
from squall.broker.controller.elections import ElectionType
from squall.broker.log import recovery
from squall.broker.log.checkpoints import EpochEntry
from squall.broker.log.epochs import EpochCache
from squall.broker.log.manager import LogManager
from squall.broker.protocol.errors import ErrorCode
from squall.broker.quorum.leadership import LeaderState
from squall.broker.quorum.settings import QuorumSettings
from squall.broker.quorum.state import QuorumState
from squall.broker.replication import TruncateFullyAndStartAt, TruncateTo
from squall.chaos.mutants import find
from tests.support.disks.batches import NEWEST, batch
from tests.support.disks.list_log import ListLog
from tests.support.disks.memory_fs import MemoryFs
from tests.support.disks.small_log import open_log
from tests.support.replication.partitions import ALL, fetched, follower, leader, only, state


def log_of(*epochs: int) -> ListLog:
    log = ListLog()
    for number, epoch in enumerate(epochs):
        log.append(epoch, f"v{number}")
    return log


def test_1_truncates_to_the_high_watermark() -> None:
    partition = follower(log_end=9, high_watermark=4)
    assert not partition.prepare_to_fetch(5)
    with find("1").planted():
        assert only(partition.prepare_to_fetch(5), TruncateTo).offset == 4


def test_2_takes_two_epochs_of_one_length_for_one_history() -> None:
    partition = leader(log_end=3)
    log = log_of(1, 1, 1)
    log.assign(5, 3)
    sound = partition.divergence(log, 2, 3)
    assert sound is not None
    with find("2").planted():
        assert partition.divergence(log, 2, 3) is None
        assert partition.divergence(log, 2, 4) is not None


def test_2_truncates_to_the_leaders_offset_in_an_epoch_of_its_own() -> None:
    log = log_of(1, 2, 2)
    assert follower(log_end=3).truncation_target(log, 1, 2) == 1
    with find("2").planted():
        assert follower(log_end=3).truncation_target(log, 1, 2) == 2


def test_3_serves_zombies() -> None:
    partition = leader()
    assert partition.check_leader_epoch(4) is ErrorCode.FENCED_LEADER_EPOCH
    with find("3").planted():
        assert partition.check_leader_epoch(4) is ErrorCode.NONE
        assert follower().check_leader_epoch(5) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_4_an_unknown_epoch_ends_at_the_logs_end() -> None:
    cache = EpochCache(MemoryFs(), "d", [EpochEntry(2, 0), EpochEntry(4, 5)])
    assert cache.end_offset_for(1, 9) == (1, 0)
    with find("4").planted():
        assert cache.end_offset_for(1, 9) == (1, 9)
        assert cache.end_offset_for(6, 9) == (6, 9)
        assert cache.end_offset_for(3, 9) == (2, 5)
        assert cache.end_offset_for(4, 9) == (4, 9)


def test_5_epoch_0_is_none() -> None:
    header: Any = Fields(leader_epoch=0)
    assert recovery.has_epoch(header)
    with find("5").planted():
        assert not recovery.has_epoch(header)


def test_6_epochs_are_not_durable() -> None:
    fs = MemoryFs()
    fs.mkdirs("d")
    cache = EpochCache(fs, "d")
    cache.assign(3, 0)
    with find("6").planted():
        cache.flush()
    assert not cache.dirty
    loaded = EpochCache.load(fs, "d")
    assert loaded is not None
    assert loaded.entries == [(3, 0)]


def test_7_the_file_lacks_the_newest_epoch() -> None:
    fs = MemoryFs()
    fs.mkdirs("d")
    cache = EpochCache(fs, "d", [EpochEntry(1, 0), EpochEntry(2, 7)])
    with find("7").planted():
        cache.flush()
    loaded = EpochCache.load(fs, "d")
    assert loaded is not None
    assert loaded.entries == [(1, 0)]


def test_8_a_log_that_is_too_long_is_wiped() -> None:
    partition = follower(log_end=9, high_watermark=4)
    log = log_of(1, 1, 1, 1, 2)
    assert only(partition.diverged(log, 1, 3), TruncateTo).offset == 3
    assert only(partition.out_of_range(0, 5), TruncateTo).offset == 5
    with find("8").planted():
        assert only(partition.diverged(log, 1, 3), TruncateFullyAndStartAt).offset == 0
        assert only(partition.out_of_range(0, 5), TruncateFullyAndStartAt).offset == 0


def test_9_who_is_to_leave_has_left_already() -> None:
    partition = leader()
    assert partition.maximal_of(ALL, (1, 2)) == ALL
    with find("9").planted():
        assert partition.maximal_of(ALL, (1, 2)) == (1, 2)
        assert partition.maximal_of((1, 2), ALL) == ALL


def test_10_who_is_to_join_has_not_joined_yet() -> None:
    partition = leader()
    assert partition.maximal_of((1, 2), ALL) == ALL
    with find("10").planted():
        assert partition.maximal_of((1, 2), ALL) == (1, 2)
        assert partition.maximal_of(ALL, (1, 2)) == ALL


def test_11_swaps_without_comparing() -> None:
    partition: Any = Fields(partition_epoch=7)
    with pytest.raises(Refusal):
        controller_isr.check_partition_epoch(partition, 6)
    with find("11").planted():
        controller_isr.check_partition_epoch(partition, 6)


def test_12_fenced_brokers_are_available() -> None:
    image: Any = Fields(brokers={3: None}, is_active=lambda broker_id: False)
    assert not controller_isr.is_available(image, 3)
    with find("12").planted():
        assert controller_isr.is_available(image, 3)
        assert not controller_isr.is_available(image, 4)
        assert leader().is_in_service(3)


def test_13_one_incarnation_is_as_good_as_another() -> None:
    image: Any = Fields(brokers={3: Fields(epoch=9)})
    member: Any = Fields(broker_id=3, broker_epoch=8)
    partition = leader()
    replica = partition.followers[3]
    replica.broker_epoch = 55
    assert not controller_isr.is_same_incarnation(image, member)
    assert not partition.is_same_incarnation(replica)
    with find("13").planted():
        assert controller_isr.is_same_incarnation(image, member)
        assert partition.is_same_incarnation(replica)


def test_14_the_high_watermark_is_enough_to_join() -> None:
    partition = leader(log_end=9, high_watermark=4, isr=(1, 2))
    fetched(partition, 3, 6)
    replica = partition.followers[3]
    assert not partition.has_reached_isr(replica)
    with find("14").planted():
        assert partition.has_reached_isr(replica)
        replica.log_end_offset = 3
        assert not partition.has_reached_isr(replica)


def test_15_the_last_one_standing_commits() -> None:
    partition = leader(log_end=9, high_watermark=4, isr=(1,))
    assert partition.next_high_watermark(100_000) == 4
    with find("15").planted():
        assert partition.next_high_watermark(100_000) == 9


def test_16_every_end_was_a_clean_one() -> None:
    manager: Any = object()
    assert not LogManager._ended_cleanly(manager, None)
    with find("16").planted():
        assert LogManager._ended_cleanly(manager, None)


def test_16b_whoever_comes_back_had_stopped_cleanly() -> None:
    existing: Any = Fields(epoch=7)
    assert not brokers.stopped_cleanly(existing, -1)
    with find("16b").planted():
        assert brokers.stopped_cleanly(existing, -1)


def test_17b_every_election_is_unclean() -> None:
    command: Any = None
    with find("17b").planted():
        assert elections.election_for(command, "t") is ElectionType.UNCLEAN
        assert leaders.election_for(command, "t") is ElectionType.UNCLEAN


def test_19b_a_vote_is_readable_but_not_durable() -> None:
    fs = MemoryFs()
    fs.mkdirs("m")
    log: Any = Fields(directory="m", log_start_offset=0, epochs=Fields(entries=[]))
    env: Any = Fields(fs=fs)
    settings = quorum_settings()
    storage = QuorumStorage(env, log, settings, "c")
    with find("19b").planted():
        storage.persist(QuorumState(4, 2, -1))
    assert storage.load_state() == QuorumState(4, 2, -1)


@pytest.mark.parametrize("mutant", ["20", "20a", "20b"])
def test_20_min_isr_is_not_checked(mutant: str) -> None:
    partition = leader(isr=(1,))
    assert partition.under_min_isr_before_append()
    assert partition.under_min_isr_after()
    with find(mutant).planted():
        assert partition.under_min_isr_before_append() == (mutant == "20b")
        assert partition.under_min_isr_after() == (mutant == "20a")
        assert partition.is_high_watermark_frozen() == (mutant != "20")


def test_21_latest_is_told_at_once() -> None:
    partition = leader(log_end=9, high_watermark=4)
    assert not partition.latest_offset_available()
    with find("21").planted():
        assert partition.latest_offset_available()


def test_22_consumers_read_what_is_not_committed() -> None:
    partition = leader(log_end=9, high_watermark=4)
    assert partition.read_limit(0, None) == 4
    with find("22").planted():
        assert partition.read_limit(0, None) == 9


def quorum_settings() -> QuorumSettings:
    return QuorumSettings(
        node_id=1,
        voters=(1, 2, 3),
        election_timeout_ms=1000,
        fetch_timeout_ms=2000,
        election_backoff_max_ms=1000,
        retry_backoff_ms=20,
        fetch_max_wait_ms=500,
    )


def test_23_a_majority_for_what_earlier_epochs_wrote_is_a_commit() -> None:
    leadership = LeaderState(quorum_settings(), 4, 10, 0)
    leadership.voters[2].end_offset = 10
    assert leadership.committed_offset(11) == 0
    with find("23").planted():
        assert leadership.committed_offset(11) == 10


def test_24_old_states_are_news() -> None:
    partition = leader()
    old = state(partition_epoch=9, isr=(1, 2))
    assert partition.is_stale_state(old)
    assert partition.is_stale_stop(4)
    with find("24").planted():
        assert not partition.is_stale_state(old)
        assert not partition.is_stale_stop(4)
        partition.become_leader(old, 0, 0)
    assert partition.isr == (1, 2)


def test_34_a_follower_forgets_what_it_has_of_a_producer() -> None:
    sent = batch(3, leader_epoch=0, pid=7, epoch=0, seq=0)
    sound = open_log(MemoryFs())
    sound.append_as_follower(sent, NEWEST)
    assert sound.producers.entries[7].next_sequence == 3
    forgetful = open_log(MemoryFs())
    with find("34").planted():
        forgetful.append_as_follower(sent, NEWEST)
    assert forgetful.log_end_offset == 3
    assert 7 not in forgetful.producers.entries


def test_82_a_record_inside_of_a_batch_is_passed_over() -> None:
    log = open_log(MemoryFs())
    for timestamp in (1_000, 1_050):
        log.append_as_leader(batch(3, timestamp=timestamp), 0, 2_000)
    assert log.offset_for_timestamp(1_001, 6).run() == (1_001, 1, 0)
    with find("82").planted():
        assert log.offset_for_timestamp(1_001, 6).run() == (1_050, 3, 0)
