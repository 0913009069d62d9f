"""Implements KRaft's control plane: metadata quorum, controller on the leader, and requests to the active controller
(mechanism C2 in docs/mechanisms.md).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from squall.broker.cluster.names import METADATA_TOPIC, METADATA_TOPIC_ID
from squall.broker.control.forwarder import Forwarder, open_envelope
from squall.broker.control.kraft.bootstrap_file import formatted_records
from squall.broker.control.kraft.controller_service import ControllerService
from squall.broker.control.kraft.metadata_quorum import MetadataQuorum, NotLeader
from squall.broker.control.kraft.snapshotter import Snapshotter
from squall.broker.control.kraft.voter_shutdown import VoterShutdown
from squall.broker.control.lifecycle import BrokerLifecycle
from squall.broker.control.orders import orders_of
from squall.broker.control.own_requests import BrokerToControllerRequests
from squall.broker.control.port import NOT_REGISTERED
from squall.broker.controller.features import check_supported
from squall.broker.log.config import LogConfig
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from squall.broker.cluster.feed import ImageFeed
    from squall.broker.cluster.image import ImageDelta
    from squall.broker.config import BrokerConfig
    from squall.broker.control.port import DataPlane, FetchHandler, IsrAnswer, IsrProposal, NodeHandler
    from squall.broker.env import Env
    from squall.broker.log.manager import LogManager
    from squall.broker.net.peers import PeerClient

BY_CONTROLLER = (
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
"""Lists the APIs by which brokers send requests of their own (not of clients) to the controller."""


MOST_BYTES = 2**31 - 1
"""Is the greatest value of a batch's length field. As a size limit, it permits every batch."""


def metadata_log_config(config: BrokerConfig) -> LogConfig:
    """Return the settings of the metadata log. Retention deletes nothing: only snapshots make old records unnecessary.
    Batches may be of any size, because the controller cannot undo a decision whose batch is too large.
    """
    most = config.metadata_log_segment_bytes
    return LogConfig(retention_ms=-1, retention_bytes=-1, segment_bytes=most, max_message_bytes=MOST_BYTES)


