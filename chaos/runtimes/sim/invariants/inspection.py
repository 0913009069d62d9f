"""Reads the state of running nodes and of disks, without any effect on a node, its disk or its faults.

It reads the broker's objects in memory: state machines, and the bookkeeping of logs. Files are read by path from the
page cache, and never through a file handle, whose calls would be counted and could be hit by faults.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from squall.broker.cluster.names import METADATA_TOPIC
from squall.broker.env import Buffer
from squall.broker.log.checkpoints import LEADER_EPOCHS
from squall.broker.log.segment import ABORTED_INDEX, LOG, file_name
from squall.broker.protocol.metadata_frame import decode_metadata_record
from squall.broker.protocol.records import HEADER, BatchHeader, decode_batch
from squall.broker.quorum.state import DamagedQuorumState, QuorumState
from squall.chaos.runtimes.sim.invariants.batches import AnyJournal, BatchIdentity, LogCopy, read
from squall.chaos.runtimes.sim.invariants.contents import ComparableImage, FeatureLevelChange
from squall.chaos.runtimes.sim.invariants.group_journal import (
    CommittedOffset,
    Generation,
    GenerationMember,
    GroupStateSnapshot,
)
from squall.chaos.runtimes.sim.invariants.log_replay import CompletedTxn, ProducerReplay, ReplayedBatch
from squall.chaos.runtimes.sim.invariants.metadata import NodeQuorumView
from squall.chaos.runtimes.sim.invariants.models import FOLLOWER, IDLE, LEADER, ReplicaSnapshot
from squall.chaos.runtimes.sim.invariants.transaction_journal import TransactionRecord
from squall.chaos.runtimes.sim.invariants.transactions import LogProducerState

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.control.kraft.metadata_quorum import MetadataQuorum, QuorumNodeState
    from squall.broker.coordinators.groups.ledger import ReplayedGroupState
    from squall.broker.coordinators.groups.values import GroupRecord, OffsetAndMetadata, TopicPartition
    from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
    from squall.broker.coordinators.transactions.values import TransactionMetadata
    from squall.broker.log.indexes import IndexFile
    from squall.broker.log.log import Log
    from squall.broker.log.producer_rules import ProducerStateEntry
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.isr_proposals import IsrProposals
    from squall.broker.replication import Partition
    from squall.broker.replication.values import ProposeIsr
    from squall.chaos.runtimes.sim.invariants.decision_log import MetadataReplay


_new = tuple.__new__


class InspectedDisk(Protocol):
    """Lists what the invariant checks use of a simulated node's disk."""

    names: Any
    """Gives access to the files: `find(path)` returns a file whose `content.cached` are the bytes, or a directory whose
    `entries` are such objects by name, or None; `durable_files()` yields (path, file) for durable names, and
    `content.durable()` returns the bytes that are durable.
    """


class InspectedNode(Protocol):
    """Lists what the invariant checks use of a simulated node."""

    @property
    def id(self) -> int:
        """Returns the node's id."""

    @property
    def name(self) -> str:
        """Returns the node's name, which is the same for all its incarnations."""

    @property
    def incarnation(self) -> int:
        """Counts the node's starts."""

    @property
    def node(self) -> Any:
        """Returns the running `squall.broker.node.Node`; None while the node is down."""

    @property
    def env(self) -> Any:
        """Returns the running incarnation's Env: while it is `paused`, no task of the node runs. None while the node is
        down.
        """

    @property
    def disk(self) -> Any:
        """Returns the node's disk as an `InspectedDisk`."""


def view_of(node: int, incarnation: int, hosted: HostedPartition, fetchers: Any = None) -> ReplicaSnapshot:
    """Return a snapshot of one replica's state now. `fetchers`: the node's follower fetchers; they show from which
    leaders the replica fetches.
    """
    state, log = hosted.state, hosted.log
    fields = (
        node,
        incarnation,
        LEADER if state.is_leader else FOLLOWER if state.is_follower else IDLE,
        state.leader_epoch,
        state.partition_epoch,
        state.isr,
        state.maximal_isr,
        state.replicas,
        state.leader_id,
        None if fetchers is None or fetchers._stopped else _fetching(fetchers, (state.topic_id, state.index)),
        state.log_start_offset,
        state.high_watermark,
        state.log_end_offset,
        log.log_end_offset,
        stable_offset(state, log),
        log.generation,
        tuple(log.epochs.entries),
        state.is_leader,
    )
    return _new(ReplicaSnapshot, fields)


