"""Runs one node, from its configuration to its end: `await broker_main(env, config)`.

Order of a start: logs are recovered, the quorum and the listeners come up, the broker registers, its image catches up
with its own registration, it takes over its replicas, and only then does it ask to be unfenced. A controlled shutdown
has the reverse order: leaderships move away, a voter stays in the controller quorum while other stopping brokers need
it, everything is flushed, and the marker of a clean stop is written last.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from squall.broker.apis.committed_offsets import CommittedOffsetApis
from squall.broker.apis.consumer_groups import ConsumerGroupApis
from squall.broker.apis.decompression import DecompressionPool
from squall.broker.apis.delete_records import DeleteRecordsApi
from squall.broker.apis.describe import AdminContext
from squall.broker.apis.fetch import FetchApi
from squall.broker.apis.fetch_session import FetchSessions
from squall.broker.apis.find_coordinator import CoordinatorFinder
from squall.broker.apis.groups import GroupApis
from squall.broker.apis.large_responses import LargeResponseLane
from squall.broker.apis.metadata import MetadataHandler
from squall.broker.apis.offsets import OffsetApis
from squall.broker.apis.produce import ProduceApi
from squall.broker.apis.record_validation import RecordValidator
from squall.broker.apis.routes import admin_routes, check_served, coordinator_routes, data_routes, node_routes
from squall.broker.apis.topic_creation import TopicCreator
from squall.broker.apis.transactions import TransactionApis
from squall.broker.apis.txn_markers import TxnMarkersApi
from squall.broker.apis.txn_offsets import TxnOffsetApis
from squall.broker.apis.txn_verification import TxnVerification
from squall.broker.cluster.feed import ImageFeed
from squall.broker.config.topic import topic_config
from squall.broker.control.planes import control_plane, own_logs
from squall.broker.log.config import LogConfig, of_broker
from squall.broker.log.manager import LogManager
from squall.broker.metrics.endpoint import MetricsEndpoint
from squall.broker.metrics.node_metrics import RUNNING, STOPPING, NodeMetrics
from squall.broker.net.deadlines import ParkedRequestTimers
from squall.broker.net.peers import PeerClient
from squall.broker.net.request_metrics import RequestMetrics
from squall.broker.net.server import Server
from squall.broker.replicas.coordinators.add_partitions_client import AddPartitionsClient
from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator
from squall.broker.replicas.coordinators.marker_sender import MarkerSender
from squall.broker.replicas.coordinators.producer_ids import ProducerIdManager
from squall.broker.replicas.coordinators.transaction_coordinator import TransactionCoordinator
from squall.broker.replicas.fetcher import ReplicaFetcherManager
from squall.broker.replicas.isr_proposals import IsrProposals
from squall.broker.replicas.order_queue import SPENT_IN_A_TURN
from squall.broker.replicas.replica_manager import ReplicaManager
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from squall.broker.config import BrokerConfig
    from squall.broker.control.planes import Make
    from squall.broker.control.port import ClusterMembership
    from squall.broker.env import Env

DEFAULT_CLUSTER_ID = "squall-cluster-0000000"
SHUTDOWN_PATIENCE_S = 20.0
SEGMENTS_COST = 16
"""Gives the cost of checking one log and deleting old segments of it. A check that finds none to delete costs 1. Other
tasks run each time the checks have cost `SPENT_IN_A_TURN` together.
"""
ALONE_S = 2.5
"""Gives the time, in s, after which a stopping broker gives up its controlled shutdown if no controller answers."""


async def broker_main(
    env: Env,
    config: BrokerConfig,
    *,
    stop: trio.Event | None = None,
    make_control: Make = control_plane,
    longest_turn_s: Callable[[], float] | None = None,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one node until `stop` is set (controlled shutdown) or this task is cancelled (as abrupt as a kill).

    `make_control` creates the node's control plane, by default that of KRaft. `longest_turn_s` returns the duration of
    the longest task step, in s, for the node's metrics; it is None if steps are not measured. `task_status` gets the
    node once it is unfenced. Raises ConfigError, RegistrationFailed, and OSError for a listener's port that is taken or
    a disk that fails.
    """
    node = Node(env, config, make_control)
    node.longest_turn_s = longest_turn_s
    await node.run(trio.Event() if stop is None else stop, task_status)


