"""A Produce to many partitions is appended in pieces: others are served in between, and the result is the same."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.broker.apis.produce import ProduceApi
from squall.broker.net.connection import Connection
from squall.broker.net.server import Route
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.header import encode_request
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.brokers.in_memory import IDS, MemoryBroker, answers, produced

WIDE = 20
PID = 7


def wide_broker(*, replicas: tuple[int, ...] = (1, 2), **properties: str) -> MemoryBroker:
    """Return a broker that leads topic t with `WIDE` partitions, to which nothing was appended in this leader epoch."""
    broker = MemoryBroker(**properties)
    for index in range(WIDE):
        broker.give(index=index, isr=replicas, replicas=replicas)
    return broker


def request(broker: MemoryBroker, *, acks: int = 1, seq: int = 0, names: tuple[str, ...] = ("t",)) -> ProduceRequest:
    """Return a Produce with one batch of an idempotent producer for each partition."""
    found = ProduceRequest(acks=acks, timeout_ms=1000)
    for name in names:
        batches = [bytes(broker.batch(pid=PID, seq=seq)) for _ in range(WIDE)]
        data = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
        found.topic_data.append(TopicProduceData(name=name, topic_id=IDS[name], partition_data=data))
    return found


def send(broker: MemoryBroker, conn: Connection, version: int = 11, **fields: Any) -> None:
    broker.ask(conn, broker.produce_api.handle, ApiKey.PRODUCE, request(broker, **fields), version)


def ends(broker: MemoryBroker) -> list[int]:
    return [h.log.log_end_offset for h in broker.replicas.hosted()]


def replicate_all(broker: MemoryBroker) -> None:
    for h in (h for h in broker.replicas.hosted() if h.state.is_leader):
        broker.replicas.apply_effects(h, h.state.follower_fetched(2, h.log.log_end_offset, 102, broker.env.now_ms))
    broker.server.settle()


def errors(conn: Connection, version: int = 11) -> list[int]:
    return [part.error_code for part in produced(conn, version)]


@pytest.mark.parametrize("version", [11, 13])
def test_first_batches_of_many_partitions_are_appended_in_turns_and_others_are_served_in_between(version: int) -> None:
    """The first batches of 3,600 partitions once blocked a broker for half a minute."""
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn, version)
    assert 0 < sum(ends(broker)) < WIDE // 2
    assert (answers(conn), conn.held is not None) == ([], True)
    seen: list[int] = []
    broker.run_turns(lambda: seen.append(sum(ends(broker))))
    assert len({n for n in seen if n < WIDE}) > 2
    assert ends(broker) == [1] * WIDE
    parts = produced(conn, version)
    assert [(part.index, part.error_code, part.base_offset) for part in parts] == [(n, 0, 0) for n in range(WIDE)]
    assert conn.held is None


def test_a_topic_that_is_cut_by_a_turn_is_answered_in_one_piece() -> None:
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn, names=("t", "u"))
    broker.run_turns(lambda: None)
    told = [(part.index, part.error_code) for part in produced(conn)]
    known = [(index, 0) for index in range(WIDE)]
    assert told == [*known, *((index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in range(WIDE))]


def test_batches_after_the_first_of_an_epoch_need_no_turns() -> None:
    broker = wide_broker()
    send(broker, broker.client())
    broker.run_turns(lambda: None)
    conn = broker.client()
    send(broker, conn, seq=1)
    assert not broker.started
    assert (errors(conn), ends(broker)) == ([0] * WIDE, [2] * WIDE)


def test_with_acks_all_the_answer_waits_for_all_partitions_and_for_the_last_turn() -> None:
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn, acks=-1)
    broker.run_turns(lambda: replicate_all(broker))
    replicate_all(broker)
    assert errors(conn) == [0] * WIDE
    assert not len(broker.timers)


def test_the_time_out_counts_from_the_last_append() -> None:
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn, acks=-1)
    broker.run_turns(lambda: broker.pass_ms(500))
    assert (answers(conn), ends(broker)) == ([], [1] * WIDE)
    broker.pass_ms(1_100)
    assert errors(conn) == [ErrorCode.REQUEST_TIMED_OUT] * WIDE
    assert not len(broker.timers)


def test_acks_0_is_appended_in_turns_and_not_answered() -> None:
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn, acks=0)
    broker.run_turns(lambda: None)
    assert (ends(broker), answers(conn), conn.closed) == ([1] * WIDE, [], False)
    assert not conn.slots


def test_an_error_of_acks_0_closes_the_connection_after_the_last_turn() -> None:
    broker = wide_broker()
    broker.give(index=3, leader=2, epoch=6, partition_epoch=11)
    conn = broker.client()
    send(broker, conn, acks=0)
    broker.run_turns(lambda: None)
    assert conn.closed
    assert sum(ends(broker)) == WIDE - 1


def test_leadership_that_is_lost_between_two_turns_is_seen() -> None:
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn)
    broker.give(index=WIDE - 1, leader=2, epoch=6, partition_epoch=11)
    broker.run_turns(lambda: None)
    parts = produced(conn)
    assert [part.error_code for part in parts] == [0] * (WIDE - 1) + [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert parts[-1].current_leader.leader_id == 2
    assert ends(broker)[-1] == 0


def test_leadership_that_is_lost_after_the_append_is_told_while_others_are_appended() -> None:
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn, acks=-1)
    broker.give(index=0, leader=2, epoch=6, partition_epoch=11)
    broker.run_turns(lambda: replicate_all(broker))
    replicate_all(broker)
    assert errors(conn) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] + [0] * (WIDE - 1)


def test_a_topic_that_is_deleted_between_two_turns_is_unknown_to_the_rest() -> None:
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn)
    done = sum(ends(broker))
    [append] = broker.started
    broker.started.clear()
    broker.remove("t")
    broker.run_started()  # logs are given up in turns, too
    broker.started.append(append)
    broker.run_turns(lambda: None)
    assert errors(conn) == [0] * done + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (WIDE - done)


def test_an_isr_that_shrinks_between_two_turns_refuses_the_rest() -> None:
    broker = wide_broker(min_insync_replicas="2")
    conn = broker.client()
    send(broker, conn, acks=-1)
    done = sum(ends(broker))
    broker.give(index=WIDE - 1, isr=(1,), replicas=(1, 2), partition_epoch=11)
    broker.run_turns(lambda: replicate_all(broker))
    replicate_all(broker)
    assert 0 < done < WIDE
    assert errors(conn) == [0] * (WIDE - 1) + [ErrorCode.NOT_ENOUGH_REPLICAS]


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_what_was_received_is_appended_though_its_connection_ends(acks: int) -> None:
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn, acks=acks)
    conn.close()
    assert conn.held is not None, "the bytes are still in use"
    broker.run_turns(lambda: None)
    assert ends(broker) == [1] * WIDE
    assert conn.held is None
    assert not len(broker.timers)
    assert not any(h.uncommitted or h.unflushed for h in broker.replicas.hosted())


def test_two_such_requests_have_their_turns_one_after_the_other() -> None:
    """Otherwise each further request of this kind would make all others wait longer."""
    broker = wide_broker()
    for index in range(WIDE):
        broker.give("u", index=index, isr=(1, 2), replicas=(1, 2))
    for name in ("t", "u"):
        send(broker, broker.client(), names=(name,))
    seen = [sum(ends(broker))]
    broker.run_turns(lambda: seen.append(sum(ends(broker))))
    assert seen[-1] == 2 * WIDE
    assert max(after - before for before, after in zip(seen, seen[1:], strict=False)) <= 4


def test_a_transaction_that_waits_for_its_coordinator_is_then_appended_in_turns() -> None:
    broker = wide_broker()
    conn = broker.client()
    sent = request(broker)
    sent.transactional_id = "x"
    for part in sent.topic_data[0].partition_data:
        part.records = bytes(broker.batch(pid=PID, epoch=3, seq=0, transactional=True))
    broker.ask(conn, broker.produce_api.handle, ApiKey.PRODUCE, sent, 11)
    broker.run_started()
    assert 0 < sum(ends(broker)) < WIDE
    assert conn.held is not None
    broker.run_turns(lambda: None)
    assert errors(conn) == [0] * WIDE
    assert conn.held is None


async def serve(broker: MemoryBroker, *requests: ProduceRequest) -> None:
    """Serve a client that sends these requests in one piece and closes its side, until everything is answered."""
    server: Any = broker.server
    server.route({ApiKey.PRODUCE: Route(ApiKey.PRODUCE, hot=broker.produce_api.handle)}, {})
    there, _, serve_it = broker.accept()
    for number, one in enumerate(requests):
        there.data += encode_request(ApiKey.PRODUCE, 9, number, "c", one.encode(9))
    there.ended = True
    async with trio.open_nursery() as nursery:

        async def start() -> None:
            while True:
                while broker.started:
                    function, args = broker.started.pop()
                    nursery.start_soon(function, *args)
                await trio.lowlevel.checkpoint()

        nursery.start_soon(start)
        with trio.fail_after(5):
            await serve_it()
        nursery.cancel_scope.cancel()


async def test_what_follows_on_the_connection_takes_effect_after_the_last_turn() -> None:
    """Otherwise its sequence numbers would be out of order in each partition to which nothing was appended yet."""
    broker = wide_broker()
    first, second = request(broker), request(broker, seq=1)
    second.topic_data[0].partition_data = second.topic_data[0].partition_data[-1:]
    await serve(broker, first, second)
    assert ends(broker) == [1] * (WIDE - 1) + [2]


@pytest.mark.parametrize("steps", range(6))
async def test_a_broker_that_stops_does_not_wait_for_the_turns_and_has_no_further_one(steps: int) -> None:
    broker = wide_broker()
    conn = broker.client()
    send(broker, conn)
    [(go_on, args)] = broker.started
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on, *args)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            at_stop = sum(ends(broker))
            nursery.cancel_scope.cancel()
    assert conn.held is None
    assert sum(ends(broker)) == at_stop < WIDE


def test_a_request_to_few_partitions_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProduceApi, "_turns", None)
    broker = wide_broker()
    conn = broker.client()
    broker.produce(conn, *(("t", index, broker.batch()) for index in range(8)), acks=1)
    assert errors(conn) == [0] * 8
