"""Reconstructs each broker's log at each moment, as far as its traces show: which broker has which record. Pure.

A log is a row of ranges, each of one leader epoch. The simulator traces every append. A real broker traces its log end
only sometimes: when it becomes leader or follower, when the ISR changes, and in periodic samples. The records in
between are assumed to be copied from the leader that it followed then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class EpochOffsetRange:
    """Describes the offsets [start, end) that the leader of `epoch` wrote."""

    start: int
    end: int
    epoch: int


@dataclass
class ReconstructedReplica:
    """Describes one broker's replica of the partition. -1 means not known; `leader` -1 means that it knows no leader.
    """

    node: int
    leo: int = 0
    hw: int = 0
    epoch: int = -1
    leader: int = -1
    isr: tuple[int, ...] = ()
    up: bool = True
    stretches: list[EpochOffsetRange] = field(default_factory=list)

    @property
    def leads(self) -> bool:
        """Is True if the broker believes that it is the leader."""
        return self.leader == self.node

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch of the record at `offset`; None if the log does not hold it."""
        for stretch in reversed(self.stretches):
            if stretch.start <= offset < stretch.end:
                return stretch.epoch
        return None

    def cut(self, to: int) -> None:
        """Truncate the log to the end offset `to`."""
        kept = [each for each in self.stretches if each.start < to]
        self.stretches = [replace(each, end=min(each.end, to)) for each in kept]
        self.leo = to
        self.hw = min(self.hw, to)

    def write(self, start: int, end: int, epoch: int) -> None:
        """Append [start, end) in `epoch`, after a truncation to `start` if the log is longer."""
        if start >= end:
            return
        if any(each.end > start for each in self.stretches):
            self.cut(start)
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.epoch == epoch and last.end == start:
            self.stretches[-1] = replace(last, end=end)
        else:
            self.stretches.append(EpochOffsetRange(start, end, epoch))
        self.leo = end

    def copy(self, start: int, end: int, source: ReconstructedReplica | None, epoch: int) -> None:
        """Copy the records at [start, end) from `source`; offsets that `source` is not known to hold are written with
        the leader epoch `epoch`.
        """
        at = start
        for each in source.stretches if source is not None else ():
            low, high = max(each.start, at), min(each.end, end)
            if low < high:
                self.write(at, low, epoch)
                self.write(low, high, each.epoch)
                at = high
        self.write(at, end, epoch)

    def learn_log_end(self, leo: int, source: ReconstructedReplica | None, epoch: int) -> None:
        """Set the log end that a trace reports: missing records are copied from `source`, surplus records are
        truncated.
        """
        if leo < self.leo:
            self.cut(leo)
        elif leo > self.leo:
            self.copy(self.leo, leo, source, epoch)

    def snapshot(self) -> ReconstructedReplica:
        """Return a copy of the present state."""
        return replace(self, stretches=list(self.stretches))


@dataclass
class ReplicaLogs:
    """Holds every broker's replica of the partition, as far as traces show it."""

    replicas: dict[int, ReconstructedReplica] = field(default_factory=dict)
    led_until: dict[int, float] = field(default_factory=dict)
    """Maps a broker to the last time at which it is known to have led."""

    def of(self, node: int) -> ReconstructedReplica:
        """Return a broker's replica."""
        return self.replicas.setdefault(node, ReconstructedReplica(node))

    def leader_of(self, node: int) -> ReconstructedReplica | None:
        """Return the replica that `node` follows, as far as `node` knows; None if it follows none."""
        leader = self.of(node).leader
        return None if leader < 0 or leader == node else self.of(leader)

    def holders(self, offset: int, epoch: int) -> list[int]:
        """Return the brokers, running or not, whose logs hold the record of `epoch` at `offset`."""
        return sorted(node for node, each in self.replicas.items() if each.epoch_at(offset) == epoch)

    def newest_leader(self) -> ReconstructedReplica | None:
        """Return the leader of the highest epoch that any trace knows of; None if there is none."""
        leaders = [each for each in self.replicas.values() if each.leads]
        return max(leaders, key=lambda each: each.epoch, default=None)

    def note_leaders(self, t: float) -> None:
        """Note that the present leaders have led until `t`; to be called before anything changes."""
        self.led_until |= {each.node: t for each in self.replicas.values() if each.leads}

    def acknowledged(
        self, offset: int, epoch: int | None, sent: float, *, committed: bool
    ) -> ReconstructedReplica | None:
        """Note that a record was acknowledged at `offset`. So its leader's log ends beyond that offset, and if the
        record is `committed`, the logs of the ISR do, too. `epoch` is the epoch of the leader that appended the record;
        None if it is not known. `sent` is when the record was sent.

        Return that leader; None if it cannot be identified. Without `epoch` it can be identified only if no other
        broker has led since `sent`.
        """
        leaders = [each for each in self.replicas.values() if each.leads and epoch in (None, each.epoch)]
        if len(leaders) != 1:
            return None
        leader = leaders[0]
        if epoch is None and any(t >= sent for node, t in self.led_until.items() if node != leader.node):
            return None
        if leader.leo <= offset:
            leader.write(leader.leo, offset + 1, leader.epoch)
        if committed:
            leader.hw = max(leader.hw, offset + 1)
            for node in leader.isr:
                follower = self.of(node)
                if not follower.leads and follower.leader == leader.node and follower.leo <= offset:
                    follower.copy(follower.leo, offset + 1, leader, leader.epoch)
        return leader
