"""The table's rows of requests that make coordinators send large answers, or take many decisions."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from squall.broker.protocol.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from squall.broker.protocol.schema.describe_groups import DescribeGroupsRequest
from squall.broker.protocol.schema.describe_transactions import DescribeTransactionsRequest
from squall.broker.protocol.schema.end_txn import EndTxnRequest
from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest
from squall.broker.protocol.schema.list_groups import ListGroupsRequest
from squall.broker.protocol.schema.list_transactions import ListTransactionsRequest
from squall.broker.protocol.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from squall.broker.protocol.schema.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from squall.broker.protocol.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.live.broker.table import KIB, Row, create, delete, logs_of, make_coordinator, topic
from tests.support.brokers.broker_process import BrokerProcess
from tests.support.brokers.joining import join
from tests.support.brokers.raw_client import RawClient, frame_of

PARTITIONS, WIDTH, LONG, GROUPS = 300, 600, 300, 3_000


# ------------------------------------------------------------------------------------------------------------ positions


def make_positions(broker: BrokerProcess, size: int, *names: str) -> None:
    """Commit an offset of each partition of "offsets" for each group, with `size` bytes of metadata."""
    if not logs_of(broker, "offsets"):
        create(broker, topic("offsets", PARTITIONS))
    assert join(broker, "first") is ErrorCode.MEMBER_ID_REQUIRED
    with broker.connect() as client:
        for name in names:
            for begin in range(0, PARTITIONS, 100):
                parts = [
                    OffsetCommitRequestPartition(number, committed_offset=1, committed_metadata="x" * size)
                    for number in range(begin, begin + 100)
                ]
                topics = [OffsetCommitRequestTopic("offsets", partitions=parts)]
                answer = client.ask(OffsetCommitRequest(group_id=name, topics=topics), 8)
                assert {part.error_code for part in answer.topics[0].partitions} == {0}


def positions_of(*names: str, stable: bool = False) -> OffsetFetchRequest:
    groups = [OffsetFetchRequestGroup(name, topics=None) for name in names]
    return OffsetFetchRequest(groups=groups, require_stable=stable)


def one_group_often(broker: BrokerProcess) -> Iterator[None]:
    """A request of 80 KB names one group 20,000 times: its answer would have needed gigabytes, and the broker ran out
    of memory.
    """
    assert join(broker, "named") is ErrorCode.MEMBER_ID_REQUIRED
    make_positions(broker, 700, "named")
    yield
    with broker.connect() as client:
        fetched = client.ask(positions_of(*["named"] * 20_000), 8)
        described = client.ask(DescribeGroupsRequest(groups=["named"] * 20_000), 5)
    assert [len(group.topics[0].partitions) for group in fetched.groups if group.topics] == [PARTITIONS]
    for groups in (fetched.groups, described.groups):
        assert {group.error_code for group in groups[1:]} == {ErrorCode.INVALID_REQUEST}
    assert described.groups[0].error_code == 0


def positions_of_one_group(broker: BrokerProcess) -> Iterator[None]:
    """The committed offsets of one group, which are more than one piece of an answer holds."""
    create(broker, *[topic(f"of-one-{number}", PARTITIONS) for number in range(2)])
    assert join(broker, "first") is ErrorCode.MEMBER_ID_REQUIRED
    with broker.connect() as client:
        for number in range(2):
            parts = [OffsetCommitRequestPartition(index, committed_offset=1) for index in range(PARTITIONS)]
            topics = [OffsetCommitRequestTopic(f"of-one-{number}", partitions=parts)]
            client.ask(OffsetCommitRequest(group_id="one", topics=topics), 8)
        yield
        [group] = client.ask(positions_of("one"), 8).groups
    assert sum(len(each.partitions) for each in group.topics) == 2 * PARTITIONS


def row_of_positions(name: str, *, stable: bool) -> Row:
    """Four hundred such requests of 120 bytes once got a broker fenced. Requests of closed connections must cost
    nothing.
    """

    def play(broker: BrokerProcess) -> Iterator[None]:
        names = [f"many-{number}" for number in range(50)]
        make_positions(broker, 300, *names)
        asked = frame_of(positions_of(*names, stable=stable), 8)
        clients = [broker.connect() for _ in range(60)]
        yield
        for client in clients:
            client.send(asked)
        for client in clients[10:]:
            client.close()
        assert {len(client.frame()) > 50 * PARTITIONS * 300 for client in clients[:10]} == {True}
        for client in clients[:10]:
            client.close()

    return Row(name, play, 60 * KIB, 200, bytes=16 * KIB, entries=500)


def unread_answers(broker: BrokerProcess) -> Iterator[None]:
    """A client asks for all offsets of a group and reads no answer: a few kilobytes of requests filled gigabytes, and
    then ended the broker.
    """
    make_positions(broker, 4096, "unread")
    request = positions_of("unread")
    clients = [broker.connect() for _ in range(40)]
    yield
    for client in clients:
        client.send(frame_of(request, 8) * 10)
    broker.wait_for(lambda: sum(event["e"] == "replies_dropped" for event in broker.events()) >= 10, 100)
    with broker.connect() as client:
        answer = client.ask(request, 8)
    assert len(answer.groups[0].topics[0].partitions) == PARTITIONS
    for client in clients:
        client.close()


def thousands_of_groups(broker: BrokerProcess) -> Iterator[None]:
    """4,200 bytes of ListGroups requests once made other clients wait for 11 s."""
    create(broker, topic("listed"))
    assert join(broker, "first") is ErrorCode.MEMBER_ID_REQUIRED
    topics = [OffsetCommitRequestTopic("listed", partitions=[OffsetCommitRequestPartition(0, committed_offset=1)])]
    clients = [broker.connect() for _ in range(60)]
    for number in range(GROUPS):
        clients[0].send(frame_of(OffsetCommitRequest(group_id=f"listed-{number}", topics=topics), 8))
    for _ in range(GROUPS):
        clients[0].frame()
    yield
    for client in clients:
        client.send(frame_of(ListGroupsRequest(), 4))
    assert min(len(client.frame()) for client in clients) > GROUPS * 10
    for client in clients:
        client.close()


def costly_expression(broker: BrokerProcess) -> Iterator[None]:
    """The regular expression of a subscription once took the coordinator 3.5 ms for each topic."""
    rng = random.Random(1)
    create(broker, *[topic("".join(rng.choice("ab") for _ in range(249))) for _ in range(LONG)])
    make_coordinator(broker, "g", 0)
    member, answers = str(uuid.UUID(int=5)), list[Any]()

    def beat(epoch: int, **also: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch, **also)
        with broker.connect() as client:
            answers.append(client.ask(request, 1))
        return answers[-1]

    def has_joined() -> bool:
        regex = ".*a.{100}.{100}.*"
        joins = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [], "subscribed_topic_regex": regex}
        return bool(beat(0, **joins, topic_partitions=[]).error_code == 0)

    def is_assigned() -> bool:
        given = beat(answers[-1].member_epoch)
        assert given.error_code == 0
        return given.assignment is not None and len(given.assignment.topic_partitions) > LONG // 2

    yield
    broker.wait_for(has_joined, 100)
    broker.wait_for(is_assigned, 100)


# --------------------------------------------------------------------------------------------------------- transactions


def begin(broker: BrokerProcess, name: str) -> Any:
    """Let the coordinator create a transactional id, and return the answer to InitProducerId."""
    make_coordinator(broker, name, 1)
    request, answers = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), list[Any]()

    def is_known(client: RawClient) -> bool:
        answers.append(client.ask(request, 4))
        return bool(answers[-1].error_code == ErrorCode.NONE)

    with broker.connect() as client:
        broker.wait_for(lambda: is_known(client), 100)
    return answers[-1]


def costly_patterns(broker: BrokerProcess) -> Iterator[None]:
    """Patterns in ListTransactions: with Python's `re` the first one took 37 s."""
    rng = random.Random(1)
    long = ["".join(rng.choices("ab", k=24_000)) for _ in range(6)]
    for name in ("a" * 30 + "!", "a" * 30, *long):
        begin(broker, name)

    def listed(pattern: str) -> Any:
        with broker.connect() as client:
            return client.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)

    yield
    assert [state.transactional_id for state in listed("(a+)+$").transaction_states] == ["a" * 30]
    names = {state.transactional_id for state in listed("(a|b)*a(a|b){60}").transaction_states}
    assert names == {name for name in long if name[-61] == "a"}
    assert 0 < len(names) < len(long)
    assert listed("(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert listed("a" * 1001).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def markers(broker: BrokerProcess) -> Iterator[None]:
    """A transaction ends in thousands of partitions. The first marker of each log waits for the disk: 3,900 of them
    blocked three brokers for up to 8 s.
    """
    create(broker, topic("marked", WIDTH))
    known = begin(broker, "t")
    who = {"producer_id": known.producer_id, "producer_epoch": known.producer_epoch}
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=known.producer_id,
        v3_and_below_producer_epoch=known.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="marked", partitions=list(range(WIDTH)))],
    )
    with broker.connect() as client:
        added = client.ask(add, 3)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0

        def is_complete() -> bool:
            [state] = client.ask(DescribeTransactionsRequest(transactional_ids=["t"]), 0).transaction_states
            return bool(state.transaction_state == "CompleteCommit")

        yield
        ended = client.ask(EndTxnRequest(transactional_id="t", committed=True, **who), 3)
        assert ended.error_code == 0
        broker.wait_for(is_complete, 100)
    delete(broker, "marked")


