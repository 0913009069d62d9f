"""The I/O of the metadata quorum around its pure core: the order of its effects on slow disks, and the state after a
crash.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.cluster.names import METADATA_TOPIC, METADATA_TOPIC_ID
from squall.broker.control.kraft.metadata_quorum import MetadataQuorum, NotLeader
from squall.broker.control.kraft.plane import metadata_log_config
from squall.broker.control.kraft.quorum_storage import QuorumStorage
from squall.broker.log.config import LogConfig
from squall.broker.log.log import Log
from squall.broker.log.recovery import load
from squall.broker.net.peers import PeerClient
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.hot import FetchIn, FetchRequestPartition
from squall.broker.protocol.schema.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestTopicSnapshot,
)
from squall.broker.protocol.schema.metadata_records import NoOpRecord, TopicRecord
from squall.broker.protocol.schema.vote import VoteRequest, VoteRequestPartitionData, VoteRequestTopicData
from squall.broker.quorum.effects import AppendLeaderBatch, AppendLeaderChange, Truncate
from squall.broker.quorum.settings import QuorumSettings
from squall.broker.quorum.state import DamagedQuorumState, QuorumState
from tests.support.brokers.in_memory import broker_config
from tests.support.brokers.memory_env import FakeEnv
from tests.support.disks.memory_fs import Crashed, MemoryFs

DIRECTORY = f"data/{METADATA_TOPIC}-0"
STATE = f"{DIRECTORY}/quorum-state"


class SlowEnv(FakeEnv):
    """An Env whose blocking work ends when the test says so."""

    def __init__(self, fs: MemoryFs) -> None:
        super().__init__(fs=fs)
        self.held = False
        self._released = trio.Event()

    async def cpu(self, fn: Callable[..., Any], *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        while self.held:
            await self._released.wait()
        return fn(*args)

    def release(self) -> None:
        self.held = False
        released, self._released = self._released, trio.Event()
        released.set()


def load_log(fs: MemoryFs) -> Log:
    return load(fs, DIRECTORY, LogConfig(), topic=METADATA_TOPIC, partition=0, topic_id=METADATA_TOPIC_ID, clean=False)


class Seat:
    """Node 1's membership in the quorum, and the events that it reported."""

    def __init__(self, fs: MemoryFs, voters: int, log: Log | None = None) -> None:
        self.fs = fs
        self.env = SlowEnv(fs)
        self.log = load_log(fs) if log is None else log
        self.committed: list[tuple[int, int, Any]] = []
        self.snapshots: list[tuple[list[Any], int, int]] = []
        self.terms: list[tuple[bool, int]] = []
        names = ",".join(f"{voter}@node-{voter}:9093" for voter in range(1, voters + 1))
        self.config = broker_config(controller_quorum_voters=names)
        self.peers = PeerClient(self.env, lambda node_id: None, "node-1")
        self.quorum = MetadataQuorum(
            self.env, self.config, self.log, self.peers, "c",
            on_committed=self.committed.extend, on_snapshot=lambda *found: self.snapshots.append(found),
            on_leadership=lambda *term: self.terms.append(term),
        )  # fmt: skip

    async def sit(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.peers.run)
        await nursery.start(self.quorum.run)

    def persisted(self) -> QuorumState | None:
        return QuorumState.from_json(self.fs.read(STATE).decode()) if self.fs.exists(STATE) else None


def vote_request(candidate: int, epoch: int) -> VoteRequest:
    part = VoteRequestPartitionData(replica_epoch=epoch, replica_id=candidate)
    return VoteRequest(topics=[VoteRequestTopicData(METADATA_TOPIC, [part])])


