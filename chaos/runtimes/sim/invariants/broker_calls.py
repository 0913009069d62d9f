"""Observes calls inside the brokers for invariants that need more than the state after an event: members' requests,
followers' fetches, ISR proposals, and responses to consumers.

The brokers' functions are wrapped while a simulation runs, also those that a planted bug has replaced. The broker
itself needs no hooks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from squall.broker.apis.fetch import FetchApi
from squall.broker.apis.offsets import OffsetApis
from squall.broker.control.own_requests import BrokerToControllerRequests
from squall.broker.coordinators.groups.classic import ClassicGroup
from squall.broker.coordinators.groups.consumer.sessions import MemberSessions
from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import AbortTimedOutTransaction
from squall.broker.protocol.timestamps import LATEST
from squall.broker.replicas.isr_proposals import IsrProposals
from squall.broker.replication.partition import Partition
from squall.broker.replication.rules import READ_COMMITTED
from squall.chaos.runtimes.sim.invariants.broker_sessions import BrokerSessionObserver
from squall.chaos.runtimes.sim.invariants.group_clock import REBALANCES, MemberRequestTimes, waits
from squall.chaos.runtimes.sim.invariants.group_times import MemberRemoval
from squall.chaos.runtimes.sim.invariants.inspection import undecided
from squall.chaos.runtimes.sim.invariants.leaders import FetchHistory, LatestOffsetResponse, UnsentProposals
from squall.chaos.runtimes.sim.invariants.session_calls import FetchSessionObserver
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger
from squall.chaos.runtimes.sim.invariants.txn_times import TimedOutAbort
from squall.chaos.runtimes.sim.wrapping import FunctionWrapper, wrapped

if TYPE_CHECKING:
    from squall.broker.control.kraft.plane import KraftControlPlane
    from squall.broker.coordinators.groups.values import ClockReading
    from squall.broker.protocol.hot.types import FetchResponsePartition
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.chaos.runtimes.sim.invariants.call_checks import CallChecks

class BrokerCallObserver:
    """Observes calls inside the brokers: it records when group members send requests, and passes responses and ISR
    proposals to `observer`.
    """

    def __init__(self) -> None:
        self.observer: CallChecks | None = None
        """Gets what is observed, for example responses to consumers and ISR proposals, and checks it; None if nothing
        is checked.
        """
        self._fetches: dict[Partition, FetchHistory] = {}
        self._clocks: dict[GroupCoordinatorShard, MemberRequestTimes] = {}
        self._sessions = FetchSessionObserver(self._found)
        self._brokers = BrokerSessionObserver(self._found_on)
        self._in_flight: Counter[BrokerToControllerRequests] = Counter()
        """Counts the AlterPartition requests in flight, by their sender."""
        self._unsent_since: dict[IsrProposals, float] = {}
        """Maps a broker's ISR proposals to the time, in s, of the first check that found proposals waiting although no
        request was in flight. The entry is removed as soon as a check finds otherwise.
        """

    def look(self, proposals: IsrProposals, now: float | None) -> None:
        """Check whether a broker's ISR proposals wait although no AlterPartition request is in flight. `now`: the time
        in s; None if the broker was perhaps paused or down at some time since the last check.
        """
        authority = cast("KraftControlPlane", proposals._authority)
        waiting = [] if now is None or self._in_flight[authority._own] else undecided(proposals)
        if now is None or not waiting:
            self._unsent_since.pop(proposals, None)
            return
        idle_ms = round(1000 * (now - self._unsent_since.setdefault(proposals, now)))
        self._found(CheckTrigger.UNSENT, UnsentProposals(len(waiting), idle_ms), waiting[0][0])

    def clock(self, shard: GroupCoordinatorShard) -> MemberRequestTimes:
        """Return the record of when members sent requests to this shard of a group coordinator."""
        return self._clocks.setdefault(shard, MemberRequestTimes())

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Observe the brokers' calls inside this block, by wrapping functions."""
        wrappers: list[FunctionWrapper] = [
            (FetchApi, "_read", self._read),
            (OffsetApis, "_list_one", self._listed),
            (Partition, "become_leader", self._elected),
            (Partition, "follower_fetched", self._fetched),
            (IsrProposals, "propose", self._proposed),
            (BrokerToControllerRequests, "alter_isr", self._altered),
            (GroupCoordinatorShard, "submit", self._submitted),
            (GroupCoordinatorShard, "settle", self._settled),
            *((GroupCoordinatorShard, name, self._moved) for name in ("begin", "tick")),
            (ClassicGroup, "expire", self._expired),
            (MemberSessions, "due", self._due),
            (TransactionCoordinatorShard, "decide", self._decided),
        ]
        with wrapped([*wrappers, *self._sessions.wrappers(), *self._brokers.wrappers()]):
            yield

    def _found(self, trigger: CheckTrigger, found: Any, state: Partition) -> None:
        if self.observer is not None:
            self.observer.found(trigger, found, state)

    def _found_on(self, trigger: CheckTrigger, found: Any, node: int | None) -> None:
        if self.observer is not None:
            self.observer.found_on(trigger, found, node)

    def _read(self, rule: Callable[..., FetchResponsePartition]) -> Callable[..., FetchResponsePartition]:
        @wraps(rule)
        def read(api: FetchApi, fetch: Any, want: Any, *more: Any) -> FetchResponsePartition:
            answer = rule(api, fetch, want, *more)
            if self.observer is not None and want.hosted is not None:
                self.observer.fetched(want.hosted, want.part.offset, answer)
            return answer

        return read

    def _listed(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def list_one(api: OffsetApis, name: str, asked: Any, replica_id: int, isolation: int, version: int) -> Any:
            part = rule(api, name, asked, replica_id, isolation, version)
            hosted = api._find(name, asked.partition_index)
            if hosted is not None and replica_id < 0 and asked.timestamp == LATEST and not part.error_code:
                state = hosted.state
                stable = state.last_stable_offset(hosted.first_unstable_offset())
                limit = stable if isolation == READ_COMMITTED else state.high_watermark
                self._found(CheckTrigger.LISTED, LatestOffsetResponse(part.offset, limit), state)
            return part

        return list_one

    def _elected(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def become_leader(state: Partition, order: Any, log_end_offset: int, now_ms: int) -> Any:
            before = state.is_leader, state.leader_epoch
            effects = rule(state, order, log_end_offset, now_ms)
            # Another order for the same leader epoch begins no new term: earlier fetches still count.
            if before != (True, state.leader_epoch):
                self._fetches[state] = FetchHistory(state.isr, now_ms)
            return effects

        return become_leader

    def _fetched(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def follower_fetched(
            state: Partition, replica_id: int, offset: int, broker_epoch: int, now_ms: int, *more: float
        ) -> Any:
            effects = rule(state, replica_id, offset, broker_epoch, now_ms, *more)
            follower = state.followers.get(replica_id)
            # A leader ignores the fetch of an earlier incarnation of the follower (KIP-903).
            if follower is not None and follower.broker_epoch == broker_epoch and state in self._fetches:
                self._fetches[state].fetched(replica_id, offset, state.log_end_offset, now_ms)
            return effects

        return follower_fetched

    def _proposed(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def propose(proposals: IsrProposals, hosted: HostedPartition, proposal: Any) -> None:
            state, now_ms = hosted.state, int(proposals._env.mono() * 1000)
            known = self._fetches.get(state)
            # A proposal that was not decided is sent again, whatever its followers have fetched since.
            if known is not None and known.is_new(proposal) and state.settings.replica_lag_max_messages < 0:
                for broker_id in set(state.isr) - {each for each, _ in proposal.isr}:
                    self._found(CheckTrigger.ISR_REMOVAL, known.removal(state, broker_id, now_ms), state)
            rule(proposals, hosted, proposal)

        return propose

    def _altered(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        async def alter_isr(requests: BrokerToControllerRequests, proposals: Any) -> Any:
            self._in_flight[requests] += 1
            try:
                return await rule(requests, proposals)
            finally:
                self._in_flight[requests] -= 1

        return alter_isr

    def _submitted(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def submit(shard: GroupCoordinatorShard, request: Any, token: Any, now: ClockReading) -> Any:
            clock, group_id = self.clock(shard), request.group_id
            clock.follow(shard, group_id, now.mono_ms)
            effects = rule(shard, request, token, now)
            clock.heard(shard, group_id, getattr(request, "member_id", ""), now.mono_ms)
            return effects

        return submit

    def _settled(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def settle(shard: GroupCoordinatorShard, completion: Any, error: int, now: ClockReading) -> Any:
            with self._following(shard, now.mono_ms):
                effects = rule(shard, completion, error, now)
            if error:  # an append failed: a member may be in the group only because its removal was not written
                self.clock(shard).forgive(shard, now.mono_ms)
            return effects

        return settle

    def _moved(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def move(shard: GroupCoordinatorShard, now: ClockReading) -> Any:
            with self._following(shard, now.mono_ms):
                return rule(shard, now)

        return move

    def _expired(self, rule: Callable[..., None]) -> Callable[..., None]:
        @wraps(rule)
        def expire(group: ClassicGroup, now: ClockReading) -> None:
            # While a group rebalances, members are removed also because it does not wait for them any longer.
            members = {} if group.state in REBALANCES else group.members
            before = {name: each.deadline_ms for name, each in members.items() if not each.unsynced}
            rule(group, now)
            for member_id, deadline_ms in before.items():
                if member_id not in group.members:
                    self._found_on(CheckTrigger.REMOVED, MemberRemoval(member_id, deadline_ms, now.mono_ms), None)

        return expire

    def _due(self, rule: Callable[..., list[str]]) -> Callable[..., list[str]]:
        @wraps(rule)
        def due(sessions: MemberSessions, now_ms: int) -> list[str]:
            revoking = {name: at for name, (_, at) in sessions._revoking.items()}
            deadlines = [dict(each) for each in (sessions._sessions, sessions._owed, revoking)]
            removed = rule(sessions, now_ms)
            for member_id in removed:
                first_ms = min((each[member_id] for each in deadlines if member_id in each), default=None)
                self._found_on(CheckTrigger.REMOVED, MemberRemoval(member_id, first_ms, now_ms), None)
            return removed

        return due

    def _decided(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def decide(shard: TransactionCoordinatorShard, request: Any, now_ms: int, *more: Any) -> Any:
            decision = rule(shard, request, now_ms, *more)
            if type(request) is AbortTimedOutTransaction and decision.records:
                open_ = shard.transactions[request.transactional_id]
                found = TimedOutAbort(open_.transactional_id, open_.timeout_ms, now_ms - open_.started_ms)
                self._found_on(CheckTrigger.TIMED_OUT, found, None)
            return decision

        return decide

    @contextmanager
    def _following(self, shard: GroupCoordinatorShard, now_ms: int) -> Iterator[None]:
        """Call `MemberRequestTimes.follow` before and after the block, for each group with a member that waits for an
        answer. So the waiting member does not count as silent.
        """
        clock = self.clock(shard)
        names = [name for name, group in shard.groups.items() if any(map(waits, group.members.values()))]
        for name in names:
            clock.follow(shard, name, now_ms)
        yield
        for name in names:
            clock.follow(shard, name, now_ms)
