"""Counts how often rare code paths of group coordinators run, by wrapping their functions, for
`squall.chaos.runtimes.sim.coverage_probes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from squall.broker.coordinators.groups.consumer.members import JOINS, ConsumerHeartbeat, GroupEpochRecord
from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.broker.coordinators.groups.values import (
    AppendRecords,
    CommitOffsets,
    DeleteGroup,
    Effect,
    GroupMetadataRecord,
    GroupState,
    JoinGroup,
    SendResponse,
    SyncGroup,
    TxnOffsetCommit,
)
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator

FENCES = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH)
FORMER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH)
IN_REBALANCE = (GroupState.PREPARING, GroupState.COMPLETING, GroupState.ASSIGNING, GroupState.RECONCILING)


def _asked(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(coordinator: GroupCoordinator, request: Any, *args: Any) -> Any:
        shard = coordinator.shards.get(coordinator.partition_of(request.group_id))
        if shard is not None and not shard.serves and _joins(request):
            counts["rebalance while its coordinator loads"] += 1
        return rule(coordinator, request, *args)

    return heard


def _joins(request: Any) -> bool:
    return isinstance(request, JoinGroup | SyncGroup) or (
        isinstance(request, ConsumerHeartbeat) and request.epoch == JOINS
    )


def _decided(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(shard: GroupCoordinatorShard, request: Any, *args: Any) -> Any:
        group_id = request.group_id
        # Before the call, which may turn the group into one of the other kind.
        of_consumers, classic = group_id in shard.ledger.consumers, group_id in shard.ledger.groups
        members = of_consumers and bool(shard.ledger.consumers[group_id].members)
        effects = rule(shard, request, *args)
        written = any(isinstance(effect, AppendRecords) for effect in effects)
        counts["group deleted"] += written and isinstance(request, DeleteGroup)
        counts["group became a classic group"] += (
            written and of_consumers and isinstance(request, JoinGroup) and not members
        )
        counts["classic member joined a consumer group"] += written and members and isinstance(request, JoinGroup)
        counts["consumer group left to its classic members"] += of_consumers and _goes_down(effects)
        counts["classic group taken over under its members"] += isinstance(request, ConsumerHeartbeat) and _goes_up(
            effects
        )
        if classic and not of_consumers and isinstance(request, ConsumerHeartbeat) and not _goes_up(effects):
            counts["group became a consumer group"] += _begins(effects)
        for error in _refusals(effects):
            counts["member fenced"] += error in FENCES
            counts["commit of a former member refused"] += error in FORMER and isinstance(
                request, CommitOffsets | TxnOffsetCommit
            )
        return effects

    return heard


def _begins(effects: Iterable[Effect]) -> bool:
    """Return whether these effects create a consumer group (KIP-848), or turn a classic group into one."""
    written = (record for effect in effects if isinstance(effect, AppendRecords) for record in effect.records)
    return any(isinstance(record, GroupEpochRecord) and record.epoch is not None for record in written)


def _goes_up(effects: Iterable[Effect]) -> bool:
    """Return whether these effects upgrade a classic group with members to a consumer group. The request that caused
    the upgrade is then handled again.
    """
    written = [effect for effect in effects if isinstance(effect, AppendRecords)]
    return any(effect.completion.then is not None and _begins([effect]) for effect in written)


def _goes_down(effects: Iterable[Effect]) -> bool:
    """Return whether these effects downgrade a consumer group with members to a classic group."""
    written = (record for effect in effects if isinstance(effect, AppendRecords) for record in effect.records)
    return any(isinstance(record, GroupMetadataRecord) and record.group is not None for record in written)


def _ticked(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(shard: GroupCoordinatorShard, *args: Any) -> Any:
        effects = rule(shard, *args)
        downs = [e for e in effects if isinstance(e, AppendRecords) and e.records[0].group_id in shard.ledger.consumers]
        counts["consumer group left to its classic members"] += sum(_goes_down([each]) for each in downs)
        return effects

    return heard


def _refusals(effects: Iterable[Effect]) -> list[ErrorCode]:
    return [effect.answer.error for effect in effects if isinstance(effect, SendResponse) and effect.answer.error]


def _dissolved(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(shard: GroupCoordinatorShard, *args: Any) -> Any:
        names = (*shard.groups, *shard.ledger.consumers)
        counts["coordinator lost in a rebalance"] += sum(shard.state_of(name) in IN_REBALANCE for name in names)
        return rule(shard, *args)

    return heard


def _marked(rule: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @wraps(rule)
    def heard(coordinator: GroupCoordinator, h: Any, *args: Any) -> Any:
        shard = coordinator.shards.get(h.state.index)
        counts["marker between replay and service"] += shard is not None and shard.replayed and not shard.serves
        return rule(coordinator, h, *args)

    return heard


OF_GROUPS: tuple[tuple[type[Any], str, Callable[..., Any]], ...] = (
    (GroupCoordinator, "submit", _asked),
    (GroupCoordinator, "transaction_ended", _marked),
    (GroupCoordinatorShard, "submit", _decided),
    (GroupCoordinatorShard, "tick", _ticked),
    (GroupCoordinatorShard, "fail_waiting_requests", _dissolved),
)
"""Lists the methods of group coordinators to wrap: class, method name, and the function that makes the wrapper. The
wrappers count how often rare code paths run.
"""
