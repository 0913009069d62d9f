"""Plants Redpanda PR 6400: a replica that does not lead answers OffsetForLeaderEpoch."""

from __future__ import annotations

from squall.broker.apis.offsets import OffsetApis
from squall.broker.net.connection import PendingResponse
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from squall.chaos.mutants.hunt_plans import REBALANCING, hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def offset_for_leader_epoch(
    self: OffsetApis, request: OffsetForLeaderEpochRequest, slot: PendingResponse
) -> OffsetForLeaderEpochResponse:
    """Answer from the local log, whichever broker leads and in whatever epoch."""
    topics = []
    for topic in request.topics:
        parts = []
        for p in topic.partitions:
            h = self._find(topic.topic, p.partition)
            error = self._absent(topic.topic, p.partition) if h is None else ErrorCode.NONE
            epoch, end = (-1, -1) if h is None else h.state.end_of_epoch(h.log.epochs, p.leader_epoch)
            parts.append(EpochEndOffset(int(error), p.partition, epoch, end))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
    return OffsetForLeaderEpochResponse(topics=topics)


def plan(seed: int) -> Plan:
    """Return a plan in which leaders change. Readers then send OffsetForLeaderEpoch to a broker that is no longer the
    leader, or not yet the leader.
    """
    return hunt_plan(
        seed,
        killings_behind(seed, "47", rounds=5, most_ms=150),
        settings=REBALANCING,
        workload={"readers": 3, "rate": 200},
    )


MUTANT = Mutant(
    id="47",
    name="followers-answer-epochs",
    title="answers where an epoch ends though it does not lead, or not in that epoch",
    source="Redpanda PR 6400",
    replaces=(ReplacedFunction(OffsetApis, "offset_for_leader_epoch", offset_for_leader_epoch),),
    expected=("thrown-back", "nonmonotonic-poll", "poll-skip"),
    faults=("kill", "latency"),
    plan=plan,
    masked="clients ask only whom the metadata name as the leader, and who is named holds all that readers have read",
)
