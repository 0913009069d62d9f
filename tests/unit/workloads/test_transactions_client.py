"""Checks what our client makes of a coordinator's answers: asked again, refused, or left open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from squall.broker.protocol.apis import APIS, ApiKey
from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.schema.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from squall.broker.protocol.schema.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from squall.broker.protocol.schema.end_txn import EndTxnResponse
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorResponse
from squall.broker.protocol.schema.init_producer_id import InitProducerIdResponse
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.client.settings import ClientSettings
from squall.workloads.client.transactions import (
    CoordinatorErrorMeaning,
    EndTxnResult,
    TransactionManager,
    TransactionRefused,
    TransactionRequestTimedOut,
    meaning,
)
from tests.support.clusters.fake_cluster import Break, FakeCluster, Seen, Withhold

SETTINGS = ClientSettings(request_timeout_ms=1000, control_timeout_ms=1000, connect_timeout_ms=1000)
LIMIT_S = 8.0
BY = {
    kind: [ErrorCode(code) for code in ErrorCode if code != ErrorCode.NONE and meaning(code) is kind]
    for kind in CoordinatorErrorMeaning
}


class Coordinator:
    """A scripted coordinator on node `at`. `says`: API -> what it answers, one after the other; then NONE."""

    def __init__(self, cluster: FakeCluster, level: int) -> None:
        self.at, self.level = 2, level
        self.says: dict[int, list[Any]] = {}
        self.asked: list[Seen] = []
        cluster.script.append(self.answer)

    def answer(self, seen: Seen) -> Any:
        if seen.api_key == ApiKey.API_VERSIONS:
            keys = [ApiVersion(api.key, api.min_version, api.max_version) for api in APIS.values()]
            level = FinalizedFeatureKey("transaction.version", self.level, self.level)
            return ApiVersionsResponse(api_keys=keys, finalized_features=[level], finalized_features_epoch=1)
        if seen.api_key == ApiKey.FIND_COORDINATOR:
            return FindCoordinatorResponse(node_id=self.at, host=f"node-{self.at}", port=9092)
        if seen.api_key not in MADE:
            return None
        assert seen.node == self.at
        self.asked.append(seen)
        left = self.says.get(seen.api_key, [])
        said = left.pop(0) if left else ErrorCode.NONE
        return said if isinstance(said, Break | Withhold) else MADE[seen.api_key](said, seen)


def _added(code: ErrorCode, seen: Seen) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnTopicResult(
            topic.name, [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
        )
        for topic in seen.message.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _ended(code: ErrorCode, seen: Seen) -> EndTxnResponse:
    newer = seen.version >= 5 and code == ErrorCode.NONE
    epoch = seen.message.producer_epoch + 1
    return EndTxnResponse(error_code=code, **({"producer_id": 77, "producer_epoch": epoch} if newer else {}))


MADE: dict[int, Callable[[ErrorCode, Seen], Any]] = {
    ApiKey.INIT_PRODUCER_ID: lambda code, _: InitProducerIdResponse(
        error_code=code, producer_id=77 if code == ErrorCode.NONE else -1, producer_epoch=3
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _added,
    ApiKey.END_TXN: _ended,
}


@asynccontextmanager
async def transacting(level: int, *, begun: bool = True) -> AsyncIterator[tuple[TransactionManager, Coordinator]]:
    cluster = FakeCluster()
    cluster.topic("t", [1, 2, 3])
    coordinator = Coordinator(cluster, level)
    async with cluster.client(SETTINGS) as client:
        transactions = TransactionManager(client, "id", 60_000, LIMIT_S)
        if begun:
            assert await transactions.begin_writing() == (77, 3)
            coordinator.asked.clear()
        yield transactions, coordinator


async def test_v1_adds_each_partition_once_and_keeps_its_epoch(clock: MockClock) -> None:
    async with transacting(0) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        await transactions.add([("t", 0), ("t", 1)])
        assert await transactions.end(commit=True) == EndTxnResult(OperationStatus.OK, "")
        assert [(seen.api_key, seen.version) for seen in coordinator.asked] == [(24, 3), (24, 3), (26, 4)]
        assert [seen.message.v3_and_below_topics[0].partitions for seen in coordinator.asked[:2]] == [[0], [1]]
        assert transactions.identity == (77, 3)
        coordinator.asked.clear()
        await transactions.add([("t", 0)])
        assert len(coordinator.asked) == 1, "the next transaction has no partitions yet"


@pytest.mark.parametrize("version", [0, 2])
async def test_no_end_is_asked_of_a_transaction_that_the_coordinator_does_not_know(
    version: int, clock: MockClock
) -> None:
    async with transacting(version) as (transactions, coordinator):
        assert await transactions.end(commit=True) == EndTxnResult(OperationStatus.OK, "")
        assert not coordinator.asked


async def test_v2_adds_nothing_and_takes_the_next_epoch(clock: MockClock) -> None:
    async with transacting(2) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        assert await transactions.end(commit=False) == EndTxnResult(OperationStatus.OK, "")
        assert [(seen.api_key, seen.version, seen.message.committed) for seen in coordinator.asked] == [(26, 5, False)]
        assert transactions.identity == (77, 4)


@pytest.mark.parametrize(
    "code",
    [*BY[CoordinatorErrorMeaning.NOT_YET], *BY[CoordinatorErrorMeaning.DOUBT], *BY[CoordinatorErrorMeaning.ELSEWHERE]],
    ids=name_of,
)
async def test_what_may_succeed_later_is_asked_again(code: ErrorCode, clock: MockClock) -> None:
    async with transacting(2) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        coordinator.says[ApiKey.END_TXN] = [code, code]
        assert await transactions.end(commit=True) == EndTxnResult(OperationStatus.OK, "")
        assert len(coordinator.asked) == 3


@pytest.mark.parametrize("code", BY[CoordinatorErrorMeaning.REFUSED], ids=name_of)
async def test_a_refused_end_did_not_happen(code: ErrorCode, clock: MockClock) -> None:
    async with transacting(2) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        coordinator.says[ApiKey.END_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS, code]
        assert await transactions.end(commit=True) == EndTxnResult(OperationStatus.FAIL, name_of(code))
        assert len(coordinator.asked) == 2


@pytest.mark.parametrize(
    "before", [*BY[CoordinatorErrorMeaning.DOUBT], *BY[CoordinatorErrorMeaning.ELSEWHERE]], ids=name_of
)
async def test_an_end_refused_after_an_attempt_in_doubt_may_have_happened(before: ErrorCode, clock: MockClock) -> None:
    async with transacting(2) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        coordinator.says[ApiKey.END_TXN] = [before, ErrorCode.PRODUCER_FENCED]
        assert await transactions.end(commit=True) == EndTxnResult(OperationStatus.INFO, "PRODUCER_FENCED")


async def test_an_end_whose_answer_was_lost_and_which_is_then_refused_may_have_happened(clock: MockClock) -> None:
    async with transacting(2) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        coordinator.says[ApiKey.END_TXN] = [Break(), ErrorCode.INVALID_TXN_STATE]
        assert await transactions.end(commit=True) == EndTxnResult(OperationStatus.INFO, "INVALID_TXN_STATE")
        assert transactions.unanswered == 1


async def test_an_end_that_is_never_answered_may_have_happened(clock: MockClock) -> None:
    async with transacting(2) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        coordinator.says[ApiKey.END_TXN] = [Withhold() for _ in range(20)]
        began = trio.current_time()
        assert await transactions.end(commit=True) == EndTxnResult(OperationStatus.INFO, "TIMED_OUT")
        assert trio.current_time() - began == pytest.approx(LIMIT_S, abs=0.01)
        assert transactions.unanswered >= 2


async def test_an_end_that_was_only_put_off_until_the_limit_did_not_happen(clock: MockClock) -> None:
    async with transacting(2) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        coordinator.says[ApiKey.END_TXN] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 500
        assert await transactions.end(commit=True) == EndTxnResult(OperationStatus.FAIL, "TIMED_OUT")
        assert transactions.unanswered == 0


async def test_an_unknown_error_leaves_it_open(clock: MockClock) -> None:
    async with transacting(2) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        coordinator.says[ApiKey.END_TXN] = [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert await transactions.end(commit=True) == EndTxnResult(
            OperationStatus.INFO, name_of(ErrorCode.UNKNOWN_SERVER_ERROR)
        )


async def test_a_coordinator_that_moved_is_looked_for(clock: MockClock) -> None:
    async with transacting(2) as (transactions, coordinator):
        await transactions.add([("t", 0)])
        coordinator.says[ApiKey.END_TXN] = [ErrorCode.NOT_COORDINATOR]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_move_once_asked, coordinator)
            assert (await transactions.end(commit=True)).status is OperationStatus.OK
        assert [seen.node for seen in coordinator.asked] == [2, 3]


async def _move_once_asked(coordinator: Coordinator) -> None:
    with trio.fail_after(LIMIT_S):
        while not coordinator.asked:
            await trio.sleep(0.001)
    coordinator.at = 3


async def test_a_fenced_producer_gets_no_partitions(clock: MockClock) -> None:
    async with transacting(0) as (transactions, coordinator):
        coordinator.says[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.PRODUCER_FENCED]
        with pytest.raises(TransactionRefused, match="PRODUCER_FENCED"):
            await transactions.add([("t", 0)])


async def test_an_id_is_had_once_the_transaction_before_is_over(clock: MockClock) -> None:
    async with transacting(0, begun=False) as (transactions, coordinator):
        coordinator.says[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
        assert await transactions.begin_writing() == (77, 3)
        assert [seen.version for seen in coordinator.asked] == [4] * 4


async def test_an_id_that_nobody_gives_is_given_up(clock: MockClock) -> None:
    async with transacting(0, begun=False) as (transactions, coordinator):
        coordinator.says[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 500
        with pytest.raises(TransactionRequestTimedOut):
            await transactions.begin_writing()


def test_every_class_of_answers_has_errors() -> None:
    assert all(BY.values())
