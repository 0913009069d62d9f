"""Registers this broker with the controller and keeps its session: catch up, unfence, controlled shutdown (mechanism
R13 in docs/mechanisms.md, KIP-500, KIP-841).
"""

# A broker serves clients only once it is unfenced: an answer without leaders sends clients into their back-off, which
# cost 2.5 s until the first acknowledgement.

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from squall.broker.control.port import NOT_REGISTERED, NoController, RegistrationFailed
from squall.broker.controller.features import FEATURES, check_supported, supported
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from squall.broker.protocol.schema.broker_registration import BrokerRegistrationRequest, Feature, Listener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from squall.broker.cluster.feed import ImageFeed
    from squall.broker.cluster.image import ClusterImage, ImageDelta
    from squall.broker.config import BrokerConfig
    from squall.broker.control.forwarder import Forwarder
    from squall.broker.env import Env

REGISTRATION_VERSION = 4
HEARTBEAT_VERSION = 1
PLAINTEXT = 0
TRIES_PER_SESSION = 4
"""Divides the session time-out into the time-out of one heartbeat, so that several attempts fit into a session."""
SOON_S = 0.05
"""Gives the pause before the next heartbeat while this broker waits to be unfenced or allowed to stop."""
FATAL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION})


class BrokerLifecycle:
    """Registers this incarnation of the broker and keeps its session by heartbeats. Other code waits for its events,
    such as `unfenced`.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        forwarder: Forwarder,
        feed: ImageFeed,
        *,
        cluster_id: str,
        endpoints: Mapping[str, tuple[str, int]],
        directory_id: bytes,
        previous_broker_epoch: int = -1,
    ) -> None:
        """Create the lifecycle of one incarnation. `endpoints` maps the name of each listener to its advertised (host,
        port); all are open. `previous_broker_epoch` comes from the clean-shutdown file, -1 without one (KIP-966).
        """
        self._env, self._config, self._forwarder, self._feed = env, config, forwarder, feed
        self._cluster_id, self._endpoints, self._directory_id = cluster_id, endpoints, directory_id
        self._previous_broker_epoch = previous_broker_epoch
        self.incarnation_id = env.rng.randbytes(16)
        self.broker_epoch = NOT_REGISTERED
        """Gives the broker epoch of the latest successful registration; NOT_REGISTERED before the first."""
        self.registered = trio.Event()
        self.caught_up = trio.Event()
        """Is set once this node's image holds the registration of this incarnation. Until then, the image may show the
        broker as it was in an earlier incarnation, for example as a leader.
        """
        self.unfenced = trio.Event()
        """Is set when this broker is unfenced for the first time."""
        self.may_stop = trio.Event()
        """Is set when the controller has completed this broker's controlled shutdown."""
        self._ready = False
        self._stopping = False
        self._heartbeat_due = env.signal()
        feed.follow(self._metadata_changed)

    def ready(self) -> None:
        """Ask the controller, from now on, to unfence this broker. The caller has recovered the logs and applied the
        image.
        """
        self._ready = True
        self.heartbeat_now()

    def heartbeat_now(self) -> None:
        """Send the next heartbeat at once."""
        self._heartbeat_due.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register (then `task_status.started()`), and send heartbeats until the controller lets this broker stop.

        Raises RegistrationFailed.
        """
        await self._register()
        task_status.started()
        while not self.may_stop.is_set():
            # A call of `heartbeat_now` while a heartbeat is on its way ends the wait after it at once.
            await self._heartbeat_due.wait(await self._heartbeat())

    async def controlled_shutdown(self, timeout_s: float) -> bool:
        """Request a controlled shutdown: leaderships move away, and this broker leaves every ISR. Returns whether the
        controller completed it within `timeout_s`.
        """
        self._stopping = True
        self.heartbeat_now()
        with self._env.timeout(timeout_s):
            await self.may_stop.wait()
        return self.may_stop.is_set()

    # ---------------------------------------------------------------------------------------------- registration

    async def _register(self, *, again: bool = False) -> None:
        deadline = self._env.mono() + self._config.initial_broker_registration_timeout_ms / 1000
        while True:
            error = await self._try_to_register()
            if error is ErrorCode.NONE:
                break
            self._env.trace("registration_refused", error=error.name)
            # A running broker that has lost its registration waits as long as no controller can be reached.
            patient = again and error is ErrorCode.REQUEST_TIMED_OUT
            if error in FATAL or (self._env.mono() > deadline and not patient):
                why = error.name
                if error == ErrorCode.UNSUPPORTED_VERSION:
                    check_supported(self._feed.image.features, "the cluster")
                    why = f"the cluster uses a feature level that it lacks, for it has only {supported()}"
                raise RegistrationFailed(f"broker {self._config.node_id} cannot register: {why}")
            # Most often the session of this broker's previous incarnation holds the id; that session ends by itself.
            await self._env.sleep(min(0.1, self._config.broker_session_timeout_ms / 10_000))
        self._env.trace("registered", broker_epoch=self.broker_epoch, incarnation=self.incarnation_id.hex())
        self.registered.set()
        self._check_caught_up()

    async def _try_to_register(self) -> ErrorCode:
        try:
            response = await self._forwarder.ask(
                ApiKey.BROKER_REGISTRATION,
                REGISTRATION_VERSION,
                self._registration(),
                self._config.controller_quorum_request_timeout_ms,
            )
        except NoController:
            return ErrorCode.REQUEST_TIMED_OUT
        if not response.error_code:
            self.broker_epoch = response.broker_epoch
        return ErrorCode(response.error_code)

    def _registration(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port, security_protocol=PLAINTEXT)
                for name, (host, port) in self._endpoints.items()
            ],
            features=[
                Feature(name=feature.name, min_supported_version=feature.low, max_supported_version=feature.high)
                for feature in FEATURES
            ],
            rack=self._config.broker_rack,
            log_dirs=[self._directory_id],
            previous_broker_epoch=self._previous_broker_epoch,
        )

    # ------------------------------------------------------------------------------------------------- heartbeats

    async def _heartbeat(self) -> float:
        """Send one heartbeat. Returns the seconds to wait before the next one."""
        interval_s = self._config.broker_heartbeat_interval_ms / 1000
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._feed.image.offset,
            want_fence=not self._ready and not self._stopping,
            want_shut_down=self._stopping,
        )
        patience_ms = max(1, self._config.broker_session_timeout_ms // TRIES_PER_SESSION)
        try:
            reply = await self._forwarder.ask(ApiKey.BROKER_HEARTBEAT, HEARTBEAT_VERSION, request, patience_ms)
        except NoController:
            return SOON_S
        if reply.error_code == ErrorCode.STALE_BROKER_EPOCH:
            # Another incarnation has taken over the registration; its session has to end first.
            self._env.trace("registration_lost", broker_epoch=self.broker_epoch)
            # The marker of a clean stop was about the run before this one, which has written to the logs since.
            self._previous_broker_epoch = -1
            await self._register(again=True)
            return 0.0
        if reply.error_code:
            return SOON_S
        return self._note(reply, interval_s)

    def _note(self, reply: BrokerHeartbeatResponse, interval_s: float) -> float:
        if reply.should_shut_down:
            self.may_stop.set()
        if not reply.is_fenced and not self.unfenced.is_set():
            self.unfenced.set()
        awaited = self._stopping or (reply.is_fenced and self._ready)
        return min(SOON_S, interval_s) if awaited else interval_s

    def _metadata_changed(self, delta: ImageDelta) -> None:
        """Send a heartbeat at once if the controller may be waiting for this broker to catch up."""
        self._check_caught_up()
        image, node_id = self._feed.image, self._config.node_id
        own = image.brokers.get(node_id)
        if node_id in delta.brokers and own is not None and own.fenced and own.epoch == self.broker_epoch:
            self.heartbeat_now()
        # A stopping broker waits until every other one has replayed its changes, which only a heartbeat tells.
        if any(image.brokers[changed].in_controlled_shutdown for changed in delta.brokers if changed in image.brokers):
            self.heartbeat_now()

    def _check_caught_up(self) -> None:
        if not self.caught_up.is_set() and is_registered(self._feed.image, self._config.node_id, self.broker_epoch):
            self.caught_up.set()
            self.heartbeat_now()


def is_registered(image: ClusterImage, broker_id: int, broker_epoch: int) -> bool:
    """Return whether the image holds the registration of this incarnation."""
    broker = image.brokers.get(broker_id)
    return broker_epoch >= 0 and broker is not None and broker.epoch == broker_epoch
