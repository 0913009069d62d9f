"""Defines the invariants of transactions: in one log, in the state of coordinators, and between logs and coordinators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from squall.chaos.runtimes.sim.invariants.log_replay import CompletedTxn, ProducerReplay, WrittenMarker
from squall.chaos.runtimes.sim.invariants.state_differences import of_id, of_open, of_producer
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel, ReplicaSnapshot
    from squall.chaos.runtimes.sim.invariants.transaction_journal import Place, TransactionRecord


class LogProducerState(NamedTuple):
    """Holds the producers and transactions of a log: either from the broker's memory, or rebuilt from the log's
    batches.
    """

    senders: Mapping[int, ProducerReplay | None]
    """Maps a producer id to its state; None if it has no state. Holds only the producer ids that are to be checked."""
    open: tuple[tuple[int, int], ...]
    """Lists (first offset, producer id) of the open transactions, in order."""
    aborted: tuple[CompletedTxn, ...]
    """Lists the aborted transactions in the order of their markers."""
    start: int = 0
    """Is the first offset of the batches that the log still has. A producer's state from deleted batches may be known
    or lost.
    """


class PreparedTransaction(NamedTuple):
    """Holds a decision to commit or abort a transaction, whose record is committed in the coordinators' log."""

    transactional_id: str
    entry: TransactionRecord


class OpenTransaction(NamedTuple):
    """Identifies the producer whose transaction is open in a partition."""

    producer_id: int
    epoch: int


# ------------------------------------------------------------------------------------------------------------ one log


@invariant(
    "producer-state-is-a-replay", CheckTrigger.REPLAY, "KIP-98: producer state follows from the log (KAFKA-9144)"
)
def producer_state_is_a_replay(found: LogProducerState, replayed: LogProducerState) -> str | None:
    """A log's state of producers (epoch, next sequence, newest batches, coordinator epoch, open transaction) follows
    from its batches, whether they were appended, loaded, or left by a truncation. (A restart may forget all but the
    newest batch of each producer. State known only by batches that retention has deleted may be kept or lost.)
    """
    for producer_id, wanted in replayed.senders.items():
        has = found.senders.get(producer_id)
        if wanted is None and has is not None and not replayed.start:
            return of_producer(producer_id, has, None)
        if wanted is not None and has != wanted and (has is None or _differs(has, wanted, replayed.start)):
            return of_producer(producer_id, has, wanted)
    deleted = {first for first, _ in found.open if first < replayed.start}
    if not deleted and found.open != replayed.open:
        return of_open(found.open, replayed.open)
    return None


def _differs(has: ProducerReplay, wanted: ProducerReplay, start: int) -> bool:
    if has.epoch != wanted.epoch:
        return True
    common = min(len(has.window), len(wanted.window))
    if has.window[len(has.window) - common :] != wanted.window[len(wanted.window) - common :]:
        return True
    if not start:
        if bool(has.window) != bool(wanted.window) or len(has.window) > len(wanted.window):
            return True
        return has[1:2] + has[3:] != wanted[1:2] + wanted[3:]
    if wanted.window and has.expected != wanted.expected:
        return True
    if wanted.coordinator_epoch >= 0 and has.coordinator_epoch != wanted.coordinator_epoch:
        return True
    return not 0 <= has.first < start and has.first != wanted.first


@invariant(
    "aborted-index-is-a-replay",
    CheckTrigger.REPLAY,
    "KIP-98: .txnindex; KAFKA-8778, KAFKA-10471: lost or wrong entries",
)
def aborted_index_is_a_replay(found: LogProducerState, replayed: LogProducerState) -> str | None:
    """The index of aborted transactions has exactly one entry for each abort marker that ended a transaction, with the
    transaction's first offset and the last stable offset at that moment. (Transactions that began before the log's
    first batch are not checked.)
    """
    if not replayed.start:
        return None if found.aborted == replayed.aborted else _index(found.aborted, replayed.aborted)
    earlier = {each.last for each in found.aborted if each.first < replayed.start}
    # Without the last stable offsets, which may rest on transactions from before the log's first batch.
    has = [each[:3] for each in found.aborted if each.last not in earlier]
    wanted = [each[:3] for each in replayed.aborted if each.last not in earlier]
    return None if has == wanted else _index(has, wanted)


def _index(has: Sequence[object], wanted: Sequence[object]) -> str:
    return f"the index has {[each for each in has if each not in wanted]} too many, it lacks " + str(
        [each for each in wanted if each not in has]
    )


@invariant("stable-offset-is-a-replay", CheckTrigger.LEADER, "KIP-98; Kafka: UnifiedLog.lastStableOffset")
def stable_offset_is_a_replay(
    before: ReplicaSnapshot | None, now: ReplicaSnapshot, known: PartitionModel
) -> str | None:
    """A leader's last stable offset is its high watermark, or, if that is lower, the first offset of the first
    transaction that is open in its log or whose marker is not committed. (A committed marker at or above the leader's
    high watermark may count as committed or not: the leader does not know yet that the marker is committed, unless its
    high watermark was higher earlier.)
    """
    replay = known.copies[now.node].replay
    if not replay.open and (not replay.ended or replay.ended[-1].last < now.hw):
        low = high = now.hw
    else:
        low = replay.stable_offset(now.hw, now.hw)
        high = replay.stable_offset(now.hw, max(now.hw, known.ledger.end))
    # A transaction that began before the log's first batch is in no replay, and may hold the offset at the log's start.
    if max(low, now.start) <= now.lso <= max(high, now.start) or (replay.start and now.lso == now.start):
        return None
    due = str(low) if low == high else f"{low} to {high}"
    return f"last stable offset {now.lso}, by the batches {due}; high watermark {now.hw}, log start {now.start}"


