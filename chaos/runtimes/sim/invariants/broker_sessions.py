"""Defines the invariants of brokers' sessions with the active controller, and records the heartbeats that controllers
receive.

A controller's own table of sessions is not trusted: each broker's silence is counted from the requests alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from squall.broker.controller.controller import Controller
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.schema.metadata_records import BrokerRegistrationChangeRecord
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.wrapping import FunctionWrapper

FENCE: Final = 1
"""Is the value of `BrokerRegistrationChangeRecord.fenced` that fences a broker."""


class BrokerSilence(NamedTuple):
    """Says for how long a broker has sent no heartbeat to the active controller. Times in ms."""

    broker_id: int
    silent_ms: int
    timeout_ms: int
    """Is broker.session.timeout.ms."""


@invariant("silent-broker-is-fenced", CheckTrigger.SILENT, "KIP-631: broker.session.timeout.ms")
def silent_broker_is_fenced(found: BrokerSilence) -> str | None:
    """If a controller's periodic check of sessions decides nothing, no unfenced broker was silent for longer than its
    session time-out. (Time in which the controller was paused does not count.)
    """
    if found.silent_ms <= found.timeout_ms:
        return None
    return f"broker {found.broker_id} is not fenced, and was silent for {found.silent_ms} of {found.timeout_ms} ms"


@invariant("fenced-after-its-session", CheckTrigger.EXPIRED, "KIP-631: broker.session.timeout.ms")
def fenced_after_its_session(found: BrokerSilence) -> str | None:
    """A controller fences a broker by its own decision only if the broker was silent for longer than its session
    time-out.
    """
    if found.silent_ms > found.timeout_ms:
        return None
    return f"broker {found.broker_id} was fenced after a silence of {found.silent_ms} ms, of {found.timeout_ms} ms"


class HeartbeatHistory:
    """Records the heartbeats that one controller got in its term. Times in ms of the controller's monotonic clock."""

    __slots__ = ("_began_ms", "_heard_ms", "_inherited_ms", "_ticked_ms")

    def __init__(self, began_ms: int, predecessor: tuple[int, int] | None = None) -> None:
        """Begin the term of a controller at `began_ms`: every broker's session begins anew then. `predecessor`: the
        broker id of the previous controller, and the time when it last answered this node; None if unknown. The session
        of this one broker may begin at that time, and so end earlier.
        """
        self._began_ms = self._ticked_ms = began_ms
        self._heard_ms: dict[int, int] = {}
        self._inherited_ms = {} if predecessor is None else dict([predecessor])

    def heard(self, broker_id: int, now_ms: int) -> None:
        """Record that a broker has sent a heartbeat, or has registered."""
        self._heard_ms[broker_id] = now_ms

    def ticked(self, now_ms: int, timeout_ms: int) -> None:
        """Record that the controller checks its sessions now. If its last check is longer ago than half of
        `timeout_ms`, it was paused since: the time of the pause does not count as silence of the brokers.
        """
        gap_ms, self._ticked_ms = now_ms - self._ticked_ms, now_ms
        # A controller that runs looks at its sessions much more often.
        if gap_ms > timeout_ms // 2:
            self._began_ms = min(self._began_ms + gap_ms, now_ms)
            self._heard_ms = {broker: min(heard_ms + gap_ms, now_ms) for broker, heard_ms in self._heard_ms.items()}
            # Whether a pause prolongs an inherited session is left open: it began in another term.

    def silence(self, broker_id: int, now_ms: int, timeout_ms: int) -> BrokerSilence:
        """Return for how long a broker was silent in this term."""
        return BrokerSilence(broker_id, now_ms - self._heard_ms.get(broker_id, self._began_ms), timeout_ms)

    def longest_silence(self, broker_id: int, now_ms: int, timeout_ms: int) -> BrokerSilence:
        """Return the longest time for which a broker may count as silent. If the broker was the previous controller,
        its silence may have begun before this term, with its last answer to this node.
        """
        began_ms = self._inherited_ms.get(broker_id, self._began_ms)
        return BrokerSilence(broker_id, now_ms - self._heard_ms.get(broker_id, began_ms), timeout_ms)


class BrokerSessionObserver:
    """Observes when controllers get heartbeats, and when they fence brokers. Calls `found` for each silence to check,
    with the trigger, the `BrokerSilence` and the id of the controller's node. The trigger is EXPIRED if the controller
    fences the broker now, and SILENT if it leaves the broker unfenced.
    """

    def __init__(self, found: Callable[[CheckTrigger, Any, int], None]) -> None:
        self._found = found
        self._terms: WeakKeyDictionary[Controller, HeartbeatHistory] = WeakKeyDictionary()

    def wrappers(self) -> Iterator[FunctionWrapper]:
        """Yield the wrappers that observe a controller's start, its requests and its periodic checks of sessions."""
        yield Controller, "__init__", self._begun
        yield Controller, "decide", self._decided
        yield Controller, "tick", self._ticked

    def _begun(self, rule: Callable[..., None]) -> Callable[..., None]:
        @wraps(rule)
        def begin(
            controller: Controller,
            image: Any,
            settings: Any,
            rng: Any,
            next_offset: int,
            now_ms: int,
            predecessor: tuple[int, int] | None = None,
        ) -> None:
            rule(controller, image, settings, rng, next_offset, now_ms, predecessor)
            self._terms[controller] = HeartbeatHistory(now_ms, predecessor)

        return begin

    def _decided(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def decide(controller: Controller, api_key: int, request: Any, now_ms: int) -> Any:
            if api_key == ApiKey.BROKER_HEARTBEAT and controller in self._terms:
                broker = controller.image.brokers.get(request.broker_id)
                # A heartbeat of an earlier registration is refused, and keeps no session alive.
                if broker is not None and broker.epoch == request.broker_epoch:
                    self._terms[controller].heard(broker.id, now_ms)
            decision = rule(controller, api_key, request, now_ms)
            # An incarnation that registers again, because it missed the response, keeps its epoch or is not fenced.
            if api_key == ApiKey.BROKER_REGISTRATION and decision.records and controller in self._terms:
                self._terms[controller].heard(request.broker_id, now_ms)
            return decision

        return decide

    def _ticked(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def tick(controller: Controller, now_ms: int) -> Any:
            decision = rule(controller, now_ms)
            term = self._terms.get(controller)
            if term is None:
                return decision
            config = controller.settings.config
            timeout_ms = config.broker_session_timeout_ms
            term.ticked(now_ms, timeout_ms)
            for record in (write.record for write in decision.records):
                if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCE:
                    silence = term.longest_silence(record.broker_id, now_ms, timeout_ms)
                    self._found(CheckTrigger.EXPIRED, silence, config.node_id)
            if not decision.records:
                for broker in controller.image.brokers.values():
                    if not broker.fenced:
                        silence = term.silence(broker.id, now_ms, timeout_ms)
                        self._found(CheckTrigger.SILENT, silence, config.node_id)
            return decision

        return tick
