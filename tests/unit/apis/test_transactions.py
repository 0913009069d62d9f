"""InitProducerId, and the errors of the transaction coordinator's APIs in each version."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.broker.apis.transactions import TransactionApis
from squall.broker.cluster.image import ClusterImage, PartitionImage, Topic
from squall.broker.control.port import RequestRefused
from squall.broker.coordinators.transactions.values import (
    V1,
    V2,
    AddPartitions,
    EndTransaction,
    TransactionMetadata,
    TxnResponse,
    TxnState,
    VerifyPartitions,
)
from squall.broker.net.connection import PendingResponse
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from squall.broker.protocol.schema.describe_transactions import DescribeTransactionsRequest
from squall.broker.protocol.schema.end_txn import EndTxnRequest
from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest
from squall.broker.protocol.schema.list_transactions import ListTransactionsRequest
from squall.broker.replicas.coordinators.producer_ids import ProducerIdManager
from tests.support.brokers.coordinators import Blocks
from tests.support.brokers.memory_env import WALL_MS, SteppedEnv


def slot_of(version: int) -> PendingResponse:
    conn: Any = None
    return PendingResponse(conn, 1, version, False)


async def answered(answer: Any) -> Any:
    return await answer.wait() if isinstance(answer, DeferredResponse) else answer


def api_over(blocks: Any, coordinator: Any = None, image: ClusterImage | None = None) -> TransactionApis:
    env: Any = None
    return TransactionApis(env, image or ClusterImage(), coordinator, ProducerIdManager(blocks), 1000)


async def test_producer_ids_are_never_given_twice_even_if_many_ask_at_once() -> None:
    api = api_over(Blocks(size=3))
    given: list[int] = []

    async def one() -> None:
        response = await answered(api.init_producer_id(InitProducerIdRequest(transactional_id=None), slot_of(4)))
        assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
        given.append(response.producer_id)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)
    assert len(set(given)) == 20


@pytest.mark.parametrize("claim", [{"producer_id": 7}, {"producer_epoch": 7}])
async def test_an_idempotent_producer_that_names_an_id_or_an_epoch_alone_is_refused(claim: dict[str, int]) -> None:
    """KIP-360; as with Kafka."""
    response = await answered(api_over(Blocks()).init_producer_id(InitProducerIdRequest(None, **claim), slot_of(4)))
    assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


async def test_without_a_block_a_producer_is_told_to_ask_again() -> None:
    blocks = Blocks()
    blocks.fails = RequestRefused(ErrorCode.BROKER_ID_NOT_REGISTERED)
    asked = InitProducerIdRequest(transactional_id=None)
    response = await answered(api_over(blocks).init_producer_id(asked, slot_of(4)))
    assert (response.error_code, response.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)


# ------------------------------------------------------------------------------------------- words of each version


class Coordinator:
    """Replaces the coordinator: keeps the submitted requests, and gives the answers that the test sets."""

    def __init__(self, *answers: TxnResponse) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.listed: list[TransactionMetadata] = []
        self.error = ErrorCode.NONE

    def submit(self, request: Any, answer: Any) -> None:
        self.asked.append(request)
        if self.answers:
            answer(self.answers.pop(0))

    def transactions(self, ready: Any) -> None:
        ready(self.error, self.listed)


NOW = WALL_MS + SteppedEnv.now_ms


def api_with(coordinator: Coordinator, *topics: str) -> TransactionApis:
    image = ClusterImage()
    for n, name in enumerate(topics):
        topic_id = bytes([n]) * 16
        image.topics_by_id[topic_id] = Topic(name, topic_id, {0: PartitionImage((1,), (1,), 1, 0, 0)})
        image.topic_ids[name] = topic_id
    env: Any = SteppedEnv()
    given: Any = coordinator
    blocks: Any = Blocks()
    return TransactionApis(env, image, given, ProducerIdManager(blocks), 1000)


def through(response: Any, version: int) -> Any:
    """Encode a response in that version, and return what a client decodes."""
    return type(response).decode(memoryview(response.encode(version)), 0, version)[0]


@pytest.mark.parametrize(("version", "error"), [(0, 47), (3, 47), (4, 90), (5, 90)])
def test_a_fenced_producer_hears_it_in_a_word_that_it_knows(version: int, error: int) -> None:
    api = api_with(Coordinator(TxnResponse(ErrorCode.PRODUCER_FENCED)))
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=5, producer_id=7, producer_epoch=8)
    found = through(api.init_producer_id(request, slot_of(version)), version)
    assert (found.error_code, found.producer_id, found.producer_epoch) == (error, -1, -1)


@pytest.mark.parametrize(("version", "error"), [(0, 47), (1, 47), (2, 90), (4, 90), (5, 90)])
def test_a_fenced_end_likewise(version: int, error: int) -> None:
    api = api_with(Coordinator(TxnResponse(ErrorCode.PRODUCER_FENCED)))
    assert through(api.end_txn(EndTxnRequest("x", 7, 8, True), slot_of(version)), version).error_code == error


@pytest.mark.parametrize(("version", "generation"), [(0, V1), (4, V1), (5, V2)])
def test_the_version_of_an_end_tells_the_generation(version: int, generation: int) -> None:
    coordinator = Coordinator(TxnResponse(producer_id=7, epoch=9))
    found = through(api_with(coordinator).end_txn(EndTxnRequest("x", 7, 8, False), slot_of(version)), version)
    assert coordinator.asked == [EndTransaction("x", 7, 8, False, generation)]
    assert (found.producer_id, found.producer_epoch) == ((7, 9) if generation == V2 else (-1, -1))


def topics_of(*names: str) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names]


@pytest.mark.parametrize(("version", "error"), [(0, 47), (1, 47), (2, 90), (3, 90)])
def test_a_client_adds_partitions_of_one_transaction(version: int, error: int) -> None:
    coordinator = Coordinator(TxnResponse(ErrorCode.PRODUCER_FENCED))
    request = AddPartitionsToTxnRequest("x", [], 7, 8, topics_of("a", "b"))
    found = through(api_with(coordinator, "a", "b").add_partitions(request, slot_of(version)), version)
    assert coordinator.asked == [AddPartitions("x", 7, 8, (("a", 0), ("b", 0)), V1)]
    errors = {t.name: t.results_by_partition[0].partition_error_code for t in found.results_by_topic_v3_and_below}
    assert errors == {"a": error, "b": error}


def test_where_one_partition_does_not_exist_none_is_added() -> None:
    coordinator = Coordinator()
    request = AddPartitionsToTxnRequest("x", [], 7, 8, topics_of("a", "b"))
    found = through(api_with(coordinator, "a").add_partitions(request, slot_of(3)), 3)
    errors = {t.name: t.results_by_partition[0].partition_error_code for t in found.results_by_topic_v3_and_below}
    assert errors == {"a": ErrorCode.OPERATION_NOT_ATTEMPTED, "b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not coordinator.asked


@pytest.mark.parametrize(("version", "error"), [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)])
def test_leaders_verify_and_add_for_several_transactions_at_once(version: int, error: ErrorCode) -> None:
    verdict = TxnResponse(partitions=((("a", 0), ErrorCode.TRANSACTION_ABORTABLE),))
    coordinator = Coordinator(verdict, TxnResponse(ErrorCode.CONCURRENT_TRANSACTIONS))
    transactions = [
        AddPartitionsToTxnTransaction("x", 7, 8, True, topics_of("a")),
        AddPartitionsToTxnTransaction("gone", 1, 1, False, topics_of("c")),
        AddPartitionsToTxnTransaction("y", 9, 1, False, topics_of("b")),
    ]
    request = AddPartitionsToTxnRequest(transactions=transactions)
    found = through(api_with(coordinator, "a", "b").add_partitions(request, slot_of(version)), version)
    assert coordinator.asked == [
        VerifyPartitions("x", 7, 8, (("a", 0),)),
        AddPartitions("y", 9, 1, (("b", 0),), V2),
    ]
    assert [
        (r.transactional_id, r.topic_results[0].name, r.topic_results[0].results_by_partition[0].partition_error_code)
        for r in found.results_by_transaction
    ] == [
        ("x", "a", error),
        ("gone", "c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("y", "b", ErrorCode.CONCURRENT_TRANSACTIONS),
    ]


async def test_a_client_whose_answer_is_not_committed_in_time_is_sent_back(autojump_clock: trio.abc.Clock) -> None:
    later = api_with(Coordinator()).end_txn(EndTxnRequest("x", 7, 8, True), slot_of(3))
    assert isinstance(later, DeferredResponse)
    assert (await later.wait()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_transactions_are_described_each_for_itself() -> None:
    open_ = TransactionMetadata("x", 7, 8, 5000, TxnState.ONGOING, (("a", 0), ("b", 1), ("a", 2)), 900, 950)
    coordinator = Coordinator(TxnResponse(transaction=open_), TxnResponse(ErrorCode.NOT_COORDINATOR))
    request = DescribeTransactionsRequest(transactional_ids=["x", "y"])
    x, y = through(api_with(coordinator).describe_transactions(request, slot_of(0)), 0).transaction_states
    assert (x.transaction_state, x.producer_id, x.producer_epoch, x.transaction_timeout_ms) == ("Ongoing", 7, 8, 5000)
    assert {t.topic: list(t.partitions) for t in x.topics} == {"a": [0, 2], "b": [1]}
    assert (y.transactional_id, y.error_code) == ("y", ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["open", "old", "done"]),
        ({"state_filters": ["Ongoing"]}, ["open", "old"]),
        ({"producer_id_filters": [3, 9]}, ["done"]),
        ({"duration_filter": 1000}, ["old"]),
        ({"transactional_id_pattern": "o.*"}, ["open", "old"]),
        ({"transactional_id_pattern": "o"}, []),
        ({"state_filters": ["CompleteCommit", "Nonsense"], "producer_id_filters": [3]}, ["done"]),
    ],
)
def test_lists_are_filtered(filters: dict[str, Any], names: list[str]) -> None:
    coordinator = Coordinator()
    coordinator.listed = [
        TransactionMetadata("open", 1, 0, 5000, TxnState.ONGOING, (("a", 0),), NOW - 1000, NOW),
        TransactionMetadata("old", 2, 0, 5000, TxnState.ONGOING, (("a", 0),), NOW - 1001, NOW),
        TransactionMetadata("done", 3, 0, 5000, TxnState.COMPLETE_COMMIT, (), 5, NOW),
    ]
    found = through(api_with(coordinator).list_transactions(ListTransactionsRequest(**filters), slot_of(2)), 2)
    assert [t.transactional_id for t in found.transaction_states] == names
    assert found.unknown_state_filters == [f for f in filters.get("state_filters", []) if f == "Nonsense"]


def test_a_pattern_that_is_none_and_a_shard_that_loads_are_told() -> None:
    coordinator = Coordinator()
    request = ListTransactionsRequest(transactional_id_pattern="(")
    bad = api_with(coordinator).list_transactions(request, slot_of(2))
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    coordinator.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (
        api_with(coordinator).list_transactions(ListTransactionsRequest(), slot_of(2)).error_code
        == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
