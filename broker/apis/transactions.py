"""Handles InitProducerId (mechanism P2 in docs/mechanisms.md), and the requests to the transaction coordinator
(mechanism P3): AddPartitionsToTxn, EndTxn, DescribeTransactions, ListTransactions.

Each request is handed to the coordinator on arrival, so requests of one connection take effect in their order. Most
responses wait for the coordinator's log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from squall.broker.apis.coordinator_requests import answer_each, ask
from squall.broker.apis.decompression import DecompressionPool
from squall.broker.coordinators.patterns import BadPattern, RegexPattern
from squall.broker.coordinators.transactions.values import (
    PREPARED,
    STATE_NAMES,
    V1,
    V2,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    TxnResponse,
    TxnState,
    VerifyPartitions,
)
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import add_partitions_to_txn as add_wire
from squall.broker.protocol.schema import describe_transactions as describe_wire
from squall.broker.protocol.schema import list_transactions as list_wire
from squall.broker.protocol.schema.end_txn import EndTxnResponse
from squall.broker.protocol.schema.init_producer_id import InitProducerIdResponse
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from squall.broker.cluster.image import ClusterImage
    from squall.broker.coordinators.transactions.values import Request, TopicPartition, TransactionMetadata
    from squall.broker.env import Env
    from squall.broker.net.connection import PendingResponse
    from squall.broker.protocol.schema.end_txn import EndTxnRequest
    from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest
    from squall.broker.replicas.coordinators.producer_ids import ProducerIdManager
    from squall.broker.replicas.coordinators.transaction_coordinator import TransactionCoordinator

FENCED_FROM = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "EndTxn": 2}
"""Maps each API to the first version whose clients know PRODUCER_FENCED. Earlier versions get INVALID_PRODUCER_EPOCH
(KIP-588).
"""
BATCHED_FROM = 4
"""Is the first version of AddPartitionsToTxn that carries several transactions. Only brokers send it."""
ABORTABLE_FROM = 5
"""Is the first version of AddPartitionsToTxn whose senders know TRANSACTION_ABORTABLE."""
V2_FROM = 5
"""Is the first version of EndTxn that ends transactions of transaction version 2 (KIP-890): their end raises the
producer epoch.
"""
QUICK_CHARS = 2_000
"""Limits the characters of transactional ids that are matched on the event loop. Matching so many takes 20 ms with the
slowest pattern.
"""
CHARS_A_TURN = 20_000
TIMED_OUT = TxnResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""Is the response if the coordinator's log does not commit in time. Kafka uses the same error."""
REPEATED = TxnResponse(ErrorCode.INVALID_REQUEST)
"""Is the response for a transactional id that the request has already named."""


