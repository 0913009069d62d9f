"""The hosted group coordinator: answers wait for the high watermark, leadership decides, a shard is its log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.cluster.image import GROUP_RESOURCE
from squall.broker.coordinators.groups.consumer.members import ConsumerHeartbeat
from squall.broker.coordinators.groups.values import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    GroupResponse,
    OffsetAndMetadata,
    SyncGroup,
)
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.wire import LONGEST_STRING
from squall.broker.replicas.coordinators import group_coordinator
from squall.broker.replicas.coordinators.coordinator_log import error_for_clients
from squall.broker.replicas.coordinators.group_coordinator import TOPIC
from tests.support.brokers.coordinators import FETCH, JOIN, PID, T0, GroupBroker, commit, in_transaction, told
from tests.support.brokers.in_memory import answers as answered
from tests.support.brokers.in_memory import marked, produced

Clock = trio.testing.MockClock


@pytest.fixture
async def broker(nursery: trio.Nursery) -> GroupBroker:
    """A broker that leads the log of groups in epoch 5."""
    broker = GroupBroker(nursery)
    await broker.lead()
    return broker


async def test_a_commit_is_answered_once_it_is_below_the_high_watermark(broker: GroupBroker) -> None:
    answers = broker.submit(commit(5))
    fetched = broker.submit(FETCH)
    broker.follower_has(2, 1, name=TOPIC)
    assert not answers + fetched, "broker 3 is in sync and has not got it"
    broker.follower_has(3, 1, name=TOPIC)
    assert answers == [GroupResponse()]
    assert told(fetched) == [5]


async def test_below_min_isr_nothing_is_committed(nursery: trio.Nursery) -> None:
    broker = GroupBroker(nursery, min_insync_replicas="3")
    await broker.lead()
    broker.give(TOPIC, isr=(1,), partition_epoch=99)
    assert broker.submit(commit(5)) == [GroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert told(broker.submit(FETCH)) == [None]


@pytest.mark.parametrize(
    ("of_the_log", "told_to_clients"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_clients_are_told_of_the_logs_errors_as_kafka_4_does(of_the_log: ErrorCode, told_to_clients: ErrorCode) -> None:
    assert error_for_clients(of_the_log) == told_to_clients


async def test_a_commit_that_is_larger_than_a_batch_may_be_is_refused_and_the_next_one_is_not(
    broker: GroupBroker,
) -> None:
    """Kafka 4 says UNKNOWN_SERVER_ERROR here; INVALID_COMMIT_OFFSET_SIZE is of the coordinators up to 3.x."""
    large = tuple((("t", n), OffsetAndMetadata(5, metadata="m" * 4000)) for n in range(900))
    assert broker.submit(replace(commit(5), offsets=large)) == [GroupResponse(ErrorCode.UNKNOWN_SERVER_ERROR)]
    reason = {"partition": 0, "why": "UNKNOWN_SERVER_ERROR", "group": "g", "records": 900}
    assert [said for event, said in broker.env.traces if event == "group_not_written"] == [reason]
    assert broker.do(commit(6)) == GroupResponse()


async def test_a_member_whose_id_the_log_has_no_place_for_gets_an_error_and_nobody_else_does(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    broker = GroupBroker(nursery)
    await broker.lead()
    instance = "i" * LONGEST_STRING  # itself it would fit
    [joined] = broker.submit(replace(JOIN, instance_id=instance, fresh_id=f"{instance}-1"))
    assert joined.error == ErrorCode.NONE
    [synced] = broker.submit(SyncGroup("g", joined.generation, joined.member_id, instance))
    assert synced.error == ErrorCode.UNKNOWN_SERVER_ERROR
    broker.env.now_ms += JOIN.rebalance_ms  # no member is left, which is written
    await trio.sleep(1.5 * JOIN.rebalance_ms / 1000)
    assert not broker.coordinator.shards[0].machine.groups["g"].members
    assert broker.do(commit(5)) == GroupResponse()


async def test_only_the_leader_of_the_groups_partition_coordinates_it(broker: GroupBroker) -> None:
    broker.give(TOPIC, leader=2, epoch=6, partition_epoch=60)
    assert broker.submit(FETCH) == [GroupResponse(ErrorCode.NOT_COORDINATOR)]


async def test_a_lost_leadership_is_told_to_everybody_who_waits(broker: GroupBroker) -> None:
    joined = broker.do(JOIN)
    assert (joined.error, joined.generation) == (ErrorCode.NONE, 1)
    waits = [
        broker.submit(SyncGroup("g", 1, joined.member_id, assignments=((joined.member_id, b"all"),))),
        broker.submit(commit(5)),
        broker.submit(FETCH),
    ]
    # Its members commit in their generation: this is no member's, and was refused at once.
    assert waits[1] == [GroupResponse(ErrorCode.UNKNOWN_MEMBER_ID)]
    broker.give(TOPIC, leader=2, epoch=6, partition_epoch=60)
    assert [a[0].error for a in (waits[0], waits[2])] == [ErrorCode.NOT_COORDINATOR] * 2
    assert broker.coordinator.inspect() == {}


async def test_a_new_epoch_loads_the_log_again_and_serves_once_all_of_it_is_committed(broker: GroupBroker) -> None:
    broker.do(commit(5))
    lost = broker.submit(commit(6))
    broker.give(TOPIC, epoch=6, partition_epoch=60)
    assert lost == [GroupResponse(ErrorCode.NOT_COORDINATOR)], "it is in the log all the same"
    await trio.testing.wait_all_tasks_blocked()
    assert broker.submit(FETCH) == [GroupResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    broker.replicate(6)
    await trio.testing.wait_all_tasks_blocked()
    assert told(broker.submit(FETCH)) == [6]
    assert broker.coordinator.inspect()[0].log.epoch == 6


async def test_the_next_epoch_goes_on_with_the_generation(broker: GroupBroker) -> None:
    joined = broker.do(JOIN)
    synced = broker.do(SyncGroup("g", 1, joined.member_id, assignments=((joined.member_id, b"all"),)))
    assert synced.assignment == b"all"
    await broker.lead(6)
    assert broker.do(SyncGroup("g", 1, joined.member_id)).assignment == b"all"
    assert broker.coordinator.inspect()[0].machine.ledger.inspect() == broker.replayed().inspect()


async def test_clients_read_the_log_and_do_not_write_it(broker: GroupBroker) -> None:
    conn = broker.client()
    broker.produce(conn, (TOPIC, 0, broker.batch(key=b"\0\1")))
    assert [p.error_code for p in produced(conn)] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert broker.log.log.log_end_offset == 0


# ------------------------------------------------------------------------------------------------------- transactions


@pytest.mark.parametrize("committed", [True, False])
async def test_offsets_count_from_the_marker_on_which_is_answered_after_that(
    broker: GroupBroker, committed: bool
) -> None:
    broker.do(commit(5))
    assert broker.do(in_transaction(9)) == GroupResponse()
    assert told(broker.submit(FETCH)) == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    conn = broker.client()
    broker.end(conn, PID, 0, (TOPIC, 0), commit=committed)
    fetched = broker.submit(FETCH)
    assert not answered(conn)
    assert not fetched, "what it says rests on the marker"
    broker.replicate()
    assert marked(conn) == [ErrorCode.NONE]
    assert told(fetched) == [9 if committed else 5]
    assert broker.coordinator.inspect()[0].machine.ledger.inspect() == broker.replayed().inspect()


async def test_what_rests_on_a_marker_waits_for_it_also_where_another_group_has_written_behind_it(
    broker: GroupBroker,
) -> None:
    broker.do(in_transaction(9))
    broker.end(broker.client(), PID, 0, (TOPIC, 0), commit=True)
    others = broker.submit(CommitOffsets("other", -1, "", None, ((T0, OffsetAndMetadata(3)),)))
    fetched = broker.submit(FETCH)
    assert not fetched
    assert not others
    broker.replicate()
    assert told(fetched) == [9]
    assert others == [GroupResponse()]


@pytest.mark.parametrize("ended", [None, True, False])
async def test_the_next_coordinator_knows_what_is_pending(broker: GroupBroker, ended: bool | None) -> None:
    broker.do(commit(5))
    broker.do(in_transaction(9))
    if ended is not None:
        broker.end(broker.client(), PID, 0, (TOPIC, 0), commit=ended)
    await broker.lead(6)
    wanted = {None: ErrorCode.UNSTABLE_OFFSET_COMMIT, True: 9, False: 5}
    assert told(broker.submit(FETCH)) == [wanted[ended]]


@pytest.mark.parametrize("is_read", [False, True])
async def test_a_marker_that_comes_while_the_log_is_loaded_is_not_missed(broker: GroupBroker, is_read: bool) -> None:
    broker.submit(in_transaction(9))
    broker.give(TOPIC, epoch=6, partition_epoch=60)
    if is_read:
        await trio.testing.wait_all_tasks_blocked()
    broker.end(broker.client(), PID, 0, (TOPIC, 0), commit=True)
    broker.replicate(6)
    await trio.testing.wait_all_tasks_blocked()
    broker.replicate(6)
    assert told(broker.submit(FETCH)) == [9]


async def test_a_transaction_may_commit_offsets_again_and_the_next_one_too(broker: GroupBroker) -> None:
    for first in (9, 11):
        assert broker.do(in_transaction(first)) == GroupResponse()
        assert broker.do(in_transaction(first + 1)) == GroupResponse()
        broker.end(broker.client(), PID, 0, (TOPIC, 0), commit=True)
        assert told([broker.do(FETCH)]) == [first + 1]


async def test_a_producer_that_was_fenced_commits_nothing(broker: GroupBroker) -> None:
    broker.end(broker.client(), PID, 3, (TOPIC, 0), commit=False)
    broker.replicate()
    assert broker.do(in_transaction(9)).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert told(broker.submit(FETCH)) == [None]


async def test_a_transaction_of_which_its_coordinator_has_not_heard_commits_nothing(nursery: trio.Nursery) -> None:
    broker = GroupBroker(nursery, transaction_partition_verification_enable="true")
    await broker.lead()
    assert broker.do(in_transaction(9)).error == ErrorCode.INVALID_TXN_STATE
    question = broker.coordinator.verification_needed("g", PID, 0, raises_epoch=False)
    assert question is not None
    question.agreed = True
    assert broker.do(in_transaction(9)) == GroupResponse()
    assert broker.coordinator.verification_needed("g", PID, 0, raises_epoch=False) is None, "it is open here"


async def test_what_a_transactions_coordinator_said_before_a_marker_is_of_no_use_after_it(
    nursery: trio.Nursery,
) -> None:
    broker = GroupBroker(nursery, transaction_partition_verification_enable="true")
    await broker.lead()
    question = broker.coordinator.verification_needed("g", PID, 0, raises_epoch=False)
    assert question is not None
    broker.end(broker.client(), PID, 0, (TOPIC, 0), commit=False)
    question.agreed = True
    assert broker.do(in_transaction(9)).error == ErrorCode.INVALID_TXN_STATE


async def test_a_groups_own_session_is_what_the_image_says_within_what_the_broker_permits(
    autojump_clock: Clock,
) -> None:
    async with trio.open_nursery() as nursery:
        broker = GroupBroker(nursery)
        session_of = broker.coordinator._settings.own_session_ms
        assert session_of("g") is None
        broker.alter(GROUP_RESOURCE, "g", consumer_session_timeout_ms="50000")
        assert session_of("g") == 50_000
        assert session_of("h") is None
        broker.alter(GROUP_RESOURCE, "g", consumer_session_timeout_ms="70000")
        assert session_of("g") == 60_000
        nursery.cancel_scope.cancel()


async def test_a_group_of_more_offsets_than_a_batch_has_room_for_can_be_deleted(broker: GroupBroker) -> None:
    """Each tombstone has the group's name, of up to 32 KB: such a group could not be deleted."""
    name = "g" * 32_000
    for n in range(2):
        offsets = tuple((("t", 20 * n + m), OffsetAndMetadata(5)) for m in range(20))
        assert broker.do(replace(commit(5), group_id=name, offsets=offsets)) == GroupResponse()
    assert broker.do(DeleteOffsets(name, tuple(("t", n) for n in range(39)))).error == ErrorCode.NONE
    assert list(broker.replayed().offsets[name]) == [("t", 39)]
    for n in range(2):
        offsets = tuple((("t", 20 * n + m), OffsetAndMetadata(5)) for m in range(20))
        assert broker.do(replace(commit(5), group_id=name, offsets=offsets)) == GroupResponse()
    assert broker.do(DeleteGroup(name)) == GroupResponse()
    assert broker.replayed().offsets == broker.coordinator.shards[0].machine.ledger.offsets == {}


