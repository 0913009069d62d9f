"""Sends a producer's transaction requests to their coordinator, and interprets the responses (KIP-98, KIP-890).

Both transaction versions are supported. V1: the producer adds a partition before its first record, and an epoch lasts
for many transactions. V2 (transaction.version 2): the partition's leader adds it, and each end of a transaction returns
the next epoch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.schema.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from squall.broker.protocol.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from squall.broker.protocol.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from squall.broker.protocol.schema.end_txn import EndTxnRequest, EndTxnResponse
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import VERSION, RequestFailed, UnsupportedApi
from squall.workloads.client.outcomes import TIMED_OUT, OperationStatus

OF_TRANSACTIONAL_IDS = 1
"""Is the key_type of FindCoordinator for transactional ids."""
SINGLE_KEY = 3
"""Is the last version of FindCoordinator that asks for a single key."""
V1_ADD, V1_END, V1_INIT = 3, 4, 4
"""Are the last request versions for transaction version 1: of AddPartitionsToTxn and AddOffsetsToTxn (`V1_ADD`), of
EndTxn, and of InitProducerId.
"""
V2_LEVEL = 2


class CoordinatorErrorMeaning(Enum):
    """Names what a coordinator's error says about its request."""

    REFUSED = "not done, and would not be if asked again"
    NOT_YET = "not done, may be if asked again"
    DOUBT = "may have been done; asking again is safe"
    ELSEWHERE = "may have been done; another broker is the coordinator, or will be"
    END_IN_DOUBT = "may have been done, asking again is no use"


_MEANINGS: dict[int, CoordinatorErrorMeaning] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.PRODUCER_FENCED: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.INVALID_TXN_STATE: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.TRANSACTION_ABORTABLE: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.INVALID_REQUEST: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.UNSUPPORTED_VERSION: CoordinatorErrorMeaning.REFUSED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorErrorMeaning.NOT_YET,
    ErrorCode.CONCURRENT_TRANSACTIONS: CoordinatorErrorMeaning.NOT_YET,
    # The coordinator's metadata does not have a new topic yet.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CoordinatorErrorMeaning.NOT_YET,
    # Kafka's coordinator also answers these two if its record was appended but not (yet) replicated.
    ErrorCode.NOT_COORDINATOR: CoordinatorErrorMeaning.ELSEWHERE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CoordinatorErrorMeaning.ELSEWHERE,
    ErrorCode.REQUEST_TIMED_OUT: CoordinatorErrorMeaning.DOUBT,
    ErrorCode.NETWORK_EXCEPTION: CoordinatorErrorMeaning.DOUBT,
}


def meaning(code: int) -> CoordinatorErrorMeaning:
    """Return the meaning of a coordinator's error. It is END_IN_DOUBT for an unlisted error: the coordinator may have
    carried out the request, and a retry is no use.
    """
    return _MEANINGS.get(code, CoordinatorErrorMeaning.END_IN_DOUBT)


class TransactionRequestFailed(Exception):
    """Reports that a transactional producer's request failed; `name` is the last error's name.

    `doubt` is true if an attempt of the request may have been carried out all the same.
    """

    def __init__(self, name: str, *, doubt: bool) -> None:
        super().__init__(name)
        self.name, self.doubt = name, doubt


class TransactionRefused(TransactionRequestFailed):
    """Reports an error after which a retry is no use: the producer is fenced, for example, or the transaction is over.
    """

    def __init__(self, code: int, *, doubt: bool) -> None:
        super().__init__(name_of(code), doubt=doubt)


class TransactionRequestTimedOut(TransactionRequestFailed):
    """Reports that a request got no successful response within its time limit. If `doubt` is true, the coordinator may
    have carried out the request all the same.
    """

    def __init__(self, *, doubt: bool) -> None:
        super().__init__(TIMED_OUT, doubt=doubt)


class ProducerIdAndEpoch(NamedTuple):
    """Holds the id and the epoch of a producer."""

    producer_id: int
    epoch: int


class EndTxnResult(NamedTuple):
    """Holds the outcome of EndTxn. OK: done as requested. FAIL: certainly not done. INFO: unknown."""

    status: OperationStatus
    error: str


