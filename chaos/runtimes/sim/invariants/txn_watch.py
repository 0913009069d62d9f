"""Checks transactions after each event: the state of producers in logs, the coordinators' decisions, and that both
agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from squall.chaos.runtimes.sim.invariants import inspection
from squall.chaos.runtimes.sim.invariants.group_journal import GroupJournal
from squall.chaos.runtimes.sim.invariants.group_watch import GROUPS_LOG
from squall.chaos.runtimes.sim.invariants.log_replay import WrittenMarker
from squall.chaos.runtimes.sim.invariants.partition_checks import check
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger
from squall.chaos.runtimes.sim.invariants.transaction_journal import COMPLETED, PREPARED, TransactionJournal
from squall.chaos.runtimes.sim.invariants.transactions import LogProducerState, OpenTransaction, PreparedTransaction
from squall.chaos.runtimes.sim.invariants.txn_times import OverdueTransactionTracker, ReadCommittedAnswer

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.batches import AnyJournal, BatchIdentity, LogCopy
    from squall.chaos.runtimes.sim.invariants.log_replay import LogReplay
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel
    from squall.chaos.runtimes.sim.invariants.partition_checks import Report
    from squall.chaos.runtimes.sim.invariants.transaction_journal import Place, TransactionChange, TransactionRecord
    from squall.chaos.runtimes.sim.invariants.watched import WatchedNode, WatchedReplica

COORDINATORS_LOG: Final = "__transaction_state"
NEVER_FORGOTTEN_MS: Final = 86_400_000
"""Is a producer.id.expiration.ms with which a log forgets no producer during a run."""


def journal_of(known: PartitionModel) -> AnyJournal:
    """Return an empty replay for one more replica of this partition: of transactional ids for __transaction_state, of
    groups for __consumer_offsets. Return None for any other topic.
    """
    if known.topic == GROUPS_LOG:
        return GroupJournal()
    return TransactionJournal(known.records) if known.topic == COORDINATORS_LOG else None


class TransactionWatch:
    """Checks the invariants of transactions. For one event, call `log_changed` and `coordinator` first, then `settle`.
    """

    def __init__(self, report: Report, partitions: Mapping[tuple[bytes, int], PartitionModel]) -> None:
        """Start without transactions. `partitions`: the existing partitions, by topic id and index."""
        self._report, self._partitions = report, partitions
        self._times: dict[Any, OverdueTransactionTracker] = {}
        """Maps a coordinator's shard, which each load of its log makes anew, to the tracker of those transactions that
        have exceeded their time-out.
        """
        self._decided: dict[tuple[int, int], list[PreparedTransaction]] = {}
        """Maps (producer id, epoch) to the decisions to commit or abort its transactions. It has only decisions whose
        records are committed in __transaction_state.
        """
        self._owners: dict[int, str] = {}
        """Maps a producer id to the transactional id that has it in the committed records of __transaction_state."""
        self._taken: dict[PartitionModel, int] = {}
        """Maps each partition of the coordinators' log to how many of its committed batches were processed."""
        self._completed: set[tuple[PartitionModel, int, int]] = set()
        """Holds the completion records that were checked, by partition, base offset and checksum of their batch."""
        self._coordinators: dict[PartitionModel, None] = {}
        self._news: dict[tuple[int, PartitionModel], LogCopy] = {}
        """Maps (node, partition) to the log's copy, for logs that have changed in this event. `settle` checks their new
        markers and new records on transactional ids.
        """

    # ---------------------------------------------------------------------------------------------------- one log

    def log_changed(
        self, node: int, known: PartitionModel, copy: LogCopy, log: Any, disk: Any, *, anew: bool = False
    ) -> None:
        """Check a log that has new batches of producers, or records of a coordinator. `anew`: the log was truncated or
        loaded, so all of it is compared.
        """
        replay = copy.replay
        if isinstance(copy.journal, TransactionJournal):
            self._coordinators.setdefault(known)
        self._news[node, known] = copy
        entries = log.producers.entries
        # If the numbers differ, a producer has come or gone without a batch: then all are compared.
        if anew or (not replay.start and len(entries) != len(replay)):
            ids: Iterable[int] = dict.fromkeys((*replay.senders(), *entries))
        else:
            ids = replay.changed_ids
        if ids or anew:
            self._compare(node, known, replay, log, disk, list(ids), anew=anew)
        replay.changed_ids = {}

    def _compare(
        self, node: int, known: PartitionModel, replay: LogReplay, log: Any, disk: Any, ids: list[int], *, anew: bool
    ) -> None:
        if node in known.cluster.rotten:
            return
        index = anew or bool(replay.news)
        found = inspection.memory_of(log, ids, disk, aborted=index)
        # What retention or a request deleted has no index any more.
        base = log.segments[0].base_offset if log.segments else 0
        # With an expiration as short as that, a log may have forgotten idle producers.
        if log.config.producer_id_expiration_ms < NEVER_FORGOTTEN_MS:
            ids = [producer_id for producer_id in ids if found.senders[producer_id] is not None]
        replayed = LogProducerState(
            {producer_id: replay.sender(producer_id) for producer_id in ids},
            tuple(replay.open.items()),
            tuple([each for each in replay.aborted if each.last >= base]) if index else (),
            replay.start,
        )
        check(self._report, CheckTrigger.REPLAY, found, replayed, node=node, known=known)

    # ----------------------------------------------------------------------------------------------- coordinators

    def coordinator(
        self, node: int, known: PartitionModel, journal: TransactionJournal, machine: Any, *, whole: bool
    ) -> None:
        """Check the state that a serving coordinator has in memory (`machine`) against a replay of its log (`journal`).
        If the coordinator was loaded just now (`whole`), all transactional ids are compared, otherwise those with new
        records.
        """
        names = dict.fromkeys((*journal.entries, *machine.inspect())) if whole else journal.changed_ids
        if names:
            found = inspection.shard_entries(machine, names)
            replayed = {name: journal.entries.get(name) for name in names}
            check(self._report, CheckTrigger.COORDINATOR, found, replayed, node=node, known=known)
        journal.changed_ids = {}

    def look(self, seen: WatchedNode, known: PartitionModel, hosted: Any, *, able: bool) -> None:
        """Check whether a serving coordinator has left transactions open beyond their time-outs. `able`: since the last
        check the node ran and could write, so the coordinator could end transactions. If not, the time for which each
        has been overdue is counted anew. `hosted`: the coordinator's shard.
        """
        times = self._times.setdefault(hosted, OverdueTransactionTracker())
        copy = known.copies.get(seen.id)
        if not able:
            times.forgive()
        if copy is None or not isinstance(copy.journal, TransactionJournal):
            return
        interval_ms = seen.broker.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        env = seen.sim.env
        for found in times.look(copy.journal.entries, env.wall_ms(), int(env.mono() * 1000), interval_ms):
            check(self._report, CheckTrigger.TXN_TIMES, found, node=seen.id, known=known)

    def answered(self, replica: WatchedReplica, offset: int, end: int, listed: Iterable[tuple[int, int]]) -> None:
        """Check a fetch response to a read_committed reader: records from `offset` up to `end`, and the aborted
        transactions that it lists.
        """
        aborted = [each for each in replica.copy.replay.aborted if each.first < end and each.last >= offset]
        if aborted and replica.node.id not in replica.known.cluster.rotten:
            found = replica.copy.between(offset, end)
            data = {(batch.producer_id, batch.base) for batch in found if not batch.is_control}
            with_data = tuple(
                each
                for each in aborted
                if any(producer == each.producer_id and each.first <= base <= each.last for producer, base in data)
            )
            answer = ReadCommittedAnswer(offset, end, frozenset(listed), with_data)
            check(self._report, CheckTrigger.FETCHED, answer, node=replica.node.id, known=replica.known)

    # -------------------------------------------------------------------------------------------------- all of it

    def settle(self, changed: Iterable[PartitionModel]) -> None:
        """Run the checks that must wait for the end of an event: when everything in it was observed, and the committed
        batches are up to date.
        """
        began: list[PartitionModel] = []
        for known in changed:
            if known in self._coordinators:
                self.take_decisions(known)
            elif known.replay.opened:
                began.append(known)
        if not self._news and not began:
            return
        news, self._news = self._news, {}
        for (node, known), copy in news.items():
            if isinstance(copy.journal, TransactionJournal) and copy.journal.news:
                steps, copy.journal.news = copy.journal.news, []
                for batch, step in steps:
                    check(self._report, CheckTrigger.TXN_STEP, step, node=node, known=known)
                    self._completion(node, known, batch, step)
            if copy.replay.news:
                markers, copy.replay.news = copy.replay.news, []
                for marked in markers:
                    self._marker(node, known, marked)
        for known in began:
            self._opened(known)

    def _is_lossy(self) -> bool:
        """Return whether a permitted loss may have taken decisions of coordinators."""
        return any(not _is_whole(known) for known in self._coordinators)

    def take_decisions(self, known: PartitionModel) -> None:
        """Store the decisions to commit or abort, and the owners of producer ids, from the newly committed batches of a
        partition of __transaction_state.
        """
        batches = known.ledger.batches
        for batch in batches[self._taken.get(known, 0) :]:
            for step in _steps_of(known, batch):
                self._decision(step.transactional_id, step.after)
        self._taken[known] = len(batches)

    def _decision(self, name: str, entry: TransactionRecord | None) -> None:
        if entry is None:
            return
        self._owners[entry.producer_id] = name
        if entry.state in PREPARED:
            self._decided.setdefault((entry.producer_id, entry.epoch), []).append(PreparedTransaction(name, entry))

    def _marker(self, node: int, known: PartitionModel, marked: WrittenMarker) -> None:
        batch = marked.batch
        if not _is_whole(known) and known.leaders.get(batch.epoch) != node:
            # Its leader may have lost what the follower knows of the producer.
            marked = WrittenMarker(batch, None)
        lossy = self._is_lossy() or node in known.cluster.rotten
        decided = self._decided.get((batch.producer_id, batch.producer_epoch), [])
        place, about = (known.topic, known.partition), {"batch": batch}
        permitted = None if lossy else decided
        check(self._report, CheckTrigger.MARKER, marked, permitted, node=node, known=known, details=about)
        if not lossy:
            check(self._report, CheckTrigger.DECIDED, marked, place, decided, node=node, known=known, details=about)

    def _completion(self, node: int, known: PartitionModel, batch: BatchIdentity, step: TransactionChange) -> None:
        before, after = step.before, step.after
        if before is None or after is None or after.state not in COMPLETED or before.state not in PREPARED:
            return
        # Every replica of the coordinators' log has this record, and one check is enough.
        mark = known, batch.base, batch.crc
        if mark in self._completed or self._is_lossy():
            return
        self._completed.add(mark)
        committed = {
            (found.topic, found.partition): found.replay.sender(before.producer_id)
            for found in self._partitions.values()
            if (found.topic, found.partition) in before.places and _is_whole(found)
        }
        prepared = PreparedTransaction(step.transactional_id, before)
        check(self._report, CheckTrigger.COMPLETED, prepared, committed, node=node, known=known)

    def _opened(self, known: PartitionModel) -> None:
        opened, known.replay.opened = known.replay.opened, []
        if not _is_whole(known) or self._is_lossy():
            return
        for producer_id, epoch in opened:
            name = self._owners.get(producer_id)
            if name is None:
                continue
            others = self._open_of(name)
            others.pop((known.topic, known.partition), None)
            now = OpenTransaction(producer_id, epoch)
            check(self._report, CheckTrigger.OPENED, now, others, node=None, known=known, subject=f"{name}: ")

    def _open_of(self, name: str) -> dict[Place, OpenTransaction]:
        """Return the open transactions of this transactional id, by partition, as the committed batches have them."""
        found: dict[Place, OpenTransaction] = {}
        for known in self._partitions.values():
            for producer_id in known.replay.open.values() if known.replay.open else ():
                sender = known.replay.sender(producer_id)
                if self._owners.get(producer_id) == name and sender is not None and _is_whole(known):
                    found[known.topic, known.partition] = OpenTransaction(producer_id, sender.epoch)
        return found


def _is_whole(known: PartitionModel) -> bool:
    """Return whether no permitted loss, and no damage, has taken any committed batch."""
    cluster = known.cluster
    if cluster.damaged or cluster.rotten or known.promise.hw_truncation or known.promise.without_controller:
        return False
    return known.void_epoch < 0


def _steps_of(known: PartitionModel, batch: BatchIdentity) -> list[TransactionChange]:
    """Return the changes of transactional ids that a committed batch makes, in order. They come from any replica's log
    that has the batch; empty if no log has it any more.
    """
    for copy in known.copies.values():
        if isinstance(copy.journal, TransactionJournal):
            found = copy.journal.steps.get(batch.base)
            if found is not None and found[0] == batch:
                return found[1]
    return []
