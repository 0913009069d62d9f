"""The leader epoch cache (mechanisms E1 and E2)."""

from __future__ import annotations

import pytest

from squall.broker.log.epochs import EpochCache
from tests.support.disks.memory_fs import MemoryFs


def cache(*entries: tuple[int, int]) -> EpochCache:
    made = EpochCache(MemoryFs(), "")
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


def test_assigning_the_epoch_in_force_is_no_news() -> None:
    epochs = cache((1, 0), (3, 10))
    epochs.flush()
    assert not epochs.assign(3, 10)
    assert not epochs.assign(3, 50)
    assert not epochs.dirty


def test_an_epoch_that_wrote_nothing_is_replaced_by_the_next() -> None:
    assert cache((1, 0), (2, 10), (3, 10)).entries == [(1, 0), (3, 10)]


def test_assigning_an_earlier_start_removes_what_contradicts_it() -> None:
    assert cache((1, 0), (2, 10), (3, 20), (4, 10)).entries == [(1, 0), (4, 10)]
    assert cache((1, 0), (2, 10), (3, 20), (2, 15)).entries == [(1, 0), (2, 10)]
    assert cache((5, 0), (3, 10)).entries == [(3, 10)]


def test_an_empty_leadership_does_not_move_the_start_of_the_epoch_before_it() -> None:
    # A leader of epoch 6 wrote nothing, and receives as a follower more of epoch 5.
    assert cache((5, 3), (6, 10), (5, 10)).entries == [(5, 3)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),  # undefined
        (1, (1, 5)),  # below all: where the first one here begins
        (2, (2, 20)),
        (3, (2, 20)),  # unknown, between two: the largest below it
        (4, (4, 30)),
        (7, (7, 99)),  # the latest one ends at the log's end
        (8, (-1, -1)),  # above all
    ],
)
def test_end_offset_for(epoch: int, expected: tuple[int, int]) -> None:
    assert cache((2, 5), (4, 20), (7, 30)).end_offset_for(epoch, 99) == expected


def test_nothing_is_known_of_any_epoch_without_entries() -> None:
    assert cache().end_offset_for(0, 10) == (-1, -1)
    assert cache().latest is None
    assert cache().epoch_for_offset(0) is None


def test_epoch_for_offset() -> None:
    epochs = cache((2, 5), (4, 20))
    assert [epochs.epoch_for_offset(offset) for offset in (4, 5, 19, 20, 1000)] == [None, 2, 2, 4, 4]


def test_truncating_from_the_end_drops_epochs_that_begin_there() -> None:
    epochs = cache((2, 5), (4, 20), (7, 30))
    epochs.flush()
    epochs.truncate_from_end(31)
    assert not epochs.dirty
    epochs.truncate_from_end(20)
    assert epochs.entries == [(2, 5)]
    assert epochs.latest == 2
    assert epochs.dirty


def test_truncating_from_the_start_moves_the_epoch_in_force_there() -> None:
    epochs = cache((2, 5), (4, 20), (7, 30))
    epochs.flush()
    epochs.truncate_from_start(5)
    epochs.truncate_from_start(3)
    assert not epochs.dirty
    epochs.truncate_from_start(25)
    assert epochs.entries == [(4, 25), (7, 30)]
    epochs.truncate_from_start(30)
    assert epochs.entries == [(7, 30)]
    epochs.truncate_from_start(40)
    assert epochs.entries == [(7, 40)]


def test_the_file_changes_only_at_a_flush_and_is_durable_then() -> None:
    fs = MemoryFs()
    epochs = EpochCache(fs, "")
    epochs.assign(1, 0)
    assert EpochCache.load(fs, "") is None
    epochs.flush()
    assert fs.log == ["create", "append", "fsync", "rename", "fsync_dir"]
    loaded = EpochCache.load(fs, "")
    assert loaded is not None
    assert loaded.entries == [(1, 0)]
    assert loaded.latest == 1
    assert not loaded.dirty
