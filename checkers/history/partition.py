"""Describes a partition of a history: its settings in force, and which part of its log the final reads allow to judge.
"""

from __future__ import annotations

from dataclasses import dataclass

REMOVALS = ("delete_records", "retention")
"""Lists the requests of an administrator that remove records from the beginning of a log."""
ANY = 2**63 - 1
"""Is an offset above all others: any missing record may have been removed."""


@dataclass(slots=True)
class ObservedPartition:
    """Describes a partition, and which part of its log the final reads allow to judge."""

    part: int
    topic: str
    index: int
    cleanup: str
    """Is the cleanup.policy in force. All settings of this class are settings in force: the topic's, else the brokers',
    else Kafka's default. Histories of early versions have the topic's own settings only.
    """
    retention_ms: int
    """Is the lowest retention.ms during the run; -1: unlimited."""
    retention_bytes: int = -1
    """Is the lowest retention.bytes during the run; -1: unlimited."""
    min_isr: int = -1
    """Is the lowest min.insync.replicas during the run; -1 if it is not known."""
    unclean: int = -1
    """Is 1 if unclean.leader.election.enable was true at any time, 0 if it never was, -1 if it is not known."""
    described: bool = True
    """Is False if the settings were requested, and no broker reported them."""
    transactional: bool = False
    """Is True if transactions wrote to the partition."""
    requested_to: int = 0
    """Is the offset below which an administrator requested removal (DeleteRecords). ANY if removal was requested up to
    the log's end, or if an administrator shortened retention.ms and the history does not say to what.
    """
    expired_to: int = 0
    """Is the highest offset for which two things hold: a response reported it, or a higher one, as the log start, or
    refused the position before it as out of range; and retention could have removed all records below it by then.
    """
    expirable_to: int = 0
    """Is the offset below which retention could have removed records by the end of the run, whether that was seen or
    not.
    """
    added: bool = False
    """Is True if the partition was added while the load ran: clients need not have used it, and its settings need not
    be the plan's.
    """
    deleted: bool = False
    """Is True if an administrator requested the deletion of the topic, at `deleted_t`. From then on the partition may
    be unreadable and its records gone.
    """
    deleted_t: int = -1
    log_start: int = -1
    """Is the highest log start offset in any response; -1 if none is known."""
    seen: int = -1
    """Is the highest offset that any reader saw; -1 if none saw a record."""
    cover_from: int = -1
    cover_to: int = -1
    """Is the end of [cover_from, cover_to), the offsets that one final reader went through without a gap; -1 if there
    was none.
    """
    cover_t0: int = -1
    """Is when the last complete final read began, in ns: records acknowledged before then must be in it; -1 if there is
    none.
    """
    committed_t0: int = -1
    """Is when the last complete final read at read_committed began, in ns; only such reads show whether transactions
    are complete.
    """
    last_round: int = 0
    """Is the last round of final reads with a complete read at read_uncommitted, 0 if none. The reads of that round
    must return every record that an earlier round returned.
    """
    last_committed_round: int = 0
    """Is the last round with a complete final read at read_committed; 0 if there is none."""

    @property
    def name(self) -> str:
        """Return the partition's name as people write it: topic-index."""
        return f"{self.topic}-{self.index}"

    @property
    def compacted(self) -> bool:
        """Return whether compaction may remove a record once a later record has its key."""
        return "compact" in self.cleanup

    @property
    def deletable(self) -> bool:
        """Return whether retention or a request could have removed records from the log's beginning by the end of the
        run.
        """
        return max(self.requested_to, self.expirable_to) > 0

    @property
    def judged_from(self) -> int:
        """Return the offset, never negative, below which no record counts as lost or misplaced, because retention or an
        administrator's request may have removed the records there.
        """
        return self.removed_before(max(self.log_start, 0))

    def removed_before(self, log_start: int) -> int:
        """Return the offset below which records may have been removed by the time at which the log was reported to
        begin at `log_start`.
        """
        return min(log_start, self.explained_to)

    @property
    def explained_to(self) -> int:
        """Return the offset below which retention or a request explains that a broker has no records, whether or not
        any response reported a log start above them.
        """
        return max(self.requested_to, self.expired_to)

    def may_lack(self, off: int) -> bool:
        """Return whether a record at the offset `off` may be missing because retention or an administrator's request
        removed it. If `off` is -1, its offset is not known: then True if any record may have been removed.
        """
        return off < self.judged_from and self.judged_from > 0

    def administered(self, what: str, to: int, t: int) -> None:
        """Record the request `what` of an administrator at `t`, such as "delete_records", whether or not it was done.
        `to` is the offset below which it removes records; -1 if it has none.
        """
        if what in REMOVALS:
            self.asked_to_remove(to)
        elif what == "delete_topic":
            self.deleted, self.deleted_t = True, t

    def asked_to_remove(self, to: int) -> None:
        """Record a request to remove the records below the offset `to`. If `to` is -1, the request names no offset, and
        may have removed any record.
        """
        self.requested_to = max(self.requested_to, to) if to >= 0 else ANY
