"""Runs this node's member of the metadata quorum: the Raft core in `squall.broker.quorum` with disk and network
(mechanism C2 in docs/mechanisms.md).

Every event is passed to the Raft core. This module carries out the core's effects in rounds: first it makes the quorum
state durable, then it writes the log, then it sends messages. A round that persists state delays the next rounds, but
not the event loop. Syncs of the log run beside the rounds, one at a time; each covers everything written before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from squall.broker.cluster.names import METADATA_TOPIC
from squall.broker.control.kraft import quorum_wire as wire
from squall.broker.control.kraft.quorum_requests import QuorumRequestHandler
from squall.broker.control.kraft.quorum_storage import CommittedRecords, QuorumStorage
from squall.broker.control.kraft.snapshot_store import decode_snapshot, encode_snapshot
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.ids import NO_NODE
from squall.broker.quorum.effects import InstallSnapshot
from squall.broker.quorum.election import Role
from squall.broker.quorum.messages import (
    BeginEpochReply,
    EndEpoch,
    EndEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshotReply,
    QuorumMessage,
    SnapshotId,
    VoteReply,
)
from squall.broker.quorum.outbox import NEVER
from squall.broker.quorum.raft import Raft
from squall.broker.quorum.settings import QuorumSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from squall.broker.config import BrokerConfig
    from squall.broker.env import Env
    from squall.broker.log.log import Log
    from squall.broker.net.peers import PeerClient
    from squall.broker.quorum.effects import Ready
    from squall.broker.quorum.leadership import LeaderState
    from squall.broker.quorum.messages import Reply, Request
    from squall.broker.quorum.state import QuorumState

FETCH_LANE, LANE = "metadata-fetch", "quorum"
"""Name two connections to a node: a Fetch that waits for records delays later responses on the same connection."""
RESIGN_TIMEOUT_S = 0.5
REPLIES = (VoteReply, BeginEpochReply, EndEpochReply, FetchReply, FetchSnapshotReply)


class NotLeader(Exception):
    """Is raised if this node does not lead the quorum, or lost its leadership before the outcome was certain."""


def quorum_settings(config: BrokerConfig) -> QuorumSettings:
    """Return the quorum's settings from the configuration. A node without configured voters is the only voter."""
    fetch_timeout_ms = config.controller_quorum_fetch_timeout_ms
    return QuorumSettings(
        node_id=config.node_id,
        voters=tuple(sorted(config.voters)) or (config.node_id,),
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        retry_backoff_ms=max(1, config.controller_quorum_retry_backoff_ms),
        fetch_max_wait_ms=min(500, fetch_timeout_ms // 2),
    )


class QuorumNodeState(NamedTuple):
    """Holds what one node knows of the quorum at one instant, for invariants and tests."""

    state: QuorumState
    """Holds the node's epoch, its vote in that epoch, and the leader that it knows."""
    role: Role
    leads: bool
    high_watermark: int
    log_end_offset: int
    """Gives the offset after the last record that is written to the log, synced or not."""
    log_generation: int
    """Counts the truncations of the log that have been carried out."""
    is_settled: bool
    """Is True if `state` is durable. Until then this node sends no message that depends on it."""
    has_left: bool
    believed: tuple[int, ...] = ()
    """Lists, on a leader, the durable log ends that the other voters last reported to it, by ascending voter id."""


class MetadataQuorum:
    """Runs one voter or observer of the metadata quorum, while `run` is running."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        log: Log,
        peers: PeerClient,
        cluster_id: str,
        *,
        on_committed: Callable[[CommittedRecords], None],
        on_snapshot: Callable[[list[Any], int, int], None],
        on_leadership: Callable[[bool, int], None],
    ) -> None:
        """Load the quorum state and the newest snapshot, which are beside the segments of `log`, the metadata log.

        `on_snapshot` gets the records of a snapshot, with the offset and epoch of its last record: of the newest
        snapshot at the start, and of each snapshot that is fetched later. `on_committed` gets every committed record
        after the newest snapshot once, in order, on every node. `on_leadership(True, epoch)` is called when this node
        leads and has delivered all earlier records; `on_leadership(False, epoch)` when that ends. Callbacks must not
        wait, but may append. Raises OSError, DamagedQuorumState.
        """
        self._env, self._peers, self._cluster_id = env, peers, cluster_id
        self.on_leader: Callable[[], None] = lambda: None
        """Is called when this node learns of another leader, or of none: see `leader_id`."""
        self._known_leader = -1
        self._on_committed, self._on_snapshot, self._on_leadership = on_committed, on_snapshot, on_leadership
        self._settings = quorum_settings(config)
        self._voters = config.voters
        self._log = log
        self._storage = QuorumStorage(env, log, self._settings, cluster_id)
        self.requests = QuorumRequestHandler(self, self._storage, self._settings.node_id, cluster_id)
        """Answers the requests of other nodes."""
        newest = self._storage.snapshots.newest
        state, extent = self._storage.load_state(), self._storage.extent()
        self._raft = Raft(self._settings, env.rng, state, extent, self._now_ms(), newest)
        self._restored = newest
        """Names a loaded snapshot whose records have not been passed to `on_snapshot` yet, or is None."""
        self._retention = config.metadata_max_retention_bytes, config.metadata_max_retention_ms
        self._request_timeout_ms = config.controller_quorum_request_timeout_ms
        # Shorter than the fetch time-out: a lost fetch is sent again before it leads to an election.
        self._fetch_patience_ms = (self._settings.fetch_max_wait_ms + self._settings.fetch_timeout_ms) // 2
        self._reply_callbacks: dict[int, Callable[[Reply], None]] = {}
        """Maps the ticket (number) of another node's request to the callback that gets the reply."""
        self._tickets = 0
        self._applied = 0
        self._term: LeaderState | None = None
        self._announced = False
        """Is True if `on_leadership(True, ...)` was called in this epoch."""
        self._round: Ready | None = None
        """Holds the round of effects whose quorum state is being made durable, or None."""
        self._working = self._syncing = self._writing = self._left = False
        self._armed_ms = NEVER
        self._rearm = env.signal()
        self._moved = trio.Event()
        self._unanswered_end_epochs = 0
        self._current_receiver = NO_NODE
        """Gives the receiver of a request that just ended: the same task can send it the next one. Else NO_NODE."""
        self._next: QuorumMessage | None = None
        """Holds a request for the task whose previous request just ended, so that no new task is needed; or None."""
        self._nursery: trio.Nursery | None = None

    # ------------------------------------------------------------------------------------------------- what is known

    @property
    def leader_id(self) -> int:
        """Returns the leader as far as this node knows; -1 for none."""
        return self._raft.leader_id

    @property
    def epoch(self) -> int:
        """Returns the quorum's newest leader epoch, as far as this node knows."""
        return self._raft.epoch

    @property
    def leadership(self) -> LeaderState | None:
        """Returns the leader's state while this node leads, else None."""
        return self._raft.leadership

    @property
    def is_leader(self) -> bool:
        """Is True while this node leads, as far as it knows."""
        return self._raft.leadership is not None

    @property
    def high_watermark(self) -> int:
        """Returns the exclusive end of the committed records, as this node knows it."""
        return self._raft.high_watermark

    @property
    def end_offset(self) -> int:
        """Return the offset that the next appended record will get."""
        return self._raft.log.end_offset

    def inspect(self) -> QuorumNodeState:
        """Return what this node knows now, for invariants and tests. Changes nothing."""
        member, log = self._raft.member, self._log
        role = member.role
        leadership = member.leadership
        looked = (
            member.state,
            role,
            role is Role.LEADER,
            member.high_watermark,
            log.log_end_offset,
            log.generation,
            self._round is None,
            self._left,
            () if leadership is None else tuple([each.end_offset for each in leadership.voters.values()]),
        )
        return tuple.__new__(QuorumNodeState, looked)

    @property
    def voters(self) -> tuple[int, ...]:
        """Return the ids of the voters, ascending."""
        return self._settings.voters

    @property
    def majority_timeout_ms(self) -> int:
        """Return the time (ms) after which a leader without fetches from a majority resigns."""
        return self._raft.majority_timeout_ms

    def ms_without_majority(self) -> int:
        """Return for how long no majority has fetched from this node, in ms; 0 if this node does not lead."""
        return self._raft.ms_without_majority(self._now_ms())

    # -------------------------------------------------------------------------------------------------- for the leader

    def append(self, records: Sequence[tuple[Any, int]]) -> int:
        """Append (message, version) pairs as one batch, and return the last offset. Raises NotLeader.

        Returns before anything is durable or replicated: see `wait_committed`.
        """
        if self._raft.leadership is None:
            raise NotLeader(f"node {self._settings.node_id} does not lead epoch {self.epoch}")
        base = self._raft.propose(len(records), self._storage.encode(records), self._now_ms())
        self._work()
        return base + len(records) - 1

    async def wait_committed(self, offset: int, epoch: int) -> None:
        """Wait until `offset`, appended in `epoch`, is committed and passed to `on_committed`.

        Raises NotLeader if this node's leadership of that epoch ends first; the record may still be committed later.
        """
        while True:
            # Check the leadership first: the record at the offset may by now be the next leader's.
            if self._raft.leadership is None or self._raft.epoch != epoch:
                raise NotLeader(f"leadership of epoch {epoch} ended, perhaps before offset {offset} was committed")
            if self._applied > offset:
                return
            await self._moved.wait()

    async def resign(self) -> None:
        """Give up leadership, if any. Returns when the others have answered EndQuorumEpoch, or after half a second."""
        self._raft.resign(self._now_ms())
        self._work()
        with self._env.timeout(RESIGN_TIMEOUT_S):
            while self._unanswered_end_epochs:
                await self._moved.wait()

    async def leave(self) -> None:
        """Resign and stop. After this returns, the log and the state file are not accessed any more."""
        await self.resign()
        self._left = True
        while self._syncing or self._writing or self._round is not None:
            await self._moved.wait()

    # ------------------------------------------------------------------------------------------------------ snapshots

    @property
    def read_bytes(self) -> int:
        """Returns the bytes of all batches delivered since this node started."""
        return self._storage.read_bytes

    @property
    def snapshot(self) -> SnapshotId | None:
        """Returns the newest snapshot."""
        return self._raft.snapshot

    async def take_snapshot(self, records: Sequence[tuple[Any, int]], offset: int, epoch: int) -> None:
        """Write a snapshot of the metadata up to and including the record at `offset`, appended in `epoch`.

        `records` holds that metadata as (message, version) pairs. The snapshot is durable on return. Old snapshots and
        old parts of the log may then be dropped (metadata.max.retention.*). Only one call may run at a time.
        """
        snapshot = SnapshotId(offset + 1, epoch)
        data = encode_snapshot(records, epoch, self._env.wall_ms())
        self._writing = True
        await self._env.cpu(self._storage.snapshots.write, snapshot, data)
        self._writing = False
        self._wake()
        newest = self._storage.snapshots.newest
        if newest is not None and newest >= snapshot:
            self._storage.snapshots.delete(snapshot)  # A newer snapshot was fetched meanwhile.
            return
        self._storage.snapshots.add(snapshot)
        self._raft.snapshot_taken(snapshot)
        self._env.trace("snapshot_taken", offset=snapshot.end_offset, epoch=epoch, size=len(data))
        self._retain()

    def _retain(self) -> None:
        """Drop the oldest snapshot, and the log up to the next snapshot's end, while they exceed the retention."""
        max_bytes, max_ms = self._retention
        while len(self._storage.snapshots.ids) > 1 and not self._left:
            oldest, following = self._storage.snapshots.ids[:2]
            too_much = 0 <= max_bytes < self._storage.size
            if not too_much and not 0 <= max_ms < self._env.wall_ms() - self._storage.taken_ms(oldest):
                break
            self._raft.trim(following)
            self._storage.trim(following, self._raft.high_watermark)
            self._env.trace("metadata_log_trimmed", offset=following.end_offset)

    # ------------------------------------------------------------------------------------------------------- requests

    async def describe_quorum(self, request: Any) -> Any:
        """Return the response to DescribeQuorum: how far each replica has fetched, or NOT_LEADER_OR_FOLLOWER."""
        return wire.write_description(request, self._raft, self._voters, self._now_ms(), self._env.wall_ms())

    def ask(self, found: tuple[int, Request], replied: Callable[[Reply], None]) -> int:
        """Pass `found` (sender id, request) to the Raft core. `replied` is called with the reply, now or later. Return
        a number by which `withdraw` drops that callback.
        """
        sender, request = found
        self._tickets += 1
        ticket = self._tickets
        self._reply_callbacks[ticket] = replied
        self._raft.step(QuorumMessage(sender, self._settings.node_id, ticket, request), self._now_ms())
        self._work()
        return ticket

    def withdraw(self, ticket: int) -> None:
        """Drop the callback of the request with this ticket. It is no error if the reply has been given."""
        self._reply_callbacks.pop(ticket, None)

    # --------------------------------------------------------------------------------------------------------- running

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. Raises OSError if the disk fails, AssertionError if an invariant is broken."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._work()
            task_status.started()
            while True:
                self._armed_ms = self._raft.next_deadline_ms()
                await self._rearm.wait(min(max(0, self._armed_ms - self._now_ms()), 3_600_000) / 1000)
                self._armed_ms = 0  # this task is awake, so `_work` need not wake it
                self._raft.tick(self._now_ms())
                self._work()

    def _now_ms(self) -> int:
        return int(self._env.mono() * 1000)

    def _work(self) -> None:
        """Carry out the Raft core's effects, round by round, until there are none. Callbacks may call this again."""
        if self._working or self._nursery is None or self._left:
            return
        self._working = True
        try:
            while self._next_round() or self._deliver():
                pass
        finally:
            self._working = False
        leader_id = self._raft.leader_id
        if leader_id != self._known_leader:
            self._known_leader = leader_id
            self.on_leader()
        if self._raft.wants_sync and not self._syncing and self._storage.has_news:
            self._syncing = True
            self._nursery.start_soon(self._sync)
        if self._armed_ms and self._raft.next_deadline_ms() < self._armed_ms:
            self._rearm.set()

    def _next_round(self) -> bool:
        """Begin the next round of effects. Returns False if there is none, or a round is still persisting its state."""
        if self._round is not None:
            return False
        ready = self._raft.ready()
        if ready is None:
            return False
        if ready.state is None:
            self._carry_out(ready)
        else:
            assert self._nursery is not None
            self._round = ready
            self._nursery.start_soon(self._persist, ready)
        return True

    async def _persist(self, ready: Ready) -> None:
        assert ready.state is not None
        await self._env.cpu(self._storage.persist, ready.state)
        if not self._left:
            self._carry_out(ready)
        self._round = None
        self._work()
        self._wake()

    def _carry_out(self, ready: Ready) -> None:
        """Carry out the rest of a round, once its state is durable: write the log, then send the messages."""
        assert self._nursery is not None
        for op in ready.log:
            self._storage.write(op)
            if isinstance(op, InstallSnapshot):
                self._restored = op.snapshot
        for note in ready.notes:
            where = {"topic": METADATA_TOPIC, "partition": 0} if note.event == "truncated" else {}
            self._env.trace(note.event, **where, **note.fields)
        for message in ready.messages:
            if not isinstance(message.body, REPLIES):
                self._unanswered_end_epochs += isinstance(message.body, EndEpoch)  # `resign` waits for them
                if message.receiver == self._current_receiver and self._next is None:
                    self._next = message
                else:
                    self._nursery.start_soon(self._send_requests, message)
            elif (replied := self._reply_callbacks.pop(message.ticket, None)) is not None:
                replied(message.body)

    async def _sync(self) -> None:
        """Sync the written records, repeatedly until all of them are durable."""
        while self._raft.wants_sync and self._storage.has_news and not self._left:
            end_offset, generation = await self._storage.sync()
            self._raft.synced(end_offset, generation, self._now_ms())
            self._work()
        self._syncing = False
        self._wake()

    def _checked(self, reply: FetchSnapshotReply) -> FetchSnapshotReply:
        """Return the reply, with the error CORRUPT_MESSAGE if its last chunk completes a damaged snapshot."""
        if reply.error is ErrorCode.NONE and reply.position + reply.length == reply.size:
            assert isinstance(reply.payload, bytes)
            try:
                decode_snapshot(self._storage.snapshots.with_part(reply.snapshot, reply.position, reply.payload))
            except (MalformedFrame, FileNotFoundError) as wrong:
                self._env.trace("snapshot_damaged", offset=reply.snapshot.end_offset, why=str(wrong))
                return replace(reply, error=ErrorCode.CORRUPT_MESSAGE)
        return reply

    async def _send_requests(self, message: QuorumMessage) -> None:
        """Send a request. If the Raft core's next request goes to the same node, as after each answered fetch, this
        task sends that one too, which saves starting another task.
        """
        asked: QuorumMessage | None = message
        while asked is not None:
            await self._send(asked)
            self._current_receiver = asked.receiver
            self._work()
            self._current_receiver = NO_NODE
            asked, self._next = self._next, None

    async def _send(self, message: QuorumMessage) -> None:
        """Send a request to another node, and pass its reply or failure to the Raft core."""
        request: Any
        own_id, receiver, ticket, request = message
        api_key, version, body = wire.encode_request(request, own_id, receiver, self._cluster_id)
        patience_ms, lane = self._request_timeout_ms, LANE
        if isinstance(request, Fetch):
            patience_ms, lane = self._fetch_patience_ms, FETCH_LANE
        try:
            reply = await self._peers.exchange(
                receiver, api_key, version, body, lambda view: wire.decode_reply(request, view), patience_ms, lane=lane
            )
        except (OSError, MalformedFrame):
            self._raft.failed(receiver, ticket, self._now_ms())
        else:
            if isinstance(reply, FetchSnapshotReply):
                reply = self._checked(reply)
            self._raft.step(QuorumMessage(receiver, own_id, ticket, reply), self._now_ms())
        if isinstance(request, EndEpoch):
            self._unanswered_end_epochs -= 1
            self._wake()

    # --------------------------------------------------------------------------------------------------------- telling

    def _deliver(self) -> bool:
        """Pass newly committed records and changes of leadership to the callbacks. Returns whether there were any."""
        leadership = self._raft.leadership
        if leadership is not self._term:
            old, self._term, announced, self._announced = self._term, leadership, self._announced, False
            if announced and old is not None:
                self._on_leadership(False, old.epoch)
            self._wake()
            return True
        if self._restored is not None:
            restored, self._restored = self._restored, None
            records, self._storage.loaded = self._storage.loaded, []
            self._env.trace("snapshot_loaded", offset=restored.end_offset, epoch=restored.epoch, records=len(records))
            self._applied = restored.end_offset
            self._on_snapshot(records, restored.end_offset - 1, restored.epoch)
            self._wake()
            return True
        if self._raft.high_watermark > self._applied:
            before = self._applied
            self._applied, records = self._storage.read(before, self._raft.high_watermark)
            if self._applied > before:
                self._on_committed(records)
                self._wake()
                return True
        if leadership is not None and not self._announced and self._applied > leadership.epoch_start_offset:
            self._announced = True
            self._on_leadership(True, leadership.epoch)
            return True
        return False

    def _wake(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()