class KraftControlPlane:
    """Implements `port.ControlPlane` with KRaft. Only tests and the simulator read its attributes."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        cluster_id: str,
        feed: ImageFeed,
        logs: LogManager,
        peers: PeerClient,
    ) -> None:
        """Create the control plane. The logs in `logs` must be loaded; `peers` sends requests to the other nodes.
        Raises DamagedQuorumState, OSError.
        """
        self._env, self._config, self._cluster_id, self._logs = env, config, cluster_id, logs
        self.feed = feed
        # The first subscriber: no other may act on metadata of a feature level that this version lacks.
        feed.follow(self._check_features)
        log = logs.get_or_create(METADATA_TOPIC, 0, METADATA_TOPIC_ID, env.wall_ms())
        formatted = formatted_records(env.fs, config.data_dir)
        self.quorum = MetadataQuorum(
            env,
            config,
            log,
            peers,
            cluster_id,
            on_committed=feed.committed,
            on_snapshot=feed.restored,
            on_leadership=self._leadership,
        )
        self.snapshotter = Snapshotter(env, config, feed, self.quorum)
        self.service = ControllerService(env, config, cluster_id, self.quorum, feed, NotLeader, formatted)
        self.forwarder = Forwarder(env, config, peers, self.service, lambda: self.quorum.leader_id)
        self.quorum.on_leader = self.forwarder.controller_moved
        self.forward = self.forwarder.forward
        self.voter_shutdown = VoterShutdown(env, config.node_id, self.quorum, feed)
        self._own = BrokerToControllerRequests(self.forwarder, config.node_id, lambda: self.broker_epoch)
        self.lifecycle: BrokerLifecycle | None = None
        """Is set once this broker begins to join the cluster."""

    def _check_features(self, delta: ImageDelta) -> None:
        """Raise UnsupportedFeature if the cluster has enabled a feature level that this version lacks."""
        if delta.features:
            check_supported(self.feed.image.features, "the cluster")

    def _leadership(self, is_leader: bool, epoch: int) -> None:
        leadership = self.quorum.leadership
        self.service.on_leadership(is_leader, epoch, leadership.predecessor if leadership is not None else None)

    # ------------------------------------------------------------------------------------------------- what is known

    @property
    def controller_id(self) -> int:
        """Returns the quorum's leader, which is the active controller; NO_NODE if unknown."""
        return self.quorum.leader_id

    @property
    def broker_epoch(self) -> int:
        """Returns the broker epoch of this incarnation, or NOT_REGISTERED before its registration."""
        return self.lifecycle.broker_epoch if self.lifecycle is not None else NOT_REGISTERED

    @property
    def answered_at(self) -> float:
        """Returns when a controller last answered this node, by `env.mono()`."""
        return self.forwarder.answered_at

    # ----------------------------------------------------------------------------------------------------- to be asked

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrAnswer]:
        """Send ISR proposals to the controller, and return one answer for each partition that it decided on."""
        return await self._own.alter_isr(proposals)

    async def allocate_producer_ids(self) -> range:
        """Return a block of producer ids for this broker alone."""
        return await self._own.allocate_producer_ids()

    def handlers(self) -> Mapping[int, NodeHandler]:
        """Return the handlers of other nodes' requests, by API key: requests within the quorum (such as Vote), brokers'
        requests to the controller, and clients' requests in an Envelope (KIP-590).
        """
        quorum, service = self.quorum.requests, self.service

        def waits(handler: Callable[[Any], Awaitable[Any]]) -> NodeHandler:
            return lambda request: DeferredResponse(partial(handler, request))

        return {
            ApiKey.VOTE: waits(quorum.vote),
            ApiKey.BEGIN_QUORUM_EPOCH: waits(quorum.begin_quorum_epoch),
            ApiKey.END_QUORUM_EPOCH: waits(quorum.end_quorum_epoch),
            ApiKey.FETCH_SNAPSHOT: waits(quorum.fetch_snapshot),
            ApiKey.ENVELOPE: waits(partial(open_envelope, self._env, service)),
            **{key: partial(service.handle, key) for key in BY_CONTROLLER},
        }

    def fetched_logs(self) -> Mapping[bytes, FetchHandler]:
        """Return the Fetch handler of the metadata log, which voters and observers replicate by Fetch (KIP-595)."""
        return {METADATA_TOPIC_ID: self.quorum.requests.fetch}

    # ------------------------------------------------------------------------------------------------------------ life

    def start(self, start_soon: Callable[..., None]) -> None:
        """Start quorum, snapshotter and controller as background tasks."""
        start_soon(self.quorum.run)
        start_soon(self.snapshotter.run)
        start_soon(self.service.run)

    def join(self, endpoints: Mapping[str, tuple[str, int]]) -> BrokerLifecycle:
        """Return the lifecycle of this broker, which the caller runs: it registers the advertised `endpoints`."""
        self.lifecycle = BrokerLifecycle(
            self._env,
            self._config,
            self.forwarder,
            self.feed,
            cluster_id=self._cluster_id,
            endpoints=endpoints,
            directory_id=self._logs.directory_id,
            previous_broker_epoch=self._logs.previous_broker_epoch,
        )
        return self.lifecycle

    def command(self, data_plane: DataPlane) -> None:
        """Give orders to `data_plane` from now on: first those that follow from the whole image, then those that follow
        from each change of it.
        """

        def changed(delta: ImageDelta) -> None:
            data_plane.obey(orders_of(self.feed.image, delta, self._config.node_id))

        self.feed.follow(changed, caught_up=True)

    async def wait_until_not_needed(self) -> None:
        """Wait until no stopping broker needs this voter any more."""
        await self.voter_shutdown.wait_until_safe()

    async def leave(self) -> None:
        """Leave the quorum: when this returns, its files are not accessed any more."""
        await self.quorum.leave()
