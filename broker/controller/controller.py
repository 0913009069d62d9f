"""Runs the active controller of one term: dispatches commands, makes decisions that are due (such as to fence a silent
broker), and applies decisions.

The code is pure: it appends and sends nothing. Its caller appends a decision's records to the metadata log, applies the
decision here at the offset of its records, and answers once they are committed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from squall.broker.cluster.replay import replay
from squall.broker.controller import brokers, features, leaders
from squall.broker.controller.decision import Command, Decision
from squall.broker.controller.sessions import BrokerSessions
from squall.broker.protocol.apis import ApiKey

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from squall.broker.cluster.image import ClusterImage
    from squall.broker.cluster.settings import ControllerSettings

COMMANDS: dict[int, tuple[str, str]] = {
    ApiKey.BROKER_REGISTRATION: ("brokers", "register"),
    ApiKey.BROKER_HEARTBEAT: ("brokers", "heartbeat"),
    ApiKey.ALTER_PARTITION: ("isr", "alter_partitions"),
    ApiKey.CREATE_TOPICS: ("topics", "create_topics"),
    ApiKey.CREATE_PARTITIONS: ("topics", "create_partitions"),
    ApiKey.DELETE_TOPICS: ("topics", "delete_topics"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("configs", "incremental_alter_configs"),
    ApiKey.ALTER_CONFIGS: ("configs", "alter_configs"),
    ApiKey.ELECT_LEADERS: ("leaders", "elect_leaders"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("reassignments", "alter_reassignments"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("reassignments", "list_reassignments"),
    ApiKey.ALLOCATE_PRODUCER_IDS: ("producer_ids", "allocate_producer_ids"),
    ApiKey.UPDATE_FEATURES: ("features", "update_features"),
}
"""Maps each API that the active controller decides to a module of this package and a function in it.

They are given by name, so that a node that is not the controller does not load code that only a controller needs.
"""

TICKS_PER_SESSION = 10
UNCLEAN_CHECK_MS = 1000
"""Gives the interval at which leaderless partitions are checked again: their topics' settings may have changed."""

HEARTBEATS_OF_GRACE = 2
"""Gives a minimum, in heartbeat intervals: the session of the broker that was controller before lasts at least this
long after a new controller has taken over.
"""


_module = cache(import_module)


def command_for(api_key: int) -> Callable[[Command, Any], Decision[Any]]:
    """Return the function that decides a request. Raises KeyError for an API that the controller does not decide."""
    module, name = COMMANDS[api_key]
    found: Callable[[Command, Any], Decision[Any]] = getattr(_module(f"squall.broker.controller.{module}"), name)
    return found


class Controller:
    """Runs one term of an active controller. It owns `image` and replays uncommitted records into it."""

    def __init__(
        self,
        image: ClusterImage,
        settings: ControllerSettings,
        rng: random.Random,
        next_offset: int,
        now_ms: int,
        predecessor: tuple[int, int] | None = None,
    ) -> None:
        """Begin a term. `next_offset` is the offset of the first record that this controller will append. `predecessor`
        is the previous leader of the quorum, and the time in ms when it last answered this node; None if unknown.
        """
        assert image.offset < next_offset
        self.image = image
        self.settings = settings
        self.next_offset = next_offset
        self.sessions = BrokerSessions.fresh(settings.config.broker_session_timeout_ms, image, now_ms)
        if predecessor is not None and settings.config.squall_controller_inherited_session:
            grace_ms = HEARTBEATS_OF_GRACE * settings.config.broker_heartbeat_interval_ms
            self.sessions.inherit(*predecessor, now_ms, grace_ms)
        self._rng = rng
        self._ticked_ms = now_ms
        self._unclean_ms = now_ms
        self._balanced_ms = now_ms

    def command(self, now_ms: int) -> Command:
        """Return the input of a decision that is made now."""
        return Command(self.image, self.sessions, self.settings, now_ms, self.next_offset, self._rng)

    def decide(self, api_key: int, request: Any, now_ms: int) -> Decision[Any]:
        """Decide one request. Raises KeyError for an API that the controller does not decide."""
        before = self.image.offset
        assert before < self.next_offset, f"record {before} is in the image, and the next one is {self.next_offset}"
        decision = command_for(api_key)(self.command(now_ms), request)
        assert self.image.offset == before, "deciding changes nothing"
        assert decision.session is None or decision.session.broker_id >= 0
        return decision

    def bootstrap(self, now_ms: int, formatted: Sequence[Any] = ()) -> Decision[None]:
        """Return the first records of a new cluster; none if they have been written. `formatted` holds the records of
        `bootstrap.checkpoint`; if they set feature levels, no default levels are added.
        """
        return features.bootstrap(self.command(now_ms), formatted)

    def tick(self, now_ms: int) -> Decision[Any]:
        """Decide one thing that is due at `now_ms`: fence a silent broker, elect unclean leaders, or balance leaders.
        The caller repeats the call until there are no records.

        The caller calls it at `next_tick_ms`. A gap of more than half a session time-out means that this node was
        paused and could receive no heartbeat, so the gap is not counted as a broker's silence.
        """
        assert now_ms >= self._ticked_ms
        before = self.image.offset
        gap = now_ms - self._ticked_ms
        self._ticked_ms = now_ms
        assert self._unclean_ms <= now_ms
        assert self._balanced_ms <= now_ms
        if gap > self.sessions.timeout_ms // 2:
            self.sessions.prolong_all(gap, now_ms)
        command = self.command(now_ms)
        decision: Decision[Any] = brokers.expire(command)
        if not decision.records and now_ms - self._unclean_ms >= UNCLEAN_CHECK_MS:
            self._unclean_ms = now_ms
            decision = leaders.elect_unclean(command)
        if not decision.records and self._balance_due(now_ms):
            self._balanced_ms = now_ms
            decision = leaders.balance(command)
        assert self.image.offset == before, "deciding changes nothing"
        return decision

    def next_tick_ms(self, now_ms: int) -> int:
        """Return when to call `tick` next: after a tenth of the session time-out, or earlier if a session may expire
        earlier.
        """
        assert now_ms >= self._ticked_ms
        regular_ms = now_ms + max(1, self.sessions.timeout_ms // TICKS_PER_SESSION)
        end_ms = self.sessions.next_end_ms(self.image)
        next_ms = regular_ms if end_ms is None else min(regular_ms, max(end_ms, now_ms + 1))
        assert next_ms > now_ms, "the caller would tick for ever"
        return next_ms

    def _balance_due(self, now_ms: int) -> bool:
        config = self.settings.config
        interval_ms = config.leader_imbalance_check_interval_seconds * 1000
        return config.auto_leader_rebalance_enable and now_ms - self._balanced_ms >= interval_ms

    def apply(self, decision: Decision[Any], epoch: int, now_ms: int) -> None:
        """Replay a decision's records into the image, and apply its change of a broker's session if it has one. The
        caller has appended the records to the log at `next_offset`, as the leader of `epoch`.
        """
        assert epoch >= self.image.epoch, f"decided in epoch {epoch}, after epoch {self.image.epoch}"
        for write in decision.records:
            replay(self.image, write.record, self.next_offset, epoch)
            self.next_offset += 1
        assert not decision.records or self.image.offset == self.next_offset - 1
        if decision.session is not None:
            self.sessions.apply(decision.session, now_ms, self.image.offset)
        assert self.image.offset < self.next_offset
