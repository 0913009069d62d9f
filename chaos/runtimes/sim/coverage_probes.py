"""Counts rare code paths of the broker that write no line to a trace, by wrapping the broker's functions during a
simulation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from squall.broker.apis.fetch_session import FetchSessions, SessionError
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import MarkersWritten
from squall.broker.log.log import Log
from squall.broker.log.segment import LOG, file_name
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.replicas.coordinators.marker_sender import MarkerSender
from squall.broker.replicas.coordinators.transaction_coordinator import TransactionCoordinator
from squall.chaos.runtimes.sim.group_coverage_probes import OF_GROUPS
from squall.chaos.runtimes.sim.node import SimNode
from squall.chaos.runtimes.sim.wrapping import wrapped


@contextmanager
def count_paths(counts: Counter[str]) -> Iterator[None]:
    """Count rare code paths into `counts` inside this block, by wrapping functions of the broker's classes. A bug that
    `squall hunt` plants replaces such a function before the block begins, so the replacement's calls are counted.
    """
    probes: tuple[tuple[type[Any], str, Callable[..., Any]], ...] = (
        *OF_GROUPS,
        (Log, "append_as_leader", _dedup),
        (Log, "offset_for_timestamp", _lookup),
        (Log, "finish_flush", _flush),
        (FetchSessions, "open", _eviction),
        (TransactionCoordinatorShard, "decide", _decision),
        (TransactionCoordinator, "submit", _completion),
        (MarkerSender, "leader_of", _leaderless),
        (SimNode, "die", _death),
    )
    with wrapped((owner, name, partial(probe, counts=counts)) for owner, name, probe in probes):
        yield


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


def _flush(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(log: Log, job: Any, *args: Any) -> Any:
        counts["log truncated within an fsync"] += job.generation != log.generation
        return rule(log, job, *args)

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
        # A consumer has no replica id, and an epoch above 0 continues a session (KIP-227).
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


def _completion(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(coordinator: TransactionCoordinator, request: Any, answer: Callable[..., None]) -> Any:
        def completed(response: Any) -> None:
            # The error that a client would get if the log is below its min ISR.
            counts["completion refused below min ISR"] += response.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
            answer(response)

        return rule(coordinator, request, completed if isinstance(request, MarkersWritten) else answer)

    return heard


def _leaderless(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(sender: MarkerSender, partition: Any) -> Any:
        leader = rule(sender, partition)
        counts["marker waits for a leader"] += leader == NO_NODE
        return leader

    return heard


def _death(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(sim_node: SimNode, *, power: bool = False) -> Any:
        hosted = [] if sim_node.node is None else sim_node.node.replicas.hosted()
        counts["leader died while it deleted records"] += sum(bool(each.deletions) for each in hosted)
        rolled = [each.log for each in hosted if power and len(each.log.segments) > 1]
        newest = [f"{log.directory}/{file_name(log.segments[-1].base_offset, LOG)}" for log in rolled]
        counts["power lost just after a roll"] += sum(sim_node.disk.durable(path) is None for path in newest)
        return rule(sim_node, power=power)

    return heard