def markers_of_an_admin(broker: BrokerProcess) -> Iterator[None]:
    """Any client may send WriteTxnMarkers (KIP-664). Each marker here is of a producer that is new to the log."""
    create(broker, topic("aborted"))
    topics = [WritableTxnMarkerTopic("aborted", [0])]
    asked = WriteTxnMarkersRequest([WritableTxnMarker(number, 0, False, topics) for number in range(10_000, 25_000)])
    yield
    with broker.connect() as client:
        answer = client.ask(asked, 1)
    found = [part.error_code for marker in answer.markers for part in marker.topics[0].partitions]
    assert found == [0] * len(asked.markers)
    delete(broker, "aborted")


ROWS = (
    Row("one group often", one_group_often, 300 * KIB, entries=500),
    Row("positions of one group", positions_of_one_group, 100, bytes=32 * KIB, entries=500),
    row_of_positions("positions of many groups", stable=False),
    row_of_positions("stable positions of many groups", stable=True),
    Row("unread answers", unread_answers, 40 * KIB, 200, entries=500),
    Row("list thousands of groups", thousands_of_groups, 4 * KIB, 100, entries=500, in_gate=True),
    Row("a costly expression", costly_expression, 100 * KIB, bytes=16 * KIB, entries=300, steps=25_000),
    Row("costly patterns", costly_patterns, 2 * KIB, bytes=300 * KIB, steps=2_000),
    Row("markers", markers, 100, entries=96),
    Row("markers of an admin", markers_of_an_admin, 400 * KIB, entries=96),
)
