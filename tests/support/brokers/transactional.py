"""A producer's conversation with the transaction coordinator of whole nodes, request by request."""

from __future__ import annotations

from typing import Any

import trio

from broker.coordinators.partitions import partition_of
from broker.net.peers import PeerClient
from broker.protocol.apis import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.schema.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from broker.protocol.schema.describe_transactions import DescribeTransactionsRequest
from broker.protocol.schema.end_txn import EndTxnRequest
from broker.protocol.schema.find_coordinator import FindCoordinatorRequest
from broker.protocol.schema.init_producer_id import InitProducerIdRequest
from tests.support.brokers.whole_nodes import INTERNAL_PORT, WholeCluster, WholeEnv
from tests.support.disks.memory_fs import MemoryFs

LOG = "__transaction_state"
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
GROUP, TRANSACTION = 0, 1
"""Types of keys in FindCoordinator."""
SMALL = {"transaction_state_log_num_partitions": "3", "transaction_state_log_min_isr": "2"}
"""Settings of a cluster whose coordinator's log is created quickly."""


class Talk:
    """Asks the nodes of a cluster, and retries as clients do."""

    def __init__(self, cluster: WholeCluster) -> None:
        self._cluster = cluster
        env: Any = WholeEnv(cluster.wire, "client", 1, MemoryFs())
        self.env = env
        self._peers = PeerClient(env, lambda node_id: (f"n{node_id}", INTERNAL_PORT + node_id), "talk")

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._peers.run(task_status=task_status)

    async def ask(self, node_id: int, key: ApiKey, version: int, request: Any, timeout_ms: int = 3000) -> Any:
        """One request to one node. OSError."""
        return await self._peers.request(node_id, key, version, request, timeout_ms)

    async def coordinator(self, of: str, key_type: int = TRANSACTION) -> int:
        """The node that coordinates a transactional id, or with `GROUP` a group, found as clients find it."""
        while True:
            for node_id in self._cluster.running():
                request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[of])
                try:
                    response = await self.ask(node_id, ApiKey.FIND_COORDINATOR, 4, request)
                except OSError:
                    continue
                [found] = response.coordinators
                if not found.error_code:
                    return int(found.node_id)
            await self.env.sleep(0.05)

    async def settled(
        self, of: str, key: ApiKey, version: int, request: Any, error_of: Any, key_type: int = TRANSACTION
    ) -> Any:
        """Ask the coordinator until it answers something that is not to be retried."""
        while True:
            node_id = await self.coordinator(of, key_type)
            try:
                response = await self.ask(node_id, key, version, request)
            except OSError:
                await self.env.sleep(0.05)
                continue
            if error_of(response) not in RETRIABLE:
                return response
            await self.env.sleep(0.02)

    async def init(self, name: str, *, timeout_ms: int = 60_000, version: int = 4) -> tuple[int, int]:
        """InitProducerId: (producer id, epoch)."""
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        found = await self.settled(name, ApiKey.INIT_PRODUCER_ID, version, request, lambda r: r.error_code)
        assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code)
        return found.producer_id, found.producer_epoch

    async def add(self, name: str, producer: tuple[int, int], topic: str, *partitions: int) -> ErrorCode:
        """AddPartitionsToTxn, version 3."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

        def error_of(response: Any) -> int:
            return int(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        response = await self.settled(name, ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, error_of)
        return ErrorCode(error_of(response))

    async def end(self, name: str, producer: tuple[int, int], commit: bool, *, version: int = 3) -> Any:
        """EndTxn; its whole response."""
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        return await self.settled(name, ApiKey.END_TXN, version, request, lambda r: r.error_code)

    async def state(self, name: str) -> str:
        """The state of an id as DescribeTransactions calls it; an error's name if there is none."""
        request = DescribeTransactionsRequest(transactional_ids=[name])
        response = await self.settled(
            name, ApiKey.DESCRIBE_TRANSACTIONS, 0, request, lambda r: r.transaction_states[0].error_code
        )
        [found] = response.transaction_states
        return ErrorCode(found.error_code).name if found.error_code else str(found.transaction_state)

    def log_of(self, name: str) -> int:
        """The partition of the coordinator's log that an id belongs to."""
        topic = self._cluster.image().topic(LOG)
        return partition_of(name, len(topic.partitions))
