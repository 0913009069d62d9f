"""Sends this broker's own requests to the active controller, in Kafka's form: ISR changes (KIP-497), producer ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.control.port import IsrAnswer, IsrConfirmed, IsrProposal, IsrRejected, RequestRefused
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from squall.broker.control.forwarder import Forwarder

ALTER_PARTITION_VERSION = 3
ALLOCATE_VERSION = 0
TIMEOUT_MS = 5_000


class BrokerToControllerRequests:
    """Sends requests in the name of this broker, with the broker epoch at the time of sending."""

    def __init__(self, forwarder: Forwarder, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._forwarder, self._node_id, self._broker_epoch = forwarder, node_id, broker_epoch

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrAnswer]:
        """Send AlterPartition, and return one answer for each partition that the controller decided on. Raises
        RequestRefused, and OSError if no controller answered: each proposal may then have been applied or not.
        """
        request = alter_partition(proposals, self._node_id, self._broker_epoch())
        response = await self._forwarder.ask(ApiKey.ALTER_PARTITION, ALTER_PARTITION_VERSION, request, TIMEOUT_MS)
        if response.error_code:
            raise RequestRefused(ErrorCode(response.error_code))
        return [
            IsrRejected(topic.topic_id, part.partition_index, ErrorCode(part.error_code))
            if part.error_code
            else IsrConfirmed(
                topic.topic_id, part.partition_index, part.leader_epoch, part.partition_epoch, tuple(part.isr)
            )
            for topic in response.topics
            for part in topic.partitions
        ]

    async def allocate_producer_ids(self) -> range:
        """Send AllocateProducerIds, and return a block of producer ids for this broker alone. Raises RequestRefused,
        OSError.
        """
        from squall.broker.protocol.schema.allocate_producer_ids import (
            AllocateProducerIdsRequest,  # rarely needed
        )

        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        response = await self._forwarder.ask(ApiKey.ALLOCATE_PRODUCER_IDS, ALLOCATE_VERSION, request, TIMEOUT_MS)
        if response.error_code:
            raise RequestRefused(ErrorCode(response.error_code))
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)


def alter_partition(proposals: Sequence[IsrProposal], node_id: int, broker_epoch: int) -> AlterPartitionRequest:
    """Return one AlterPartition request with all proposals, topics in the order of the first proposal for each."""
    topics: dict[bytes, list[AlterPartitionRequestPartitionData]] = {}
    for proposal in proposals:
        topics.setdefault(proposal.topic_id, []).append(
            AlterPartitionRequestPartitionData(
                partition_index=proposal.index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[BrokerState(broker_id=b, broker_epoch=e) for b, e in proposal.isr],
                # RECOVERED: leaders need no recovery here, and the first proposal after an unclean election says so
                # (KIP-704).
                leader_recovery_state=0,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        topics=[AlterPartitionRequestTopicData(topic_id=t, partitions=p) for t, p in topics.items()],
    )
