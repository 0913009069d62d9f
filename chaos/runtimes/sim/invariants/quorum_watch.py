"""Checks the metadata quorum after each event: every node's vote, epoch and leader, and its copy of the metadata log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.control.kraft.quorum_storage import STATE_FILE
from squall.broker.protocol.ids import NO_NODE
from squall.chaos.runtimes.sim.invariants import inspection
from squall.chaos.runtimes.sim.invariants.batches import LogCopy
from squall.chaos.runtimes.sim.invariants.derived import epochs_of, indexed, wrong_in
from squall.chaos.runtimes.sim.invariants.durable import durable_end, newest_snapshot_end, snapshot_ends
from squall.chaos.runtimes.sim.invariants.metadata import QuorumModel
from squall.chaos.runtimes.sim.invariants.partition_checks import check
from squall.chaos.runtimes.sim.invariants.table import INVARIANTS, CheckTrigger, entered

if TYPE_CHECKING:
    from squall.broker.log.log import Log
    from squall.chaos.runtimes.sim.invariants.batches import BatchInLog
    from squall.chaos.runtimes.sim.invariants.metadata import NodeQuorumView
    from squall.chaos.runtimes.sim.invariants.partition_checks import Report

FORGOTTEN = (0, NO_NODE, NO_NODE)
"""Is (epoch, vote, leader) of a node without a quorum-state file."""


class QuorumWatch:
    """Checks the invariants of the metadata quorum and of the metadata log."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.known = QuorumModel()
        self._views: dict[int, NodeQuorumView] = {}
        self._written: dict[tuple[int, int], BatchInLog] = {}
        self._durable: dict[int, Any] = {}
        """Maps each node to its (epoch, vote, leader) at the last comparison of these with its disk."""
        self._matching = INVARIANTS["log-matching"]
        self._logs: dict[int, tuple[Log, Any]] = {}
        """Maps each running node to its log and disk."""
        self._left: dict[int, int] = {}
        """Maps each dead node to the durable end of its log."""
        self._recovery_points: dict[int, tuple[int, int]] = {}
        """Maps a node to (recovery point, generation) of its metadata log, as last seen. The generation counts the
        log's truncations.
        """
        self.damaged: set[int] = set()
        """Holds the nodes whose disks were damaged on purpose, or lose synced data."""

    def update(self, node: int, incarnation: int, broker: Any, disk: Any) -> None:
        """Check a node whose state in the quorum, or whose log, has changed."""
        quorum, log = broker.control.quorum, inspection.metadata_log(broker)
        seen = quorum.inspect()
        known = self.known
        if not known.voters:
            known.voters = quorum.voters
        before = self._views.get(node)
        copy = known.copies.get(node)
        if copy is None or before is None or before.incarnation != incarnation:
            copy = known.copies[node] = LogCopy(log.segments[0].base_offset)
        self._start_went_back(node, copy, log)
        anew, moved = copy.generation != log.generation or copy.segment < 0, copy.low != log.log_start_offset
        if anew or copy.end != log.log_end_offset:
            for written in copy.newest(len(inspection.follow(copy, log, disk))):
                first = self._written.setdefault((written.batch.base, written.batch.epoch), written)
                wrong = self._matching.check(written, first, None, None)
                if wrong is not None:
                    self._report(self._matching, wrong, node, None, {})
        if anew or moved:
            copy.low = log.log_start_offset
            self._derived(node, copy, log, disk, anew=anew)
        self._logs[node] = log, disk
        self._left.pop(node, None)
        self._recovery_point(node, log, disk)
        now = inspection.quorum_view_of(node, incarnation, quorum, seen)
        led = before is not None and before.leads and before.incarnation == incarnation
        if now.leads or led:  # One that has just resigned may have committed something in the same moment.
            self._commit(now, copy)
        if seen.has_left or not seen.is_settled:
            return  # What it may not forget is being made durable: no message has carried it yet.
        if seen.state != self._durable.get(node):
            self._durable[node] = seen.state
            now = now._replace(durable=inspection.durable_state(disk, f"{log.directory}/{STATE_FILE}") or FORGOTTEN)
        self._views[node] = now
        known.ledger.compare(known.copies.values())
        if now.leads and (before is None or before.hw != now.hw or before.believed != now.believed):
            self._update_durable_ends()
        check(self._report, CheckTrigger.QUORUM, before, now, known, node=node, details={"seat": now._asdict()})
        if now.leads:
            known.leaders.setdefault(now.epoch, node)
        if now.voted != NO_NODE:
            known.votes.setdefault((node, now.epoch), now.voted)
        known.epochs[node] = max(known.epochs.get(node, 0), now.epoch)

    def _derived(self, node: int, copy: LogCopy, log: Log, disk: Any, *, anew: bool) -> None:
        """Check the metadata log's indexes and epoch cache. `anew`: the log was loaded or truncated; else its start has
        moved.
        """
        if node in self.damaged:
            return
        check(self._report, CheckTrigger.EPOCHS, epochs_of(log), copy.batches, node=node)
        check(self._report, CheckTrigger.TRIMMED, log.log_start_offset, snapshot_ends(disk, log.directory), node=node)
        for each, wrong in wrong_in(indexed(log, disk), entered(CheckTrigger.INDEXES)) if anew else ():
            self._report(each, wrong, node, None, {})

    def _start_went_back(self, node: int, copy: LogCopy, log: Log) -> None:
        """Check the invariant `log-start-goes-on` if a node's log start offset is now lower than at the last check
        (`copy.low`).
        """
        if log.log_start_offset < copy.low:
            found = copy.low, log.log_start_offset, log.log_end_offset, log.generation != copy.generation
            check(self._report, CheckTrigger.WENT_BACK, *found, node=node)

    def _recovery_point(self, node: int, log: Log, disk: Any) -> None:
        point = log.durability.recovery_point, log.generation
        if point == self._recovery_points.get(node) or node in self.damaged:
            return
        self._recovery_points[node] = point
        check(self._report, CheckTrigger.FLUSHED, point[0], durable_end(log, disk), node=node)

    def _update_durable_ends(self) -> None:
        """Store the end offset that each node's metadata log would have after a power loss now. Nodes whose disks were
        damaged, or lose synced data, are left out.
        """
        ends = {node: durable_end(log, disk) for node, (log, disk) in self._logs.items()}
        self.known.durable = {node: end for node, end in {**ends, **self._left}.items() if node not in self.damaged}

    def _commit(self, seat: NodeQuorumView, copy: LogCopy) -> None:
        ledger = self.known.ledger
        # What does not continue the committed records is not added: `metadata-committed-prefix` reports it.
        if seat.hw <= ledger.end or (copy.compare(ledger) < ledger.end and ledger.batches):
            return
        for batch in copy.batches[copy.same :]:
            if batch.end > seat.hw:
                break
            ledger.add(batch)

    def died(self, node: int, broker: Any, disk: Any) -> None:
        """Replace the copy of a dead node's metadata log by the log that is on its disk."""
        log = inspection.metadata_log(broker)
        before = self.known.copies.get(node)
        if before is not None and node in self._logs:
            self._start_went_back(node, before, log)
        self._logs.pop(node, None)
        self._left[node] = durable_end(log, disk)
        left = inspection.copy_on_disk(disk, log.directory)
        snapshot = newest_snapshot_end(disk, log.directory)
        if left.end < snapshot:  # It died as it installed this one: it will begin behind it.
            left, self._left[node] = LogCopy(snapshot), snapshot
        self.known.copies[node] = left
        if before is not None:
            left.low = before.low
        left.compare(self.known.ledger)
        seat = self._views.get(node)
        if seat is not None and seat.leads:  # One that stops as it commits is gone before anybody looks at it again.
            self._commit(seat._replace(hw=broker.control.quorum.inspect().high_watermark), left)

    def final(self) -> None:
        """Check nothing: the quorum's invariants are the same in a converged cluster as at any time."""
