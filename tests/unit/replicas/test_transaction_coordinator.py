"""The hosted coordinator: answers wait for the high watermark, leadership decides, markers are written until done."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from broker.coordinators.transactions.values import (
    AddPartitions,
    Answer,
    Describe,
    EndTransaction,
    InitProducer,
    Request,
    State,
)
from broker.protocol.errors import ErrorCode
from broker.replicas.coordinators import transaction_coordinator
from broker.replicas.coordinators.transaction_coordinator import TOPIC
from tests.support.brokers.coordinators import TransactionBroker
from tests.support.brokers.in_memory import produced

Clock = trio.testing.MockClock
PID = 10
T0, T1 = ("t", 0), ("t", 1)
INIT = InitProducer("x", 60_000)
ADD = AddPartitions("x", PID, 0, (T0, T1))
COMMIT = EndTransaction("x", PID, 0, True)
ABORT = EndTransaction("x", PID, 0, False)


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
async def room(nursery: trio.Nursery) -> TransactionBroker:
    """A broker that leads the coordinator's log in epoch 5, and whose peers 1 and 2 lead t-0 and t-1."""
    room = TransactionBroker(nursery)
    room.give("t", leader=2, index=0)
    room.give("t", leader=3, index=1)
    await room.lead()
    return room


# ------------------------------------------------------------------------------------------------------------ answers


