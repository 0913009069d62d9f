"""A partition of a history: its settings in force, and which part of its log the final reads allow to judge."""

from __future__ import annotations

from dataclasses import dataclass

REMOVALS = ("delete_records", "retention")
"""What an administrator asks for that takes records from a log's beginning."""
ANY = 2**63 - 1
"""An offset above all others: whatever is gone may have been removed."""


@dataclass(slots=True)
class ObservedPartition:
    """A partition, and which part of it the final reads allow to judge."""

    part: int
    topic: str
    index: int
    cleanup: str
    """cleanup.policy in force, as are all settings here: the topic's, else the brokers', else Kafka's default. Earlier
    histories have the topic's own alone."""
    retention_ms: int
    """The lowest value during the run; -1: unlimited."""
    retention_bytes: int = -1
    """The lowest value during the run; -1: unlimited."""
    min_isr: int = -1
    """The lowest min.insync.replicas during the run; -1: the history does not tell."""
    unclean: int = -1
    """1 where unclean.leader.election.enable was true at any time, 0 where it never was; -1: not known."""
    described: bool = True
    """False: the settings were asked for, and no broker reported them."""
    transactional: bool = False
    """Transactions wrote to it."""
    requested_to: int = 0
    """DeleteRecords was asked for below this offset; ANY: up to the end, or the lifetime of its records was cut by
    request, and the history does not say to what."""
    expired_to: int = 0
    """Retention could have removed the records below this offset when the log was first seen to begin behind them."""
    expirable_to: int = 0
    """Retention could have removed the records below this offset by the end of the run, whether that was seen or not.
    """
    added: bool = False
    """It came while the load ran: only what an administrator did has to do with it."""
    deleted: bool = False
    """Its topic was deleted by request, at `deleted_t`: it cannot be read any more, and keeps nothing."""
    deleted_t: int = -1
    log_start: int = -1
    """Highest log start that any answer told."""
    seen: int = -1
    """The highest offset that any reader saw."""
    cover_from: int = -1
    cover_to: int = -1
    """[cover_from, cover_to): what one final reader went through without a gap."""
    cover_t0: int = -1
    """When the last complete final read began: what was acknowledged before then must be in it. -1: there is none."""
    committed_t0: int = -1
    """The same of final reads at read_committed, which alone show whether transactions are whole."""
    last_round: int = 0
    """The last round in which a final read at read_uncommitted was complete; 0 where none was. What an earlier round
    returned must be in it."""
    last_committed_round: int = 0
    """The same of final reads at read_committed."""

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.topic}-{self.index}"

    @property
    def compacted(self) -> bool:
        """Records may go once a later one has their key."""
        return "compact" in self.cleanup

    @property
    def deletable(self) -> bool:
        """Retention or a request could have removed records from its beginning by the end of the run."""
        return max(self.requested_to, self.expirable_to) > 0

    @property
    def judged_from(self) -> int:
        """Below this offset, never negative, nothing counts as lost or elsewhere: it was removed, as configured."""
        return self.removed_before(max(self.log_start, 0))

    def removed_before(self, log_start: int) -> int:
        """Of a log that is said to begin at `log_start`: before which offset records may have been removed by then."""
        return min(log_start, max(self.requested_to, self.expired_to))

    def may_lack(self, off: int) -> bool:
        """Return whether a record at this offset may have been removed, as configured. -1: it may be anywhere."""
        return off < self.judged_from and self.judged_from > 0

    def administered(self, what: str, to: int, t: int) -> None:
        """Take in what an administrator asked for at `t`, whether or not it was done."""
        if what in REMOVALS:
            self.asked_to_remove(to)
        elif what == "delete_topic":
            self.deleted, self.deleted_t = True, t

    def asked_to_remove(self, to: int) -> None:
        """A request: records before this offset may go. -1: any."""
        self.requested_to = max(self.requested_to, to) if to >= 0 else ANY
