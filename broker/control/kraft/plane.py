"""KRaft's control plane: the metadata quorum, the controller while this node leads, and the way to it (C2)."""

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
"""What other brokers ask of the controller in their own name."""


MOST_BYTES = 2**31 - 1
"""What a batch can have at all."""


def metadata_log_config(config: BrokerConfig) -> LogConfig:
    """The metadata log is never shortened by retention: only what a snapshot holds is dropped from it. No batch is too
    large for it: the controller has decided, and cannot take that back.
    """
    most = config.metadata_log_segment_bytes
    return LogConfig(retention_ms=-1, retention_bytes=-1, segment_bytes=most, max_message_bytes=MOST_BYTES)


class KraftControlPlane:
    """A `port.ControlPlane`. Its parts may be read; only tests and the simulator look at them."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        cluster_id: str,
        feed: ImageFeed,
        logs: LogManager,
        peers: PeerClient,
    ) -> None:
        """`logs` are loaded; `peers` reaches the other nodes. Raises DamagedQuorumState, OSError."""
        self._env, self._config, self._cluster_id, self._logs = env, config, cluster_id, logs
        self.feed = feed
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
        """Set once this broker begins to join."""

    def _check_features(self, delta: ImageDelta) -> None:
        """Before anybody acts on what the cluster has decided: end where that needs what this version lacks."""
        if delta.features:
            check_supported(self.feed.image.features, "the cluster")

    def _leadership(self, is_leader: bool, epoch: int) -> None:
        leadership = self.quorum.leadership
        self.service.on_leadership(is_leader, epoch, leadership.predecessor if leadership is not None else None)

    # ------------------------------------------------------------------------------------------------- what is known

    @property
    def controller_id(self) -> int:
        """The quorum's leader is the active controller."""
        return self.quorum.leader_id

    @property
    def broker_epoch(self) -> int:
        """See `port.ControlPlane`."""
        return self.lifecycle.broker_epoch if self.lifecycle is not None else NOT_REGISTERED

    @property
    def answered_at(self) -> float:
        """See `port.ControlPlane`."""
        return self.forwarder.answered_at

    # ----------------------------------------------------------------------------------------------------- to be asked

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrAnswer]:
        """See `port.IsrAuthority`."""
        return await self._own.alter_isr(proposals)

    async def allocate_producer_ids(self) -> range:
        """See `port.ProducerIdSource`."""
        return await self._own.allocate_producer_ids()

    def handlers(self) -> Mapping[int, NodeHandler]:
        """The quorum's own requests, those of brokers to their controller, and clients' in an Envelope (KIP-590)."""
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
        """The metadata log: voters and observers replicate it by Fetch (KIP-595)."""
        return {METADATA_TOPIC_ID: self.quorum.requests.fetch}

    # ------------------------------------------------------------------------------------------------------------ life

    def start(self, start_soon: Callable[..., None]) -> None:
        """See `port.ControlPlane`."""
        start_soon(self.quorum.run)
        start_soon(self.snapshotter.run)
        start_soon(self.service.run)

    def join(self, endpoints: Mapping[str, tuple[str, int]]) -> BrokerLifecycle:
        """See `port.ControlPlane`."""
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
        """See `port.ControlPlane`."""

        def changed(delta: ImageDelta) -> None:
            data_plane.obey(orders_of(self.feed.image, delta, self._config.node_id))

        self.feed.follow(changed, caught_up=True)

    async def wait_until_not_needed(self) -> None:
        """See `port.ControlPlane`."""
        await self.voter_shutdown.due()

    async def leave(self) -> None:
        """See `port.ControlPlane`."""
        await self.quorum.leave()