def consumer_beat(member_id: str, epoch: int = 0, **also: Any) -> ConsumerHeartbeat:
    given = {"rebalance_ms": 30_000, "topics": ("t",), "owned": ()} if epoch == 0 else {}
    return ConsumerHeartbeat("g", member_id, epoch, **{**given, **also})


async def test_targets_of_members_under_long_ids_are_written_in_several_batches(broker: GroupBroker) -> None:
    """Check a group in which forty members have ids of 32 KB: a member that joined it got UNKNOWN_SERVER_ERROR for
    ever.
    """
    for index in range(90):
        broker.give("t", leader=2, index=index)
    for n in range(40):
        assert broker.do(consumer_beat(f"{n:03}" + "m" * 32_000)).error == ErrorCode.NONE
    assert broker.do(consumer_beat("honest")).error == ErrorCode.NONE
    ledger = broker.coordinator.shards[0].machine.ledger
    assert len(ledger.consumers["g"].target["honest"]) == 2
    for index in range(90, 180):
        broker.give("t", leader=2, index=index)  # everybody gets more
    assert broker.do(consumer_beat("honest", ledger.consumers["g"].now_of("honest").epoch)).error == ErrorCode.NONE
    assert len(ledger.consumers["g"].target["honest"]) == 4
    assert broker.replayed().inspect_consumers() == ledger.inspect_consumers()