@dataclass(slots=True)
class _CoordinatorResponse:
    """Holds a response's error code, and the producer id and epoch if it has them."""

    code: int
    identity: ProducerIdAndEpoch | None = None


class TransactionManager:
    """Sends the transaction requests of one transactional id. Needs a running `Client`.

    `timeout_ms` is the transaction's time-out, which the coordinator applies. `limit_s` limits the time in which one
    request is retried. `generation` is the highest transaction version to use, 1 or 2.
    """

    def __init__(
        self, client: Client, transactional_id: str, timeout_ms: int, limit_s: float, *, generation: int = 2
    ) -> None:
        self.id, self.timeout_ms = transactional_id, timeout_ms
        self.identity = ProducerIdAndEpoch(-1, -1)
        self.v2 = False
        """Is True if transaction version 2 is used, because the cluster's transaction.version is at least 2."""
        self.unanswered = 0
        """Counts the attempts of the most recent request that got no response: they may reach the coordinator later.
        After `end`, these are EndTxn requests.
        """
        self._client, self._limit_s, self._generation = client, limit_s, generation
        self._coordinator = -1
        self._added: set[Place] = set()

    async def begin_writing(self) -> ProducerIdAndEpoch:
        """Initialise the transactional id (InitProducerId), which fences every earlier producer of this id and ends its
        open transaction.

        Raises TransactionRefused and TransactionRequestTimedOut.
        """
        self.v2 = await self._speaks_v2()
        request = InitProducerIdRequest(self.id, self.timeout_ms)

        async def ask(node: int) -> _CoordinatorResponse:
            version = min(V1_INIT, InitProducerIdRequest.MAX_VERSION) if not self.v2 else None
            answer = await self._client.ask_node(node, request, InitProducerIdResponse, version=version)
            return _CoordinatorResponse(
                answer.error_code, ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            )

        answered = await self._retry_until_done(ask)
        assert answered.identity is not None
        self.identity = answered.identity
        self._added.clear()
        return self.identity

    async def add(self, places: Sequence[Place]) -> None:
        """Prepare partitions for their first record in the transaction. With transaction version 1, send
        AddPartitionsToTxn for new ones. With version 2, send nothing: the partitions' leaders add them.

        Raises TransactionRefused and TransactionRequestTimedOut.
        """
        new = [place for place in places if place not in self._added]
        if self.v2 or not new:
            # With V2 as well: `end` sends nothing for a transaction that has no partitions.
            self._added.update(new)
            return
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in new:
            topics.setdefault(topic, AddPartitionsToTxnTopic(topic, [])).partitions.append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=list(topics.values()),
        )

        async def ask(node: int) -> _CoordinatorResponse:
            answer = await self._client.ask_node(node, request, AddPartitionsToTxnResponse, version=V1_ADD)
            codes = [
                each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ]
            # OPERATION_NOT_ATTEMPTED accompanies the error that is the reason.
            errors = [code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)]
            return _CoordinatorResponse(errors[0] if errors else ErrorCode.NONE)

        await self._retry_until_done(ask)
        self._added.update(new)

    async def add_offsets(self, group: str) -> None:
        """Prepare the commit of a group's offsets in the transaction. With transaction version 1, send AddOffsetsToTxn.
        With version 2, send nothing: the group's coordinator adds its partition of __consumer_offsets. Raises
        TransactionRefused and TransactionRequestTimedOut.
        """
        mark = (f"offsets of {group}", -1)
        if not self.v2 and mark not in self._added:
            request = AddOffsetsToTxnRequest(self.id, *self.identity, group)

            async def ask(node: int) -> _CoordinatorResponse:
                answer = await self._client.ask_node(node, request, AddOffsetsToTxnResponse, version=V1_ADD)
                return _CoordinatorResponse(answer.error_code)

            await self._retry_until_done(ask)
        # With V2 as well: `end` sends nothing for a transaction that has neither partitions nor offsets.
        self._added.add(mark)

    async def end(self, *, commit: bool) -> EndTxnResult:
        """Send EndTxn. For a transaction without partitions nothing is sent, because the coordinator does not know of
        it.
        """
        self.unanswered = 0
        if not self._added:
            return EndTxnResult(OperationStatus.OK, "")
        request = EndTxnRequest(self.id, *self.identity, commit)

        async def ask(node: int) -> _CoordinatorResponse:
            version = None if self.v2 else V1_END
            answer = await self._client.ask_node(node, request, EndTxnResponse, version=version)
            return _CoordinatorResponse(
                answer.error_code, ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            )

        # Whatever the response: this transaction is over for its producer, and the next one adds its own partitions.
        self._added.clear()
        try:
            answered = await self._retry_until_done(ask)
        except TransactionRequestFailed as failure:
            return EndTxnResult(OperationStatus.INFO if failure.doubt else OperationStatus.FAIL, failure.name)
        # Before version 5 a response has no producer id.
        if self.v2 and answered.identity is not None and answered.identity.producer_id >= 0:
            self.identity = answered.identity
        return EndTxnResult(OperationStatus.OK, "")

    async def _speaks_v2(self) -> bool:
        """Return whether the cluster supports transaction version 2. Raises TransactionRequestTimedOut."""
        if self._generation < V2_LEVEL:
            return False
        request = ApiVersionsRequest(client_software_name="squall", client_software_version=VERSION)
        with self._client.env.timeout(self._limit_s):
            answer = await self._client.ask(request, ApiVersionsResponse)
            levels = {each.name: each.max_version_level for each in answer.finalized_features}
            return levels.get("transaction.version", 0) >= V2_LEVEL
        raise TransactionRequestTimedOut(doubt=False)

    async def _retry_until_done(self, ask: Callable[[int], Awaitable[_CoordinatorResponse]]) -> _CoordinatorResponse:
        """Send a request until the coordinator has done it, and return the response. `ask` sends it to a broker id.
        Raises TransactionRefused and TransactionRequestTimedOut.
        """
        env, failures, doubt, asking = self._client.env, 0, False, False
        self.unanswered = 0
        with env.timeout(self._limit_s):
            while True:
                try:
                    node = await self._find()
                    asking = True
                    answered = await ask(node)
                except RequestFailed as failure:
                    doubt |= failure.sent
                    self.unanswered += failure.sent
                    self._coordinator = -1
                except UnsupportedApi:
                    self._coordinator = -1
                else:
                    if answered.code == ErrorCode.NONE:
                        return answered
                    doubt |= self._may_have_been_done(answered.code, doubt)
                asking = False
                failures += 1
                await env.sleep(self._client.backoff(failures))
        # The time limit may have ended the wait for a request that was sent.
        self.unanswered += asking
        raise TransactionRequestTimedOut(doubt=doubt or asking)

    def _may_have_been_done(self, code: int, doubt: bool) -> bool:
        """Return whether an attempt that got this error may have taken effect. `doubt` says whether an earlier attempt
        may have. Raises TransactionRefused if no retry helps.
        """
        match meaning(code):
            case CoordinatorErrorMeaning.REFUSED:
                raise TransactionRefused(code, doubt=doubt)
            case CoordinatorErrorMeaning.END_IN_DOUBT:
                raise TransactionRefused(code, doubt=True)
            case CoordinatorErrorMeaning.NOT_YET:
                return False
            case CoordinatorErrorMeaning.ELSEWHERE:
                self._coordinator = -1
                return True
            case CoordinatorErrorMeaning.DOUBT:
                return True

    async def _find(self) -> int:
        """Return the coordinator's broker id. If there is no coordinator yet, wait. Raises nothing."""
        failures = 0
        request = FindCoordinatorRequest(self.id, OF_TRANSACTIONAL_IDS)
        while self._coordinator < 0:
            answer = await self._client.ask(request, FindCoordinatorResponse, version=SINGLE_KEY)
            if answer.error_code == ErrorCode.NONE and answer.node_id in self._client.view.nodes:
                self._coordinator = answer.node_id
                break
            self._client.refresh_soon()
            failures += 1
            await self._client.env.sleep(self._client.backoff(failures))
        return self._coordinator