async def test_vote_is_answered_when_it_is_durable_and_not_before(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    seat = Seat(MemoryFs(), voters=3)
    await seat.sit(nursery)
    seat.env.held = True
    granted: dict[int, bool] = {}

    async def ask(candidate: int) -> None:
        answer = await seat.quorum.requests.vote(vote_request(candidate, 9))
        granted[candidate] = answer.topics[0].partitions[0].vote_granted

    nursery.start_soon(ask, 2)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(ask, 3)
    await trio.testing.wait_all_tasks_blocked()
    assert granted == {}
    assert seat.persisted() is None
    seat.env.release()
    await trio.testing.wait_all_tasks_blocked()
    assert granted == {2: True, 3: False}
    assert seat.persisted() == QuorumState(epoch=9, voted_id=2)


async def test_sole_voter_commits_when_its_log_is_durable_and_not_before(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    seat = Seat(MemoryFs(), voters=1)
    await seat.sit(nursery)
    await trio.testing.wait_all_tasks_blocked()
    assert seat.terms == [(True, 1)]
    seat.env.held = True
    offset = seat.quorum.append([(TopicRecord(name="a"), 0), (NoOpRecord(), 0)])
    await trio.testing.wait_all_tasks_blocked()
    assert offset == 2
    assert seat.committed == []
    seat.env.release()
    await seat.quorum.wait_committed(offset, 1)
    assert [(at, epoch, type(record)) for at, epoch, record in seat.committed] == [
        (1, 1, TopicRecord),
        (2, 1, NoOpRecord),
    ]


async def test_what_the_controller_has_decided_is_not_too_large_for_its_log(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """One request makes up to 15 MB of records. Where segments are smaller, it ended one controller after the other."""
    fs = MemoryFs()
    config = metadata_log_config(broker_config(metadata_log_segment_bytes="1000"))
    log = load(fs, DIRECTORY, config, topic=METADATA_TOPIC, partition=0, topic_id=METADATA_TOPIC_ID, clean=False)
    seat = Seat(fs, voters=1, log=log)
    await seat.sit(nursery)
    await trio.testing.wait_all_tasks_blocked()
    offset = seat.quorum.append([(TopicRecord(name=f"topic-{n}"), 0) for n in range(100)])
    await seat.quorum.wait_committed(offset, 1)
    assert len(seat.committed) == 100
    assert len(log.segments) == 2


async def test_whoever_fetches_in_the_name_of_the_leader_is_refused(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """It ended the leader: 100 bytes on the listener between brokers, which may be the only one."""
    seat = Seat(MemoryFs(), voters=1)
    await seat.sit(nursery)
    await trio.testing.wait_all_tasks_blocked()
    part = FetchRequestPartition(0, 1, 0, 0, 0, 1000, -1)
    answers: list[bytes] = []
    for replica_id in (1, 7):
        asked = FetchIn(replica_id, -1, 0, 1, 1000, 0, 0, -1, None, [(METADATA_TOPIC_ID, [part])], [], "")
        seat.quorum.requests.fetch(asked, 17, lambda body: answers.append(bytes(body[0])))
        await trio.testing.wait_all_tasks_blocked()
    refused, taken = (int.from_bytes(body[4:6], "big") for body in answers)
    assert (refused, taken) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)


async def test_whoever_fetches_a_snapshot_in_the_name_of_the_leader_is_refused(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """It was among its own observers, and so in DescribeQuorum."""
    seat = Seat(MemoryFs(), voters=1)
    await seat.sit(nursery)
    await trio.testing.wait_all_tasks_blocked()
    errors: list[tuple[int, list[int]]] = []
    for replica_id in (1, 7):
        part = FetchSnapshotRequestPartitionSnapshot(0, 1)
        topics = [FetchSnapshotRequestTopicSnapshot(METADATA_TOPIC, [part])]
        answer = await seat.quorum.requests.fetch_snapshot(FetchSnapshotRequest(replica_id=replica_id, topics=topics))
        errors.append((answer.error_code, [part.error_code for topic in answer.topics for part in topic.partitions]))
    assert errors == [(ErrorCode.INVALID_REQUEST, []), (ErrorCode.NONE, [ErrorCode.SNAPSHOT_NOT_FOUND])]


async def test_appends_while_a_sync_runs_share_the_next_one(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    seat = Seat(MemoryFs(), voters=1)
    await seat.sit(nursery)
    await trio.testing.wait_all_tasks_blocked()
    jobs: list[int] = []
    inner = seat.env.cpu

    async def counted(fn: Callable[..., Any], *args: Any) -> Any:
        jobs.append(1)
        return await inner(fn, *args)

    seat.env.cpu = counted  # type: ignore[method-assign]
    seat.env.held = True
    for _ in range(50):
        offset = seat.quorum.append([(NoOpRecord(), 0)])
        await trio.testing.wait_all_tasks_blocked()
    seat.env.release()
    await seat.quorum.wait_committed(offset, 1)
    assert len(jobs) == 2


async def test_callback_that_learns_of_leadership_may_append_at_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    seat = Seat(MemoryFs(), voters=1)

    def lead(leads: bool, epoch: int) -> None:
        seat.terms.append((leads, epoch))
        seat.quorum.append([(NoOpRecord(), 0)])

    seat.quorum._on_leadership = lead
    await seat.sit(nursery)
    await trio.testing.wait_all_tasks_blocked()
    assert seat.terms == [(True, 1)]
    assert [offset for offset, _, _ in seat.committed] == [1]


async def test_node_that_does_not_lead_appends_nothing(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    seat = Seat(MemoryFs(), voters=3)
    await seat.sit(nursery)
    with pytest.raises(NotLeader):
        seat.quorum.append([(NoOpRecord(), 0)])
    with pytest.raises(NotLeader):
        await seat.quorum.wait_committed(0, 0)


async def test_what_is_at_an_offset_by_now_says_nothing_of_what_was_appended_there_in_an_earlier_epoch(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Check that a wait is woken only when the next leader's records have gone beyond its offset."""
    seat = Seat(MemoryFs(), voters=1)
    await seat.sit(nursery)
    await trio.testing.wait_all_tasks_blocked()
    offset = seat.quorum.append([(TopicRecord(name="a"), 0)])
    await seat.quorum.wait_committed(offset, 1)
    with pytest.raises(NotLeader):
        await seat.quorum.wait_committed(offset, 0)


async def test_what_was_committed_is_told_again_after_a_restart(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    fs = MemoryFs()
    seat = Seat(fs, voters=1)
    async with trio.open_nursery() as first:
        await seat.sit(first)
        await seat.env.sleep(0)
        await trio.testing.wait_all_tasks_blocked()
        await seat.quorum.wait_committed(seat.quorum.append([(TopicRecord(name="a"), 0)]), 1)
        first.cancel_scope.cancel()
    again = Seat(fs.after_crash(), voters=1)
    await again.sit(nursery)
    await trio.testing.wait_all_tasks_blocked()
    assert again.terms == [(True, 2)]
    assert [(offset, epoch) for offset, epoch, _ in again.committed] == [(1, 1)]


def storage(fs: MemoryFs) -> QuorumStorage:
    fs.mkdirs(DIRECTORY)
    fs.fsync_dir("data")
    fs.fsync_dir(".")
    return storage_again(fs)


def storage_again(fs: MemoryFs, log: Log | None = None) -> QuorumStorage:
    return QuorumStorage(FakeEnv(fs=fs), log or load_log(fs), QuorumSettings(1, (1, 2, 3)), "c")


@pytest.mark.parametrize("seed", range(5))
async def test_crash_while_persisting_leaves_the_old_state_or_the_new(seed: int) -> None:
    old, new = QuorumState(4, 2), QuorumState(5, 3)
    step = 0
    while True:
        step += 1
        fs = MemoryFs()
        kept = storage(fs)
        kept.persist(old)
        fs.crash_at = fs.calls + step
        try:
            kept.persist(new)
        except Crashed:
            assert storage(fs.after_crash(random.Random(seed))).load_state() in (old, new)
        else:
            assert storage(fs.after_crash(random.Random(seed))).load_state() == new
            break
    assert step > 4, "the crash was to come between all of its steps"


def test_state_that_was_read_outlives_a_loss_of_power_though_the_run_before_ended_while_persisting() -> None:
    step = 0
    while True:
        step += 1
        fs = MemoryFs()
        kept = storage(fs)
        kept.persist(QuorumState(4, 2))
        fs.crash_at = fs.calls + step
        try:
            kept.persist(QuorumState(5, 3))
        except Crashed:
            killed = fs.after_crash()
            log = load_log(fs.after_crash())  # of which only the place is asked: a load of its own would sync names
            told = storage_again(killed, log).load_state()
            for seed in range(10):
                assert storage_again(killed.after_crash(random.Random(seed)), log).load_state() == told, step
        else:
            break
    assert step > 4, "the end was to come between all of its steps"


def test_damaged_state_file_stops_the_node() -> None:
    fs = MemoryFs()
    storage(fs).persist(QuorumState(4, 2))
    fs.write(STATE, b"\xff\xfe")
    with pytest.raises(DamagedQuorumState):
        storage(fs).load_state()


async def test_log_on_disk_has_the_shape_that_the_core_gave_it() -> None:
    fs = MemoryFs()
    kept = storage(fs)
    kept.write(AppendLeaderChange(0, 3, (1, 2, 3), (1, 2)))
    kept.write(AppendLeaderBatch(1, 3, 2, kept.encode([(TopicRecord(name="a"), 0), (NoOpRecord(), 0)])))
    kept.write(AppendLeaderChange(3, 5, (1, 2, 3), (1, 3)))
    assert (kept.extent().end_offset, kept.extent().epochs) == (4, [(3, 0), (5, 3)])
    kept.write(Truncate(3, 1))
    assert (kept.extent().end_offset, kept.extent().epochs) == (3, [(3, 0)])
    assert [(offset, epoch) for offset, epoch, _ in kept.read(0, 99)[1]] == [(1, 3), (2, 3)]
    assert kept.read(0, 99)[0] == 3


async def test_sync_is_reported_under_the_generation_in_which_it_began() -> None:
    kept = storage(MemoryFs())
    kept.write(AppendLeaderChange(0, 3, (1, 2, 3), (1, 2)))
    news = [kept.has_news]
    assert await kept.sync() == (1, 0)
    news.append(kept.has_news)
    kept.write(AppendLeaderChange(1, 4, (1, 2, 3), (1, 2)))
    kept.write(Truncate(1, 1))
    news.append(kept.has_news)
    assert await kept.sync() == (1, 1)
    assert news == [True, False, True]
