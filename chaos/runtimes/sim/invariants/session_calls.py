"""Observes the fetch sessions of brokers and of followers. It wraps the functions of the broker that begin, continue
and answer them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from squall.broker.apis.fetch import FetchApi
from squall.broker.apis.fetch_session import FetchSession, FetchSessions
from squall.broker.protocol.fetch_sessions import FINAL_EPOCH
from squall.broker.replicas.fetcher_session import FetcherSession
from squall.broker.replication.rules import READ_COMMITTED
from squall.broker.replication.values import NO_EPOCH
from squall.chaos.runtimes.sim.invariants.fetch_sessions import (
    ContinuedSession,
    FetcherPosition,
    NamedPositions,
    NamingSession,
    OmittedPartition,
    ServedSession,
)
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger

if TYPE_CHECKING:
    from squall.broker.apis.fetch import DelayedFetch
    from squall.broker.protocol.hot import FetchIn
    from squall.broker.replicas.fetcher_session import PartitionFetchState
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replication.partition import Partition
    from squall.chaos.runtimes.sim.invariants.fetch_sessions import PartitionKey
    from squall.chaos.runtimes.sim.wrapping import FunctionWrapper

Found = Callable[[CheckTrigger, Any, "Partition"], None]
"""Is called with a trigger, the value that its invariants check, and the state machine of the replica concerned."""


class FetchSessionObserver:
    """Keeps a model of each fetch session. Calls `found`, the constructor's argument, with each observation that an
    invariant checks.
    """

    def __init__(self, found: Found) -> None:
        self._found = found
        self._served: WeakKeyDictionary[FetchSession, ServedSession] = WeakKeyDictionary()
        self._naming: WeakKeyDictionary[FetcherSession, NamingSession] = WeakKeyDictionary()
        self._api: FetchApi | None = None
        """Is the `FetchApi` of the broker that handles a Fetch request now."""
        self._omitted: set[PartitionKey] = set()
        """Holds the partitions that the response being built leaves out."""

    def wrappers(self) -> list[FunctionWrapper]:
        """Return the broker functions that handle fetch sessions, each with the decorator that observes its calls."""
        return [
            (FetchApi, "_serve", self._requested),
            (FetchSessions, "open", self._opened),
            (FetchSession, "changed", self._changed),
            (FetchApi, "answer", self._answered),
            (FetcherSession, "build_request", self._named),
        ]

    def _requested(self, rule: Callable[..., None]) -> Callable[..., None]:
        @wraps(rule)
        def serve(api: FetchApi, slot: Any, request: FetchIn) -> None:
            self._api = api
            rule(api, slot, request)

        return serve

    def _opened(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def open_session(sessions: FetchSessions, request: FetchIn, now_ms: int, **more: Any) -> Any:
            session, parts = rule(sessions, request, now_ms, **more)
            # A request of the final epoch closes its session, and is answered in full.
            if session is not None and request.session_epoch != FINAL_EPOCH:
                model = self._served.get(session)
                if model is None:
                    model = self._served[session] = ServedSession()
                continued = ContinuedSession(
                    request.session_epoch, model.requested(request), session.parts, model.parts
                )
                replicas = (hosted for key in model.parts if (hosted := _hosted(self._api, session, key)) is not None)
                if (hosted := next(replicas, None)) is not None:
                    self._found(CheckTrigger.SESSION, continued, hosted.state)
            return session, parts

        return open_session

    def _changed(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def changed(session: FetchSession, outs: Any) -> Any:
            response = rule(session, outs)
            model = self._served.get(session)
            if model is not None:
                self._omitted = model.answered(response)
            return response

        return changed

    def _answered(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def answer(api: FetchApi, fetch: DelayedFetch) -> None:
            self._omitted = set()
            rule(api, fetch)
            session = fetch.session
            if session is None or not self._omitted:
                return
            model = self._served[session]
            for key in self._omitted:
                hosted = _hosted(api, session, key)
                if hosted is None:
                    continue
                unread = not model.has_records and model.parts[key].offset < _limit(fetch, hosted)
                if unread or not _may_be_omitted(model, key, hosted):
                    self._found(CheckTrigger.OMITTED, _omission(model, key, hosted, unread=unread), hosted.state)

        return answer

    def _named(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def name(session: FetcherSession, wanted: Any) -> Any:
            epoch = session.epoch
            data = rule(session, wanted)
            model = self._naming.get(session)
            if model is None:
                model = self._naming[session] = NamingSession()
            model.requested(epoch, data.topics, data.forgotten)
            positions = {key: _position(following) for key, following in wanted}
            # Any of the replicas will do: it only tells a report which node this is.
            for _, following in wanted:
                self._found(CheckTrigger.NAMED, NamedPositions(positions, model.named), following.hosted.state)
                break
            return data

        return name


def _hosted(api: FetchApi | None, session: FetchSession, key: PartitionKey) -> HostedPartition | None:
    """Return the broker's replica of a partition in a fetch session; None if it has none."""
    if api is None:
        return None
    named = api._replicas.by_id if session.by_ids else api._replicas.by_name
    return named.get(key[0], {}).get(key[1])


def _may_be_omitted(model: ServedSession, key: PartitionKey, hosted: HostedPartition) -> bool:
    """Return True if a few quick comparisons show that a response may leave out a partition: the partition has no
    error, and its high watermark and log start offset are those sent last. False is rare, and means that `_omission`
    must examine the partition.
    """
    part, state, start = model.parts[key], hosted.state, hosted.log.log_start_offset
    return (
        model.sent.get(key) == (state.high_watermark, start)
        and state.is_leader
        and part.leader_epoch == state.leader_epoch
        and part.last_fetched_epoch in (part.leader_epoch, NO_EPOCH)
        and start <= part.offset <= state.log_end_offset
    )


def _limit(fetch: DelayedFetch, hosted: HostedPartition) -> int:
    """Return the exclusive end offset of the records that a fetcher may read."""
    if fetch.replica_id >= 0:
        return hosted.state.log_end_offset
    if fetch.isolation == READ_COMMITTED:
        return hosted.state.last_stable_offset(hosted.first_unstable_offset())
    return hosted.state.high_watermark


def _omission(model: ServedSession, key: PartitionKey, hosted: HostedPartition, *, unread: bool) -> OmittedPartition:
    part, state, log = model.parts[key], hosted.state, hosted.log
    error = state.check_leader_epoch(part.leader_epoch)
    if error:
        problem = error.name
    elif state.divergence(log.epochs, part.last_fetched_epoch, part.offset) is not None:
        problem = f"its log diverges from epoch {part.last_fetched_epoch}, offset {part.offset}"
    elif not log.log_start_offset <= part.offset <= state.log_end_offset:
        problem = f"offset {part.offset} is outside of {log.log_start_offset} to {state.log_end_offset}"
    else:
        problem = ""
    offsets = state.high_watermark, log.log_start_offset
    return OmittedPartition(key, problem, offsets, model.sent.get(key), unread)


def _position(following: PartitionFetchState) -> FetcherPosition:
    hosted = following.hosted
    log, last_fetched = hosted.log, hosted.state.epoch_to_send(hosted.log.epochs.latest)
    # Runs for each partition of each fetch, and builds a named tuple in half of the time.
    position = following.leader_epoch, log.log_end_offset, last_fetched, log.log_start_offset
    return tuple.__new__(FetcherPosition, position)
