"""The checkpoint of high watermarks, and what it must not outlive."""

from __future__ import annotations

from random import Random

import pytest

from squall.broker.log.config import LogConfig
from squall.broker.log.log import Log
from squall.broker.log.manager import LogManager
from tests.support.disks.batches import batch
from tests.support.disks.memory_fs import Crashed, MemoryFs
from tests.support.effort import examples

ID, OTHER = bytes([1] * 16), bytes([2] * 16)
PLACE, ELSEWHERE = ("a", 0), ("b", 0)
FILE = "data/replication-offset-checkpoint"


def start(fs: MemoryFs) -> LogManager:
    manager = LogManager(fs, "data", lambda topic: LogConfig(), rng=Random(1))
    manager.load_all(0)
    return manager


def fill(log: Log, count: int) -> Log:
    for _ in range(count):
        assert log.append_as_leader(batch(1), 0, 1_000).error == 0
    return log


def kept(fs: MemoryFs) -> LogManager:
    """Return a manager of two logs with four committed records each, and a checkpoint that says so."""
    manager = start(fs)
    for topic, index in (PLACE, ELSEWHERE):
        fill(manager.get_or_create(topic, index, ID), 4).flush(0)
    manager.high_watermarks.write({PLACE: 4, ELSEWHERE: 4})
    return manager


def test_a_topic_made_again_has_none_of_its_predecessors() -> None:
    """Found by swarm seed 1231565: a record that was not committed was, for a broker that was started again."""
    fs = MemoryFs()
    manager = kept(fs)
    assert manager.delete("a", 0, 0)
    fill(manager.get_or_create("a", 0, OTHER), 1).flush(0)
    assert manager.high_watermarks.read() == {PLACE: 0, ELSEWHERE: 4}
    assert start(fs.after_crash()).high_watermarks.read() == {PLACE: 0, ELSEWHERE: 4}


def test_a_log_of_an_older_topic_that_is_found_at_the_start_leaves_none() -> None:
    fs = MemoryFs()
    kept(fs)
    again = start(fs.after_crash())
    fill(again.get_or_create("a", 0, OTHER), 1)
    assert again.high_watermarks.read() == {PLACE: 0, ELSEWHERE: 4}


@pytest.mark.parametrize("offset", [0, 2, 4, 5])
def test_records_that_are_cut_off_are_not_taken_for_the_next_ones(offset: int) -> None:
    fs = MemoryFs()
    log = fill(kept(fs).logs[PLACE], 2)
    log.truncate_to(offset)
    fill(log, 5).flush(0)
    assert start(fs.after_crash()).high_watermarks.read() == {PLACE: min(offset, 4), ELSEWHERE: 4}


def test_a_log_that_begins_anew_further_on_has_nothing_committed_before() -> None:
    fs = MemoryFs()
    log = kept(fs).logs[PLACE]
    log.truncate_fully_and_start_at(10)
    assert start(fs.after_crash()).high_watermarks.read() == {PLACE: 0, ELSEWHERE: 4}


def test_a_log_that_has_lost_its_end_has_no_more_committed_than_is_left() -> None:
    ends = set()
    for seed in range(20):
        fs = MemoryFs()
        manager = kept(fs)
        fill(manager.logs[PLACE], 2)
        manager.high_watermarks.write({PLACE: 6, ELSEWHERE: 3})
        fs = fs.after_crash(Random(seed))
        again = start(fs)
        end = again.logs[PLACE].log_end_offset
        assert again.high_watermarks.read() == {PLACE: end, ELSEWHERE: 3}
        fill(again.logs[PLACE], 4).flush(0)
        assert start(fs.after_crash()).high_watermarks.read() == {PLACE: end, ELSEWHERE: 3}
        ends.add(end)
    assert ends >= {4, 6}


def test_a_draft_takes_the_place_of_the_checkpoint() -> None:
    fs = MemoryFs()
    manager = kept(fs)
    draft = manager.high_watermarks.draft({PLACE: 4})
    draft.write()
    assert fs.read(FILE) == b"0\n2\na 0 4\nb 0 4\n"
    assert draft.keep()
    assert fs.read(FILE) == b"0\n1\na 0 4\n"
    assert manager.high_watermarks.read() == {PLACE: 4}
    assert not draft.keep()
    draft.sync()
    assert all(start(fs.after_crash(Random(seed))).high_watermarks.read() == {PLACE: 4} for seed in range(10))


@pytest.mark.parametrize("written_before", [True, False])
def test_a_draft_that_speaks_of_what_is_gone_since_is_dropped(written_before: bool) -> None:
    fs = MemoryFs()
    manager = kept(fs)
    draft = manager.high_watermarks.draft({PLACE: 4, ELSEWHERE: 2})
    if written_before:
        draft.write()
    manager.delete("a", 0, 0)
    manager.get_or_create("a", 0, OTHER)
    if not written_before:
        draft.write()
    assert not draft.keep()
    assert start(fs.after_crash()).high_watermarks.read() == {PLACE: 0, ELSEWHERE: 4}


def test_a_draft_that_speaks_of_others_only_stays() -> None:
    manager = kept(MemoryFs())
    draft = manager.high_watermarks.draft({ELSEWHERE: 2})
    manager.logs[PLACE].truncate_to(1)
    draft.write()
    assert draft.keep()
    assert manager.high_watermarks.read() == {ELSEWHERE: 2}


def test_a_checkpoint_that_a_power_loss_may_bring_back_is_cut_as_well() -> None:
    fs = MemoryFs()
    manager = kept(fs)
    draft = manager.high_watermarks.draft({PLACE: 1})
    draft.write()
    assert draft.keep()
    log = manager.logs[PLACE]
    log.truncate_to(2)
    fill(log, 3).flush(0)
    for seed in range(10):
        assert start(fs.after_crash(Random(seed))).high_watermarks.read() == {PLACE: 1}


def test_whenever_the_power_fails_nothing_is_said_of_a_topic_that_came_later() -> None:
    """At each change of the disk while one topic takes the name of another."""
    for calls in range(1, 100):
        for seed in range(examples(10, least=3)):
            fs = MemoryFs()
            manager = kept(fs)
            draft = manager.high_watermarks.draft({PLACE: 3})
            fs.crash_at = fs.calls + calls
            try:
                draft.write()
                assert draft.keep()
                draft.sync()
                manager.delete("a", 0, 0)
                fill(manager.get_or_create("a", 0, OTHER), 2).flush(0)
            except Crashed:
                fs = fs.after_crash(Random(seed))
                again = start(fs)
                log = again.get_or_create("a", 0, OTHER)
                assert log.log_end_offset <= 2, calls
                fill(log, 2).flush(0)
                told = start(fs.after_crash()).high_watermarks.read().get(PLACE, 0)
                assert told == 0, (calls, seed)
            else:
                assert calls > 10
                return
    pytest.fail("it never came to an end")
