"""Plants bugs of consumer groups: their coordinator, and their members."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

from squall.broker.coordinators.groups import shard
from squall.broker.coordinators.groups.classic import ClassicGroup
from squall.broker.coordinators.groups.consumer.reconciliation import Reconciliation
from squall.broker.coordinators.groups.rules import ClassicGroupRules, is_expired
from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.broker.coordinators.groups.values import (
    AppendRecords,
    ClockReading,
    CommitOffsets,
    DeleteGroup,
    Effect,
    ExpireOffsets,
    GroupLogRecord,
    GroupRecord,
    GroupResponse,
    GroupState,
    OffsetAndMetadata,
    OffsetCommitRecord,
    Request,
    SendResponse,
    Token,
    TxnOffsetCommit,
)
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators import coordinator_log, group_coordinator
from squall.broker.replicas.coordinators.coordinator_log import L
from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator, HostedGroupShard
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replicas.replica_manager import ReplicaManager
from squall.chaos.mutants.group_plans import (
    BYTES,
    CRASH,
    DELETE,
    GROUP,
    GROUPS_LOAD,
    HALT,
    LEAVE,
    PIPELINE_LOAD,
    SEND,
    TWIN,
    act,
    group_plan,
)
from squall.chaos.mutants.hunt_plans import REBALANCING, fault
from squall.chaos.mutants.mutant import always, group_mutant
from squall.chaos.plans.plan import Plan
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.offsets import CommitOutcome
from squall.workloads.group_brokers import sessions_of
from squall.workloads.subscriber import Subscriber

# The rules as they are while no mutant is planted.
SOUND_ROLE_CHANGED = GroupCoordinator.role_changed
SOUND_NEEDS_LOADING = coordinator_log.needs_loading
SOUND_EXPIRED = GroupCoordinatorShard._expired
SOUND_REFUSAL_OF_COMMIT = ClassicGroupRules.refusal_of_commit
SOUND_COMMIT = Subscriber.commit
SOUND_SUBMIT = GroupCoordinatorShard.submit
SOUND_EXPIRE = ClassicGroup.expire


# Kafka ran loads and unloads in the order in which threads took them.
LATE_S = 3.0


def role_changed(self: GroupCoordinator, h: HostedPartition) -> None:
    """Do what the correct function does; but once a broker has resigned, remove its groups again LATE_S seconds later,
    whatever their epoch is.
    """
    if h.state.index in self.shards and not h.state.is_leader:
        assert self._start_soon is not None
        self._start_soon(_unload_late, self, h.state.index)
    SOUND_ROLE_CHANGED(self, h)


async def _unload_late(self: GroupCoordinator, index: int) -> None:
    await self._env.sleep(LATE_S)
    shard = self.shards.get(index)
    if shard is not None:
        shard.machine = GroupCoordinatorShard(self._settings, self.topics)


@group_mutant(
    "39",
    "removes the groups of a partition that it lost and leads again, after it has loaded them",
    source="KAFKA-10614, KAFKA-18137",
    replaces=[(GroupCoordinator, "role_changed", role_changed)],
    expected="lost-position dual-ownership commit-ahead",
    faults="kill",
)
def unloads_out_of_order(seed: int, rng: Random) -> Plan:
    """Return a plan in which the coordinator's broker dies twice. After the first time its successor is elected, and
    resigns when the broker is back. After the second time the successor is elected again.
    """
    first_s = rng.uniform(1.5, 2.0)
    again_s = first_s + rng.uniform(3.2, 3.8)
    faults = [fault(first_s, 1.0, "kill", GROUP), fault(again_s, 3.0, "kill", GROUP)]
    return group_plan(seed, faults, [], time_s=again_s + 4.0, settings=REBALANCING)


# Members that had found the old coordinator still got successful responses from it. Members that found the new one
# formed a second group of the same name.
def needs_loading(
    replicas: ReplicaManager, h: HostedPartition, shards: dict[int, L], unload: Callable[[int, L], None]
) -> bool:
    """Return False at once if this broker does not lead the partition `h`. The correct function would first unload the
    groups that this broker has loaded from the partition.
    """
    return h.state.is_leader and SOUND_NEEDS_LOADING(replicas, h, shards, unload)


@group_mutant(
    "40",
    "goes on as the coordinator of groups whose partition another broker leads",
    source="KAFKA-4362",
    replaces=[(group_coordinator, "needs_loading", needs_loading)],
    expected="dual-ownership",
    faults="kill",
)
def not_unloaded(seed: int, rng: Random) -> Plan:
    """Return a plan in which the coordinator dies and comes back, so that its successor resigns. One member has nothing
    to commit, so that it does not notice that the coordinator has changed.
    """
    down = fault(rng.uniform(1.5, 2.5), rng.uniform(0.8, 1.2), "kill", GROUP)
    early = [[0.3, 0, SEND, 1, BYTES]]
    return group_plan(seed, [down], early, time_s=10.0, settings=REBALANCING, workload={"partitions": 2}, to=(0,))


# Kafka 2.1 read the default of an old record, -1, as a time. It then removed the offsets of groups that had no
# members at that moment as soon as it looked for expired offsets.
def is_expired_41(committed: OffsetAndMetadata, group: GroupRecord | None, retention_ms: int, wall_ms: int) -> bool:
    """Return whether the expiry time in the record has passed, even if it is -1 (the record has none). The correct
    function then uses offsets.retention.minutes instead.
    """
    return wall_ms >= committed.expires_ms


@group_mutant(
    "41",
    "removes the offsets of a group without members as soon as it looks for expired ones",
    source="KAFKA-8069",
    replaces=[(shard, "is_expired", is_expired_41)],
    expected="lost-position",
)
def offsets_expire_at_once(seed: int, rng: Random) -> Plan:
    """Return a plan in which all members leave at the same time, twice, and come again after the coordinator has looked
    for expired offsets.
    """
    acts = []
    for at_s in (2.5, 5.5):
        begins_s, away_s = at_s + rng.uniform(0.0, 0.5), rng.uniform(1.2, 1.8)
        acts += [act(begins_s + rng.uniform(0.0, 0.2), who, LEAVE, away_s) for who in range(2)]
    settings = {"offsets.retention.check.interval.ms": "300"}
    return group_plan(seed, [], acts, time_s=8.0, settings=settings)


# While a group rebalances its subscriptions are unknown, and Kafka took that for a group without subscriptions.
def _expired(self: GroupCoordinatorShard, request: ExpireOffsets, wall_ms: int) -> list[GroupLogRecord]:
    """Expire offsets of all topics during a rebalance."""
    group_id = request.group_id
    if self.state_of(group_id) not in (GroupState.PREPARING, GroupState.COMPLETING):
        return SOUND_EXPIRED(self, request, wall_ms)
    known = self.ledger.offsets.get(group_id, {})
    retention_ms = self.settings.retention_ms
    gone = [where for where, committed in known.items() if is_expired(committed, None, retention_ms, wall_ms)]
    return [OffsetCommitRecord(group_id, where, None) for where in gone]


@group_mutant(
    "41b",
    "removes the old offsets of a group that is rebalancing",
    source="KAFKA-13636",
    replaces=[(GroupCoordinatorShard, "_expired", _expired)],
    expected="lost-position",
    faults="clock",
)
def offsets_expire_in_rebalances(seed: int, rng: Random) -> Plan:
    """Return a plan in which the coordinator's clock jumps two minutes ahead, so that it takes the last commits for
    old. A member leaves, and the rebalance waits for another member, which is paused.
    """
    at_s = rng.uniform(2.0, 2.5)
    ahead = fault(at_s, 2.5, "clock", GROUP, offset_ms=120_000)
    goes_s = at_s + rng.uniform(0.4, 0.6)
    acts = [act(goes_s - 0.1, 1, HALT, 1.2), act(goes_s, 0, LEAVE, 3.0)]
    settings = {"offsets.retention.check.interval.ms": "200", "offsets.retention.minutes": "1"}
    return group_plan(seed, [ahead], acts, time_s=6.0, settings=settings, workload={"members": 3}, sends_s=1.8)


SESSION_MS = 1500


@group_mutant(
    "44",
    "gives a partition of a consumer group to a member before the one that has it has released it",
    source="KIP-848, KAFKA-16147",
    replaces=[(Reconciliation, "may_get", always(True))],
    expected="dual-ownership",
)
def given_before_released(seed: int, rng: Random) -> Plan:
    """Return a plan in which members of a consumer group leave and come again: each time partitions move between
    members.
    """
    acts = [act(1.5 + 1.5 * n + rng.uniform(0.0, 0.5), n % 3, LEAVE, rng.uniform(0.3, 0.6)) for n in range(4)]
    workload = {"group_protocol": "consumer", "members": 3, "partitions": 6, "session_timeout_ms": SESSION_MS}
    return group_plan(seed, [], acts, time_s=8.0, settings=sessions_of(SESSION_MS), workload=workload)


# Kafka 2.3 and later answer FENCED_INSTANCE_ID to the former member. Here its heartbeats and commits are accepted.
def refusal_of_commit(self: ClassicGroupRules, request: CommitOffsets | TxnOffsetCommit) -> ErrorCode:
    """Decide by the instance id alone if there is one, and ignore the member id."""
    if request.instance_id is None:
        return SOUND_REFUSAL_OF_COMMIT(self, request)
    if request.instance_id not in self.static:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not self.is_current(request.generation):
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if self.state == GroupState.COMPLETING else ErrorCode.NONE


@group_mutant(
    "45",
    "takes commits of a member whose instance id another process has taken over",
    source="KIP-345",
    replaces=[(ClassicGroupRules, "refusal_of_commit", refusal_of_commit)],
    expected="dual-ownership",
)
def duplicate_instance_unfenced(seed: int, rng: Random) -> Plan:
    """Return a plan in which additional members join for a while, each with the group.instance.id of a present one."""
    acts = [act(2.0 + 2.0 * n + rng.uniform(0.0, 0.8), 1 + n % 2, TWIN, rng.uniform(1.0, 1.8)) for n in range(3)]
    workload = {"members": 3, "static_members": True, "commit_every_ms": 0, "rate": 20}
    return group_plan(seed, [], acts, time_s=8.0, workload=workload)


# The bug is planted in Squall's own client: the checks must distinguish a consumer that skips records from a broker
# that loses them.
async def commit(self: Subscriber, why: str, only: Collection[Place] | None = None) -> CommitOutcome | None:
    """Commit up to the position that the client has fetched."""
    for part in self.reader.consumer._parts.values():
        part.returned = part.position
    return await SOUND_COMMIT(self, why, only)


@group_mutant(
    "46",
    "is sound; its client commits what it has fetched before the application gets it",
    source="KAFKA-2942",
    replaces=[(Subscriber, "commit", commit)],
    expected="commit-ahead",
)
def commits_what_it_prefetched(seed: int, rng: Random) -> Plan:
    """Return a plan in which members commit periodically. Six times, one of them commits, leaves the group, and comes
    back.
    """
    acts = [act(1.5 + 0.7 * n + rng.uniform(0.0, 0.5), n % 2, LEAVE, 0.3) for n in range(6)]
    workload = {"auto_commit": True, "rate": 40, "poll_pause_ms": 150}
    return group_plan(seed, [], acts, time_s=6.0, workload=workload)


# The group was gone as long as its coordinator ran. The next coordinator, which read the log, returned deleted
# offsets to its members.
def submit(self: GroupCoordinatorShard, request: Request, token: Token, now: ClockReading) -> list[Effect]:
    """Delete groups in memory only."""
    effects = SOUND_SUBMIT(self, request, token, now)
    if not isinstance(request, DeleteGroup) or not any(isinstance(effect, AppendRecords) for effect in effects):
        return effects
    ledger, group_id = self.ledger, request.group_id
    for known in (ledger.offsets, ledger.groups, ledger.consumers, self.groups):
        known.pop(group_id, None)
    return [SendResponse(token, GroupResponse())]


@group_mutant(
    "51",
    "leaves the offsets of a deleted group in the log",
    source="Redpanda #4900 (2022)",
    replaces=[(GroupCoordinatorShard, "submit", submit)],
    expected="lost-position",
    faults="kill",
)
def offsets_of_deleted_groups(seed: int, rng: Random) -> Plan:
    """Return a plan in which all members leave, and their group is deleted. The coordinator dies before they come
    again.
    """
    at_s = rng.uniform(2.0, 2.5)
    down = fault(at_s + rng.uniform(1.0, 1.3), rng.uniform(1.0, 1.5), "kill", GROUP)
    return group_plan(seed, [down], [act(at_s, 0, DELETE, 3.0)], time_s=8.0)


# Kafka 0.11.0.0 read the segments wrongly, and returned offsets that were long outdated. Here the offsets of all
# segments but the first are missing.
async def _load(self: GroupCoordinator, shard: HostedGroupShard) -> None:
    """Load the first segment only."""
    log = shard.log.hosted.log
    begins = [segment.base_offset for segment in log.segments] + [log.log_end_offset]
    for header, batch in log.read_batches(log.log_start_offset, begins[1]):
        self._replay(shard, header, memoryview(batch))
    shard.replayed = True
    shard.log.when_committed(log.log_end_offset - 1, lambda _: self._serve(shard))


@group_mutant(
    "76",
    "loads the groups of the first segment of its log alone",
    source="KAFKA-5600",
    replaces=[(GroupCoordinator, "_load", _load)],
    expected="lost-position",
    faults="kill",
)
def first_segment_alone(seed: int, rng: Random) -> Plan:
    """Return a plan in which the coordinator dies after many commits, when there is nothing more to commit. Then a
    member leaves.
    """
    down = fault(rng.uniform(3.4, 4.0), rng.uniform(1.0, 1.5), "kill", GROUP)
    goes = act(rng.uniform(5.5, 6.0), 0, LEAVE, 0.5)
    settings = {"offsets.topic.segment.bytes": "1500"}
    return group_plan(seed, [down], [goes], time_s=7.0, settings=settings, sends_s=3.0)


def expire(self: ClassicGroup, now: ClockReading) -> None:
    """Expire no member while the group rebalances."""
    if self.state != GroupState.PREPARING or self._joining_until_ms is not None:
        SOUND_EXPIRE(self, now)
        return
    self._join_deadline_ms = None
    for member in self.members.values():
        member.deadline_ms = None


@group_mutant(
    "78",
    "waits for ever for members that do not join in a rebalance",
    source="Redpanda #3300 (2021)",
    replaces=[(ClassicGroup, "expire", expire)],
    expected="stuck-group stuck-consumer",
)
def rebalance_waits_forever(seed: int, rng: Random) -> Plan:
    """Return a plan in which a member crashes, and another member leaves before the coordinator notices the crash."""
    at_s = rng.uniform(2.0, 3.0)
    acts = [act(at_s, 0, CRASH, 5.0), act(at_s + rng.uniform(0.3, 0.8), 1, LEAVE, 0.5)]
    return group_plan(seed, [], acts, time_s=5.0, workload={"members": 3})


# A topic of the same name begins at offset 0 again. A group that had read the earlier topic resumes at the old offset
# and skips records below it.
@group_mutant(
    "81",
    "keeps the committed offsets of a topic that is deleted",
    source="KAFKA-2000 (2015)",
    replaces=[(GroupCoordinatorShard, "_is_orphan", always(False))],
    expected="lost-position thrown-back",
    faults="topics",
)
def offsets_outlive_topics(seed: int, rng: Random) -> Plan:
    """Return a plan that deletes and recreates a topic that a group has read. The seed decides whether the workload is
    `groups` or `pipeline`.
    """
    again = fault(rng.uniform(2.5, 3.5), rng.uniform(2.0, 3.0), "topics", "all", how="remake")
    return group_plan(seed, [again], [], time_s=9.0, load=rng.choice((GROUPS_LOAD, PIPELINE_LOAD)))