async def test_offsets_of_many_groups_expire_in_turns(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    """Tens of thousands at once kept the broker from all else for seconds."""
    monkeypatch.setattr(group_coordinator, "EXPIRED_IN_A_TURN", 2 * (1 + group_coordinator.TOMBSTONE_COST))
    broker = GroupBroker(nursery, offsets_retention_minutes="1")
    await broker.lead()
    for n in range(9):
        assert broker.do(replace(commit(5), group_id=f"g{n}")) == GroupResponse()
    broker.env.now_ms += 60_001
    left, known, sleep = [], broker.coordinator.shards[0].machine.ledger.offsets, broker.env.sleep

    async def looked(seconds: float) -> None:
        left.append(len(known))
        await sleep(seconds)

    monkeypatch.setattr(broker.env, "sleep", looked)
    await trio.sleep(601)
    assert left == [7, 5, 3, 1]
    broker.replicate()
    assert broker.replayed().offsets == known == {}


async def settled(broker: GroupBroker) -> None:
    """All that tasks have to do is done, and replicated."""
    await trio.testing.wait_all_tasks_blocked()
    broker.replicate()


def make_again(broker: GroupBroker, name: str = "t") -> None:
    """A topic is deleted, and there is another one of its name."""
    broker.remove(name)
    broker.give(name, leader=2, topic_id=b"n" * 16)


@pytest.mark.parametrize("pending", [False, True])
async def test_committed_offsets_go_with_their_topic(broker: GroupBroker, pending: bool) -> None:
    """A group that had read a topic skipped the first records of the next one of its name."""
    broker.do(in_transaction(20) if pending else commit(20))
    make_again(broker)
    await settled(broker)
    assert broker.replayed().inspect() == ({}, {}, {})
    broker.end(broker.client(), PID, 0, (TOPIC, 0), commit=True)
    broker.replicate()
    assert told([broker.do(FETCH)]) == [None]


async def test_a_coordinator_that_loads_the_offsets_of_a_topic_that_is_gone_forgets_them(broker: GroupBroker) -> None:
    """Kafka 4.3 serves them to requests by name: it looks at deleted topics only when the image changes."""
    broker.do(commit(20))
    broker.give(TOPIC, leader=2, epoch=6, partition_epoch=60)
    make_again(broker)
    await settled(broker)
    await broker.lead(7)
    assert told([broker.do(FETCH, epoch=7)]) == [None]
    assert broker.replayed().inspect() == ({}, {}, {})


async def test_offsets_of_a_deleted_topic_go_in_turns_and_none_is_told_meanwhile(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine groups, one a turn."""
    monkeypatch.setattr(group_coordinator, "EXPIRED_IN_A_TURN", 1)
    for n in range(9):
        broker.do(replace(commit(5), group_id=f"g{n}"))
    left, known, sleep = [], broker.coordinator.shards[0].machine.ledger.offsets, broker.env.sleep

    async def looked(seconds: float) -> None:
        left.append(len(known))
        assert told(broker.submit(replace(FETCH, group_id="g8", stable=False)))[:1] in ([], [None])
        await sleep(seconds)

    monkeypatch.setattr(broker.env, "sleep", looked)
    make_again(broker)
    await settled(broker)
    assert left == [8, 7, 6, 5, 4, 3, 2, 1, 0]