async def test_an_answer_leaves_once_its_record_is_below_the_high_watermark(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    answers = room.submit(INIT)
    await settle()
    assert room.states() == ["EMPTY"]
    assert not answers
    room.follower_has(2, 1, name=TOPIC)
    assert not answers, "broker 3 is in sync and has not got it"
    room.follower_has(3, 1, name=TOPIC)
    assert answers == [Answer(producer_id=PID, epoch=0)]


async def test_what_is_said_of_an_id_waits_for_the_record_it_rests_on(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    await room.do(INIT)
    first = room.submit(ADD)
    refused = room.submit(EndTransaction("x", PID, 9, True))
    described = room.submit(Describe("x"))
    other = room.submit(Describe("y"))
    assert other[0].error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert not first + refused + described
    room.replicate()
    assert [a[0].error for a in (first, refused, described)] == [0, ErrorCode.PRODUCER_FENCED, 0]
    assert described[0].transaction is not None
    assert described[0].transaction.state == State.ONGOING


async def test_below_min_isr_nothing_is_written_and_nothing_changes(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    room = TransactionBroker(nursery, min_insync_replicas="3")
    await room.lead()
    await room.do(INIT)
    room.give(TOPIC, isr=(1,), partition_epoch=99)
    assert (await room.do(ADD)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (room.now().state, len(room.written())) == (State.EMPTY, 1)


async def test_requests_of_one_id_take_effect_in_their_order_also_while_it_waits_for_a_producer_id(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    given: list[tuple[str, Answer]] = []
    for name, request in (("init", INIT), ("again", INIT), ("fenced", ADD)):
        room.coordinator.submit(request, lambda answer, name=name: given.append((name, answer)))  # type: ignore[misc]
    await settle()
    room.replicate()
    assert [(name, int(a.error), a.epoch) for name, a in given] == [
        ("init", 0, 0),
        ("again", 0, 1),
        ("fenced", int(ErrorCode.PRODUCER_FENCED), -1),
    ]


async def test_without_producer_ids_a_new_producer_is_sent_back(room: TransactionBroker, autojump_clock: Clock) -> None:
    room.blocks.silent = True
    assert (await room.do(INIT)).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    room.blocks.silent = False
    assert (await room.do(INIT)).error == ErrorCode.NONE


# --------------------------------------------------------------------------------------------------------- leadership


async def test_only_the_leader_of_the_ids_partition_coordinates_it(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    room.give(TOPIC, leader=2, epoch=6, partition_epoch=60)
    assert room.submit(INIT) == [Answer(ErrorCode.NOT_COORDINATOR)]


async def test_a_lost_leadership_is_told_to_everybody_who_waits(room: TransactionBroker, autojump_clock: Clock) -> None:
    await room.do(INIT)
    waits = [room.submit(ADD), room.submit(Describe("x")), room.submit(InitProducer("new", 1))]
    room.give(TOPIC, leader=2, epoch=6, partition_epoch=60)
    await settle()
    assert [a[0].error for a in waits] == [ErrorCode.NOT_COORDINATOR] * 3
    assert room.coordinator.inspect() == {}


async def test_a_new_epoch_loads_the_log_again_and_serves_once_all_of_it_is_committed(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    await room.do(INIT)
    lost = room.submit(ADD)
    room.give(TOPIC, epoch=6, partition_epoch=60)
    assert lost == [Answer(ErrorCode.NOT_COORDINATOR)], "it is in the log all the same"
    await settle()
    assert room.submit(Describe("x")) == [Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    room.replicate(6)
    await settle()
    [described] = room.submit(Describe("x"))
    assert described.transaction is not None
    assert described.transaction.state == State.ONGOING
    assert room.coordinator.inspect()[0].log.epoch == 6


async def test_clients_read_the_log_and_do_not_write_it(room: TransactionBroker, autojump_clock: Clock) -> None:
    conn = room.client()
    room.produce(conn, (TOPIC, 0, room.batch(key=b"\0\0\0\1x")))
    assert [p.error_code for p in produced(conn)] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert room.log.log.log_end_offset == 0


async def test_a_shard_equals_its_log(room: TransactionBroker, autojump_clock: Clock) -> None:
    for request in (INIT, ADD, COMMIT, InitProducer("y", 5)):
        await room.do(request)
    await trio.sleep(0.2)
    room.replicate()
    last = {w.transactional_id: w.transaction for w in room.written()}
    assert room.coordinator.inspect()[0].machine.inspect() == last


# ------------------------------------------------------------------------------------------------------------ markers


async def test_markers_go_to_the_leaders_once_the_decision_is_committed(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    await room.do(INIT)
    await room.do(ADD)
    answers = room.submit(COMMIT)
    await settle()
    assert not room.peers.asked
    room.replicate()
    await settle()
    assert answers == [Answer()]
    assert sorted(room.peers.written()) == [(2, "t", 0, 0, True, 5), (3, "t", 1, 0, True, 5)]
    assert room.states() == ["EMPTY", "ONGOING", "PREPARE_COMMIT", "COMPLETE_COMMIT"]


@pytest.mark.parametrize(
    "error",
    [
        None,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_a_marker_is_sent_until_it_is_written_and_the_others_only_once(
    room: TransactionBroker, error: ErrorCode | None, autojump_clock: Clock
) -> None:
    room.peers.errors[T1] = [error, error]
    await room.do(INIT)
    await room.do(ADD)
    await room.do(ABORT)
    await settle()
    assert "COMPLETE_ABORT" not in room.states()
    await trio.sleep(1)
    assert sorted(room.peers.written()) == [(2, "t", 0, 0, False, 5), *[(3, "t", 1, 0, False, 5)] * 3]
    assert room.states()[-1] == "COMPLETE_ABORT"


async def test_a_new_leader_is_asked_at_once_although_the_old_one_owes_an_answer(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    await room.do(INIT)
    await room.do(AddPartitions("x", PID, 0, (T1,)))
    room.peers.held = trio.Event()
    await room.do(COMMIT)
    await settle()
    room.give("t", leader=2, index=1, epoch=6, partition_epoch=60)
    room.sender.look()
    await settle()
    assert [asked[0] for asked in room.peers.written()] == [3, 2]
    room.peers.held.set()
    await settle()
    assert room.states()[-1] == "COMPLETE_COMMIT"
    assert not room.sender.inspect()


async def test_a_partition_without_a_leader_is_waited_for_and_a_deleted_one_is_not(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    await room.do(INIT)
    await room.do(AddPartitions("x", PID, 0, (T1,)))
    room.give("t", leader=-1, index=1, epoch=6, partition_epoch=60)
    await room.do(COMMIT)
    await trio.sleep(1)
    assert not room.peers.asked
    room.remove("t")
    room.sender.look()
    await settle()
    assert not room.peers.asked
    assert room.states()[-1] == "COMPLETE_COMMIT"


async def test_each_broker_gets_one_request_at_a_time_with_all_it_owes(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    room.peers.held = trio.Event()
    producers = {}
    for name in ("x", "y", "z"):
        producers[name] = (await room.do(InitProducer(name, 5))).producer_id
        await room.do(AddPartitions(name, producers[name], 0, (T0,)))
    for name, producer_id in producers.items():
        await room.do(EndTransaction(name, producer_id, 0, True))
        await settle()
    assert [len(request.markers) for _, request in room.peers.asked] == [1]
    room.peers.held.set()
    await settle()
    assert [len(request.markers) for _, request in room.peers.asked] == [1, 2]
    room.replicate()
    assert [room.now(name).state for name in producers] == [State.COMPLETE_COMMIT] * 3


async def test_the_next_coordinator_completes_what_the_one_before_has_decided(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    await room.do(INIT)
    await room.do(ADD)
    room.peers.held = trio.Event()
    await room.do(COMMIT)
    await settle()
    await room.lead(7)
    assert {asked[-1] for asked in room.peers.written()} == {5}, "both brokers still owe an answer"
    room.peers.held.set()
    await trio.sleep(1)
    room.replicate(7)
    assert sorted(room.peers.written())[-1] == (3, "t", 1, 0, True, 7), "in the new coordinator's epoch"
    assert room.states().count("COMPLETE_COMMIT") == 1


@pytest.mark.parametrize("error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_fenced_coordinator_sends_its_markers_no_more(
    room: TransactionBroker, error: ErrorCode, autojump_clock: Clock
) -> None:
    room.peers.errors[T0] = [error]
    await room.do(INIT)
    await room.do(ADD)
    await room.do(COMMIT)
    await trio.sleep(1)
    assert len(room.peers.written()) == 2
    assert room.states()[-1] == "PREPARE_COMMIT"


async def test_completion_is_tried_again_where_too_few_replicas_are_in_sync(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    room = TransactionBroker(nursery, min_insync_replicas="2")
    room.give("t", leader=2)
    await room.lead()
    await room.do(INIT)
    await room.do(AddPartitions("x", PID, 0, (T0,)))
    room.peers.held = trio.Event()
    await room.do(COMMIT)
    room.give(TOPIC, isr=(1,), partition_epoch=98)
    room.peers.held.set()
    await trio.sleep(0.5)
    assert room.states()[-1] == "PREPARE_COMMIT"
    room.give(TOPIC, isr=(1, 2, 3), partition_epoch=99)
    await trio.sleep(0.5)
    assert room.states()[-1] == "COMPLETE_COMMIT"


# ------------------------------------------------------------------------------------------- one after the other, time


@pytest.mark.parametrize("early", [AddPartitions("x", PID, 0, (T1,)), INIT])
async def test_the_next_transaction_waits_for_the_markers_of_the_one_before(
    room: TransactionBroker, early: Request, autojump_clock: Clock
) -> None:
    await room.do(INIT)
    await room.do(ADD)
    room.peers.held = trio.Event()
    await room.do(COMMIT)
    answers = room.submit(early)
    ended = room.submit(COMMIT)
    await settle()
    room.peers.held.set()
    await settle()
    room.replicate()
    assert answers[0].error == ErrorCode.NONE
    expected = "PREPARE_COMMIT" if isinstance(early, AddPartitions) else "EMPTY"
    assert room.states()[4:][: 2 if expected == "PREPARE_COMMIT" else 1][-1] == expected
    assert ended[0].error == (ErrorCode.NONE if isinstance(early, AddPartitions) else ErrorCode.PRODUCER_FENCED)


async def test_who_waits_too_long_for_markers_is_sent_back(room: TransactionBroker, autojump_clock: Clock) -> None:
    await room.do(INIT)
    await room.do(ADD)
    room.peers.held = trio.Event()
    await room.do(COMMIT)
    first, second = room.submit(ADD), room.submit(COMMIT)
    await trio.sleep(0.2)
    assert [a[0].error for a in (first, second)] == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2


async def test_what_is_open_too_long_is_aborted_and_its_producer_fenced(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    await room.do(replace(INIT, timeout_ms=5000))
    await room.do(ADD)
    room.env.now_ms += 5001
    await trio.sleep(10.1)
    room.replicate()
    await settle()
    assert room.states()[2:] == ["PREPARE_ABORT", "COMPLETE_ABORT"]
    assert {written[3:5] for written in room.peers.written()} == {(1, False)}
    room.replicate()
    assert (await room.do(COMMIT)).error == ErrorCode.PRODUCER_FENCED


async def test_a_transaction_that_is_as_large_as_the_log_takes_can_be_ended(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    """The record of the abort has the generation of the cluster's clients, and was four bytes larger: it was refused
    again and again, and nobody could read its partitions' committed records any more.
    """
    room = TransactionBroker(nursery, message_max_bytes="350")
    await room.lead()
    errors = []
    for length in range(150, 249):
        name, topic = f"x{length}", "t" * length
        found = await room.do(InitProducer(name, 5000))
        asked = AddPartitions(name, found.producer_id, found.epoch, ((topic, 0),), client_version=0)
        errors.append((await room.do(asked)).error)
    assert set(errors) == {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}
    room.env.now_ms += 5001
    for _ in range(3):
        await trio.sleep(10.1)
        room.replicate()
        await settle()
    states = {one.state for one in room.coordinator.shards[0].machine.transactions.values()}
    assert states == {State.COMPLETE_ABORT, State.EMPTY}


async def test_many_that_are_open_too_long_are_aborted_in_turns(
    room: TransactionBroker, monkeypatch: pytest.MonkeyPatch, autojump_clock: Clock
) -> None:
    """Tens of thousands at once kept the broker from all else for seconds."""
    monkeypatch.setattr(transaction_coordinator, "DUE_IN_A_TURN", 2)
    for n in range(5):
        found = await room.do(InitProducer(f"x{n}", 5000))
        await room.do(AddPartitions(f"x{n}", found.producer_id, found.epoch, (T0,)))
    room.env.now_ms += 5001
    aborted, sleep = [], room.env.sleep

    async def looked(seconds: float) -> None:
        found = room.coordinator.shards[0].machine.transactions.values()
        aborted.append(sum(one.state == State.PREPARE_ABORT for one in found))
        await sleep(seconds)

    monkeypatch.setattr(room.env, "sleep", looked)
    await trio.sleep(10.1)
    assert aborted == [2, 4, 5]


async def test_an_id_that_nobody_uses_is_forgotten(room: TransactionBroker, autojump_clock: Clock) -> None:
    await room.do(INIT)
    room.env.now_ms += room.config.transactional_id_expiration_ms
    await trio.sleep(3601)
    assert room.written()[-1].transaction is None
    answers = room.submit(Describe("x"))
    assert not answers, "that it is gone is not committed"
    room.replicate()
    assert answers[0].error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_markers_of_many_partitions_are_asked_for_in_bounded_requests(
    room: TransactionBroker, autojump_clock: Clock
) -> None:
    for index in range(2, 1101):
        room.give("t", leader=2, index=index)
    await room.do(INIT)
    await room.do(AddPartitions("x", PID, 0, tuple(("t", index) for index in range(1101))))
    await room.do(COMMIT)
    await settle()
    sizes = [(node, len(request.markers[0].topics[0].partition_indexes)) for node, request in room.peers.asked]
    assert sorted(sizes) == [(2, 100), (2, 500), (2, 500), (3, 1)]
    assert len(set(room.peers.written())) == 1101
    room.replicate()
    await settle()
    assert room.states()[-1] == "COMPLETE_COMMIT"


async def test_bounded_requests_serve_all_transactions(room: TransactionBroker, autojump_clock: Clock) -> None:
    for index in range(2, 701):
        room.give("t", leader=2, index=index)
    room.peers.held = trio.Event()
    for n, name in enumerate(("x", "y")):
        answer = await room.do(InitProducer(name, 60_000))
        places = tuple(("t", index) for index in range(2, 701) if index % 2 == n)
        await room.do(AddPartitions(name, answer.producer_id, 0, places))
        await room.do(EndTransaction(name, answer.producer_id, 0, True))
        await settle()
    room.peers.held.set()
    await settle()
    room.replicate()
    await settle()
    assert len(room.peers.written()) == 699
    assert (room.states("x")[-1], room.states("y")[-1]) == ("COMPLETE_COMMIT", "COMPLETE_COMMIT")
