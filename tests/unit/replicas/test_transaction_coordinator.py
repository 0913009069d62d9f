"""The hosted coordinator: answers wait for the high watermark, leadership decides, markers are written until done."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from squall.broker.coordinators.transactions.values import (
    V2,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    Request,
    TxnResponse,
    TxnState,
)
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators import marker_sender, transaction_coordinator
from squall.broker.replicas.coordinators.transaction_coordinator import TOPIC
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
async def broker(nursery: trio.Nursery) -> TransactionBroker:
    """A broker that leads the coordinator's log in epoch 5, and whose peers 1 and 2 lead t-0 and t-1."""
    broker = TransactionBroker(nursery)
    broker.give("t", leader=2, index=0)
    broker.give("t", leader=3, index=1)
    await broker.lead()
    return broker


# ------------------------------------------------------------------------------------------------------------ answers


async def test_an_answer_leaves_once_its_record_is_below_the_high_watermark(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    answers = broker.submit(INIT)
    await settle()
    assert broker.states() == ["EMPTY"]
    assert not answers
    broker.follower_has(2, 1, name=TOPIC)
    assert not answers, "broker 3 is in sync and has not got it"
    broker.follower_has(3, 1, name=TOPIC)
    assert answers == [TxnResponse(producer_id=PID, epoch=0)]


async def test_what_is_said_of_an_id_waits_for_the_record_it_rests_on(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    await broker.do(INIT)
    first = broker.submit(ADD)
    refused = broker.submit(EndTransaction("x", PID, 9, True))
    described = broker.submit(DescribeTransaction("x"))
    other = broker.submit(DescribeTransaction("y"))
    assert other[0].error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert not first + refused + described
    broker.replicate()
    assert [a[0].error for a in (first, refused, described)] == [0, ErrorCode.PRODUCER_FENCED, 0]
    assert described[0].transaction is not None
    assert described[0].transaction.state == TxnState.ONGOING


async def test_below_min_isr_nothing_is_written_and_nothing_changes(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    broker = TransactionBroker(nursery, min_insync_replicas="3")
    await broker.lead()
    await broker.do(INIT)
    broker.give(TOPIC, isr=(1,), partition_epoch=99)
    assert (await broker.do(ADD)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (broker.now().state, len(broker.written())) == (TxnState.EMPTY, 1)


async def test_requests_of_one_id_take_effect_in_their_order_also_while_it_waits_for_a_producer_id(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    given: list[tuple[str, TxnResponse]] = []
    for name, request in (("init", INIT), ("again", INIT), ("fenced", ADD)):
        broker.coordinator.submit(request, lambda answer, name=name: given.append((name, answer)))  # type: ignore[misc]
    await settle()
    broker.replicate()
    assert [(name, int(a.error), a.epoch) for name, a in given] == [
        ("init", 0, 0),
        ("again", 0, 1),
        ("fenced", int(ErrorCode.PRODUCER_FENCED), -1),
    ]


async def test_without_producer_ids_a_new_producer_is_sent_back(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    broker.blocks.fails = OSError("no controller")
    assert (await broker.do(INIT)).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.blocks.fails = None
    assert (await broker.do(INIT)).error == ErrorCode.NONE


# --------------------------------------------------------------------------------------------------------- leadership


async def test_only_the_leader_of_the_ids_partition_coordinates_it(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    broker.give(TOPIC, leader=2, epoch=6, partition_epoch=60)
    assert broker.submit(INIT) == [TxnResponse(ErrorCode.NOT_COORDINATOR)]


async def test_a_lost_leadership_is_told_to_everybody_who_waits(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    await broker.do(INIT)
    waits = [broker.submit(ADD), broker.submit(DescribeTransaction("x")), broker.submit(InitProducer("new", 1))]
    broker.give(TOPIC, leader=2, epoch=6, partition_epoch=60)
    await settle()
    assert [a[0].error for a in waits] == [ErrorCode.NOT_COORDINATOR] * 3
    assert broker.coordinator.inspect() == {}


async def test_a_new_epoch_loads_the_log_again_and_serves_once_all_of_it_is_committed(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    await broker.do(INIT)
    lost = broker.submit(ADD)
    broker.give(TOPIC, epoch=6, partition_epoch=60)
    assert lost == [TxnResponse(ErrorCode.NOT_COORDINATOR)], "it is in the log all the same"
    await settle()
    assert broker.submit(DescribeTransaction("x")) == [TxnResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    broker.replicate(6)
    await settle()
    [described] = broker.submit(DescribeTransaction("x"))
    assert described.transaction is not None
    assert described.transaction.state == TxnState.ONGOING
    assert broker.coordinator.inspect()[0].log.epoch == 6


async def test_clients_read_the_log_and_do_not_write_it(broker: TransactionBroker, autojump_clock: Clock) -> None:
    conn = broker.client()
    broker.produce(conn, (TOPIC, 0, broker.batch(key=b"\0\0\0\1x")))
    assert [p.error_code for p in produced(conn)] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert broker.log.log.log_end_offset == 0


async def test_a_shard_equals_its_log(broker: TransactionBroker, autojump_clock: Clock) -> None:
    for request in (INIT, ADD, COMMIT, InitProducer("y", 5)):
        await broker.do(request)
    await trio.sleep(0.2)
    broker.replicate()
    last = {w.transactional_id: w.transaction for w in broker.written()}
    assert broker.coordinator.inspect()[0].machine.inspect() == last


# ------------------------------------------------------------------------------------------------------------ markers


async def test_markers_go_to_the_leaders_once_the_decision_is_committed(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    await broker.do(INIT)
    await broker.do(ADD)
    answers = broker.submit(COMMIT)
    await settle()
    assert not broker.peers.asked
    broker.replicate()
    await settle()
    assert answers == [TxnResponse()]
    assert sorted(broker.peers.written()) == [(2, "t", 0, 0, True, 5), (3, "t", 1, 0, True, 5)]
    assert broker.states() == ["EMPTY", "ONGOING", "PREPARE_COMMIT", "COMPLETE_COMMIT"]


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
    broker: TransactionBroker, error: ErrorCode | None, autojump_clock: Clock
) -> None:
    broker.peers.errors[T1] = [error, error]
    await broker.do(INIT)
    await broker.do(ADD)
    await broker.do(ABORT)
    await settle()
    assert "COMPLETE_ABORT" not in broker.states()
    await trio.sleep(1)
    assert sorted(broker.peers.written()) == [(2, "t", 0, 0, False, 5), *[(3, "t", 1, 0, False, 5)] * 3]
    assert broker.states()[-1] == "COMPLETE_ABORT"


async def test_a_new_leader_is_asked_at_once_although_the_old_one_owes_an_answer(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    await broker.do(INIT)
    await broker.do(AddPartitions("x", PID, 0, (T1,)))
    broker.peers.held = trio.Event()
    await broker.do(COMMIT)
    await settle()
    broker.give("t", leader=2, index=1, epoch=6, partition_epoch=60)
    broker.sender.retry_all()
    await settle()
    assert [asked[0] for asked in broker.peers.written()] == [3, 2]
    broker.peers.held.set()
    await settle()
    assert broker.states()[-1] == "COMPLETE_COMMIT"
    assert not broker.sender.inspect()


async def test_a_partition_without_a_leader_is_waited_for_and_a_deleted_one_is_not(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    await broker.do(INIT)
    await broker.do(AddPartitions("x", PID, 0, (T1,)))
    broker.give("t", leader=-1, index=1, epoch=6, partition_epoch=60)
    await broker.do(COMMIT)
    await trio.sleep(1)
    assert not broker.peers.asked
    broker.remove("t")
    broker.sender.retry_all()
    await settle()
    assert not broker.peers.asked
    assert broker.states()[-1] == "COMPLETE_COMMIT"


async def test_each_broker_gets_one_request_at_a_time_with_all_it_owes(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    broker.peers.held = trio.Event()
    producers = {}
    for name in ("x", "y", "z"):
        producers[name] = (await broker.do(InitProducer(name, 5))).producer_id
        await broker.do(AddPartitions(name, producers[name], 0, (T0,)))
    for name, producer_id in producers.items():
        await broker.do(EndTransaction(name, producer_id, 0, True))
        await settle()
    assert [len(request.markers) for _, request in broker.peers.asked] == [1]
    broker.peers.held.set()
    await settle()
    assert [len(request.markers) for _, request in broker.peers.asked] == [1, 2]
    broker.replicate()
    assert [broker.now(name).state for name in producers] == [TxnState.COMPLETE_COMMIT] * 3


async def test_the_next_coordinator_completes_what_the_one_before_has_decided(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    await broker.do(INIT)
    await broker.do(ADD)
    broker.peers.held = trio.Event()
    await broker.do(COMMIT)
    await settle()
    await broker.lead(7)
    assert {asked[-1] for asked in broker.peers.written()} == {5}, "both brokers still owe an answer"
    broker.peers.held.set()
    await trio.sleep(1)
    broker.replicate(7)
    assert sorted(broker.peers.written())[-1] == (3, "t", 1, 0, True, 7), "in the new coordinator's epoch"
    assert broker.states().count("COMPLETE_COMMIT") == 1


@pytest.mark.parametrize("error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_fenced_coordinator_sends_its_markers_no_more(
    broker: TransactionBroker, error: ErrorCode, autojump_clock: Clock
) -> None:
    broker.peers.errors[T0] = [error]
    await broker.do(INIT)
    await broker.do(ADD)
    await broker.do(COMMIT)
    await trio.sleep(1)
    assert len(broker.peers.written()) == 2
    assert broker.states()[-1] == "PREPARE_COMMIT"


async def test_completion_is_tried_again_where_too_few_replicas_are_in_sync(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    broker = TransactionBroker(nursery, min_insync_replicas="2")
    broker.give("t", leader=2)
    await broker.lead()
    await broker.do(INIT)
    await broker.do(AddPartitions("x", PID, 0, (T0,)))
    broker.peers.held = trio.Event()
    await broker.do(COMMIT)
    broker.give(TOPIC, isr=(1,), partition_epoch=98)
    broker.peers.held.set()
    await trio.sleep(0.5)
    assert broker.states()[-1] == "PREPARE_COMMIT"
    broker.give(TOPIC, isr=(1, 2, 3), partition_epoch=99)
    await trio.sleep(0.5)
    assert broker.states()[-1] == "COMPLETE_COMMIT"


# ------------------------------------------------------------------------------------------- one after the other, time


@pytest.mark.parametrize("early", [AddPartitions("x", PID, 0, (T1,)), INIT])
async def test_the_next_transaction_waits_for_the_markers_of_the_one_before(
    broker: TransactionBroker, early: Request, autojump_clock: Clock
) -> None:
    await broker.do(INIT)
    await broker.do(ADD)
    broker.peers.held = trio.Event()
    await broker.do(COMMIT)
    answers = broker.submit(early)
    ended = broker.submit(COMMIT)
    await settle()
    broker.peers.held.set()
    await settle()
    broker.replicate()
    assert answers[0].error == ErrorCode.NONE
    expected = "PREPARE_COMMIT" if isinstance(early, AddPartitions) else "EMPTY"
    assert broker.states()[4:][: 2 if expected == "PREPARE_COMMIT" else 1][-1] == expected
    assert ended[0].error == (ErrorCode.NONE if isinstance(early, AddPartitions) else ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("other", [AddPartitions("x", PID, 1, (T1,)), InitProducer("x", 60_000, PID, 1)])
async def test_another_epoch_is_sent_back_at_once_while_markers_are_written(
    broker: TransactionBroker, other: Request, autojump_clock: Clock
) -> None:
    """It waited, and was fenced by the epoch that was current then."""
    await broker.do(INIT)
    await broker.do(ADD)
    broker.peers.held = trio.Event()
    await broker.do(COMMIT)
    answers = broker.submit(other)
    await settle()
    assert [answer.error for answer in answers] == [ErrorCode.CONCURRENT_TRANSACTIONS]


async def test_the_leader_of_a_partition_learns_after_the_markers_that_a_producer_was_fenced(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    """Asked of Kafka 4.3.1: a Produce of V2 with an old epoch behind EndTxn is refused once the markers are written."""
    await broker.do(INIT)
    await broker.do(ADD)
    broker.peers.held = trio.Event()
    await broker.do(COMMIT)
    answers = broker.submit(AddPartitions("x", PID, 7, (T1,), V2))
    await settle()
    assert not answers
    broker.peers.held.set()
    await settle()
    broker.replicate()
    await settle()
    assert [answer.error for answer in answers] == [ErrorCode.PRODUCER_FENCED]


async def test_who_waits_too_long_for_markers_is_sent_back(broker: TransactionBroker, autojump_clock: Clock) -> None:
    await broker.do(INIT)
    await broker.do(ADD)
    broker.peers.held = trio.Event()
    await broker.do(COMMIT)
    first, second = broker.submit(ADD), broker.submit(COMMIT)
    await trio.sleep(0.2)
    assert [a[0].error for a in (first, second)] == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2


async def test_what_is_open_too_long_is_aborted_and_its_producer_fenced(
    broker: TransactionBroker, autojump_clock: Clock
) -> None:
    await broker.do(replace(INIT, timeout_ms=5000))
    await broker.do(ADD)
    broker.env.now_ms += 5001
    await trio.sleep(10.1)
    broker.replicate()
    await settle()
    assert broker.states()[2:] == ["PREPARE_ABORT", "COMPLETE_ABORT"]
    assert {written[3:5] for written in broker.peers.written()} == {(1, False)}
    broker.replicate()
    assert (await broker.do(COMMIT)).error == ErrorCode.PRODUCER_FENCED


async def test_a_transaction_that_is_as_large_as_the_log_takes_can_be_ended(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    """The record of the abort has the generation of the cluster's clients, and was four bytes larger: it was refused
    again and again, and no client could read its partitions' committed records any more.
    """
    broker = TransactionBroker(nursery, message_max_bytes="350")
    await broker.lead()
    errors = []
    for length in range(150, 249):
        name, topic = f"x{length}", "t" * length
        found = await broker.do(InitProducer(name, 5000))
        asked = AddPartitions(name, found.producer_id, found.epoch, ((topic, 0),), client_version=0)
        errors.append((await broker.do(asked)).error)
    assert set(errors) == {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}
    broker.env.now_ms += 5001
    for _ in range(3):
        await trio.sleep(10.1)
        broker.replicate()
        await settle()
    states = {one.state for one in broker.coordinator.shards[0].machine.transactions.values()}
    assert states == {TxnState.COMPLETE_ABORT, TxnState.EMPTY}


async def test_many_that_are_open_too_long_are_aborted_in_turns(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch, autojump_clock: Clock
) -> None:
    """Tens of thousands at once kept the broker from all else for seconds."""
    monkeypatch.setattr(transaction_coordinator, "DUE_IN_A_TURN", 2)
    for n in range(5):
        found = await broker.do(InitProducer(f"x{n}", 5000))
        await broker.do(AddPartitions(f"x{n}", found.producer_id, found.epoch, (T0,)))
    broker.env.now_ms += 5001
    aborted, sleep = [], broker.env.sleep

    async def looked(seconds: float) -> None:
        found = broker.coordinator.shards[0].machine.transactions.values()
        aborted.append(sum(one.state == TxnState.PREPARE_ABORT for one in found))
        await sleep(seconds)

    monkeypatch.setattr(broker.env, "sleep", looked)
    await trio.sleep(10.1)
    assert aborted == [2, 4, 5]


async def test_an_id_that_nobody_uses_is_forgotten(broker: TransactionBroker, autojump_clock: Clock) -> None:
    await broker.do(INIT)
    broker.env.now_ms += broker.config.transactional_id_expiration_ms
    await trio.sleep(3601)
    assert broker.written()[-1].transaction is None
    answers = broker.submit(DescribeTransaction("x"))
    assert not answers, "that it is gone is not committed"
    broker.replicate()
    assert answers[0].error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_markers_of_many_partitions_are_asked_for_in_bounded_requests(
    broker: TransactionBroker, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_sender, "MOST_IN_A_REQUEST", 50)
    for index in range(2, 111):
        broker.give("t", leader=2, index=index)
    await broker.do(INIT)
    await broker.do(AddPartitions("x", PID, 0, tuple(("t", index) for index in range(111))))
    await broker.do(COMMIT)
    await settle()
    sizes = [(node, len(request.markers[0].topics[0].partition_indexes)) for node, request in broker.peers.asked]
    assert sorted(sizes) == [(2, 10), (2, 50), (2, 50), (3, 1)]
    assert len(set(broker.peers.written())) == 111
    broker.replicate()
    await settle()
    assert broker.states()[-1] == "COMPLETE_COMMIT"


async def test_bounded_requests_serve_all_transactions(
    broker: TransactionBroker, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_sender, "MOST_IN_A_REQUEST", 50)
    for index in range(2, 71):
        broker.give("t", leader=2, index=index)
    broker.peers.held = trio.Event()
    for n, name in enumerate(("x", "y")):
        answer = await broker.do(InitProducer(name, 60_000))
        places = tuple(("t", index) for index in range(2, 71) if index % 2 == n)
        await broker.do(AddPartitions(name, answer.producer_id, 0, places))
        await broker.do(EndTransaction(name, answer.producer_id, 0, True))
        await settle()
    broker.peers.held.set()
    await settle()
    broker.replicate()
    await settle()
    assert len(broker.peers.written()) == 69
    assert (broker.states("x")[-1], broker.states("y")[-1]) == ("COMPLETE_COMMIT", "COMPLETE_COMMIT")
