"""Decides AllocateProducerIds: each broker gets blocks of producer ids that no other broker gets (mechanism P2 in
docs/mechanisms.md, KIP-730).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.replay import MetadataRecord
from squall.broker.controller.decision import Decision, Refusal, check_broker_epoch
from squall.broker.protocol.schema.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from squall.broker.protocol.schema.metadata_records import ProducerIdsRecord

if TYPE_CHECKING:
    from squall.broker.controller.decision import Command

BLOCK_SIZE = 1000


def allocate_producer_ids(
    command: Command, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """Allocate the next block of ids to one broker. A block whose reply is lost stays unused. Error: STALE_BROKER_EPOCH
    if the broker is not registered with the request's epoch.
    """
    try:
        check_broker_epoch(command.image, request.broker_id, request.broker_epoch)
    except Refusal as refused:
        return Decision(AllocateProducerIdsResponse(error_code=refused.code))
    start = command.image.next_producer_id
    assert start >= 0
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + BLOCK_SIZE
    )
    reply = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)
    return Decision(reply, (MetadataRecord(record, 0),))
