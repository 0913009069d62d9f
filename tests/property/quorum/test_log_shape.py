"""LogExtent (a log's ends and epoch boundaries) agrees with logs that are plain lists of epochs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall.broker.quorum.log_extent import LogExtent
from squall.broker.quorum.messages import SnapshotId

logs = st.lists(st.integers(1, 6), max_size=12).map(sorted)


def shape_of(epochs: list[int]) -> LogExtent:
    extent = LogExtent()
    for offset, epoch in enumerate(epochs):
        extent.append(epoch, offset, offset + 1)
    return extent


@given(logs, st.integers(0, 7))
def test_end_of_epoch_is_where_the_first_higher_epoch_begins(log: list[int], epoch: int) -> None:
    upto = [known for known in log if known <= epoch]
    assert shape_of(log).end_of(epoch) == (upto[-1] if upto else 0, len(upto))


@given(logs, st.integers(0, 12))
def test_truncated_shape_is_the_shape_of_the_truncated_log(log: list[int], offset: int) -> None:
    extent = shape_of(log)
    extent.truncate_to(min(offset, len(log)))
    expected = shape_of(log[:offset])
    assert (extent.end_offset, extent.epochs) == (expected.end_offset, expected.epochs)


histories = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 3)), max_size=12)


def logs_of(history: list[tuple[int, int, int]]) -> list[list[int]]:
    """Return three logs as leaders write them: in epoch n one log gets records of n, and another one becomes a copy of
    it.
    """
    replicas: list[list[int]] = [[], [], []]
    for epoch, (leader, keep, count) in enumerate(history, 1):
        log = replicas[leader] + [epoch] * count
        replicas[leader] = log
        copy = (leader + 1 + keep % 2) % 3
        replicas[copy] = log[: max(len(log) - keep // 2, 0)]
    return replicas


@given(histories)
def test_follower_that_truncates_as_told_ends_with_a_prefix_of_the_leaders_log(
    history: list[tuple[int, int, int]],
) -> None:
    leader, follower, _ = logs_of(history)
    leads, follows = shape_of(leader), shape_of(follower)
    rounds = 0
    while not leads.agrees(follows.end_offset, follows.last_epoch):
        target = follows.truncation_target(*leads.end_of(follows.last_epoch))
        assert target < follows.end_offset, "every round gets nearer"
        follows.truncate_to(target)
        rounds += 1
    kept = follower[: follows.end_offset]
    assert kept == leader[: len(kept)]
    assert rounds <= 1 + len(set(follower))


@given(histories)
def test_truncation_keeps_what_both_have(history: list[tuple[int, int, int]]) -> None:
    """Records with equal offset and epoch are equal: the common prefix of two logs must be kept."""
    leader, follower, _ = logs_of(history)
    common = 0
    while common < min(len(leader), len(follower)) and leader[common] == follower[common]:
        common += 1
    leads, follows = shape_of(leader), shape_of(follower)
    while not leads.agrees(follows.end_offset, follows.last_epoch):
        follows.truncate_to(follows.truncation_target(*leads.end_of(follows.last_epoch)))
    assert follows.end_offset == common if len(follower) > common else follows.end_offset == len(follower)


@given(histories, st.data())
def test_a_trimmed_log_answers_as_the_whole_one_or_points_to_its_snapshot(
    history: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    log, other, _ = logs_of(history)
    whole, trimmed = shape_of(log), shape_of(log)
    at = data.draw(st.integers(0, len(log)))
    if at:
        trimmed.trim_to(SnapshotId(at, log[at - 1]))
    assert (trimmed.start_offset, trimmed.end_offset, trimmed.last_epoch) == (at, whole.end_offset, whole.last_epoch)
    for end in range(len(other) + 1):
        last_epoch = other[end - 1] if end else 0
        if not trimmed.has_left(end, last_epoch):
            assert trimmed.agrees(end, last_epoch) == whole.agrees(end, last_epoch)
            if not whole.agrees(end, last_epoch):
                assert trimmed.end_of(last_epoch) == whole.end_of(last_epoch)
        else:
            assert end < at or not whole.agrees(end, last_epoch), "nobody is sent away who could go on"
    assert [trimmed.epoch_at(offset) for offset in range(at, len(log))] == log[at:]
