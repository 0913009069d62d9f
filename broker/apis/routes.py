"""Maps each API to its handler: dispatch reads the tables that these functions build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.apis.describe import (
    api_versions,
    api_versions_unsupported,
    describe_cluster,
    describe_configs,
    list_config_resources,
)
from squall.broker.apis.describe_producers import describe_producers
from squall.broker.apis.describe_topic_partitions import describe_topic_partitions
from squall.broker.apis.log_dirs import describe_log_dirs
from squall.broker.net.served import FORWARDED, SERVED, SERVED_TO_NODES
from squall.broker.net.server import Route
from squall.broker.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from squall.broker.apis.committed_offsets import CommittedOffsetApis
    from squall.broker.apis.consumer_groups import ConsumerGroupApis
    from squall.broker.apis.delete_records import DeleteRecordsApi
    from squall.broker.apis.describe import AdminContext
    from squall.broker.apis.fetch import FetchApi
    from squall.broker.apis.find_coordinator import CoordinatorFinder
    from squall.broker.apis.groups import GroupApis
    from squall.broker.apis.metadata import MetadataHandler
    from squall.broker.apis.offsets import OffsetApis
    from squall.broker.apis.produce import ProduceApi
    from squall.broker.apis.transactions import TransactionApis
    from squall.broker.apis.txn_markers import TxnMarkersApi
    from squall.broker.apis.txn_offsets import TxnOffsetApis
    from squall.broker.control.port import ClientRequestForwarder, NodeHandler
    from squall.broker.net.connection import PendingResponse
    from squall.broker.replicas.replica_manager import ReplicaManager


def data_routes(
    replicas: ReplicaManager,
    produce: ProduceApi,
    fetch: FetchApi,
    deletions: DeleteRecordsApi,
    offsets: OffsetApis,
    markers: TxnMarkersApi,
) -> dict[int, Route]:
    """Return the routes of the APIs that this broker's own replicas answer."""
    return _table(
        Route(ApiKey.PRODUCE, hot=produce.handle),
        Route(ApiKey.FETCH, hot=fetch.handle),
        Route(ApiKey.LIST_OFFSETS, plain=offsets.list_offsets_to_clients),
        Route(ApiKey.OFFSET_FOR_LEADER_EPOCH, plain=offsets.offset_for_leader_epoch),
        Route(ApiKey.DESCRIBE_LOG_DIRS, plain=lambda request, slot: describe_log_dirs(replicas, request)),
        Route(ApiKey.DESCRIBE_PRODUCERS, plain=lambda request, slot: describe_producers(replicas, request)),
        Route(ApiKey.DELETE_RECORDS, plain=deletions.delete_records),
        Route(ApiKey.WRITE_TXN_MARKERS, plain=markers.handle),
    )


def coordinator_routes(
    transactions: TransactionApis,
    groups: GroupApis,
    consumers: ConsumerGroupApis,
    offsets: CommittedOffsetApis,
    txn_offsets: TxnOffsetApis,
    finder: CoordinatorFinder,
) -> dict[int, Route]:
    """Return the routes of the APIs that this broker's coordinators answer, and of FindCoordinator."""

    def find(request: Any, slot: PendingResponse) -> Any:
        return finder.find_coordinator(request, slot.version, slot.conn.listener)

    return _table(
        Route(ApiKey.FIND_COORDINATOR, plain=find),
        Route(ApiKey.INIT_PRODUCER_ID, plain=transactions.init_producer_id),
        Route(ApiKey.ADD_PARTITIONS_TO_TXN, plain=transactions.add_partitions),
        Route(ApiKey.END_TXN, plain=transactions.end_txn),
        Route(ApiKey.DESCRIBE_TRANSACTIONS, plain=transactions.describe_transactions),
        Route(ApiKey.LIST_TRANSACTIONS, plain=transactions.list_transactions),
        Route(ApiKey.OFFSET_COMMIT, plain=offsets.offset_commit),
        Route(ApiKey.OFFSET_FETCH, plain=offsets.offset_fetch),
        Route(ApiKey.OFFSET_DELETE, plain=offsets.offset_delete),
        Route(ApiKey.ADD_OFFSETS_TO_TXN, plain=txn_offsets.add_offsets),
        Route(ApiKey.TXN_OFFSET_COMMIT, plain=txn_offsets.txn_offset_commit),
        Route(ApiKey.JOIN_GROUP, plain=groups.join_group),
        Route(ApiKey.SYNC_GROUP, plain=groups.sync_group),
        Route(ApiKey.HEARTBEAT, plain=groups.heartbeat),
        Route(ApiKey.LEAVE_GROUP, plain=groups.leave_group),
        Route(ApiKey.DESCRIBE_GROUPS, plain=groups.describe_groups),
        Route(ApiKey.LIST_GROUPS, plain=groups.list_groups),
        Route(ApiKey.DELETE_GROUPS, plain=groups.delete_groups),
        Route(ApiKey.CONSUMER_GROUP_HEARTBEAT, plain=consumers.heartbeat),
        Route(ApiKey.CONSUMER_GROUP_DESCRIBE, plain=consumers.describe),
    )


