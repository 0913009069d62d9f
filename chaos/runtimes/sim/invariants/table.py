"""Holds the table of all invariants, and defines the triggers: the events after which an invariant is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class CheckTrigger(StrEnum):
    """Names the kinds of events after which invariants are checked. Each kind determines the arguments of the check."""

    REPLICA = "replica"
    """Means that one replica has changed: check(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known:
    PartitionModel).
    """
    LEADER = "leader"
    """Means that one replica that leads has changed: arguments as for REPLICA."""
    STANDING = "standing"
    """Means that a replica's role, epochs, ISR or fetchers have changed: arguments as for REPLICA."""
    PARTITION = "partition"
    """Means that something of a partition has changed: check(known: PartitionModel)."""
    BELIEF = "belief"
    """Means PARTITION, or that only a leader's beliefs of a follower's log have changed: check(known: PartitionModel).
    """
    DECISION = "decision"
    """Means a decision of the control plane: check(before: PartitionImage | None, now: PartitionImage, known:
    PartitionModel).
    """
    BATCH = "batch"
    """Means that a batch was committed: check(batch: BatchIdentity, producer: ExpectedSequence | None)."""
    WRITTEN = "written"
    """Means that a batch was written to any log: check(now: BatchInLog, first: BatchInLog, view: ReplicaSnapshot |
    None, known: PartitionModel | None). `first` is the first batch seen with the same leader epoch and offset. In the
    metadata log, `view` and `known` are None.
    """
    EPOCH = "epoch"
    """Means that a log has its first batch of another leader epoch: check(epoch: int, durable: tuple[int, ...]).
    `durable` lists the epochs in the log's epoch checkpoint as a power loss would leave it.
    """
    TRUNCATED = "truncated"
    """Means that a log was truncated: check(node: int, before: int, now: int, known: PartitionModel). `before` and
    `now` are the offsets up to which the log equalled and equals the committed batches.
    """
    RECOVERED = "recovered"
    """Means that a log was loaded: arguments as for TRUNCATED."""
    LOADED = "loaded"
    """Means that a log was loaded: check(node: int, whole: int, now: int, known: PartitionModel), with the end of its
    sound batches and the end of the log.
    """
    FLUSHED = "flushed"
    """Means that a recovery point has moved, its log was truncated, or its node is down: check(recovery_point: int,
    end: int), with the end of the durable batches.
    """
    EPOCHS = "epochs"
    """Means that a log was loaded or truncated, or its start has moved: check(cache: EpochCacheSnapshot, batches:
    Iterable[BatchIdentity]).
    """
    INDEXES = "indexes"
    """Means that a log was loaded or truncated: check(segment: SegmentIndexes), for each segment."""
    STARTED = "started"
    """Means that a log was loaded: check(start: int, first: int, kept: int, named: int), with its start, the base
    offset of its first segment, its start in the checkpoint, and the start in the last Fetch response of its node.
    """
    WENT_BACK = "went back"
    """Means that a log's start, or the start that its replica knows, has moved back while the node ran: check(before:
    int, now: int, end: int, cut: bool), with the log's end, and whether the log was truncated.
    """
    TRIMMED = "trimmed"
    """Means that the metadata log of a node was loaded or truncated, or its start has moved: check(start: int, ends:
    Sequence[int]), with the end offsets of the snapshots on its disk.
    """
    QUORUM = "quorum"
    """Means that one node's view of the quorum has changed: check(before: NodeQuorumView | None, now: NodeQuorumView,
    quorum: QuorumModel).
    """
    IMAGE = "image"
    """Means that a node's image has changed: check(image: ComparableImage, replayed: ComparableImage), with the state
    that a replay gives at the image's offset.
    """
    RECORDS = "records"
    """Means that a node's image is newer than all before, and its log has the records: check(reached: int, wanted: int,
    why: str), with the offset up to which the records could be replayed, the offset of the image, and the obstacle in
    words.
    """
    ACK = "ack"
    """Means that records were acknowledged to a client: check(ack: Ack, known: PartitionModel)."""
    READ = "read"
    """Means that a reader got a record: check(now: ServedRecord, first: ServedRecord, known: PartitionModel). `first`
    is the record that any reader got at that offset first. Not called for leaders whose answers do not count: see
    `PartitionModel.serves`.
    """
    REPLAY = "replay"
    """Means that a log has changed, was truncated or loaded: check(found: LogProducerState, replayed:
    LogProducerState).
    """
    MARKER = "marker"
    """Means that a marker is in a log: check(marked: WrittenMarker, decided: Sequence[PreparedTransaction] | None),
    with all decisions ever made for its producer epoch; None: a permitted loss may have taken such decisions.
    """
    DECIDED = "decided"
    """Means the same as MARKER, but only if no permitted loss may have taken decisions: check(marked: WrittenMarker,
    place: Place, decided: Sequence[PreparedTransaction]).
    """
    COMPLETED = "completed"
    """Means that a coordinator wrote that a transaction is complete: check(prepared: PreparedTransaction, committed:
    Mapping[Place, ProducerReplay | None]), with the state of its producer id by the committed batches of its
    partitions.
    """
    OPENED = "opened"
    """Means that a transaction began in the committed batches of a partition: check(now: OpenTransaction, others:
    Mapping[Place, OpenTransaction]), with the open transactions of its transactional id in other partitions.
    """
    COORDINATOR = "coordinator"
    """Means that a coordinator was loaded, or its log has changed: check(found: Mapping[str, TransactionRecord | None],
    replayed: Mapping[str, TransactionRecord | None]), by transactional id.
    """
    GROUPS = "group state"
    """Means that a group coordinator was loaded, or its log has a new record or marker: check(found: Mapping[str,
    GroupStateSnapshot], replayed: Mapping[str, GroupStateSnapshot]), by group.
    """
    OFFSETS = "offsets"
    """Means the same as GROUPS, with other arguments: check(offsets: Mapping[str, Positions], unmarked: Mapping[int,
    int]): the coordinator's committed offsets, by group, and the offsets of records whose transaction has no commit
    marker.
    """
    OWNERS = "owners"
    """Means that records in the log of a serving coordinator change the owners of partitions in a group: check(before:
    PartitionOwners | None, now: PartitionOwners).
    """
    TXN_STEP = "transaction step"
    """Means that a coordinator's log has a record of a transactional id: check(step: TransactionChange)."""
    TXN_TIMES = "transaction times"
    """Means that a periodic check of a serving coordinator finds a transaction over its time-out: check(found:
    OverdueTransaction).
    """
    ISR_REMOVAL = "ISR removal"
    """Means that a leader proposes an ISR without a member that it had: check(found: IsrRemoval)."""
    UNSENT = "unsent"
    """Means that a periodic check of a broker finds ISR proposals that wait, and no request in flight: check(found:
    UnsentProposals).
    """
    SILENT = "silent"
    """Means that a controller has nothing more to decide: check(found: BrokerSilence), for each broker that is not
    fenced.
    """
    EXPIRED = "expired"
    """Means that a controller fences a broker because time has passed: check(found: BrokerSilence)."""
    LISTED = "listed"
    """Means that ListOffsets gives a consumer the latest offset of a partition: check(found: LatestOffsetResponse)."""
    SESSION = "session"
    """Means that a broker accepted a request of a fetch session: check(found: ContinuedSession)."""
    OMITTED = "omitted"
    """Means that a response of a fetch session leaves out a partition: check(found: OmittedPartition)."""
    NAMED = "named"
    """Means that a follower sends a request of its fetch session: check(found: NamedPositions)."""
    SETTINGS = "settings"
    """Means that the time has come for the periodic check of a replica's settings: check(found: SettingsInForce)."""
    FETCHED = "fetched"
    """Means that a leader answers a read_committed Fetch with records: check(answer: ReadCommittedAnswer)."""
    GIVEN = "given"
    """Means that records in the log of a serving coordinator assign a partition to a member: check(given:
    AssignedPartition).
    """
    GROUP_TIMES = "group times"
    """Means that the time has come for the periodic check of a serving coordinator's groups: check(now: GroupTimeouts).
    """
    ORDER = "order"
    """Means that a request took effect out of its connection's order: check(now: RequestEffect, last: RequestEffect),
    with the request that took effect last.
    """
    FINAL = "final"
    """Means that the cluster has converged: check(known: PartitionModel)."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """Represents one invariant. `check` is a pure function that returns the problem in words, or None."""

    name: str
    definition: str
    source: str
    when: CheckTrigger
    check: Callable[..., str | None]


INVARIANTS: dict[str, Invariant] = {}
"""Maps the name of each invariant to the invariant."""
_entered: dict[tuple[CheckTrigger, ...], tuple[int, tuple[Invariant, ...]]] = {}
"""Caches the results of `entered`, with the number of invariants that the table had then."""


def invariant(name: str, when: CheckTrigger, source: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a check to the table under this name; the check's docstring is the definition of the invariant."""

    def enter(check: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in INVARIANTS, f"two invariants are called {name}"
        assert check.__doc__, f"{name} has no definition"
        INVARIANTS[name] = Invariant(name, " ".join(check.__doc__.split()), source, when, check)
        return check

    return enter


def entered(*kinds: CheckTrigger) -> tuple[Invariant, ...]:
    """Return the invariants with these triggers, in the order in which they were added to the table."""
    found = _entered.get(kinds)
    if found is None or found[0] != len(INVARIANTS):
        found = _entered[kinds] = len(INVARIANTS), tuple(each for each in INVARIANTS.values() if each.when in kinds)
    return found[1]
