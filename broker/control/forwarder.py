"""Sends requests to the active controller: clients' requests in an Envelope (KIP-590), this broker's own without one.

While the controller is unknown, changes or cannot be reached, a request is retried until its time-out. So it may reach
the controller twice, and the second attempt then sees the effect of the first (TOPIC_ALREADY_EXISTS), as with Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from squall.broker.control.port import NoController, NotController
from squall.broker.control.refusals import refusal
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.large import LARGE
from squall.broker.net.served import FORWARDED
from squall.broker.protocol.apis import APIS, ApiKey, request_class, response_class
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.header import (
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response_header,
)
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from squall.broker.config import BrokerConfig
    from squall.broker.env import Env, WakeupSignal
    from squall.broker.net.peers import PeerClient

    Send = Callable[[int, float], Awaitable[Any]]

FIRST_BACKOFF_S = 0.02
MAX_BACKOFF_S = 0.5
CONTROL_LANE, CLIENT_LANE = "control", "forwarded"
"""Name separate connections, so that a client's slow request delays no heartbeat."""
ATTEMPT_MARGIN_S = 0.01
"""Gives the seconds that the forwarder waits beyond a request's time-out. An attempt has the same time-out, and closes
its connection, which may be broken, when that is over. Without the margin, the forwarder would give up first and the
connection would stay open.
"""
ENVELOPE_VERSION = 0
SIZE_PREFIX = 4


class LocalController(Protocol):
    """Decides requests on this node, while this node's own controller is the active one."""

    def begin(self, api_key: int, request: Any) -> Any:
        """Decide a request. Return the answer or, if the decision's records must be committed first, a
        `DeferredResponse`. Raises NotController; `DeferredResponse.wait` may raise it, too.
        """

    async def decide(self, api_key: int, request: Any) -> Any:
        """Decide a request and wait for its answer. Raises NotController."""