def admin_routes(context: AdminContext, metadata: MetadataHandler, decider: ClientRequestForwarder) -> dict[int, Route]:
    """Return the routes of the APIs that are answered from this node's image of the cluster, and of those that
    `decider` forwards to the active controller.
    """

    def versions(request: Any, slot: PendingResponse) -> Any:
        return api_versions_unsupported() if request is None else api_versions(context, request, slot.version)

    def forward(key: ApiKey) -> Route:
        async def ask(request: Any, slot: PendingResponse) -> Any:
            timeout_ms = getattr(request, "timeout_ms", None)
            return await decider.forward(
                key, slot.version, request, client_id=slot.conn.client_id, timeout_ms=timeout_ms
            )

        return Route(key, waits=ask)

    async def alter(request: Any, slot: PendingResponse) -> Any:
        asked = forward(ApiKey.INCREMENTAL_ALTER_CONFIGS).waits
        assert asked is not None
        return await context.loggers.alter(request, lambda rest: asked(rest, slot))

    return _table(
        Route(ApiKey.API_VERSIONS, plain=versions),
        Route(ApiKey.METADATA, plain=lambda request, slot: metadata.encode(request, slot.version, slot.conn.listener)),
        Route(
            ApiKey.DESCRIBE_CLUSTER, plain=lambda request, slot: describe_cluster(context, request, slot.conn.listener)
        ),
        Route(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            plain=lambda request, slot: describe_topic_partitions(context, request, slot.conn.listener),
        ),
        Route(
            ApiKey.LIST_CONFIG_RESOURCES,
            plain=lambda request, slot: list_config_resources(context, request, slot.version),
        ),
        Route(ApiKey.DESCRIBE_CONFIGS, plain=lambda request, slot: describe_configs(context, request)),
        *(forward(key) for key in FORWARDED if key != ApiKey.INCREMENTAL_ALTER_CONFIGS),
        Route(ApiKey.INCREMENTAL_ALTER_CONFIGS, waits=alter),
    )


def node_routes(handlers: Mapping[int, NodeHandler], fetch: FetchApi, offsets: OffsetApis) -> dict[int, Route]:
    """Return the routes that only the listener between brokers has: the control plane's APIs, Fetch of the control
    plane's logs, and the requests of followers to leaders.
    """

    def by_control_plane(key: int, handler: NodeHandler) -> Route:
        return Route(key, plain=lambda request, slot: handler(request))

    return _table(
        *(by_control_plane(key, handler) for key, handler in handlers.items()),
        Route(ApiKey.FETCH, hot=fetch.handle_between_nodes),
        Route(ApiKey.LIST_OFFSETS, plain=offsets.list_offsets),
    )


def check_served(for_clients: dict[int, Route], for_nodes: dict[int, Route]) -> None:
    """Raise AssertionError unless ApiVersions lists exactly the APIs that clients are served. The listener between
    brokers may serve more.
    """
    assert sorted(for_clients) == sorted(SERVED), f"{sorted(for_clients)} served, {sorted(SERVED)} listed"
    only_nodes = sorted(key for key in for_nodes if key not in for_clients)
    stray = [key for key in only_nodes if key not in SERVED_TO_NODES]
    assert not stray, f"{stray} served to nodes, of which {sorted(SERVED_TO_NODES)} know"


def _table(*routes: Route) -> dict[int, Route]:
    return {route.key: route for route in routes}