def undecided(proposals: IsrProposals) -> list[tuple[Partition, ProposeIsr]]:
    """Return a broker's ISR proposals that wait for the controller's decision, each with its partition. They are read
    from the state of the partitions, and not from the broker's own list of proposals to send.
    """
    assert proposals.replicas is not None
    states = (hosted.state for hosted in proposals.replicas.hosted())
    return [(state, state.pending) for state in states if state.pending is not None]


def _fetching(fetchers: Any, place: tuple[bytes, int]) -> tuple[tuple[int, int], ...]:
    found = []
    for fetcher in fetchers._fetchers.values():
        following = fetcher.following.get(place)
        if following is not None:
            found.append((fetcher.leader_id, following.leader_epoch))
    return tuple(found)


def stable_offset(state: Partition, log: Log) -> int:
    """Return a replica's last stable offset, by the broker's rules. Unlike the broker's method, it changes no state."""
    producers, unstable = log.producers, None
    if producers.ongoing or producers.undecided:
        undecided = [txn for txn in producers.undecided if producers.is_undecided(txn, state.high_watermark)]
        unstable = producers.oldest_unstable(producers.ongoing, undecided)
    if not state.log_start_offset <= state.high_watermark <= state.log_end_offset:
        return state.high_watermark  # `offsets-in-order` says so; the broker's own call would stop the node.
    return state.last_stable_offset(unstable)


def memory_of(log: Log, ids: Iterable[int], disk: InspectedDisk, *, aborted: bool) -> LogProducerState:
    """Return what a log has in memory about its producers: the state of each id in `ids` (None if the log does not know
    it), and the open transactions. `aborted`: add the log's index of aborted transactions.
    """
    producers = log.producers
    entries = producers.entries
    return LogProducerState(
        {producer_id: None if (entry := entries.get(producer_id)) is None else _sender(entry) for producer_id in ids},
        tuple(producers.ongoing.items()),
        aborted_in(log, disk) if aborted else (),
    )


def _sender(entry: ProducerStateEntry) -> ProducerReplay:
    # Both have the same four fields first. Asked at each append: without the constructors, which take twice as long.
    window = tuple([_new(ReplayedBatch, sent[:4]) for sent in entry.window])
    found = entry.epoch, entry.next_sequence, window, entry.coordinator_epoch, entry.txn_first_offset
    return _new(ProducerReplay, found)


def aborted_in(log: Log, disk: InspectedDisk) -> tuple[CompletedTxn, ...]:
    """Return a log's index of aborted transactions, over all segments."""
    found: list[CompletedTxn] = []
    for segment in log.segments:
        path = f"{log.directory}/{file_name(segment.base_offset, ABORTED_INDEX)}"
        found += [_new(CompletedTxn, row[1:]) for row in entries_of(segment.aborted, path, disk)]
    return tuple(found)