class Node:
    """Assembles the parts of one node, and runs them."""

    def __init__(self, env: Env, config: BrokerConfig, make_control: Make = control_plane) -> None:
        self.env, self.config = env, config
        env.trace("node_started", id=config.node_id, incarnation=env.incarnation)
        self.cluster_id = config.squall_cluster_id or DEFAULT_CLUSTER_ID
        self.feed = ImageFeed()
        self._own_logs = own_logs(config)
        self.logs = LogManager(
            env.fs,
            config.data_dir,
            self._log_config,
            cluster_id=self.cluster_id,
            node_id=config.node_id,
            rng=env.rng,
            segments=config.squall_small_segments_max,
        )
        self.logs.load_all(env.wall_ms())
        for log in self.logs.logs.values():
            if log.recovery.truncated_bytes or log.recovery.scanned_segments:
                env.trace("recovered", topic=log.topic, partition=log.partition, leo=log.log_end_offset,
                          truncated_bytes=log.recovery.truncated_bytes, reason=log.recovery.reason)  # fmt: skip
        self.peers = PeerClient(env, self.address_of, f"node-{config.node_id}")
        self.control = make_control(env, config, self.cluster_id, self.feed, self.logs, self.peers)
        self.proposals = IsrProposals(env, self.control)
        self.fetchers = ReplicaFetcherManager(env, config, self.peers, self.address_of, self._broker_epoch)
        self.replicas = ReplicaManager(env, config, self.feed.image, self.logs, self.fetchers, self.proposals)
        self.proposals.replicas = self.replicas
        self.producer_ids = ProducerIdManager(self.control)
        self.transactions = TransactionCoordinator(env, config, self.replicas, self.producer_ids)
        self.groups = GroupCoordinator(env, config, self.replicas)
        written, timeout_ms = self.transactions.markers_written, config.request_timeout_ms
        self.markers = MarkerSender(env, config.node_id, self.feed.image, self.peers, timeout_ms, written)
        self.timers = ParkedRequestTimers()
        self.longest_turn_s: Callable[[], float] | None = None
        self.metrics: NodeMetrics | None = None
        """Holds the node's metrics; None if `squall.metrics.port` is not set."""
        self._checkpointing = trio.Lock()
        self._retaining = False

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        """Return the address at which this node connects to a peer: from `squall.peers`, else from the peer's
        registration, else from the list of voters. Return None if the peer is in none of them.
        """
        own = self.config.peers.get(node_id)
        if own is not None:
            return own.host, own.port
        broker = self.feed.image.brokers.get(node_id)
        name = self.config.inter_broker_listener
        if broker is not None and name in broker.endpoints:
            return broker.endpoints[name]
        voter = self.config.voters.get(node_id)
        return (voter.host, voter.port) if voter is not None else None

    def _broker_epoch(self) -> int:
        return self.control.broker_epoch

    def _log_config(self, topic: str) -> LogConfig:
        if topic in self._own_logs:
            return self._own_logs[topic]
        overrides = self.feed.image.configs.get((2, topic), {})
        return LogConfig.of(topic_config(self.config, overrides), **of_broker(self.config))

    # ------------------------------------------------------------------ life

    async def run(self, stop: trio.Event, task_status: trio.TaskStatus[Node]) -> None:
        """Run the node, from recovery to the last flush."""
        env, config = self.env, self.config
        async with trio.open_nursery() as nursery:
            self.fetchers.bind(self.replicas, nursery)
            self.replicas.bind(nursery.start_soon)
            self.markers.bind(nursery.start_soon)
            self.transactions.bind(nursery.start_soon, self.markers)
            self.groups.bind(nursery.start_soon)
            self.feed.follow(self.transactions.image_changed)
            self.feed.follow(self.groups.image_changed)
            server = self._server(nursery)
            if self.metrics is not None:
                metrics = MetricsEndpoint(env, self.metrics.write, nursery.start_soon)
                await metrics.listen(config.squall_metrics_host, config.squall_metrics_port)
            for endpoint in config.bind_listeners:
                await server.listen(endpoint.name, endpoint.host, endpoint.port)
            await nursery.start(self.peers.run)
            self.control.start(nursery.start_soon)
            self._start_periodic(nursery, server)
            membership = self.control.join(self._endpoints(server))
            joined = await self._join(nursery, membership, stop)
            if joined:
                # Only now: the metadata log before this registration is history. A node that acted on it step by step
                # would lead again in past epochs, and delete replicas that later records give back to it.
                self.control.command(self.replicas)
                self._drop_strays()
                membership.ready()
                nursery.start_soon(self._announce, membership, server, task_status)
                await stop.wait()
            env.trace("node_stopping")
            self._trace_metrics(STOPPING)
            said = {"controlled": False}
            if joined and config.controlled_shutdown_enable:
                said = await self._leave(membership)
            # In this order no record can come after the last flush: from clients, from leaders, from the quorum.
            server.close()
            self.fetchers.stop()
            await self.control.leave()
            await self.replicas.flushes.idle()
            self._produce_counts.trace_changed()
            async with self._checkpointing:
                self._flush_everything()
            env.trace("node_stopped", **said)
            nursery.cancel_scope.cancel()

    async def _join(self, nursery: trio.Nursery, membership: ClusterMembership, stop: trio.Event) -> bool:
        """Register with the controller and catch up with the metadata log. Return False if `stop` is set first, which
        may be before any controller has answered.
        """
        with trio.CancelScope() as scope:

            async def give_up() -> None:
                await stop.wait()
                scope.cancel()

            nursery.start_soon(give_up)
            await nursery.start(membership.run)
            await membership.caught_up.wait()
            return True
        return False

    async def _announce(
        self, membership: ClusterMembership, server: Server, task_status: trio.TaskStatus[Node]
    ) -> None:
        await membership.unfenced.wait()
        server.open_to_clients()
        self._trace_metrics(RUNNING)
        self.env.trace("node_ready", ports=server.ports, broker_epoch=membership.broker_epoch)
        task_status.started(self)

    def _server(self, nursery: trio.Nursery) -> Server:
        env, config = self.env, self.config
        server = Server(env, config, self.replicas.woken, nursery)
        self.replicas.settle = server.settle
        server.in_force = lambda: self.replicas.in_force
        context = AdminContext(self.feed.image, config, self.cluster_id)
        self.feed.follow(lambda _: setattr(context, "controller_id", self.control.controller_id))
        creator = TopicCreator(self.control, config, nursery)
        metadata = MetadataHandler(context, creator)
        image, timeout_ms = self.feed.image, config.request_timeout_ms
        unpacking = DecompressionPool(env)
        records = RecordValidator(env, self.replicas, unpacking, nursery.start_soon)
        enrolment = AddPartitionsClient(image, self.peers, timeout_ms)
        gate = TxnVerification(env, self.replicas, enrolment, nursery.start_soon)
        most_batches = config.squall_produce_max_batches
        start_soon = nursery.start_soon
        produce = ProduceApi(env, self.replicas, self.timers, gate, records, start_soon, most_batches=most_batches)
        self._produce_counts = produce.counts
        slots, room = config.max_incremental_fetch_session_cache_slots, config.squall_fetch_sessions_max_partitions
        sessions = FetchSessions(slots, env.rng, room)
        of_plane = {key: server.answer_later(handler) for key, handler in self.control.fetched_logs().items()}
        parked = config.squall_connection_parked_max_partitions
        fetch = FetchApi(env, self.replicas, self.timers, sessions, config.fetch_max_bytes, of_plane, parked)
        transactions = TransactionApis(env, image, self.transactions, self.producer_ids, timeout_ms)
        much = LargeResponseLane(env)
        groups = GroupApis(env, self.groups, config, much)
        consumers = ConsumerGroupApis(env, image, self.groups, config, much)
        offsets = CommittedOffsetApis(env, image, self.groups, config, much)
        finder = CoordinatorFinder(image, config, creator)
        exists = finder.log_of_groups_exists
        in_txns = TxnOffsetApis(env, self.groups, self.transactions, enrolment, offsets, exists, timeout_ms)
        listed = OffsetApis(self.replicas, unpacking)
        markers = TxnMarkersApi(env, self.replicas, self.timers, timeout_ms, nursery.start_soon)
        for_clients = {
            **data_routes(self.replicas, produce, fetch, DeleteRecordsApi(env, self.replicas), listed, markers),
            **coordinator_routes(transactions, groups, consumers, offsets, in_txns, finder),
            **admin_routes(context, metadata, self.control),
        }
        for_nodes = node_routes(self.control.handlers(), fetch, listed)
        check_served(for_clients, for_nodes)
        server.route(for_clients, for_nodes)
        self._measure(server, produce, fetch)
        return server

    def _measure(self, server: Server, produce: ProduceApi, fetch: FetchApi) -> None:
        """Measure requests and collect metrics, if the configuration asks for metrics."""
        if self.config.squall_metrics_port < 0:
            return
        server.requests = RequestMetrics(self.env.mono)
        self.metrics = NodeMetrics(
            self.config,
            self.feed.image,
            self.control,
            self.replicas,
            self.proposals,
            self.fetchers,
            self.groups,
            self.transactions,
            server,
            produce,
            fetch,
            server.requests,
            self.longest_turn_s,
        )

    def _trace_metrics(self, state: int) -> None:
        if self.metrics is not None:
            self.metrics.state = state

    def _endpoints(self, server: Server) -> dict[str, tuple[str, int]]:
        """Return the addresses to advertise, as configured. The port of a listener with port 0 is the port that was
        opened.
        """
        return {e.name: (e.host, e.port or server.ports[e.name]) for e in self.config.advertised}

    def _drop_strays(self) -> None:
        """Delete the logs of partitions of which this broker has no replica. Call this once the metadata image has
        caught up.
        """
        hosted = {(h.log.topic, h.log.partition) for h in self.replicas.hosted()}
        for topic, partition in list(self.logs.logs):
            if (topic, partition) not in hosted and topic not in self._own_logs:
                self.env.trace("stray_log_deleted", topic=topic, partition=partition)
                self.logs.delete(topic, partition, self.env.wall_ms())

    async def _leave(self, membership: ClusterMembership) -> dict[str, bool]:
        """Try a controlled shutdown. Give up if no controller answers for `ALONE_S`, as when a whole cluster stops.

        Return fields for the trace event `node_stopped`: "controlled" is True if the controller completed the shutdown,
        and "alone" is True if no controller answered.
        """
        left: list[bool] = []

        async def give_up_alone() -> None:
            began = self.env.mono()
            while self.env.mono() - max(began, self.control.answered_at) < ALONE_S:
                await self.env.sleep(0.1)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up_alone)
            left.append(await membership.controlled_shutdown(SHUTDOWN_PATIENCE_S))
            await self.control.wait_until_not_needed()
            nursery.cancel_scope.cancel()
        return {"controlled": left[0]} if left else {"controlled": False, "alone": True}

    def _flush_everything(self) -> None:
        """Flush the logs first, write the checkpoints next, and the clean-shutdown file last. That file says that the
        logs need no recovery. If anything fails before it is written, the stop is unclean. The file is written even if
        the controller did not agree to the stop.
        """
        for h in self.replicas.hosted():
            h.log.flush(self.env.wall_ms())
        self.logs.high_watermarks.write(self.replicas.high_watermarks())
        self.logs.checkpoint_recovery_points()
        self.logs.close(self.env.wall_ms())
        registered = self._broker_epoch()
        # A node that never registered has added nothing to the logs that its last run left behind.
        self.logs.mark_clean_shutdown(registered if registered >= 0 else self.logs.previous_broker_epoch)

    # ------------------------------------------------------------------ periodic work

    def _start_periodic(self, nursery: trio.Nursery, server: Server) -> None:
        config = self.config
        nursery.start_soon(server.sweep_idle)
        nursery.start_soon(self.proposals.run)
        nursery.start_soon(self._expire, server)
        checkpoint_s = config.replica_high_watermark_checkpoint_interval_ms / 1000
        nursery.start_soon(self._checkpoint_high_watermarks, checkpoint_s)
        periodic = by_period(
            (config.replica_lag_time_max_ms / 2000, self.replicas.check_isr),
            (config.log_flush_offset_checkpoint_interval_ms / 1000, self.logs.checkpoint_recovery_points),
            (min(1.0, config.log_flush_scheduler_interval_ms / 1000), self.replicas.flush_by_time),
            (config.log_flush_start_offset_checkpoint_interval_ms / 1000, self.logs.checkpoint_log_starts),
            (config.log_retention_check_interval_ms / 1000, partial(self._retention, nursery)),
            (1.0, self._watch_fetchers),
        )
        for seconds, acts in periodic.items():
            nursery.start_soon(self._every, seconds, acts)

    async def _checkpoint_high_watermarks(self, seconds: float) -> None:
        """Write the high watermarks periodically, off the event loop: an fsync on a busy disk can take long."""
        while True:
            await self.env.sleep(seconds)
            async with self._checkpointing:
                draft = self.logs.high_watermarks.draft(self.replicas.high_watermarks())
                await self.env.cpu(draft.write)
                if draft.keep():
                    await self.env.cpu(draft.sync)

    async def _every(self, seconds: float, acts: Sequence[Callable[[], object]]) -> None:
        while True:
            await self.env.sleep(seconds)
            for act in acts:
                act()

    def _watch_fetchers(self) -> None:
        self.fetchers.close_silent_connections(int(self.env.mono() * 1000))

    async def _expire(self, server: Server) -> None:
        while True:
            await self.timers.due(self.env)
            self.timers.expire(int(self.env.mono() * 1000))
            server.settle()

    def _retention(self, nursery: trio.Nursery) -> None:
        """Delete old segments, and the logs of deleted partitions. A node may have thousands of logs. So segments are
        deleted in portions, between which other tasks run, and directories of deleted logs are removed off the event
        loop.
        """
        wall_ms = self.env.wall_ms()
        if not self._retaining:
            self._retaining = True
            work = self.replicas.retain(wall_ms)
            if self._retain_for_a_turn(work):
                nursery.start_soon(self._retain_on, work)
        if doomed := self.logs.take_removable(wall_ms):
            nursery.start_soon(self._remove, doomed)

    def _retain_for_a_turn(self, work: Iterator[bool]) -> bool:
        """Do one portion of the retention work, and return whether there is more. Each step of `work` checks one log,
        and yields whether segments were deleted (`ReplicaManager.retain`).
        """
        spent = 0
        for lost in work:
            cost = SEGMENTS_COST if lost else 1
            spent += cost
            DONE.entries += cost
            if spent >= SPENT_IN_A_TURN:
                return True
        self._retaining = False
        return False

    async def _retain_on(self, work: Iterator[bool]) -> None:
        await trio.lowlevel.checkpoint()
        while self._retain_for_a_turn(work):
            await trio.lowlevel.checkpoint()

    async def _remove(self, doomed: Sequence[str]) -> None:
        for directory in doomed:
            await self.env.cpu(self.logs.remove, directory)


def by_period(*works: tuple[float, Callable[[], object]]) -> dict[float, list[Callable[[], object]]]:
    """Group functions by their period in seconds, so that functions of one period share a wake-up. A function with
    period 0 is left out, so it never runs.
    """
    found: dict[float, list[Callable[[], object]]] = {}
    for seconds, act in works:
        if seconds:
            found.setdefault(seconds, []).append(act)
    return found
