"""Holds the table of all invariants, and defines the triggers: the events after which an invariant is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class CheckTrigger(StrEnum):
    """Names the kinds of events after which invariants are checked. Behind "Call" is how the checks of a kind are
    called.
    """

    REPLICA = "replica"
    """Means that one replica has changed. Call: check(before: ReplicaSnapshot | None, now: ReplicaSnapshot, known:
    PartitionModel).
    """
    LEADER = "leader"
    """Means that one replica that leads has changed. Call: check(before: ReplicaSnapshot | None, now: ReplicaSnapshot,
    known: PartitionModel).
    """
    STANDING = "standing"
    """Means that a replica's role, epochs, ISR or fetchers have changed. Call: check(before: ReplicaSnapshot | None,
    now: ReplicaSnapshot, known: PartitionModel).
    """
    PARTITION = "partition"
    """Means that something of a partition has changed. Call: check(known: PartitionModel)."""
    BELIEF = "belief"
    """Means that anything of a partition has changed, even if it is only the log ends that a leader believes its
    followers to have. (PARTITION excludes that case.) The call is check(known: PartitionModel).
    """
    DECISION = "decision"
    """Means a decision of the control plane. Call: check(before: PartitionImage | None, now: PartitionImage, known:
    PartitionModel).
    """
    BATCH = "batch"
    """Means that a batch was committed. Call: check(batch: BatchIdentity, producer: ExpectedSequence | None)."""
    WRITTEN = "written"
    """Means that a batch was written to any log. Call: check(now: BatchInLog, first: BatchInLog, view: ReplicaSnapshot
    | None, known: PartitionModel | None). `first` is the first batch seen with the same leader epoch and offset. In the
    metadata log, `view` and `known` are None.
    """
    EPOCH = "epoch"
    """Means that a log has got its first batch of a leader epoch, after batches of another epoch. Call: check(epoch:
    int, durable: tuple[int, ...]). `epoch` is the new batch's epoch. `durable` lists the epochs in the log's epoch
    checkpoint as a power loss would leave it.
    """
    TRUNCATED = "truncated"
    """Means that a log was truncated. Call: check(node: int, before: int, now: int, known: PartitionModel). The log
    equalled the committed batches up to offset `before`, and equals them up to `now` after the truncation.
    """
    RECOVERED = "recovered"
    """Means that a starting node has loaded a log. Call: check(node: int, before: int, now: int, known:
    PartitionModel). The log on the disk equalled the committed batches up to offset `before`, and the loaded log equals
    them up to `now`.
    """
    LOADED = "loaded"
    """Means that a log was loaded. Call: check(node: int, whole: int, now: int, known: PartitionModel). `whole` is the
    end of its batches with right checksums, and `now` is the log's end offset.
    """
    FLUSHED = "flushed"
    """Means that a recovery point has moved, its log was truncated, or its node is down. Call: check(recovery_point:
    int, end: int), with the end of the durable batches.
    """
    EPOCHS = "epochs"
    """Means that a log was loaded or truncated, or its start has moved. Call: check(cache: EpochCacheSnapshot, batches:
    Iterable[BatchIdentity]).
    """
    INDEXES = "indexes"
    """Means that a log was loaded or truncated. Call: check(segment: SegmentIndexes), for each segment."""
    STARTED = "started"
    """Means that a log was loaded. Call: check(start: int, first: int, kept: int, named: int). `start` is the log's
    start offset, `first` is the base offset of its first segment, and `kept` is the start offset in the node's
    checkpoint file. `named` is the largest start offset that the node has sent in a Fetch response; 0 if there is none.
    """
    WENT_BACK = "went back"
    """Means that a log's start offset has moved back while the node ran, in the log or in the replica's state machine.
    Call: check(before: int, now: int, end: int, cut: bool). `before` and `now` are the start offsets, `end` is the
    log's end offset, and `cut` is True if the log was truncated.
    """
    TRIMMED = "trimmed"
    """Means that the metadata log of a node was loaded or truncated, or its start has moved. Call: check(start: int,
    ends: Sequence[int]), with the end offsets of the snapshots on its disk.
    """
    QUORUM = "quorum"
    """Means that one node's view of the quorum has changed. Call: check(before: NodeQuorumView | None, now:
    NodeQuorumView, quorum: QuorumModel).
    """
    IMAGE = "image"
    """Means that a node's image has changed. Call: check(image: ComparableImage, replayed: ComparableImage), with the
    state that a replay gives at the image's offset.
    """
    RECORDS = "records"
    """Means that a node has the newest image seen so far, but a replay of the records in the node's log does not reach
    the image's offset. Call: check(reached: int, wanted: int, why: str). `reached` is the last offset of the replay,
    `wanted` is the image's offset, and `why` is the error of the replay, or empty.
    """
    ACK = "ack"
    """Means that records were acknowledged to a client. Call: check(ack: Ack, known: PartitionModel)."""
    READ = "read"
    """Means that a reader got a record. Call: check(now: ServedRecord, first: ServedRecord, known: PartitionModel).
    `first` is the record that any reader got at that offset first. Not called for leaders whose answers do not count:
    see `PartitionModel.serves`.
    """
    REPLAY = "replay"
    """Means that a log has changed, was truncated or loaded. Call: check(found: LogProducerState, replayed:
    LogProducerState), with the producers and transactions that the broker has in memory, and those that follow from the
    log's batches.
    """
    MARKER = "marker"
    """Means that a marker was found in a log. Call: check(marked: WrittenMarker, decided: Sequence[PreparedTransaction]
    | None). `decided` lists all committed decisions for the marker's producer id and epoch. It is None if a permitted
    loss or a damaged disk may have taken some of them.
    """
    DECIDED = "decided"
    """Means that a marker was found in a log. Call: check(marked: WrittenMarker, place: Place, decided:
    Sequence[PreparedTransaction]). `place` is the marker's partition. `decided` lists all committed decisions for the
    marker's producer id and epoch. Not called if a permitted loss or a damaged disk may have taken some of them.
    """
    COMPLETED = "completed"
    """Means that a coordinator wrote that a transaction is complete. Call: check(prepared: PreparedTransaction,
    committed: Mapping[Place, ProducerReplay | None]). `committed` maps each partition of the transaction to the state
    of its producer id, as rebuilt from that partition's committed batches.
    """
    OPENED = "opened"
    """Means that a transaction began in the committed batches of a partition. Call: check(now: OpenTransaction, others:
    Mapping[Place, OpenTransaction]), with the open transactions of its transactional id in other partitions.
    """
    COORDINATOR = "coordinator"
    """Means that a coordinator was loaded, or its log has changed. Call: check(found: Mapping[str, TransactionRecord |
    None], replayed: Mapping[str, TransactionRecord | None]), by transactional id.
    """
    GROUPS = "group state"
    """Means that a group coordinator was loaded, or its log has a new record or marker. Call: check(found: Mapping[str,
    GroupStateSnapshot], replayed: Mapping[str, GroupStateSnapshot]), by group.
    """
    OFFSETS = "offsets"
    """Means that a group coordinator was loaded, or its log has a new record or marker. Call: check(offsets:
    Mapping[str, Positions], unmarked: Mapping[int, int]). `offsets` maps a group to the committed offsets that the
    coordinator has. `unmarked` maps the offset of a log record to its producer id, if the record's transaction has no
    commit marker so far.
    """
    OWNERS = "owners"
    """Means that records in the log of a serving coordinator change the owners of partitions in a group. Call:
    check(before: PartitionOwners | None, now: PartitionOwners).
    """
    TXN_STEP = "transaction step"
    """Means that a coordinator's log has a record of a transactional id. Call: check(step: TransactionChange)."""
    TXN_TIMES = "transaction times"
    """Means that a periodic check of a serving coordinator finds a transaction over its time-out. Call: check(found:
    OverdueTransaction).
    """
    TIMED_OUT = "timed out"
    """Means that a coordinator decides to abort a transaction because of its time-out. Call: check(found:
    TimedOutAbort).
    """
    ISR_REMOVAL = "ISR removal"
    """Means that a leader proposes an ISR without a member that it had. Call: check(found: IsrRemoval)."""
    UNSENT = "unsent"
    """Means that a periodic check finds a broker with waiting ISR proposals and without an AlterPartition request in
    flight. Call: check(found: UnsentProposals).
    """
    SILENT = "silent"
    """Means that the active controller has checked its brokers' sessions, and has nothing to decide. Call: check(found:
    BrokerSilence), for each broker that is not fenced.
    """
    EXPIRED = "expired"
    """Means that a controller fences a broker in its periodic check of sessions. Call: check(found: BrokerSilence)."""
    LISTED = "listed"
    """Means that ListOffsets gives a consumer the latest offset of a partition. Call: check(found:
    LatestOffsetResponse).
    """
    SESSION = "session"
    """Means that a broker accepted a request of a fetch session. Call: check(found: ContinuedSession)."""
    OMITTED = "omitted"
    """Means that a response of a fetch session leaves out a partition. Call: check(found: OmittedPartition)."""
    NAMED = "named"
    """Means that a follower sends a Fetch request in a fetch session. Call: check(found: NamedPositions). `found` has
    the positions (offsets and epochs) that the follower wants to send, and those that the session's requests, including
    this one, have sent.
    """
    SETTINGS = "settings"
    """Means that the time has come for the periodic check of a replica's settings. Call: check(found: SettingsInForce).
    """
    FETCHED = "fetched"
    """Means that a leader answers a read_committed Fetch with records. Call: check(answer: ReadCommittedAnswer)."""
    GIVEN = "given"
    """Means that records in the log of a serving coordinator assign a partition to a member. Call: check(given:
    AssignedPartition).
    """
    GROUP_TIMES = "group times"
    """Means that the time has come for the periodic check of a serving coordinator's groups. Call: check(now:
    GroupTimeouts).
    """
    REMOVED = "removed"
    """Means that a group coordinator removes a member because time has passed. Call: check(found: MemberRemoval)."""
    ORDER = "order"
    """Means that a request (`now`) took effect after a request (`last`) that was sent later on the same connection.
    Call: check(now: RequestEffect, last: RequestEffect).
    """
    FINAL = "final"
    """Means that the cluster has converged. Call: check(known: PartitionModel)."""


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
"""Caches the invariants that have any of some triggers. Each entry also holds the number of all invariants when it was
made. Once there are more invariants, the entry is outdated.
"""


def invariant(name: str, when: CheckTrigger, source: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a check to the table under this name; the check's docstring is the definition of the invariant."""

    def enter(check: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in INVARIANTS, f"two invariants are called {name}"
        assert check.__doc__, f"{name} has no definition"
        INVARIANTS[name] = Invariant(name, " ".join(check.__doc__.split()), source, when, check)
        return check

    return enter


def entered(*kinds: CheckTrigger) -> tuple[Invariant, ...]:
    """Return the invariants in the table that have one of these triggers, in the order in which they were added."""
    found = _entered.get(kinds)
    if found is None or found[0] != len(INVARIANTS):
        found = _entered[kinds] = len(INVARIANTS), tuple(each for each in INVARIANTS.values() if each.when in kinds)
    return found[1]
