"""Runs the controller on the leader of the metadata quorum: appends its decisions, and answers once they are committed
(mechanism C2 in docs/mechanisms.md).

A controller's term begins when this node leads the quorum and its image holds all records of earlier leaders. It then
decides on a working image, which is ahead of the committed image by the uncommitted records. No other code runs between
a decision and the append of its records, so the log orders all decisions.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import trio

from squall.broker.cluster.settings import ControllerSettings
from squall.broker.control.kraft.control_trace import trace_changes
from squall.broker.control.port import NotController
from squall.broker.control.refusals import refusal
from squall.broker.controller.controller import COMMANDS, Controller
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.cluster.feed import ImageFeed
    from squall.broker.cluster.image import ImageDelta
    from squall.broker.config import BrokerConfig
    from squall.broker.controller.decision import Decision
    from squall.broker.env import Env


class NotQuorumLeader(Exception):
    """Is raised by a quorum member that does not lead, or has just lost its leadership."""


class QuorumInterface(Protocol):
    """Describes the operations of the metadata quorum that `ControllerService` uses."""

    @property
    def is_leader(self) -> bool:
        """Return whether this node leads the quorum, as far as it knows."""

    @property
    def end_offset(self) -> int:
        """Return the offset that the next appended record will get."""

    def append(self, records: Sequence[tuple[Any, int]]) -> int:
        """Append (record, version) pairs as one batch, and return the last offset. Raises an error if this node does
        not lead.
        """

    async def wait_committed(self, offset: int, epoch: int) -> None:
        """Wait until `offset` is committed. Raises an error if the leadership of `epoch` ends first."""

    async def describe_quorum(self, request: Any) -> Any:
        """Return the response to DescribeQuorum."""


class ControllerService:
    """Runs this node's controller, which is active while this node leads the quorum and on standby otherwise."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        cluster_id: str,
        quorum: QuorumInterface,
        feed: ImageFeed,
        lost: type[Exception] = NotQuorumLeader,
        formatted: Sequence[Any] = (),
    ) -> None:
        """Create a controller on standby. `lost` is the exception that `quorum` raises if it does not lead. `formatted`
        holds the records from `bootstrap.checkpoint` with which a new cluster begins.
        """
        self._formatted = formatted
        self._env, self._config, self._quorum, self._feed, self._lost = env, config, quorum, feed, lost
        self._cluster_id = cluster_id
        self._controller: Controller | None = None
        self._epoch = -1
        self._took_over = env.signal()
        self._replayed = False
        feed.follow(self._committed)

    @property
    def is_active(self) -> bool:
        """Is True while this node is the active controller."""
        return self._controller is not None

    def on_leadership(self, is_leader: bool, epoch: int, predecessor: tuple[int, int] | None = None) -> None:
        """Begin or end the controller's term. The quorum calls this with True when this node leads `epoch` and has
        replayed all earlier records, and with False when it no longer leads. `predecessor` is the previous leader, and
        the time when it last answered this node (ms of `env.mono()`); None if unknown.
        """
        self._resign()
        if not is_leader:
            return
        settings = ControllerSettings(self._config, self._cluster_id)
        now_ms = self._now_ms()
        self._controller = Controller(
            self._feed.image.clone(), settings, self._env.rng, self._quorum.end_offset, now_ms, predecessor
        )
        self._epoch = epoch
        self._took_over.set()
        self._env.trace("controller_active", epoch=epoch, offset=self._feed.image.offset)
        self._write(self._controller.bootstrap(now_ms, self._formatted), now_ms)

    def _resign(self) -> None:
        if self._controller is not None:
            self._controller = None
            self._env.trace("controller_resigned", epoch=self._epoch)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do the controller's periodic work when it is due (fence silent brokers, elect, balance leaders), until
        cancelled.
        """
        task_status.started()
        while True:
            now_ms = self._now_ms()
            left_ms = self._controller.next_tick_ms(now_ms) - now_ms if self._controller is not None else inf
            if await self._took_over.wait(left_ms / 1000):
                continue
            now_ms = self._now_ms()
            while self._controller is not None and self._write(self._controller.tick(now_ms), now_ms):
                pass

    def handle(self, api_key: int, request: Any) -> Any:
        """Decide a request: return the answer, or a `DeferredResponse` if its records must be committed first.

        Answers NOT_CONTROLLER, in the form of the API, if this node is not the controller or resigns before the commit.
        In the second case the outcome is unknown, because the records may still be committed.
        """
        try:
            answer = self.begin(api_key, request)
        except NotController:
            return refusal(api_key, request, ErrorCode.NOT_CONTROLLER)
        if not isinstance(answer, DeferredResponse):
            return answer

        async def finish() -> Any:
            try:
                return await answer.wait()
            except NotController:
                return refusal(api_key, request, ErrorCode.NOT_CONTROLLER)

        return DeferredResponse(finish)

    async def decide(self, api_key: int, request: Any) -> Any:
        """Decide a request, and return the answer once the decision's records are committed. Raises NotController if
        this node is not the controller, or resigns before the commit.
        """
        answer = self.begin(api_key, request)
        return await answer.wait() if isinstance(answer, DeferredResponse) else answer

    def begin(self, api_key: int, request: Any) -> Any:
        """Decide a request: return the answer, or a `DeferredResponse` if the decision's records must be committed
        first. Raises NotController if this node is not the controller. If this node resigns before the commit,
        `DeferredResponse.wait` raises NotController. Raises AssertionError for an API that the controller does not
        serve.
        """
        controller = self._controller
        if controller is None:
            raise NotController
        if api_key == ApiKey.DESCRIBE_QUORUM:
            return DeferredResponse(partial(self._quorum.describe_quorum, request))
        assert api_key in COMMANDS, f"API {api_key} is not decided by the controller"
        now_ms = self._now_ms()
        decision = controller.decide(api_key, request, now_ms)
        self._write(decision, now_ms)
        if self._controller is not controller:
            raise NotController
        # Wait even if the decision has no records: it may depend on earlier, uncommitted records.
        offset = controller.image.offset
        if offset > self._feed.image.offset:
            return DeferredResponse(partial(self._after_commit, decision.reply, offset, self._epoch))
        return decision.reply

    async def _after_commit(self, reply: Any, offset: int, epoch: int) -> Any:
        """Return `reply` once `offset`, written in `epoch` or before, is committed."""
        try:
            await self._quorum.wait_committed(offset, epoch)
        except self._lost:
            raise NotController from None
        return reply

    def _write(self, decision: Decision[Any], now_ms: int) -> bool:
        """Append and apply a decision made just now. Returns False if it has no records or this node lost its lead."""
        controller = self._controller
        assert controller is not None
        if decision.records:
            try:
                last_offset = self._quorum.append(decision.records)
            except self._lost:
                self._resign()
                return False
            # Broker epochs are offsets, so the decision is only valid at the offset that it was made for.
            assert last_offset == controller.next_offset + len(decision.records) - 1
        controller.apply(decision, self._epoch, now_ms)
        return bool(decision.records)

    def _committed(self, delta: ImageDelta) -> None:
        # Changes that a node replays at its start were traced when they were committed.
        if self._replayed and self._quorum.is_leader:
            trace_changes(self._env, self._feed.image, delta)
        self._replayed = self._replayed or bool(delta)

    def _now_ms(self) -> int:
        return int(self._env.mono() * 1000)
