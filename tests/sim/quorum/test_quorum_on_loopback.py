"""Three voters of the metadata quorum over real sockets and files, in one OS process."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from squall.broker.control.kraft.metadata_quorum import NotLeader
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import describe_quorum
from squall.broker.protocol.schema.metadata_records import TopicRecord
from squall.broker.protocol.schema.vote import VoteRequest, VoteRequestPartitionData, VoteRequestTopicData
from squall.broker.quorum.state import QuorumState
from tests.support.brokers.quorum_nodes import HASTE, Ensemble


async def test_fresh_cluster_elects_and_what_is_committed_reaches_everybody(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery, observers=1)
        await cluster.start()
        for number in range(5):
            await cluster.commit(f"topic-{number}")
        await cluster.all_know(*(f"topic-{number}" for number in range(5)))
        for node in cluster.running():
            offsets = [offset for offset, _, _ in node.committed]
            assert offsets == list(range(1, 11)), "offset 0 is the leader-change record, which nobody is told of"
            assert {epoch for _, epoch, _ in node.committed} == {node.quorum.epoch}
        assert cluster.nodes[4].terms == [], "an observer never leads"
        nursery.cancel_scope.cancel()


async def test_fetches_that_follow_each_other_take_one_task(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery, observers=1)
        await cluster.start()
        observer = cluster.nodes[4].quorum

        def fetching() -> set[trio.lowlevel.Task]:
            assert observer._nursery is not None
            return {task for task in observer._nursery.child_tasks if task.name.endswith("._send_requests")}

        known: list[str] = []
        stayed: list[bool] = []
        while not any(stayed):  # on a machine that hangs a fetch is overdue, and asked again by another task
            assert len(stayed) < 5, "what was committed reached the observer by another task each time"
            before = fetching()
            known.append(f"topic-{len(known)}")
            await cluster.commit(known[-1])
            await cluster.all_know(*known)
            stayed.append(bool(before & fetching()))
        nursery.cancel_scope.cancel()


async def test_next_leader_has_what_was_committed_and_the_old_one_catches_up(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery, settings=HASTE)
        await cluster.start()
        await cluster.commit("before")
        old = await cluster.leader()
        cluster.kill(old.node_id)
        await cluster.until(lambda: old.scope is None)
        await cluster.commit("after")
        assert (await cluster.leader()) is not old
        await cluster.start(old.node_id)
        await cluster.all_know("before", "after")
        nursery.cancel_scope.cancel()


async def test_cluster_that_restarts_remembers_everything_once_and_in_order(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery, observers=1, settings=HASTE)
        await cluster.start()
        await cluster.commit("one")
        await cluster.commit("two")
        await cluster.all_know("one", "two")
        epoch = (await cluster.leader()).quorum.epoch
        await cluster.restart(*cluster.nodes)
        await cluster.commit("three")
        await cluster.all_know("one", "two", "three")
        assert (await cluster.leader()).quorum.epoch > epoch, "no epoch is led twice"
        nursery.cancel_scope.cancel()


async def test_leader_without_a_majority_resigns_and_its_waiters_are_told(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery, settings=HASTE)
        await cluster.start()
        await cluster.commit("kept")
        leader = await cluster.leader()
        epoch = leader.quorum.epoch
        cluster.kill(*(node.node_id for node in cluster.running() if node is not leader))
        offset = leader.quorum.append([(TopicRecord(name="lost"), 0)])
        with pytest.raises(NotLeader), trio.fail_after(5):
            await leader.quorum.wait_committed(offset, epoch)
        assert leader.terms[-1] == (False, epoch)
        with pytest.raises(NotLeader):
            leader.quorum.append([(TopicRecord(name="refused"), 0)])
        nursery.cancel_scope.cancel()


async def test_resigning_leader_is_followed_by_another_without_a_time_out(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery)  # With Kafka's own time-outs: 2 s until followers would notice.
        await cluster.start()
        await cluster.commit("kept")
        old = await cluster.leader()
        began = trio.current_time()
        await old.quorum.resign()
        assert (await cluster.leader()) is not old
        assert trio.current_time() - began < 1.0
        await cluster.commit("after")
        nursery.cancel_scope.cancel()


async def test_node_that_left_touches_its_files_no_more(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery, settings=HASTE)
        await cluster.start()
        await cluster.commit("kept")
        left = await cluster.leader()
        await left.quorum.leave()
        end = left.log.log_end_offset
        left.log.close(0)
        await cluster.until(lambda: any(n.quorum.is_leader for n in cluster.running() if n is not left))
        await cluster.commit("after")
        assert left.log.log_end_offset == end
        nursery.cancel_scope.cancel()


async def test_vote_is_on_disk_when_it_is_answered(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery)
        await cluster.start(3)
        part = VoteRequestPartitionData(replica_epoch=7, replica_id=2)
        answer = await cluster.nodes[3].quorum.requests.vote(
            VoteRequest(topics=[VoteRequestTopicData("__cluster_metadata", [part])])
        )
        assert answer.topics[0].partitions[0].vote_granted
        state = QuorumState.from_json((Path(cluster.nodes[3].directory) / "quorum-state").read_text())
        assert state == QuorumState(epoch=7, voted_id=2)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (VoteRequest("another-cluster"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (VoteRequest(topics=[]), ErrorCode.INVALID_REQUEST),
        (VoteRequest(voter_id=2), ErrorCode.INVALID_VOTER_KEY),
        (VoteRequest(topics=[VoteRequestTopicData("orders", [VoteRequestPartitionData()])]), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_request_that_is_not_for_this_quorum_is_refused(
    tmp_path: Path, request_: VoteRequest, error: ErrorCode
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery)
        await cluster.start(1)
        assert (await cluster.nodes[1].quorum.requests.vote(request_)).error_code == error
        nursery.cancel_scope.cancel()


async def test_node_of_another_cluster_gets_no_vote(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery, voters=2)
        cluster.nodes[2].cluster_id = "another-cluster"
        await cluster.start()
        with trio.move_on_after(1.0):
            await cluster.until(lambda: any(node.quorum.epoch for node in cluster.running()))
        assert [node.quorum.epoch for node in cluster.running()] == [0, 0]
        nursery.cancel_scope.cancel()


async def test_leader_describes_the_quorum(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Ensemble(tmp_path, nursery, observers=1)
        await cluster.start()
        offset = await cluster.commit("topic")
        await cluster.all_know("topic")
        leader = await cluster.leader()

        def described() -> bool:
            found = leader.quorum._raft.leadership
            assert found is not None
            return {r.end_offset for r in (*found.voters.values(), *found.observers.values())} == {offset + 1}

        await cluster.until(described)
        part_asked = describe_quorum.DescribeQuorumRequestPartitionData(0)
        asked = describe_quorum.DescribeQuorumRequestTopicData("__cluster_metadata", [part_asked])
        answer = await leader.quorum.describe_quorum(describe_quorum.DescribeQuorumRequest([asked]))
        assert [node.node_id for node in answer.nodes] == [1, 2, 3]
        part = answer.topics[0].partitions[0]
        assert (part.leader_id, part.high_watermark) == (leader.node_id, offset + 1)
        assert sorted(state.replica_id for state in part.current_voters) == [1, 2, 3]
        assert [state.replica_id for state in part.observers] == [4]
        assert {state.log_end_offset for state in (*part.current_voters, *part.observers)} == {offset + 1}
        [own] = [state for state in part.current_voters if state.replica_id == leader.node_id]
        assert 0 < own.last_fetch_timestamp == own.last_caught_up_timestamp
        assert all(answer.encode(version) for version in range(3)), "older versions have no nodes"
        other = await leader.quorum.describe_quorum(describe_quorum.DescribeQuorumRequest())
        assert (other.error_code, other.topics) == (ErrorCode.NONE, [])
        nursery.cancel_scope.cancel()