class Forwarder:
    """Sends requests to the active controller, on this node or another, and retries them."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        peers: PeerClient,
        service: LocalController | None,
        controller: Callable[[], int],
    ) -> None:
        """Create a forwarder. `service` is this node's own controller, if it has one. `controller` returns the active
        controller as this node knows it, or NO_NODE.
        """
        self._env, self._config, self._peers, self._service = env, config, peers, service
        self.controller = controller
        self.answered_at = env.mono()
        """Gives the time of a controller's last answer, by `env.mono()`."""
        self._pausing: dict[WakeupSignal, None] = {}
        """Holds the signals of requests that pause between two attempts."""

    async def ask(self, api_key: int, version: int, request: Any, timeout_ms: int) -> Any:
        """Send a request of this broker itself (registration, heartbeat, AlterPartition, producer ids) and return the
        response.

        Raises NoController after `timeout_ms` without an answer. Every other error is in the response.
        """

        async def send(target: int, left_s: float) -> Any:
            response = await self._peers.request(
                target, api_key, version, request, timeout_ms, lane=CONTROL_LANE, left_s=left_s
            )
            if response.error_code == ErrorCode.NOT_CONTROLLER:
                raise NotController
            return response

        return await self._send_until_answered(api_key, request, send, timeout_ms)

    async def forward(
        self,
        api_key: int,
        version: int,
        request: Any,
        *,
        client_id: str | None = None,
        client_host: bytes = b"\x7f\0\0\1",
        timeout_ms: int | None = None,
    ) -> Any:
        """Forward a client's request to the active controller, and return the response for the client. Never raises.

        If no controller answers in time, returns REQUEST_TIMED_OUT in the form of the API; the request may have been
        carried out.
        """
        given = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        envelope = EnvelopeRequest(
            request_data=encode_request(api_key, version, 0, client_id, request.encode(version))[SIZE_PREFIX:],
            request_principal=None,
            client_host_address=client_host,
        )

        async def send(target: int, left_s: float) -> Any:
            wrapped = await self._peers.request(
                target, ApiKey.ENVELOPE, ENVELOPE_VERSION, envelope, given, lane=CLIENT_LANE, left_s=left_s
            )
            if wrapped.error_code == ErrorCode.NOT_CONTROLLER:
                raise NotController
            return await self._unwrap(api_key, version, request, wrapped)

        try:
            return await self._send_until_answered(api_key, request, send, given)
        except NoController:
            return refusal(api_key, request, ErrorCode.REQUEST_TIMED_OUT)

    async def _send_until_answered(self, api_key: int, request: Any, send: Send, timeout_ms: int) -> Any:
        """Retry a request until a controller answers. Raises NoController if none does within `timeout_ms`.

        `send(node id, seconds)` sends the request to another node, and waits for the response for at most that time.
        This node's own controller is called directly.
        """
        backoff_s = FIRST_BACKOFF_S
        now = self._env.mono()
        give_up_at = now + timeout_ms / 1000 + ATTEMPT_MARGIN_S
        while (left_s := give_up_at - now) > 0:
            found, response = await self._attempt(api_key, request, send, left_s)
            now = self._env.mono()
            if found:
                self.answered_at = now
                return response
            pause_s = min(backoff_s * (0.5 + self._env.rng.random()), max(0.0, give_up_at - now))
            # Ask a newly found controller at once: the back-off was for the missing one.
            backoff_s = FIRST_BACKOFF_S if await self._pause(pause_s) else min(2 * backoff_s, MAX_BACKOFF_S)
            now = self._env.mono()
        raise NoController(f"no active controller answered within {timeout_ms} ms")

    async def _pause(self, seconds: float) -> bool:
        """Wait for `seconds`, or until the active controller may have changed. Returns whether it may have changed."""
        moved = self._env.signal()
        self._pausing[moved] = None
        try:
            return await moved.wait(seconds)
        finally:
            del self._pausing[moved]

    async def _attempt(self, api_key: int, request: Any, send: Send, left_s: float) -> tuple[bool, Any]:
        """Send the request once to the present controller. Give up if another node becomes controller, or after
        `left_s` seconds. Return whether the controller answered, and the response.
        """
        target = self.controller()
        if target == NO_NODE:
            return False, None
        try:
            if target != self._config.node_id or self._service is None:
                return True, await send(target, left_s)
            answer = self._service.begin(api_key, request)
            if not isinstance(answer, DeferredResponse):
                return True, answer
            with self._env.timeout(left_s):
                return True, await answer.wait()
        except (OSError, NotController):
            pass
        return False, None

    def controller_moved(self) -> None:
        """End pauses and fail requests to the old controller, so that both are retried with the new one. Requests to
        this node's own controller end by themselves, because it raises NotController when it resigns.
        """
        for moved in self._pausing:
            moved.set()
        self._peers.wait_only_for(self.controller(), (CONTROL_LANE, CLIENT_LANE))

    async def _unwrap(self, api_key: int, version: int, request: Any, wrapped: EnvelopeResponse) -> Any:
        if wrapped.error_code or wrapped.response_data is None:
            code = ErrorCode(wrapped.error_code) if wrapped.error_code else ErrorCode.UNKNOWN_SERVER_ERROR
            return refusal(api_key, request, code)
        view = memoryview(wrapped.response_data)
        _, at = decode_response_header(view, api_key, version)
        read = response_class(api_key).decode
        response, _ = await self._env.cpu(read, view, at, version) if len(view) > LARGE else read(view, at, version)
        return response


async def open_envelope(env: Env, service: LocalController, envelope: EnvelopeRequest) -> EnvelopeResponse:
    """Decide the request in an Envelope, on the controller, and return its response in an Envelope. A large request is
    decoded, and its response encoded, off the event loop.

    The Envelope's own errors: NOT_CONTROLLER, UNSUPPORTED_VERSION, or INVALID_REQUEST for a request that cannot be
    decoded or that brokers do not forward.
    """
    view = memoryview(envelope.request_data)
    is_large = len(view) > LARGE
    try:
        header = decode_request_header(view)
        if header.api_key not in FORWARDED:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        api = APIS[header.api_key]
        if not api.min_version <= header.api_version <= api.max_version:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        read, version = request_class(header.api_key).decode, header.api_version
        request, _ = await env.cpu(read, view, header.body, version) if is_large else read(view, header.body, version)
    except MalformedFrame:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        response = await service.decide(header.api_key, request)
    except NotController:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    body = await env.cpu(response.encode, version) if is_large else response.encode(version)
    return EnvelopeResponse(response_data=head + body)
