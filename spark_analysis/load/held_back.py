"""Finds the open transactions that hold back a load at read_committed: it cannot read beyond the last stable offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from squall.broker.protocol.schema.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from squall.broker.protocol.schema.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from squall.workloads.client.admin import metadata
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed, UnsupportedApi


class HoldingTransaction(NamedTuple):
    """Describes a transaction that is the first open one of a partition."""

    place: Place
    first: int
    """Is the offset of its first record: the partition's last stable offset."""
    waiting: int
    """Counts the offsets from there to the high watermark."""
    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    """Is empty if no coordinator knows an open transaction of this producer: then nothing will end it (KIP-664). None
    if not all brokers have answered.
    """
    since_ms: int
    """Is when the transaction began, in ms since the Unix epoch; if no coordinator knows it, when its producer wrote
    last.
    """

    def words(self, now_ms: int) -> str:
        """Return the transaction in a line of text."""
        offsets = f"{self.waiting:,} offset{'s'[: self.waiting > 1]} from {self.first} on"
        where = f"{self.place[0]}-{self.place[1]}: {offsets} behind"
        producer = f"producer {self.producer_id}, epoch {self.producer_epoch}"
        for_s = max(0, now_ms - self.since_ms) // 1000
        if self.transactional_id:
            return f"{where} the transaction of {self.transactional_id} ({producer}), open for {for_s} s"
        if self.transactional_id is None:
            return f"{where} an open transaction ({producer}), which last wrote {for_s} s ago"
        return f"{where} a transaction that no coordinator knows ({producer}), which last wrote {for_s} s ago"


async def open_transactions(
    client: Client, bounds: Mapping[Place, tuple[int, int]]
) -> list[HoldingTransaction]:
    """Return the first open transaction of each partition. `bounds` maps partitions to their last stable offsets and
    high watermarks; those in which the two are equal have none. Partitions whose leader does not answer are left out.
    """
    held = {place: each for place, each in bounds.items() if each[0] < each[1]}
    if not held:
        return []
    found = []
    for place, (stable, high_watermark) in held.items():
        leader = client.view.leader(*place)
        if leader is None:
            continue
        request = DescribeProducersRequest([TopicRequest(place[0], [place[1]])])
        try:
            answer = await client.ask_node(leader.node_id, request, DescribeProducersResponse)
        except (RequestFailed, UnsupportedApi):
            continue
        part = answer.topics[0].partitions[0]
        first = [each for each in part.active_producers if each.current_txn_start_offset == stable]
        found += [
            HoldingTransaction(
                place=place,
                first=stable,
                waiting=high_watermark - stable,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                transactional_id=None,
                since_ms=each.last_timestamp,
            )
            for each in first
        ]
    known, whole = await _known(client, sorted({each.producer_id for each in found}))
    for n, each in enumerate(found):
        name, since_ms = known.get(each.producer_id, ("" if whole else None, each.since_ms))
        found[n] = each._replace(transactional_id=name, since_ms=since_ms)
    return found


async def _known(client: Client, producer_ids: Sequence[int]) -> tuple[dict[int, tuple[str | None, int]], bool]:
    """Return (transactional id, begin in ms since the Unix epoch) of each producer's open transaction, as coordinators
    know them, and whether all brokers have answered.
    """
    known: dict[int, tuple[str | None, int]] = {}
    whole = True
    if not producer_ids:
        return known, whole
    for node in (await metadata(client, [])).brokers:
        try:
            request = ListTransactionsRequest(producer_id_filters=list(producer_ids))
            listed = await client.ask_node(node.node_id, request, ListTransactionsResponse)
            whole &= listed.error_code == ErrorCode.NONE
            ids = [each.transactional_id for each in listed.transaction_states]
            if not ids:
                continue
            asked = DescribeTransactionsRequest(ids)
            described = await client.ask_node(node.node_id, asked, DescribeTransactionsResponse)
        except (RequestFailed, UnsupportedApi):
            whole = False
            continue
        for each in described.transaction_states:
            if each.error_code == ErrorCode.NONE and each.transaction_start_time_ms >= 0:
                known[each.producer_id] = each.transactional_id, each.transaction_start_time_ms
    return known, whole