@invariant("marker-epochs", CheckTrigger.MARKER, "KIP-98, KAFKA-9144: a marker of an epoch that is over ends nothing")
def marker_epochs(marked: WrittenMarker, decided: Sequence[PreparedTransaction] | None) -> str | None:
    """No marker has an older producer epoch or coordinator epoch than the log already has for that producer."""
    batch, before = marked
    marker = batch.marker
    if before is None or marker is None:
        return None
    if batch.producer_epoch < before.epoch:
        return f"producer {batch.producer_id}: a marker of epoch {batch.producer_epoch} after {before.epoch}: {batch}"
    if marker.coordinator_epoch < before.coordinator_epoch:
        return (
            f"producer {batch.producer_id}: a marker of coordinator epoch {marker.coordinator_epoch} "
            f"after {before.coordinator_epoch}: {batch}"
        )
    return None


@invariant("marker-once", CheckTrigger.MARKER, "KAFKA-19999, KIP-890: a marker that is sent again is not written again")
def marker_once(marked: WrittenMarker, decided: Sequence[PreparedTransaction] | None) -> str | None:
    """A transaction has at most one marker in a partition. (Before KIP-890, part 2, a producer keeps its epoch for
    several transactions. Then a marker without an open transaction is a violation only if the marker before it has the
    same coordinator epoch: a new coordinator may write one more marker, which fences earlier coordinators.)
    """
    batch, before = marked
    marker = batch.marker
    if before is None or marker is None or before.first >= 0 or before.epoch != batch.producer_epoch:
        return None
    if before.coordinator_epoch < 0:
        return None  # what came before in this epoch was no marker
    raises_epoch = bool(decided) and all(each.entry.raises_epoch for each in decided or ())
    if raises_epoch or marker.coordinator_epoch == before.coordinator_epoch:
        return f"producer {batch.producer_id}: epoch {batch.producer_epoch} has its marker already: {batch}, {marker}"
    return None


# ------------------------------------------------------------------------------------------------------- coordinators


@invariant("marker-is-decided", CheckTrigger.DECIDED, "KIP-98: markers are written once the decision is committed")
def marker_is_decided(marked: WrittenMarker, place: Place, decided: Sequence[PreparedTransaction]) -> str | None:
    """Each marker in a log follows a decision: a coordinator's log has a committed record of it, with the same outcome
    (commit or abort), for the marker's producer id, producer epoch and partition. (Not checked after a permitted loss
    in the coordinators' log.)
    """
    batch, marker = marked.batch, marked.batch.marker
    assert marker is not None
    if any(place in each.entry.places and each.entry.commits == marker.commit for each in decided):
        return None
    kind = "commit" if marker.commit else "abort"
    said = [f"{each.transactional_id}: {each.entry}" for each in decided]
    return (
        f"producer {batch.producer_id} epoch {batch.producer_epoch}: a {kind} marker, decided was {said or 'nothing'}"
    )


@invariant(
    "completed-is-marked", CheckTrigger.COMPLETED, "KIP-98: a transaction is complete when all its markers are written"
)
def completed_is_marked(prepared: PreparedTransaction, committed: Mapping[Place, ProducerReplay | None]) -> str | None:
    """Once a coordinator has written that a transaction is complete, each of its partitions has a committed marker for
    it, and no data of the transaction is open there. (Not checked for deleted topics, nor after a permitted loss.)
    """
    entry = prepared.entry
    for place, sender in committed.items():
        marked = sender is not None and sender.epoch >= entry.epoch and sender.coordinator_epoch >= 0
        is_open = sender is not None and sender.first >= 0 and sender.epoch <= entry.epoch
        if not marked or is_open:
            return f"{prepared.transactional_id} is complete, {place[0]}-{place[1]} has no marker of {entry}: {sender}"
    return None


@invariant(
    "one-transaction-per-id", CheckTrigger.OPENED, "KIP-98: one transaction after the other; KAFKA-12671, KAFKA-14402"
)
def one_transaction_per_id(now: OpenTransaction, others: Mapping[Place, OpenTransaction]) -> str | None:
    """Each transactional id has at most one open transaction. So when the first record of a transaction in a partition
    is committed, no other partition has an open transaction of the same transactional id with another producer id or
    epoch. (Not checked after a permitted loss.)
    """
    wrong = {place: owner for place, owner in others.items() if owner != now}
    return f"{now} began, and open are {wrong}" if wrong else None


@invariant(
    "coordinator-state-is-a-replay",
    CheckTrigger.COORDINATOR,
    "KIP-98: the coordinator's state is its log's (KAFKA-7786)",
)
def coordinator_state_is_a_replay(
    found: Mapping[str, TransactionRecord | None], replayed: Mapping[str, TransactionRecord | None]
) -> str | None:
    """A serving coordinator's state of its transactional ids equals a replay of its partition of __transaction_state,
    after it was loaded and after each record that it appended.
    """
    for name in sorted(found.keys() | replayed.keys()):
        has, wanted = found.get(name), replayed.get(name)
        if has is not None and wanted is not None and wanted.tagged is None:
            # A record of the old version has nothing to compare these fields with.
            has = has._replace(tagged=None)
        if has != wanted:
            return of_id(name, has, wanted)
    return None
