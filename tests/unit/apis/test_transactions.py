"""InitProducerId, and the words of the transaction coordinator's APIs in each version."""

from __future__ import annotations

from typing import Any

import trio

from broker.apis.transactions import TransactionApis
from broker.cluster.image import ClusterImage
from broker.control.port import RequestRefused
from broker.net.connection import Slot
from broker.net.later import Later
from broker.protocol.errors import ErrorCode
from broker.protocol.schema.init_producer_id import InitProducerIdRequest
from broker.replicas.coordinators.producer_ids import ProducerIds


def slot_of(version: int) -> Slot:
    conn: Any = None
    return Slot(conn, 1, version, False)


async def answered(answer: Any) -> Any:
    return await answer.wait() if isinstance(answer, Later) else answer


def api_over(blocks: Any, coordinator: Any = None, image: ClusterImage | None = None) -> TransactionApis:
    env: Any = None
    return TransactionApis(env, image or ClusterImage(), coordinator, ProducerIds(blocks), 1000)


class Blocks:
    """Plays the control plane: hands out blocks of three ids."""

    def __init__(self) -> None:
        self.given = 0
        self.error = ErrorCode.NONE

    async def allocate_producer_ids(self) -> range:
        await trio.lowlevel.checkpoint()
        if self.error:
            raise RequestRefused(self.error)
        self.given += 1
        return range(3 * (self.given - 1), 3 * self.given)


async def test_producer_ids_are_never_given_twice_even_if_many_ask_at_once() -> None:
    api = api_over(Blocks())
    given: list[int] = []

    async def one() -> None:
        response = await answered(api.init_producer_id(InitProducerIdRequest(transactional_id=None), slot_of(4)))
        assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
        given.append(response.producer_id)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)
    assert len(set(given)) == 20


async def test_without_a_block_a_producer_is_told_to_ask_again() -> None:
    blocks = Blocks()
    blocks.error = ErrorCode.BROKER_ID_NOT_REGISTERED
    asked = InitProducerIdRequest(transactional_id=None)
    response = await answered(api_over(blocks).init_producer_id(asked, slot_of(4)))
    assert (response.error_code, response.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
