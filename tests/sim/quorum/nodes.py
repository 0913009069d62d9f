"""A node of the simulated quorum: its Raft core, its disk, and the code that connects them with the world."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from squall.broker.protocol.errors import ErrorCode
from squall.broker.quorum.effects import (
    AppendFetchedBatches,
    AppendLeaderBatch,
    AppendLeaderChange,
    InstallSnapshot,
    LogOp,
    Ready,
    Truncate,
    WriteSnapshotChunk,
)
from squall.broker.quorum.log_extent import LogExtent, continues_from_snapshot
from squall.broker.quorum.messages import (
    BatchSpan,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    QuorumMessage,
    SnapshotId,
)
from squall.broker.quorum.raft import Raft
from squall.broker.quorum.state import QuorumState

if TYPE_CHECKING:
    from tests.sim.quorum.world import World

Entry = tuple[int, int]
"""(epoch, value): the record at one offset. Values are unique; leader-change records have the negative epoch."""


@dataclass
class Disk:
    """One node's durable data, and what is written but not synced."""

    state: QuorumState = field(default_factory=QuorumState)
    durable: list[Entry] = field(default_factory=list)
    log: list[Entry] = field(default_factory=list)
    """All records, even those before `start`, which only snapshots have: they are compared, and never sent."""
    kept: int = 0
    """How many records at the start of `durable` no truncation since the last sync has removed."""
    start: int = 0
    snapshots: dict[SnapshotId, list[Entry]] = field(default_factory=dict)
    """Each snapshot holds all records before its end: the simplest state machine."""
    part: list[Entry] = field(default_factory=list)
    """The received part of a snapshot that is being fetched."""

    @property
    def newest(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def restart_at(self, snapshot: SnapshotId) -> None:
        """Replace the log by a snapshot, durably, and remove older snapshots."""
        self.snapshots = {snapshot: self.snapshots[snapshot]}
        self.log[:] = self.snapshots[snapshot]
        self.start = snapshot.end_offset
        self.synced(list(self.log))

    def synced(self, upto: list[Entry]) -> None:
        self.durable, self.kept = upto, len(upto)

    def power_loss(self, rng: random.Random) -> None:
        """Lose unsynced writes from a random point on. An unsynced truncation may be undone."""
        if self.kept < len(self.durable) and rng.random() < 0.5:
            self.log = list(self.durable)
        else:
            self.log = self.log[: self.kept + rng.randrange(len(self.log) - self.kept + 1)]
        self.synced(list(self.log))


class Node:
    """One node: its disk, which outlives crashes, and its Raft core while it runs."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world, self.node_id = world, node_id
        self.disk = Disk()
        self.raft: Raft | None = None
        self.incarnation = 0
        self.paused_until = 0
        self.generation = 0
        self.told_hw = 0
        self.leads = (0, 0)
        """The last epoch in which this node was leader, and the time at which that began."""
        self.heard: dict[int, int] = {}
        self._frozen: list[Callable[[], None]] = []
        self._rounds: list[Ready] = []
        self._persisting = self._syncing = False
        self._wake_at = 0

    # -------------------------------------------------------------------------------------------------------- life

    def start(self) -> None:
        world, disk = self.world, self.disk
        self.incarnation += 1
        self.generation, self.told_hw, self.heard = 0, 0, {}
        self.paused_until, self._frozen = 0, []
        self._rounds, self._persisting, self._syncing, self._wake_at = [], False, False, 0
        self.clock_offset = world.rng.randrange(1_000_000)
        rng = random.Random(repr((world.seed, "node", self.node_id, self.incarnation)))
        settings = replace(world.settings, node_id=self.node_id)
        disk.part.clear()
        newest = disk.newest
        if newest is not None and not continues_from_snapshot(newest, len(disk.log), shape_of(disk.log).epochs):
            disk.restart_at(newest)
        epochs = {snapshot.end_offset: snapshot.epoch for snapshot in disk.snapshots}
        extent = shape_of(disk.log, disk.start, epochs.get(disk.start, 0))
        self.raft = Raft(settings, rng, disk.state, extent, self.now, newest)
        self.drive()

    def stop(self, *, lose_power: bool) -> None:
        if self.raft is None:
            return
        self.raft = None
        self.world.note(self.node_id, "power loss" if lose_power else "killed")
        if lose_power:
            self.disk.power_loss(self.world.rng)

    @property
    def now(self) -> int:
        return self.world.now + self.clock_offset

    def later(self, delay_ms: int, fn: Callable[..., None], *args: Any) -> None:
        """Call `fn` after the delay unless this incarnation has ended; if the node is paused then, call it when it
        resumes.
        """
        incarnation = self.incarnation

        def run() -> None:
            if self.raft is not None and self.incarnation == incarnation:
                if self.world.now < self.paused_until:
                    self._frozen.append(run)
                else:
                    fn(*args)

        self.world.at(delay_ms, run)

    def pause(self, lasts_ms: int) -> None:
        """Pause the node as SIGSTOP does: time passes, and the node does not run. Overlapping pauses add up."""
        self.paused_until = max(self.paused_until, self.world.now + lasts_ms)
        self.world.at(lasts_ms, self.resume)

    def resume(self) -> None:
        """Make up for the calls missed in the pause, unless another pause lasts longer."""
        if self.world.now >= self.paused_until:
            frozen, self._frozen = self._frozen, []
            for run in frozen:
                self.world.at(0, run)

    # ---------------------------------------------------------------------------------------------------- the edge

    def drive(self) -> None:
        """Carry out the core's effects until there are none, and set the timer for its next tick."""
        assert self.raft is not None
        while not self._persisting:
            if not self._rounds:
                ready = self.raft.ready()
                if ready is None:
                    break
                self._rounds.append(ready)
            if self._rounds[0].state is not None:
                self._persist(self._rounds[0].state)
            else:
                self._carry_out(self._rounds.pop(0))
        self._start_sync()
        wake_at = self.raft.next_deadline_ms() - self.clock_offset
        if wake_at < (1 << 60) and (self._wake_at <= self.world.now or wake_at < self._wake_at):
            self._wake_at = max(wake_at, self.world.now + 1)
            self.later(self._wake_at - self.world.now, self._tick)
        self.world.check(self)

    def _tick(self) -> None:
        assert self.raft is not None
        if self.world.now >= self._wake_at:
            self.raft.tick(self.now)
            self.drive()

    def _persist(self, state: QuorumState) -> None:
        self._persisting = True

        def done() -> None:
            self.world.persist(self, state)
            self._persisting = False
            self._carry_out(self._rounds.pop(0))
            self.drive()

        self.later(self.world.rng.randint(*self.world.weather.sync_ms), done)

    def _carry_out(self, ready: Ready) -> None:
        for note in ready.notes:
            self.world.note(self.node_id, note.event, **note.fields)
            self.world.maybe_crash(self, note)
            if note.event == "election" and note.fields["role"] == "leader":
                self.world.check_leader(self, note.fields["epoch"])
        for op in ready.log:
            self._write(op)
        for message in ready.messages:
            self.world.send(self, self._filled(message))

    def _write(self, op: LogOp) -> None:
        disk, log = self.disk, self.disk.log
        match op:
            case AppendLeaderBatch(base, epoch, count, payload):
                assert base == len(log) and isinstance(payload, tuple) and len(payload) == count
                log.extend((epoch, value) for value in payload)
            case AppendLeaderChange(offset, epoch):
                assert offset == len(log)
                log.append((epoch, -epoch))
            case AppendFetchedBatches(spans, payload):
                assert spans[0].base_offset == len(log) and isinstance(payload, tuple)
                log.extend(payload)
            case Truncate(to_offset, generation):
                assert to_offset >= disk.start
                del log[to_offset:]
                disk.kept = min(disk.kept, to_offset)
                self.generation = generation
            case WriteSnapshotChunk(_, position, payload):
                assert position in (0, len(disk.part)) and isinstance(payload, tuple)
                disk.part[position:] = payload
            case InstallSnapshot(snapshot, generation):
                assert len(disk.part) == snapshot.end_offset and disk.part[-1][0] == snapshot.epoch
                disk.snapshots[snapshot] = list(disk.part)
                disk.restart_at(snapshot)
                self.generation = generation
                self.world.installed += 1

    def maybe_snapshot(self) -> None:
        """Take a snapshot of the committed records with some probability, and perhaps remove log and snapshots that it
        replaces.
        """
        world, raft, disk = self.world, self.raft, self.disk
        assert raft is not None
        end = min(raft.high_watermark, len(disk.log))
        if end <= disk.start or world.rng.random() >= world.weather.snapshot:
            return
        taken = SnapshotId(end, raft.log.epoch_at(end - 1))
        disk.snapshots[taken] = disk.log[:end]
        raft.snapshot_taken(taken)
        if world.rng.random() < world.weather.trim:
            start = world.rng.choice(sorted(disk.snapshots))
            raft.trim(start)
            disk.start = start.end_offset
            disk.snapshots = {found: log for found, log in disk.snapshots.items() if found >= start}

    def _filled(self, message: QuorumMessage) -> QuorumMessage:
        body = message.body
        if isinstance(body, FetchSnapshotReply) and not body.error:
            return message._replace(body=self._snapshot_filled(body))
        if isinstance(body, FetchReply) and body.limit > body.offset:
            assert body.offset >= self.disk.start, "what is sent must be there"
            limit = min(body.limit, body.offset + self.world.rng.randint(1, self.world.weather.most_records))
            entries = tuple(self.disk.log[body.offset : limit])
            body = body._replace(spans=spans_of(body.offset, entries), payload=entries)
            return message._replace(body=body)
        return message

    def _snapshot_filled(self, body: FetchSnapshotReply) -> FetchSnapshotReply:
        found = self.disk.snapshots.get(body.snapshot)
        if found is None:
            return replace(body, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        most = self.world.rng.randint(1, 30) if self.world.weather.most_records < 1000 else 5
        piece = tuple(found[body.position : body.position + most])
        return replace(body, size=len(found), length=len(piece), payload=piece)

    def _start_sync(self) -> None:
        assert self.raft is not None
        if self._syncing or self._persisting or not self.raft.wants_sync:
            return
        self._syncing = True
        upto, generation, incarnation = list(self.disk.log), self.generation, self.incarnation

        def done() -> None:
            assert self.raft is not None and self.incarnation == incarnation
            self._syncing = False
            if generation == self.generation:
                self.disk.synced(upto)
            self.raft.synced(len(upto), generation, self.now)
            self.drive()

        self.later(self.world.rng.randint(*self.world.weather.sync_ms), done)

    def deliver(self, message: QuorumMessage) -> None:
        assert self.raft is not None
        if isinstance(message.body, Fetch | FetchSnapshot) and message.body.epoch == self.raft.epoch:
            self.heard[message.sender] = self.world.now
        self.raft.step(message, self.now)
        self.drive()

    def fail(self, receiver: int, ticket: int) -> None:
        assert self.raft is not None
        self.raft.failed(receiver, ticket, self.now)
        self.drive()


def shape_of(log: list[Entry], start: int = 0, start_epoch: int = 0) -> LogExtent:
    """Return the extent (ends and epoch boundaries) of a log on disk."""
    extent = LogExtent(start, start_offset=start, start_epoch=start_epoch)
    for span in spans_of(start, tuple(log[start:])):
        extent.append(span.epoch, span.base_offset, span.end_offset)
    return extent


def spans_of(offset: int, entries: tuple[Entry, ...]) -> tuple[BatchSpan, ...]:
    """Return consecutive records of one epoch as one batch."""
    spans: list[BatchSpan] = []
    start = offset
    for at, (epoch, _) in enumerate(entries, offset + 1):
        if at == offset + len(entries) or entries[at - offset][0] != epoch:
            spans.append(BatchSpan(start, at, epoch))
            start = at
    return tuple(spans)
