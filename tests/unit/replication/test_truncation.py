"""Checks where two logs part: what the leader answers, and where repeated answers lead to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall.broker.config.broker import BROKER_SETTINGS
from squall.broker.replication import (
    BY_EPOCH,
    NO_EFFECTS,
    TRUNCATION_RULES,
    Divergence,
    ReplicationSettings,
    TruncateTo,
    divergence,
    truncation_target,
)
from tests.support.disks.list_log import ListLog
from tests.support.replication.partitions import follower, leader, only


def _log(*epochs: int) -> ListLog:
    log = ListLog()
    for epoch in epochs:
        log.append(epoch, f"of epoch {epoch}")
    return log


def test_fetch_that_goes_on_where_the_epoch_is_the_same_does_not_part() -> None:
    assert divergence(_log(0, 0, 3, 3), 3, 4, 4) is None
    assert divergence(_log(0, 0, 3, 3), 3, 2, 4) is None
    assert divergence(_log(0, 0, 3, 3), 0, 2, 4) is None


def test_fetch_beyond_the_end_of_the_epoch_parts_at_that_end() -> None:
    assert divergence(_log(0, 0, 3, 3), 0, 3, 4) == Divergence(0, 2)
    assert divergence(_log(0, 0, 3, 3), 3, 5, 4) == Divergence(3, 4)


def test_epoch_that_the_leader_never_had_is_answered_with_the_one_before() -> None:
    assert divergence(_log(0, 0, 3, 3), 2, 3, 4) == Divergence(0, 2)
    assert divergence(_log(0, 0, 3, 3), 2, 2, 4) == Divergence(0, 2)


def test_epoch_before_the_leaders_first_ends_where_that_begins() -> None:
    log = _log(3, 3)
    assert divergence(log, 1, 0, 2) is None
    assert divergence(log, 1, 1, 2) == Divergence(1, 0)


def test_epoch_above_the_leaders_latest_is_unknown_to_it_and_not_its_log_end() -> None:
    found = divergence(_log(0, 0), 1, 2, 2)
    assert found is not None
    assert found.is_undefined


def test_fetch_from_an_empty_log_never_parts() -> None:
    assert divergence(_log(0, 3), -1, 0, 2) is None


def test_leader_that_wrote_nothing_in_its_epoch_knows_where_it_began() -> None:
    log = _log(0, 0)
    log.assign(5, 2)
    partition = leader(log_end=2)
    assert partition.end_of_epoch(log, 5) == (5, 2)
    assert partition.end_of_epoch(log, 4) == (0, 2)
    assert partition.end_of_epoch(log, 6) == (-1, -1)
    assert partition.divergence(log, 5, 2) is None
    assert partition.divergence(log, 5, 3) == Divergence(5, 2)
    assert partition.divergence(log, 4, 2) == Divergence(0, 2)


def test_before_kip_101_leaders_looked_at_no_epoch_and_followers_sent_none() -> None:
    unsafe = TRUNCATION_RULES["high-watermark"]
    assert divergence(_log(0, 0, 3, 3), 0, 3, 4) is not None
    assert unsafe.divergence(_log(0, 0, 3, 3), 0, 3, 4) is None
    assert (unsafe.epoch_to_send(7), BY_EPOCH.epoch_to_send(7)) == (-1, 7)
    assert (unsafe.epoch_to_send(None), BY_EPOCH.epoch_to_send(None)) == (-1, -1)


def test_before_kip_101_followers_cut_their_log_at_their_own_high_watermark() -> None:
    partition = follower(log_end=5, high_watermark=3)
    assert partition.prepare_to_fetch(4) == NO_EFFECTS
    partition.settings_changed(ReplicationSettings(truncation=TRUNCATION_RULES["high-watermark"]), 0)
    assert only(partition.prepare_to_fetch(4), TruncateTo).offset == 3


def test_the_names_of_the_truncation_rules_are_the_values_of_the_setting() -> None:
    setting = BROKER_SETTINGS["squall.replication.truncation"]
    assert set(setting.choices) == set(TRUNCATION_RULES)
    assert TRUNCATION_RULES[setting.default] is BY_EPOCH is ReplicationSettings().truncation


def test_a_truncation_into_the_batch_in_which_the_log_starts_takes_the_start_back() -> None:
    partition = follower(log_end=9, high_watermark=8, log_start=4)
    partition.truncated(2)
    assert (partition.log_start_offset, partition.high_watermark, partition.log_end_offset) == (2, 2, 2)


histories = st.lists(st.integers(0, 6), max_size=8).map(sorted)


@given(common=histories, ours=st.lists(st.integers(1, 4), max_size=5), theirs=st.lists(st.integers(1, 4), max_size=5))
def test_repeated_answers_end_at_a_common_prefix_and_keep_all_of_the_longest(
    common: list[int], ours: list[int], theirs: list[int]
) -> None:
    """Two logs that share a prefix and then go on in epochs of their own: no epoch has two writers."""
    last = common[-1] if common else 0
    follower_log = _log(*common, *[last + 2 * step for step in sorted(ours)])
    leader_log = _log(*common, *[last + 2 * step + 1 for step in sorted(theirs)])
    leader_log.assign(last + 20, len(leader_log))
    for _ in range(len(follower_log) + 2):
        latest = follower_log.latest_epoch()
        parted = divergence(leader_log, -1 if latest is None else latest, len(follower_log), len(leader_log))
        if parted is None:
            break
        assert not parted.is_undefined
        before = len(follower_log), follower_log.latest_epoch()
        target = truncation_target(follower_log, parted.epoch, parted.end_offset, len(follower_log))
        assert target <= len(follower_log)
        follower_log.truncate(target)
        assert (len(follower_log), follower_log.latest_epoch()) != before, "every answer brings the follower on"
    else:
        raise AssertionError("it never ends")
    assert follower_log.entries == leader_log.entries[: len(follower_log)]
    assert len(follower_log) >= len(common)
