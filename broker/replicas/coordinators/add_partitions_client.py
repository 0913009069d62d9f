"""Asks a transaction's coordinator whether a partition is part of the transaction, or to add it. The partition's leader
asks before it appends the transaction's first batch.

With transaction.version 1 the producer has added the partition itself, and the leader only verifies that (KIP-890, part
1). With transaction.version 2 the leader adds the partition (part 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from squall.broker.coordinators.partitions import partition_of
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from squall.broker.replicas.coordinators.transaction_coordinator import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.cluster.image import ClusterImage
    from squall.broker.net.peers import PeerClient
    from squall.broker.protocol.schema.add_partitions_to_txn import AddPartitionsToTxnResponse

VERSION = 5
"""Is the version of AddPartitionsToTxn: the first version that may answer TRANSACTION_ABORTABLE."""
LANE = "enrolment"
"""Names the lane (separate connection) of AddPartitionsToTxn requests. The coordinator answers only when its own record
is replicated, and other requests on the same connection would wait as long.
"""

Place = tuple[str, int]


class ProduceTransaction(NamedTuple):
    """Identifies the transaction of a Produce request: transactional id, producer id and producer epoch."""

    transactional_id: str
    producer_id: int
    epoch: int


class AddPartitionsClient:
    """Sends AddPartitionsToTxn to the coordinators of transactional ids."""

    def __init__(self, image: ClusterImage, peers: PeerClient, timeout_ms: int) -> None:
        self._image, self._peers, self._timeout_ms = image, peers, timeout_ms

    async def ask(
        self, transaction: ProduceTransaction, places: Sequence[Place], *, add: bool
    ) -> dict[Place, ErrorCode]:
        """Return the coordinator's error for each partition: NONE if the partition is part of the transaction. If `add`
        is true, the coordinator adds the partitions; otherwise it only verifies them.

        The error is NETWORK_EXCEPTION if no response came: the partition may have been added.
        """
        leader = self._coordinator_of(transaction.transactional_id)
        if leader == NO_NODE:
            return dict.fromkeys(places, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        topics: dict[str, list[int]] = {}
        for name, index in places:
            topics.setdefault(name, []).append(index)
        asked = AddPartitionsToTxnTransaction(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            verify_only=not add,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in topics.items()],
        )
        request = AddPartitionsToTxnRequest(transactions=[asked])
        try:
            response = await self._peers.request(
                leader, ApiKey.ADD_PARTITIONS_TO_TXN, VERSION, request, self._timeout_ms, lane=LANE
            )
        except OSError:
            return dict.fromkeys(places, ErrorCode.NETWORK_EXCEPTION)
        return _verdicts(response, places)

    def _coordinator_of(self, transactional_id: str) -> int:
        topic = self._image.topic(TOPIC)
        if topic is None:
            return NO_NODE
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader


def _verdicts(response: AddPartitionsToTxnResponse, places: Sequence[Place]) -> dict[Place, ErrorCode]:
    """Return the error code of each partition. A partition that the response does not name was not added."""
    if response.error_code:
        return dict.fromkeys(places, ErrorCode(response.error_code))
    named = {
        (topic.name, part.partition_index): ErrorCode(part.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for part in topic.results_by_partition
    }
    return {place: named.get(place, ErrorCode.COORDINATOR_NOT_AVAILABLE) for place in places}
