"""Reconstructs what each broker's log held at each moment, as far as its traces show: which broker has which record.
Pure.

A log is a row of stretches, each of one leader epoch. The simulator traces every append; a real broker's trace says
where its log ended at each turn only, and what lay in between is taken from the leader that it followed then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class EpochRange:
    """Offsets [start, end) that were written by the leader of `epoch`."""

    start: int
    end: int
    epoch: int


@dataclass
class ReplicaView:
    """Describes one broker's view of the partition. -1: not known; `leader` -1: it knows of none."""

    node: int
    leo: int = 0
    hw: int = 0
    epoch: int = -1
    leader: int = -1
    isr: tuple[int, ...] = ()
    up: bool = True
    stretches: list[EpochRange] = field(default_factory=list)

    @property
    def leads(self) -> bool:
        """Return whether it believes that it is the leader."""
        return self.leader == self.node

    def epoch_at(self, offset: int) -> int | None:
        """Of which epoch the record at `offset` is; None where the log does not hold it."""
        for stretch in reversed(self.stretches):
            if stretch.start <= offset < stretch.end:
                return stretch.epoch
        return None

    def cut(self, to: int) -> None:
        """The log ends at `to` now."""
        kept = [each for each in self.stretches if each.start < to]
        self.stretches = [replace(each, end=min(each.end, to)) for each in kept]
        self.leo = to
        self.hw = min(self.hw, to)

    def write(self, start: int, end: int, epoch: int) -> None:
        """[start, end) was appended in `epoch`; whatever stood there before is gone."""
        if start >= end:
            return
        if any(each.end > start for each in self.stretches):
            self.cut(start)
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.epoch == epoch and last.end == start:
            self.stretches[-1] = replace(last, end=end)
        else:
            self.stretches.append(EpochRange(start, end, epoch))
        self.leo = end

    def copy(self, start: int, end: int, source: ReplicaView | None, epoch: int) -> None:
        """[start, end) came from `source`; what that is not known to hold is of `epoch`."""
        at = start
        for each in source.stretches if source is not None else ():
            low, high = max(each.start, at), min(each.end, end)
            if low < high:
                self.write(at, low, epoch)
                self.write(low, high, each.epoch)
                at = high
        self.write(at, end, epoch)

    def learn_log_end(self, leo: int, source: ReplicaView | None, epoch: int) -> None:
        """A trace says that the log ends at `leo`: what is missing was copied, what is too much is gone."""
        if leo < self.leo:
            self.cut(leo)
        elif leo > self.leo:
            self.copy(self.leo, leo, source, epoch)

    def snapshot(self) -> ReplicaView:
        """Return its state now, for later."""
        return replace(self, stretches=list(self.stretches))


@dataclass
class ReplicaLogs:
    """Holds every replica of the partition."""

    replicas: dict[int, ReplicaView] = field(default_factory=dict)
    led_until: dict[int, float] = field(default_factory=dict)
    """Broker -> when it was last known to lead."""

    def of(self, node: int) -> ReplicaView:
        """A broker's replica."""
        return self.replicas.setdefault(node, ReplicaView(node))

    def leader_of(self, node: int) -> ReplicaView | None:
        """Whom `node` follows, as far as it knows."""
        leader = self.of(node).leader
        return None if leader < 0 or leader == node else self.of(leader)

    def holders(self, offset: int, epoch: int) -> list[int]:
        """Brokers, running or not, whose logs hold the record of `epoch` at `offset`."""
        return sorted(node for node, each in self.replicas.items() if each.epoch_at(offset) == epoch)

    def newest_leader(self) -> ReplicaView | None:
        """Return the leader of the highest epoch that any trace knows of; None if there is none."""
        leaders = [each for each in self.replicas.values() if each.leads]
        return max(leaders, key=lambda each: each.epoch, default=None)

    def note_leaders(self, t: float) -> None:
        """Remember that the brokers that lead now have led until `t`: call it before anything changes."""
        self.led_until |= {each.node: t for each in self.replicas.values() if each.leads}

    def acknowledged(self, offset: int, epoch: int | None, sent: float, *, committed: bool) -> ReplicaView | None:
        """A record, sent at `sent` to the leader of `epoch` (None: not known), was acknowledged at `offset`: that
        leader's log reaches beyond it, and if it is committed the logs in its ISR do. Returns that leader, where only
        one can be meant: with the epoch not known, no other broker may have led since the record was sent.
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