class TransactionApis:
    """Handles requests of producers (such as AddPartitionsToTxn) and of admins (such as ListTransactions). Each request
    takes effect before the next request of its connection; its response may come later.
    """

    def __init__(
        self,
        env: Env,
        image: ClusterImage,
        coordinator: TransactionCoordinator,
        producer_ids: ProducerIdManager,
        timeout_ms: int,
    ) -> None:
        self._env, self._image, self._coordinator, self._ids = env, image, coordinator, producer_ids
        self._timeout_s = timeout_ms / 1000
        self._turns = DecompressionPool(env)

    def _ask(self, requests: Sequence[Request], respond: Callable[[list[TxnResponse]], Any]) -> Any:
        """Submit all requests to the coordinator, and respond once all are answered, at once or later."""
        return ask(self._env, self._coordinator.submit, requests, respond, TIMED_OUT, self._timeout_s)

    # ---------------------------------------------------------------------------------------------------- producer ids

    def init_producer_id(self, request: InitProducerIdRequest, slot: PendingResponse) -> Any:
        """Return a producer id and its epoch. Without a transactional id, the producer id is fresh and its epoch 0: an
        idempotent producer bumps its own epoch later, without a request. With a transactional id, the coordinator
        decides.
        """
        name = request.transactional_id
        if name is None:
            if (request.producer_id < 0) != (request.producer_epoch < 0):  # one without the other (KIP-360)
                wrong = int(ErrorCode.INVALID_REQUEST)
                return InitProducerIdResponse(error_code=wrong, producer_id=-1, producer_epoch=-1)
            return self._fresh()
        version = slot.version

        def respond(answers: list[TxnResponse]) -> InitProducerIdResponse:
            (answer,) = answers
            error = _downgraded_error(answer.error, "InitProducerId", version)
            return InitProducerIdResponse(error_code=error, producer_id=answer.producer_id, producer_epoch=answer.epoch)

        asked = InitProducer(name, request.transaction_timeout_ms, request.producer_id, request.producer_epoch)
        return self._ask([asked], respond)

    def _fresh(self) -> Any:
        ids = self._ids
        if ids.spare >= 0:
            return InitProducerIdResponse(producer_id=ids.take(), producer_epoch=0)

        async def wait() -> InitProducerIdResponse:
            error = ErrorCode.NONE
            while ids.spare < 0 and not error:
                # In a loop, because other requests may take the whole new block before this task runs.
                error = await ids.refill()
            if error:
                return InitProducerIdResponse(error_code=int(error), producer_id=-1, producer_epoch=-1)
            return InitProducerIdResponse(producer_id=ids.take(), producer_epoch=0)

        return DeferredResponse(wait, holds=True)  # the id is taken during the wait

    # ---------------------------------------------------------------------------------------------- AddPartitionsToTxn

    def add_partitions(self, request: add_wire.AddPartitionsToTxnRequest, slot: PendingResponse) -> Any:
        """Add partitions to transactions, or verify that they were added. A client sends one transaction (up to version
        3). The leader of a partition sends several: to verify them, or, with transaction version 2 (KIP-890), to add
        the partition for the producer.
        """
        if slot.version < BATCHED_FROM:
            return self._add_for_client(request, slot.version)
        results = [add_wire.AddPartitionsToTxnResult(transactional_id=t.transactional_id) for t in request.transactions]
        asked: list[Request] = []
        places: list[tuple[int, tuple[TopicPartition, ...]]] = []
        for n, one in enumerate(request.transactions):
            partitions = _partitions(one.topics)
            refused = self._unknown(partitions)
            if refused:
                results[n].topic_results = _by_topic(refused)
                continue
            places.append((n, partitions))
            name, producer_id, epoch = one.transactional_id, one.producer_id, one.producer_epoch
            if one.verify_only:
                asked.append(VerifyPartitions(name, producer_id, epoch, partitions))
            else:
                asked.append(AddPartitions(name, producer_id, epoch, partitions, V2))

        def respond(answers: list[TxnResponse]) -> add_wire.AddPartitionsToTxnResponse:
            for (n, partitions), answer in zip(places, answers, strict=True):
                verdicts = answer.partitions or tuple((p, answer.error) for p in partitions)
                known = [(p, _abortable(error, slot.version)) for p, error in verdicts]
                results[n].topic_results = _by_topic(known)
            return add_wire.AddPartitionsToTxnResponse(results_by_transaction=results)

        return self._ask(asked, respond)

    def _add_for_client(self, request: add_wire.AddPartitionsToTxnRequest, version: int) -> Any:
        partitions = _partitions(request.v3_and_below_topics)
        refused = self._unknown(partitions)
        if refused:
            return add_wire.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(refused))
        name = request.v3_and_below_transactional_id
        producer_id, epoch = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch

        def respond(answers: list[TxnResponse]) -> add_wire.AddPartitionsToTxnResponse:
            error = ErrorCode(_downgraded_error(answers[0].error, "AddPartitionsToTxn", version))
            return add_wire.AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=_by_topic([(p, error) for p in partitions])
            )

        return self._ask([AddPartitions(name, producer_id, epoch, partitions, V1)], respond)

    def _unknown(self, partitions: Sequence[TopicPartition]) -> list[tuple[TopicPartition, ErrorCode]]:
        """Return an error for every partition if one of them does not exist: the transaction then gets none of them.
        Return [] if all exist.
        """
        known = {p: self._exists(p) for p in partitions}
        if all(known.values()):
            return []
        return [
            (p, ErrorCode.OPERATION_NOT_ATTEMPTED if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for p, exists in known.items()
        ]

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self._image.topic(partition[0])
        return topic is not None and partition[1] in topic.partitions

    # ---------------------------------------------------------------------------------------------------------- EndTxn

    def end_txn(self, request: EndTxnRequest, slot: PendingResponse) -> Any:
        """Commit or abort a transaction. The response leaves once the decision is committed; markers are written after
        that.
        """
        version = slot.version
        generation = V2 if version >= V2_FROM else V1

        def respond(answers: list[TxnResponse]) -> EndTxnResponse:
            (answer,) = answers
            response = EndTxnResponse(error_code=_downgraded_error(answer.error, "EndTxn", version))
            if generation == V2:
                response.producer_id, response.producer_epoch = answer.producer_id, answer.epoch
            return response

        asked = EndTransaction(
            request.transactional_id, request.producer_id, request.producer_epoch, request.committed, generation
        )
        return self._ask([asked], respond)

    # ------------------------------------------------------------------------------------------------------ describing

    def describe_transactions(self, request: describe_wire.DescribeTransactionsRequest, slot: PendingResponse) -> Any:
        """Describe the transactions of some transactional ids, each as its coordinator knows it."""
        names = list(request.transactional_ids)

        def respond(answers: list[TxnResponse]) -> describe_wire.DescribeTransactionsResponse:
            answers = answer_each(names, answers, REPEATED)
            states = [_described(name, answer) for name, answer in zip(names, answers, strict=True)]
            return describe_wire.DescribeTransactionsResponse(transaction_states=states)

        return self._ask([DescribeTransaction(name) for name in dict.fromkeys(names)], respond)

    def list_transactions(self, request: list_wire.ListTransactionsRequest, slot: PendingResponse) -> Any:
        """List the transactions that this broker coordinates, filtered by state, producer, duration (KIP-994) and
        pattern (KIP-1152). A pattern is matched off the event loop if the transactional ids have many characters.
        """
        wanted = _TransactionFilter(request, self._env.wall_ms())
        try:
            pattern = RegexPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
        except BadPattern:
            return list_wire.ListTransactionsResponse(error_code=int(ErrorCode.INVALID_REGULAR_EXPRESSION))
        response = list_wire.ListTransactionsResponse(unknown_state_filters=wanted.unknown_states)
        done = trio.Event()
        found: dict[str, TransactionMetadata] = {}

        def ready(error: ErrorCode, transactions: list[TransactionMetadata]) -> None:
            response.error_code = int(error)
            found.update((t.transactional_id, t) for t in transactions if wanted.has(t))
            done.set()

        def answer(names: Iterable[str]) -> list_wire.ListTransactionsResponse:
            states = [(name, found[name]) for name in names]
            response.transaction_states = [
                list_wire.TransactionState(name, t.producer_id, STATE_NAMES[t.state]) for name, t in states
            ]
            return response

        self._coordinator.transactions(ready)
        chars = 0 if pattern is None else sum(map(len, found))
        if done.is_set() and chars <= QUICK_CHARS:
            DONE.steps += chars
            return answer(found if pattern is None else pattern.matching(found))

        async def wait() -> list_wire.ListTransactionsResponse:
            with self._env.timeout(self._timeout_s):
                await done.wait()
            if not done.is_set():
                return list_wire.ListTransactionsResponse(error_code=int(TIMED_OUT.error))
            return answer(found if pattern is None else await self._matching_names(pattern, list(found), slot))

        return DeferredResponse(wait)

    async def _matching_names(self, pattern: RegexPattern, names: list[str], slot: PendingResponse) -> list[str]:
        """Return the names that the pattern matches. They are matched off the event loop, a part at a time."""
        matching: list[str] = []
        at = 0
        while at < len(names) and not slot.conn.closed:
            begin, chars = at, 0
            while at < len(names) and chars < CHARS_A_TURN:
                chars += len(names[at])
                at += 1
            matching += await self._turns.run(pattern.matching, names[begin:at])
        return matching


class _TransactionFilter:
    """Holds the filters of a ListTransactions request, without its pattern."""

    def __init__(self, request: list_wire.ListTransactionsRequest, now_ms: int) -> None:
        self._producers, self._states = set(request.producer_id_filters), set(request.state_filters)
        self._longer_than_ms, self._now_ms = request.duration_filter, now_ms
        known = set(STATE_NAMES.values())
        self.unknown_states = [name for name in dict.fromkeys(request.state_filters) if name not in known]

    def has(self, transaction: TransactionMetadata) -> bool:
        if self._producers and transaction.producer_id not in self._producers:
            return False
        if self._states and STATE_NAMES[transaction.state] not in self._states:
            return False
        if self._longer_than_ms >= 0:
            runs = transaction.state == TxnState.ONGOING or transaction.state in PREPARED
            return runs and self._now_ms - transaction.started_ms > self._longer_than_ms
        return True


def _described(name: str, answer: TxnResponse) -> describe_wire.TransactionState:
    found = answer.transaction
    if found is None:
        return describe_wire.TransactionState(transactional_id=name, error_code=int(answer.error))
    topics: dict[str, list[int]] = {}
    for topic, index in found.partitions:
        topics.setdefault(topic, []).append(index)
    return describe_wire.TransactionState(
        transactional_id=name,
        transaction_state=STATE_NAMES[found.state],
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[describe_wire.TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def _downgraded_error(error: ErrorCode, api: str, version: int) -> int:
    """Return the error code, or an older code if clients of this version do not know the error."""
    if error == ErrorCode.PRODUCER_FENCED and version < FENCED_FROM[api]:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(error)


def _abortable(error: ErrorCode, version: int) -> ErrorCode:
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _partitions(topics: Sequence[add_wire.AddPartitionsToTxnTopic]) -> tuple[TopicPartition, ...]:
    return tuple(dict.fromkeys((topic.name, int(index)) for topic in topics for index in topic.partitions))


def _by_topic(
    results: Sequence[tuple[TopicPartition, ErrorCode]],
) -> list[add_wire.AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[add_wire.AddPartitionsToTxnPartitionResult]] = {}
    for (name, index), error in results:
        result = add_wire.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=int(error))
        topics.setdefault(name, []).append(result)
    return [
        add_wire.AddPartitionsToTxnTopicResult(name=name, results_by_partition=found) for name, found in topics.items()
    ]
