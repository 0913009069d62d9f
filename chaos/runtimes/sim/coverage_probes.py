"""Counts rare paths that leave no trace, by wrapping the broker's own functions during a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from squall.broker.apis.fetch_session import FetchSessions, SessionError
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.log.log import Log
from squall.broker.protocol.errors import ErrorCode
from squall.chaos.runtimes.sim.group_coverage_probes import OF_GROUPS


@contextmanager
def count_paths(counts: Counter[str]) -> Iterator[None]:
    """Count rare paths into `counts` inside this block. It wraps the present functions, so the calls of a planted bug
    are counted as well.
    """
    listened: tuple[tuple[type[Any], str, Callable[..., Any]], ...] = (
        *OF_GROUPS,
        (Log, "append_as_leader", _dedup),
        (Log, "offset_for_timestamp", _lookup),
        (FetchSessions, "open", _eviction),
        (TransactionCoordinatorShard, "decide", _decision),
    )
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in listened]
    for (owner, name, rule), (_, _, make) in zip(before, listened, strict=True):
        setattr(owner, name, make(rule, counts))
    try:
        yield
    finally:
        for owner, name, rule in before:
            setattr(owner, name, rule)


def _dedup(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(*args: Any, **kwargs: Any) -> Any:
        result = rule(*args, **kwargs)
        if result.duplicate:
            counts["dedup hit"] += 1
        elif result.error == ErrorCode.INVALID_PRODUCER_EPOCH:
            counts["producer fenced"] += 1
        return result

    return heard


def _lookup(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(log: Log, timestamp: int | None, *args: Any) -> Any:
        counts["look-up by time"] += timestamp is not None
        return rule(log, timestamp, *args)

    return heard


def _eviction(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(sessions: FetchSessions, request: Any, *args: Any, **kwargs: Any) -> Any:
        before = sessions.evictions
        of_consumer = request.replica_id < 0 < request.session_epoch
        try:
            opened = rule(sessions, request, *args, **kwargs)
            counts["incremental fetch of a consumer"] += of_consumer
            return opened
        except SessionError:
            counts["consumer lost its fetch session"] += of_consumer
            raise
        finally:
            counts["fetch session eviction"] += sessions.evictions - before

    return heard


def _decision(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(shard: TransactionCoordinatorShard, request: Any, *args: Any, **kwargs: Any) -> Any:
        decision = rule(shard, request, *args, **kwargs)
        if decision.answer.error == ErrorCode.PRODUCER_FENCED:
            counts["producer fenced"] += 1
        before = shard.transactions.get(request.transactional_id)
        if before is not None and decision.used_producer_id:
            counts["producer epochs used up"] += 1
        return decision

    return heard
