"""Updates the model of each partition from observations, and runs the invariants on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.chaos.runtimes.sim.invariants.derived import epochs_of, indexed, wrong_in
from squall.chaos.runtimes.sim.invariants.models import STANDING, LostTail, ServedRecord
from squall.chaos.runtimes.sim.invariants.producers import ExpectedSequence
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, Invariant, entered

if TYPE_CHECKING:
    from squall.broker.cluster.image import PartitionImage
    from squall.broker.log.log import Log
    from squall.chaos.runtimes.sim.invariants.acks import Ack
    from squall.chaos.runtimes.sim.invariants.batches import BatchIdentity, BatchInLog, LogCopy
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel, ReplicaSnapshot

Report = Callable[[Invariant, str, "int | None", "PartitionModel | None", Mapping[str, Any]], None]
"""Is called with a broken invariant: the invariant, the problem in words, the node, the partition, and further details.
"""
Change = tuple["ReplicaSnapshot | None", "ReplicaSnapshot"]
_NO_DETAILS: Mapping[str, Any] = {}


def check(
    report: Report,
    when: CheckTrigger,
    *found: Any,
    node: int | None,
    known: PartitionModel | None = None,
    subject: str = "",
    details: Mapping[str, Any] = _NO_DETAILS,
) -> None:
    """Check the invariants of the trigger `when`, and report those that are broken. `found`: what `when` says they are
    called with. `subject` begins the reported problem. `details` that are no numbers or mappings are reported as text.
    """
    for each in entered(when):
        wrong = each.check(*found)
        if wrong is not None:
            # Only now: most checks find nothing, and the text of a batch takes longer than its checks.
            plain = {name: value if isinstance(value, int | dict) else str(value) for name, value in details.items()}
            report(each, f"{subject}{wrong}", node, known, plain)


class PartitionChecks:
    """Updates the models of partitions, and runs their invariants. For one event, call `wrote` and `shortened` first,
    then `decided`, then `settle`.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._of_replica = entered(CheckTrigger.REPLICA)
        self._of_leader = entered(CheckTrigger.REPLICA, CheckTrigger.LEADER)
        self._of_standing = entered(CheckTrigger.STANDING)
        self._of_partition = entered(CheckTrigger.PARTITION, CheckTrigger.BELIEF)

    def wrote(self, known: PartitionModel, view: ReplicaSnapshot, batches: Iterable[BatchInLog]) -> None:
        """Check new batches of a log. No two logs may have different batches at the same offset and leader epoch, and
        the replica's epoch cache must have the batch's epoch.
        """
        written = known.written
        for now in batches:
            place = now.batch.base, now.batch.epoch
            first = written.setdefault(place, now)
            # In the first log, all before this batch may be deleted. Another log may still have its predecessor.
            if first.previous is None:
                written[place] = first._replace(previous=now.previous)
            found, details = (now, first, view, known), {"batch": now.batch}
            check(self._report, CheckTrigger.WRITTEN, *found, node=view.node, known=known, details=details)

    def began(self, known: PartitionModel, node: int, epoch: int, durable: tuple[int, ...]) -> None:
        """Check a log that has got its first batch of leader epoch `epoch`. `durable`: the epochs in the log's epoch
        checkpoint as a power loss would leave it.
        """
        check(self._report, CheckTrigger.EPOCH, epoch, durable, node=node, known=known)

    def shortened(self, when: CheckTrigger, known: PartitionModel, node: int, before: int) -> None:
        """Check a log that was truncated or loaded. `when`: TRUNCATED or RECOVERED. `before`: the offset up to which
        the log equalled the committed batches until then.
        """
        now = known.copies[node].compare(known.ledger)
        check(self._report, when, node, before, now, known, node=node, known=known)

    def loaded(self, known: PartitionModel, node: int, whole: int, now: int) -> None:
        """Check a log that was loaded. `whole`: the end of its batches with right checksums. `now`: the log's end
        offset.
        """
        check(self._report, CheckTrigger.LOADED, node, whole, now, known, node=node, known=known)

    def derived(self, known: PartitionModel, node: int, log: Log, disk: Any, *, anew: bool) -> None:
        """Check a log's indexes and epoch cache against its batches. `anew`: the log was loaded or truncated; otherwise
        only its start has moved.
        """
        if node in known.cluster.damaged:
            return
        if not known.promise.hw_truncation:
            batches = known.copies[node].batches
            check(self._report, CheckTrigger.EPOCHS, epochs_of(log), batches, node=node, known=known)
        segments = indexed(log, disk, known.index_interval) if anew else []
        for each, wrong in wrong_in(segments, entered(CheckTrigger.INDEXES)):
            self._report(each, wrong, node, known, {})

    def started(self, known: PartitionModel, node: int, log: Log, kept: int) -> None:
        """Check the start offset of a log that was loaded. `kept`: the start offset that the node's checkpoint file has
        for it.
        """
        if node not in known.cluster.damaged:
            found = log.log_start_offset, log.segments[0].base_offset, kept, known.named.get(node, 0)
            check(self._report, CheckTrigger.STARTED, *found, node=node, known=known)

    def went_back(self, known: PartitionModel, node: int, before: int, now: int, end: int, *, cut: bool) -> None:
        """Check a log whose start offset moved back from `before` to `now`. `cut`: the log was truncated; it ends at
        `end`.
        """
        check(self._report, CheckTrigger.WENT_BACK, before, now, end, cut, node=node, known=known)

    def flushed(self, known: PartitionModel, node: int, recovery_point: int, end: int) -> None:
        """Check a log's recovery point against the end of its durable batches."""
        if node not in known.cluster.damaged:
            check(self._report, CheckTrigger.FLUSHED, recovery_point, end, node=node, known=known)

    def decided(self, known: PartitionModel, now: PartitionImage) -> None:
        """Check a partition's newest leader, ISR and epochs, as the control plane has decided them. May remove
        committed batches from the model, if a newly elected leader lacks them.
        """
        before, known.truth = known.truth, now
        known.ledger.compare(known.copies.values())
        found, details = (before, now, known), {"before": before}
        check(self._report, CheckTrigger.DECISION, *found, node=now.leader, known=known, details=details)
        elected = now.leader >= 0 and (before is None or before.leader_epoch < now.leader_epoch)
        lacking = not known.holds(now.leader, known.ledger.end) and not known.is_unnoticed(now.leader)
        if elected and (now.leader_recovery_state or lacking):
            copy_or_none = known.copies.get(now.leader)
            known.void_from(
                known.ledger.start if copy_or_none is None else copy_or_none.matched, now.leader_epoch, now.leader
            )
            # Not before it leads: another decision may come first, and its high watermark is of an earlier life.
            known.stale.add(now.leader)

    def settle(self, known: PartitionModel, changes: Sequence[Change]) -> None:
        """Update the committed batches after all observations of an event, and run the partition's invariants."""
        for before, now in changes:
            # Also one that led when the event began: news of brokers may commit first, and end its leadership next.
            if now.leads or (before is not None and before.leads):
                self.commit(known, now)
        known.ledger.compare(known.copies.values())
        if known.deleted:
            return
        for node in list(known.lost) if known.lost else ():
            copy, upto = known.copies[node], known.lost[node].upto
            if copy.end >= upto and copy.matched >= min(upto, known.ledger.end):
                del known.lost[node]
        for before, now in changes:
            if now.node in known.stale and now.leader_epoch >= known.void_epoch:
                if now.hw <= known.copies[now.node].matched:
                    known.stale.discard(now.node)
            concerned = self._of_leader if now.leads else self._of_replica
            if before is None or before[:STANDING] != now[:STANDING]:
                concerned += self._of_standing
            for each in concerned:
                wrong = each.check(before, now, known)
                if wrong is not None:
                    self._report(each, wrong, now.node, known, {})
            if now.leads:
                known.leaders.setdefault(now.leader_epoch, now.node)
        for each in self._of_partition:
            wrong = each.check(known)
            if wrong is not None:
                self._report(each, wrong, None, known, {})

    def believed(self, known: PartitionModel) -> None:
        """Check what a leader believes of its followers' log ends. Called if nothing else of the partition has changed
        in this event.
        """
        if not known.deleted:
            check(self._report, CheckTrigger.BELIEF, known, node=None, known=known)

    def commit(self, known: PartitionModel, view: ReplicaSnapshot) -> None:
        """Add the batches below a leader's high watermark to the committed ones."""
        if view.leads and view.leader_epoch >= known.void_epoch:
            known.stale.discard(view.node)
        if not known.counts(view):
            return
        ledger, copy = known.ledger, known.copies[view.node]
        ledger.deleted(view.start)
        if view.hw <= ledger.end:
            return
        if copy.compare(ledger) < ledger.end:
            if not known.promise.hw_truncation:
                return  # committed-prefix will tell
            known.void_from(copy.matched, view.leader_epoch, view.node)
        for batch in copy.batches[copy.same :]:
            if batch.end > view.hw:
                break
            self._committed(known, view.node, batch)
        copy.compare(ledger)

    def _committed(self, known: PartitionModel, node: int, batch: BatchIdentity) -> None:
        if batch.base > known.ledger.end and node in known.cluster.damaged:
            # A damaged disk took a whole segment, and its broker leads: sequences are missing with those offsets.
            known.producers.clear()
        known.ledger.add(batch)
        if batch.producer_id < 0:
            return
        known.replay.take((batch,))
        producer = known.producers.get(batch.producer_id)
        details = {"batch": batch}
        check(self._report, CheckTrigger.BATCH, batch, producer, node=node, known=known, details=details)
        known.producers[batch.producer_id] = ExpectedSequence.after(batch)

    def died(self, known: PartitionModel, node: int, left: LogCopy) -> None:
        """Replace the copy of a log, whose node is down, by the log on the node's disk (`left`)."""
        known.views.pop(node, None)
        before = known.copies.get(node)
        known.copies[node] = left
        left.compare(known.ledger)
        if before is None:
            return
        left.low = max(before.low, left.start) if left.start > before.start else before.low
        if before.low < left.low:
            # Its retention deleted in the moment that it died in, and nothing was seen between.
            known.ledger.deleted(min(left.low, before.matched))
        # What was not committed yet counts, too: a fetch that says so may be under way to the leader.
        if left.matched < before.compare(known.ledger) or left.end < before.end:
            harmed = known.lost.get(node)
            upto = before.end if harmed is None else max(before.end, harmed.upto)
            known.lost[node] = LostTail(upto, known.cluster.broker_epoch(node))

    def acknowledged(self, known: PartitionModel, ack: Ack) -> None:
        """Check that an acknowledged record is committed, replicated and durable as the configuration promises, and
        that it is the record that was sent.
        """
        if not known.deleted:
            check(self._report, CheckTrigger.ACK, ack, known, node=None, known=known, details={"offset": ack.offset})

    def served(self, known: PartitionModel, epoch: int, records: Iterable[tuple[int, int]]) -> None:
        """Check the records that a reader got from the leader of this epoch. `records`: (offset, number that identifies
        the record's value; -1 if the value is not readable).
        """
        if not known.serves(epoch):
            return
        served, committed = known.served, known.ledger.end
        for offset, value in records:
            first = served.get(offset)
            if first is not None and first.value == value and offset < committed:
                continue  # Most records are read several times: to ask about each costs 1.5 % of a simulation.
            if value < 0:
                continue
            now = ServedRecord(offset, value, epoch)
            if first is None:
                first = served[offset] = now
            node, details = known.leaders.get(epoch), {"offset": offset}
            check(self._report, CheckTrigger.READ, now, first, known, node=node, known=known, details=details)

    def final(self, known: PartitionModel) -> None:
        """Check the partition of a cluster that has converged."""
        check(self._report, CheckTrigger.FINAL, known, node=None, known=known)
