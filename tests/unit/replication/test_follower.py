"""A follower's high watermark, its truncations, and what it does when the leader does not have its offset."""

from __future__ import annotations

import pytest

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.replication import NO_EFFECTS, AdvanceLogStart, TruncateFullyAndStartAt, TruncateTo
from tests.support.disks.list_log import ListLog
from tests.support.replication.partitions import any_of, follower, only


def _log(*epochs: int) -> ListLog:
    """A log whose records are of these epochs."""
    log = ListLog()
    for offset, epoch in enumerate(epochs):
        log.append(epoch, f"v{offset}")
    return log


def test_high_watermark_is_the_leaders_as_far_as_the_own_log_goes() -> None:
    partition = follower()
    assert partition.apply_leader_offsets(10, 0, 6) == NO_EFFECTS
    assert partition.high_watermark == 6
    partition.apply_leader_offsets(10, 0, 12)
    assert partition.high_watermark == 10


def test_high_watermark_of_a_new_leader_that_lags_is_followed_down() -> None:
    partition = follower(log_end=10, high_watermark=10)
    partition.apply_leader_offsets(7, 0, 10)
    assert partition.high_watermark == 7


def test_high_watermark_never_falls_below_the_log_start() -> None:
    partition = follower(log_start=5, log_end=10, high_watermark=8)
    partition.apply_leader_offsets(0, 0, 10)
    assert partition.high_watermark == 5


def test_leaders_log_start_is_adopted() -> None:
    partition = follower(log_end=10, high_watermark=10)
    assert partition.apply_leader_offsets(10, 4, 10) == (AdvanceLogStart(4),)
    partition.log_start_moved(4)
    assert partition.apply_leader_offsets(10, 4, 10) == NO_EFFECTS


def test_leaders_log_start_beyond_what_is_known_to_be_committed_waits() -> None:
    partition = follower(log_end=3)
    assert partition.apply_leader_offsets(9, 8, 3) == (AdvanceLogStart(3),)


def test_truncation_takes_the_high_watermark_along() -> None:
    partition = follower(log_end=10, high_watermark=8)
    partition.truncated(9)
    assert (partition.log_end_offset, partition.high_watermark) == (9, 8)
    partition.truncated(6)
    assert (partition.log_end_offset, partition.high_watermark) == (6, 6)


def test_follower_does_not_truncate_on_its_own_account() -> None:
    partition = follower(log_end=10, high_watermark=2)
    assert partition.prepare_to_fetch(4) == NO_EFFECTS


def test_follower_whose_log_knows_no_epoch_keeps_what_is_committed() -> None:
    partition = follower(log_end=10, high_watermark=2)
    assert only(partition.prepare_to_fetch(None), TruncateTo).offset == 2
    assert follower().prepare_to_fetch(None) == NO_EFFECTS


def test_follower_truncates_to_where_the_leaders_epoch_ends() -> None:
    log = _log(1, 1, 1, 1)
    assert only(follower(log_end=4).diverged(log, 1, 2), TruncateTo).offset == 2


def test_follower_truncates_to_its_own_end_of_that_epoch_where_that_is_less() -> None:
    log = _log(1, 1, 2, 2)
    assert only(follower(log_end=4).diverged(log, 1, 9), TruncateTo).offset == 2


def test_follower_that_lacks_the_leaders_epoch_goes_back_to_its_own_largest_smaller_one() -> None:
    log = _log(0, 2, 2)
    assert only(follower(log_end=3).diverged(log, 1, 3), TruncateTo).offset == 1


def test_epoch_without_records_is_dropped_though_no_record_is_cut() -> None:
    log = _log(0, 0)
    log.assign(2, 2)
    partition = follower(log_end=2)
    assert only(partition.diverged(log, 1, 5), TruncateTo).offset == 2
    log.truncate(2)
    assert log.latest_epoch() == 0


def test_follower_starts_anew_where_the_logs_part_before_its_log_starts() -> None:
    log = _log(3, 3, 3, 3, 3, 3)
    log.epochs = [(3, 4)]
    partition = follower(log_start=4, log_end=6, high_watermark=4)
    assert only(partition.diverged(log, 1, 2), TruncateFullyAndStartAt).offset == 2


def test_log_longer_than_the_leaders_is_cut_and_not_dropped() -> None:
    assert only(follower(log_end=10).out_of_range(0, 7), TruncateTo).offset == 7


def test_log_that_ends_before_the_leaders_starts_is_dropped() -> None:
    partition = follower(log_end=10, high_watermark=10)
    assert only(partition.out_of_range(15, 20), TruncateFullyAndStartAt).offset == 15
    partition.restarted(15)
    assert (partition.log_start_offset, partition.high_watermark, partition.log_end_offset) == (15, 15, 15)


def test_log_within_the_leaders_range_is_kept() -> None:
    assert follower(log_end=10).out_of_range(5, 20) == NO_EFFECTS
    assert follower(log_end=10).out_of_range(10, 10) == NO_EFFECTS


def test_leader_whose_log_ends_before_ours_starts_makes_us_start_where_it_ends() -> None:
    partition = follower(log_start=8, log_end=10, high_watermark=9)
    assert only(partition.out_of_range(0, 5), TruncateFullyAndStartAt).offset == 5


def test_diverging_answer_that_names_no_place_is_the_leaders_fault() -> None:
    with pytest.raises(MalformedFrame):
        follower(log_end=3).diverged(_log(0, 0, 0), -1, -1)


def test_appending_alone_moves_no_high_watermark_on_a_follower() -> None:
    partition = follower()
    assert partition.appended(5, 0) == NO_EFFECTS
    assert (partition.log_end_offset, partition.high_watermark) == (5, 0)
    assert not any_of(partition.apply_leader_offsets(0, 0, 5), TruncateTo)