def entries_of(index: IndexFile[Any], path: str, disk: InspectedDisk) -> tuple[tuple[Any, ...], ...]:
    """Return the entries of an index as its log reads them: those in the file, and those that are still in memory."""
    rows, size = peek(disk, path) or b"", index.ENTRY.size
    count = index._count if index._count >= 0 else len(rows) // size
    whole = bytes(rows[: count * size]) + bytes(index._pending)
    return tuple(index.ENTRY.iter_unpack(whole[: len(whole) // size * size]))


def shard_entries(machine: TransactionCoordinatorShard, names: Iterable[str]) -> dict[str, TransactionRecord | None]:
    """Return the coordinator shard's state of these transactional ids; None for an id that the shard does not know."""
    found = machine.inspect()
    return {name: None if (known := found.get(name)) is None else _entry(known) for name in names}


def _entry(known: TransactionMetadata) -> TransactionRecord:
    tagged = known.previous_producer_id, known.next_producer_id, known.client_version
    return TransactionRecord(
        known.producer_id,
        known.epoch,
        known.timeout_ms,
        int(known.state),
        known.partitions,
        known.started_ms,
        known.updated_ms,
        tagged,
    )


def groups_of(ledger: ReplayedGroupState) -> list[str]:
    """Return the ids of all groups in the state of a coordinator's shard: those with a generation, a consumer group's
    state (KIP-848), committed offsets or pending offsets. `ledger`: the state of the shard, in its memory.
    """
    pending = (group for groups in ledger.pending.values() for group in groups)
    return list(dict.fromkeys((*ledger.groups, *ledger.consumers, *ledger.offsets, *pending)))


def group_states_of(ledger: ReplayedGroupState, names: Iterable[str]) -> dict[str, GroupStateSnapshot]:
    """Return the state of the groups with these names in the memory of a coordinator's shard. `ledger`: the shard's
    replayed state (`GroupCoordinatorShard.ledger`).
    """
    found = {}
    for name in names:
        pending = {producer: _positions(groups[name]) for producer, groups in ledger.pending.items() if name in groups}
        consumer = ledger.consumers[name].facts() if name in ledger.consumers else None
        offsets = _positions(ledger.offsets.get(name, {}))
        found[name] = GroupStateSnapshot(_generation(ledger.groups.get(name)), offsets, pending, consumer)
    return found


def _positions(known: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, CommittedOffset]:
    return {
        place: CommittedOffset(c.offset, c.leader_epoch, c.metadata, c.committed_ms, c.expires_ms, c.written_at)
        for place, c in known.items()
    }


def _generation(known: GroupRecord | None) -> Generation | None:
    if known is None:
        return None
    members = tuple(GenerationMember(m.member_id, m.instance_id, m.subscription, m.assignment) for m in known.members)
    return Generation(known.protocol_type, known.generation, known.protocol, known.leader, members)


def quorum_view_of(node: int, incarnation: int, quorum: MetadataQuorum, seen: QuorumNodeState) -> NodeQuorumView:
    """Return one node's state in the quorum now. `seen`: the node's own report of that state."""
    state = seen.state
    return NodeQuorumView(
        node,
        incarnation,
        seen.leads,
        state.epoch,
        state.voted_id,
        state.leader_id,
        seen.high_watermark,
        seen.log_end_offset,
        believed=tuple(zip([each for each in quorum.voters if each != node], seen.believed, strict=False)),
        deserted=quorum.ms_without_majority() / quorum.majority_timeout_ms if seen.leads else 0.0,
    )


def metadata_log(broker: Any) -> Log:
    """Return a node's own copy of the metadata log."""
    log: Log = broker.logs.logs[METADATA_TOPIC, 0]
    return log


def metadata_records(
    log: Log, disk: InspectedDisk, offset: int, limit: int
) -> Iterator[tuple[BatchIdentity, list[tuple[int, Any]]]]:
    """Yield the batches of the metadata log in [offset, limit), each with its records as (offset, message), without the
    records that the quorum writes for itself. Raises MalformedFrame for a batch that cannot be read.
    """
    for batch, data in batches_from(log, disk, offset, limit):
        found: list[tuple[int, Any]] = []
        if not batch.is_control:
            for record in decode_batch(BatchHeader._make(HEADER.unpack_from(data)), data):
                found.append((record.offset, decode_metadata_record(record.value or b"")))
        yield batch, found


def durable_epochs(disk: InspectedDisk, directory: str) -> tuple[int, ...]:
    """Return the leader epochs in a log's epoch checkpoint that would survive a power loss; empty if the file would
    not.
    """
    path = f"{directory}/{LEADER_EPOCHS}".strip("/")
    for name, found in disk.names.durable_files():
        if name == path:
            rows = [line.split() for line in found.content.durable().decode(errors="replace").splitlines()[2:]]
            return tuple(int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit())
    return ()


def durable_state(disk: InspectedDisk, path: str) -> tuple[int, int, int] | None:
    """Return (epoch, vote, leader) in a quorum-state file as a power loss would leave it; None if no readable file
    would be left.
    """
    path = path.strip("/")
    for name, found in disk.names.durable_files():
        if name == path:
            try:
                state = QuorumState.from_json(found.content.durable().decode())
            except (DamagedQuorumState, UnicodeDecodeError):  # It was never synced, or bits rot.
                return None
            return state.epoch, state.voted_id, state.leader_id
    return None


def canonical(image: ClusterImage | MetadataReplay) -> ComparableImage:
    """Convert an image of the cluster metadata, or a replay of it, to a value that can be compared."""
    topics = sorted(image.topics_by_id.items())
    return ComparableImage(
        tuple(image.brokers[broker] for broker in sorted(image.brokers)),
        tuple((topic_id, topic.name, tuple(sorted(topic.partitions.items()))) for topic_id, topic in topics),
        tuple((key, tuple(sorted(values.items()))) for key, values in sorted(image.configs.items())),
        tuple(sorted(image.features.items())),
        image.next_producer_id,
        image.epoch,
        tuple(sorted(image.topic_ids.items())),
        tuple(sorted(map(repr, image.kept.values()))) if image.kept else (),
        FeatureLevelChange(image.features_offset),
    )


# ------------------------------------------------------------------------------------------------------------- logs


def peek(disk: InspectedDisk, path: str) -> Buffer | None:
    """Return a file's bytes as a process would read them now; None if there is no such file. Do not keep the result: it
    changes with the file.
    """
    found = disk.names.find(path)
    content = getattr(found, "content", None)
    return None if content is None else content.cached


def follow(copy: LogCopy, log: Log, disk: InspectedDisk, *, checked: bool = False) -> list[BatchIdentity]:
    """Read the batches that were appended to a log since the last call, or all batches again if the log was truncated.
    Returns the batches that were read.
    """
    if log.generation != copy.generation or copy.segment < 0:
        copy.begin(log.segments[0].base_offset)
        copy.generation = log.generation
    copy.low = log.log_start_offset
    found: list[BatchIdentity] = []
    segments = log.segments
    at = len(segments) - 1
    # From the end, because most often only the last segment has grown.
    while at > 0 and segments[at].base_offset > copy.segment:
        at -= 1
    for segment in segments[at:]:
        if segment.base_offset != copy.segment:
            if copy.batches and segment.base_offset < copy.batches[-1].end:
                continue
            copy.segment, copy.position = segment.base_offset, 0
        if copy.position >= segment.size:
            continue
        buffer = peek(disk, f"{log.directory}/{file_name(segment.base_offset, LOG)}")
        if buffer is None:
            break
        size = segment.size if segment.size < len(buffer) else len(buffer)
        for batch, stop in read(buffer, copy.position, size, checked=checked):
            found.append(batch)
            if copy.journal is not None:
                copy.journal.take(batch, memoryview(buffer)[copy.position : stop])
            copy.position = stop
    copy.add(found)
    return found


def copy_on_disk(disk: InspectedDisk, directory: str, journal: AnyJournal = None) -> LogCopy:
    """Return a dead node's log, as a recovery would find it: the batches of its segments up to the first damage or gap.

    `journal`: an empty `GroupJournal` or `TransactionJournal`, which then replays the records; None if the log is not a
    coordinators' log.
    """
    files = getattr(disk.names.find(directory), "entries", {})
    names = [name.removesuffix(LOG) for name in sorted(files) if name.endswith(LOG)]
    bases = [int(name) for name in names if name.isdigit()]
    if not bases:
        return LogCopy(0, journal=journal)
    copy = LogCopy(bases[0], journal=journal)
    for base in bases:
        if base != copy.end:
            break
        data = files[file_name(base, LOG)].content.cached
        began = stop = 0
        for batch, stop in read(data, 0, len(data), checked=True):
            if batch.base != copy.end:
                return copy
            copy.add((batch,))
            if journal is not None:
                journal.take(batch, memoryview(data)[began:stop])
            began = stop
        if stop != len(data):
            break
    return copy


def batches_from(log: Log, disk: InspectedDisk, offset: int, limit: int) -> Iterator[tuple[BatchIdentity, memoryview]]:
    """Yield the sound batches from the batch that contains `offset` on, each with its bytes, as long as they end at
    `limit` or before.
    """
    for segment in log.segments:
        if segment.next_offset <= offset or segment.base_offset >= limit:
            continue
        buffer = peek(disk, f"{log.directory}/{file_name(segment.base_offset, LOG)}")
        if buffer is None:
            return
        at = bisect_right(segment.ends, offset) - 1
        position = segment.stops[at] if at >= 0 else 0
        for batch, stop in read(buffer, position, min(segment.size, len(buffer)), checked=True):
            if batch.end > limit:
                return
            if batch.end > offset:
                yield batch, memoryview(buffer)[position:stop]
            position = stop


def record_at(log: Log, disk: InspectedDisk, offset: int) -> bytes | None:
    """Return the value of the record at an offset; None if the log has none there, or none that can be read (flipped
    bits).
    """
    if not log.segments[0].base_offset <= offset < log.log_end_offset:
        return None
    segment = next(s for s in reversed(log.segments) if s.base_offset <= offset)
    buffer = peek(disk, f"{log.directory}/{file_name(segment.base_offset, LOG)}")
    if buffer is None:
        return None
    at = bisect_right(segment.ends, offset) - 1
    position = segment.stops[at] if at >= 0 else 0
    for batch, stop in read(buffer, position, min(segment.size, len(buffer)), checked=True):
        if batch.end > offset:
            return _values(bytes(memoryview(buffer)[position:stop])).get(offset)
        position = stop
    return None


@lru_cache(maxsize=64)
def _values(batch: bytes) -> dict[int, bytes | None]:
    """Map the offsets of a batch's records to their values. The result is cached, because callers often ask for one
    record of a batch after the other.
    """
    header = BatchHeader._make(HEADER.unpack_from(batch))
    return {record.offset: record.value for record in decode_batch(header, memoryview(batch))}
