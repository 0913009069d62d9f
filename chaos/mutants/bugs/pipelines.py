"""Plants bugs that consume-transform-produce applications meet: offsets inside of transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from squall.broker.coordinators.groups.rules import ClassicGroupRules
from squall.broker.coordinators.groups.values import (
    CommitOffsets,
    FetchOffsets,
    GroupResponse,
    Request,
    TxnOffsetCommit,
)
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator, HostedGroupShard
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.chaos.mutants.group_plans import ABORT, HALT, LEAVE, PIPELINE, PIPELINE_LOAD, act, group_plan
from squall.chaos.mutants.hunt_plans import Values, fault
from squall.chaos.mutants.mutant import always, pipeline_mutant
from squall.chaos.plans.plan import Plan
from squall.workloads.subscriber import Subscriber

# The rules as they are while no mutant is planted.
SOUND_TRANSACTION_ENDED = GroupCoordinator.transaction_ended
SOUND_SUBMIT = GroupCoordinator.submit
SOUND_SERVE = GroupCoordinator._serve
SOUND_REFUSAL_OF_COMMIT = ClassicGroupRules.refusal_of_commit


# Since 2.0, Kafka's coordinator applied a transaction's offsets later, in another thread. Meanwhile the producer could
# begin its next transaction. The offsets of that one were then applied as well, although it could still abort.
LATE_S = 0.3


def transaction_ended_38(self: GroupCoordinator, h: HostedPartition, producer_id: int, commit: bool, at: int) -> None:
    """Commit the pending offsets later, including those that have become pending by then."""
    assert self._start_soon is not None
    self._start_soon(_later, self, h, producer_id, commit, at)


async def _later(self: GroupCoordinator, h: HostedPartition, producer_id: int, commit: bool, at: int) -> None:
    await self._env.sleep(LATE_S)
    SOUND_TRANSACTION_ENDED(self, h, producer_id, commit, at)


@pipeline_mutant(
    "38",
    "answers a marker before the offsets of its transaction count, and then counts what is pending by then",
    source="KAFKA-17507",
    replaces=[(GroupCoordinator, "transaction_ended", transaction_ended_38)],
    expected="uncommitted-offset eos-loss lost-position",
)
def offsets_materialize_late(seed: int, rng: Random) -> Plan:
    """Return a plan in which transactions follow each other closely, and some are aborted."""
    acts = [act(1.0 + 0.8 * n + rng.uniform(0.0, 0.6), n % 2, ABORT) for n in range(6)]
    return group_plan(seed, [], acts, time_s=6.0, load=PIPELINE_LOAD, workload={"rate": 20})


# The abort went to the wrong group coordinator. Pending offsets stayed pending, and the next transaction of the same
# producer that committed also committed these.
def transaction_ended_52(self: GroupCoordinator, h: HostedPartition, producer_id: int, commit: bool, at: int) -> None:
    """Handle commits only, and ignore aborts."""
    if commit:
        SOUND_TRANSACTION_ENDED(self, h, producer_id, commit, at)


@pipeline_mutant(
    "52",
    "leaves the offsets of an aborted transaction pending, and counts them with the next commit of its producer",
    source="Redpanda #10669, PR 10670 (2023)",
    replaces=[(GroupCoordinator, "transaction_ended", transaction_ended_52)],
    expected="uncommitted-offset eos-loss stuck-group stuck-consumer",
)
def aborts_missed_by_groups(seed: int, rng: Random) -> Plan:
    """Return a plan that aborts a transaction of a pipeline instance (a member that also produces) with several
    partitions. The other instances commit their transactions.
    """
    acts = [act(1.0 + 0.8 * n + rng.uniform(0.0, 0.6), 0, ABORT) for n in range(6)]
    return group_plan(seed, [], acts, time_s=6.0, load=PIPELINE_LOAD, workload={"instances": 1, "partitions": 4})


# The group router lost the flag require_stable of OffsetFetch on its way. So a member that takes over a partition may
# get an offset from before a transaction that is just being committed. It reads the inputs of that transaction again,
# and produces their outputs a second time.
def submit(self: GroupCoordinator, request: Request, answer: Callable[[GroupResponse], None]) -> None:
    """Do what the correct function does, but without the flag require_stable."""
    if isinstance(request, FetchOffsets):
        request = replace(request, stable=False)
    SOUND_SUBMIT(self, request, answer)


@pipeline_mutant(
    "73",
    "tells the position of a group while a transaction is about to change it",
    source="Redpanda PR 28554 (2025)",
    replaces=[(GroupCoordinator, "submit", submit)],
    expected="eos-duplicate",
    faults="protocol",
)
def unstable_offsets_told(seed: int, rng: Random) -> Plan:
    """Return a plan in which the pipeline instance that owns the only partition leaves the group while markers are
    late. Another instance takes the partition over. It fetches the committed offset before the marker of the first
    instance's final transaction arrives.
    """
    faults, acts = [], []
    for n in range(2):
        at_s = 1.5 + 3.0 * n + rng.uniform(0.0, 0.4)
        late: Values = {"act": "delay", "api": "WriteTxnMarkers", "delay_ms": 1200, "count": 0, "side": "both"}
        faults.append(fault(at_s, 1.8, "protocol", "all", **late))
        begins_s = at_s + rng.uniform(0.1, 0.5)
        acts += [act(begins_s, who, LEAVE, 1.0 + 0.4 * who) for who in range(2)]
    workload = {"partitions": 1, "instances": 2}
    settings = {"transaction.state.log.num.partitions": "3"}
    return group_plan(seed, faults, acts, time_s=8.0, load=PIPELINE_LOAD, settings=settings, workload=workload)


# When another coordinator took over, acknowledged offsets were gone, and the transaction committed without them.
def _serve(self: GroupCoordinator, shard: HostedGroupShard) -> None:
    """Drop the pending offsets of open transactions, which were loaded from the partition's log, and then start to
    answer requests.
    """
    shard.machine.ledger.pending.clear()
    SOUND_SERVE(self, shard)


@pipeline_mutant(
    "75",
    "forgets the offsets of open transactions when another coordinator takes over",
    source="Redpanda #6326, PR 6785 (2022)",
    replaces=[(GroupCoordinator, "_serve", _serve)],
    expected="lost-position eos-duplicate",
    faults="protocol kill",
)
def pending_offsets_in_memory(seed: int, rng: Random) -> Plan:
    """Return a plan in which an instance of the workload `pipeline` crashes once it has committed a transaction. The
    coordinator of its group dies while the markers of that transaction are delayed.
    """
    at_s = rng.uniform(1.5, 2.0)
    late: Values = {"act": "delay", "api": "WriteTxnMarkers", "delay_ms": 2500, "count": 0, "side": "both"}
    faults = [fault(at_s, 1.5, "protocol", "all", **late), fault(at_s + rng.uniform(0.7, 0.9), 2.0, "kill", PIPELINE)]
    crash = act(at_s + 0.1, 0, "crash ended", 0.2)
    settings = {"transaction.state.log.num.partitions": "3"}
    workload = {"instances": 1}
    return group_plan(seed, faults, [crash], time_s=7.0, load=PIPELINE_LOAD, settings=settings, workload=workload)


# Another member has read on from the committed offset by then. The producer's epoch fences no member here: the other
# member has its own transactional id (KIP-447).
def refusal_of_commit(self: ClassicGroupRules, request: CommitOffsets | TxnOffsetCommit) -> ErrorCode:
    """Do what the correct function does, but refuse no commit of offsets in a transaction."""
    return ErrorCode.NONE if isinstance(request, TxnOffsetCommit) else SOUND_REFUSAL_OF_COMMIT(self, request)


@pipeline_mutant(
    "79",
    "takes offsets inside a transaction from members that its group has gone on without",
    source="KAFKA-9365, Redpanda PR 5162 (2022)",
    replaces=[(ClassicGroupRules, "refusal_of_commit", refusal_of_commit)],
    expected="eos-duplicate lost-position",
)
def generation_unchecked_in_transactions(seed: int, rng: Random) -> Plan:
    """Return a plan that pauses an instance of the workload `pipeline` inside a transaction. The pause is longer than
    the instance's session timeout.
    """
    acts = [act(1.5 + 3.5 * n + rng.uniform(0.0, 0.5), n, HALT, rng.uniform(2.3, 2.8)) for n in range(2)]
    workload = {"transaction_timeout_ms": 10_000}
    return group_plan(seed, [], acts, time_s=9.0, load=PIPELINE_LOAD, workload=workload)


# The next transaction commits offsets beyond the inputs of the aborted one, which then have no output. The example in
# librdkafka went back in some of its partitions. Here it goes back in none.
@pipeline_mutant(
    "91",
    "is sound; its client reads on after a transaction that it has aborted",
    source="librdkafka PR 3258 (2021)",
    replaces=[(Subscriber, "rewind", always(None))],
    expected="eos-loss",
)
def aborts_without_rewind(seed: int, rng: Random) -> Plan:
    """Return a plan in which some transactions are aborted, and others follow them closely."""
    acts = [act(1.0 + 0.8 * n + rng.uniform(0.0, 0.6), n % 2, ABORT) for n in range(5)]
    return group_plan(seed, [], acts, time_s=5.0, load=PIPELINE_LOAD, workload={"rate": 20})
