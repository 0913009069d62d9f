"""This node's seat in the metadata quorum: the pure core of `broker.quorum`, over a log, a file and other nodes (C2).

Every event goes into the core; what it wants done is carried out in its rounds: what must not be forgotten is made
durable, then the log is written, then messages leave. Syncs of the log run beside, one at a time, each covering
everything written before it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from broker.log.checkpoints import read_text, replace_file
from broker.protocol.errors import ErrorCode, MalformedFrame
from broker.protocol.hot import encode_fetch_response
from broker.protocol.metadata_frame import decode_metadata_record, encode_control_record, encode_metadata_record
from broker.protocol.records import Record, decode_batch, encode_batch
from broker.protocol.schema.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from broker.quorum.effects import AppendFetched, AppendLeaderChange, AppendOwn, Truncate
from broker.quorum.messages import BeginEpochReply, EndEpochReply, Fetch, FetchReply, Message, VoteReply
from broker.quorum.raft import Raft
from broker.quorum.settings import QuorumSettings
from broker.quorum.shape import LogShape
from broker.quorum.state import QuorumState
from broker.server import quorum_wire as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.config import BrokerConfig
    from broker.env import Env
    from broker.log.log import Log
    from broker.protocol.hot import FetchIn
    from broker.quorum.effects import LogOp, Ready
    from broker.quorum.messages import Reply, Request
    from broker.server.peers import PeerClient

STATE_FILE = "quorum-state"
_CONTROL = 0x20
_FETCH_LANE, _LANE = "metadata-fetch", "quorum"
REPLIES = (VoteReply, BeginEpochReply, EndEpochReply, FetchReply)
Committed = list[tuple[int, int, Any]]
"""(offset, epoch, metadata record) triples."""


class NotLeader(Exception):
    """This node does not lead the quorum, or stopped leading before the outcome was certain."""


class MetadataQuorum:
    """One voter or observer. `run` must be running for anything to happen."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        log: Log,
        peers: PeerClient,
        cluster_id: str,
        *,
        on_committed: Callable[[Committed], None],
        on_leadership: Callable[[bool, int], None],
    ) -> None:
        """`log` holds `__cluster_metadata`. Raises DamagedQuorumState, OSError."""
        self._env, self._log, self._peers, self._cluster_id = env, log, peers, cluster_id
        self._on_committed, self._on_leadership = on_committed, on_leadership
        self._state_path = f"{log.directory}/{STATE_FILE}"
        voters = tuple(sorted(config.voters)) or (config.node_id,)
        fetch_timeout_ms = config.controller_quorum_fetch_timeout_ms
        self._settings = QuorumSettings(
            node_id=config.node_id,
            voters=voters,
            election_timeout_ms=config.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=fetch_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            retry_backoff_ms=max(1, config.controller_quorum_retry_backoff_ms),
            fetch_max_wait_ms=min(500, fetch_timeout_ms // 2),
        )
        self._request_timeout_ms = config.controller_quorum_request_timeout_ms
        text = read_text(env.fs, self._state_path)
        state = QuorumState() if text is None else QuorumState.from_json(text)
        epochs = [(epoch, start) for epoch, start in log.epochs.entries]
        shape = LogShape(log.log_end_offset, epochs, log.log_start_offset)
        self._raft = Raft(self._settings, env.rng, state, shape, self._now_ms())
        self._asked: dict[int, trio.Event] = {}
        self._answers: dict[int, Reply] = {}
        self._tickets = 0
        self._applied = log.log_start_offset
        self._announced = -1
        """The epoch that `on_leadership(True, ...)` was called for, -1 while this node does not lead."""
        self._generation = 0
        self._working = self._syncing = False
        self._moved = trio.Event()
        self._rearm = trio.Event()
        self._nursery: trio.Nursery | None = None

    # ------------------------------------------------------------------------------------------------- what is known

    @property
    def leader_id(self) -> int:
        """The leader as far as this node knows, -1 for none."""
        return self._raft.leader_id

    @property
    def epoch(self) -> int:
        """The epoch this node is in."""
        return self._raft.epoch

    @property
    def is_leader(self) -> bool:
        """True while this node leads, for all it knows."""
        return self._raft.leadership is not None

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed, as this node knows it."""
        return self._raft.high_watermark

    @property
    def end_offset(self) -> int:
        """Where the next record goes."""
        return self._raft.log.end_offset

    # -------------------------------------------------------------------------------------------------- for the leader

    def append(self, records: Sequence[tuple[Any, int]]) -> int:
        """Append (record, version) pairs as one batch. Offset of the last. Raises NotLeader."""
        if self._raft.leadership is None:
            raise NotLeader
        wall_ms = self._env.wall_ms()
        values = [
            Record(number, wall_ms, None, encode_metadata_record(message, version), [])
            for number, (message, version) in enumerate(records)
        ]
        base = self._raft.propose(len(values), encode_batch(values), self._now_ms())
        self._work()
        return base + len(values) - 1

    async def wait_committed(self, offset: int, epoch: int) -> None:
        """Until `offset`, appended in `epoch`, is committed and replayed. Raises NotLeader where that stays open.
        """
        while self._applied <= offset:
            if self._raft.leadership is None or self._raft.epoch != epoch:
                raise NotLeader
            await self._moved.wait()

    async def resign(self) -> None:
        """Give up leadership, if any, and give the others a moment to hear of it."""
        if self._raft.leadership is None:
            return
        self._raft.resign(self._now_ms())
        self._work()
        await self._env.sleep(0.05)

    # ------------------------------------------------------------------------------------------------------- requests

    async def vote(self, request: Any) -> Any:
        """Handle Vote."""
        return wire.write_vote(await self._ask_core(wire.read_vote(request)))

    async def begin_quorum_epoch(self, request: Any) -> Any:
        """Handle BeginQuorumEpoch."""
        return wire.write_begin(await self._ask_core(wire.read_begin(request)))

    async def end_quorum_epoch(self, request: Any) -> Any:
        """Handle EndQuorumEpoch."""
        return wire.write_end(await self._ask_core(wire.read_end(request)))

    async def fetch(self, request: FetchIn, version: int) -> list[Any]:
        """Handle Fetch of the metadata log: waits for records, a new high watermark, or the request's max wait."""
        found = wire.read_fetch(request)
        if found is None:
            return encode_fetch_response(version, 0, int(ErrorCode.INVALID_REQUEST), 0, [], [])
        reply = await self._ask_core(found)
        records = None
        if reply.limit > reply.offset:
            records = self._log.slice(reply.offset, reply.limit, wire.MAX_BYTES, True)
        part = wire.write_fetch(reply, records)
        return encode_fetch_response(version, 0, 0, 0, [(wire.METADATA_TOPIC_ID, [part])], [])

    async def describe_quorum(self, request: Any) -> Any:
        """Handle DescribeQuorum: the leader's view of who has fetched how far."""
        from broker.protocol.schema import describe_quorum as schema

        raft = self._raft
        part = schema.DescribeQuorumResponsePartitionData(leader_id=raft.leader_id, leader_epoch=raft.epoch)
        if raft.leadership is None:
            part.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            own = schema.ReplicaState(replica_id=raft.node_id, log_end_offset=raft.log.end_offset)
            voters = raft.leadership.voters.items()
            others = [schema.ReplicaState(replica_id=n, log_end_offset=r.end_offset) for n, r in voters]
            watching = raft.leadership.observers.items()
            part.high_watermark = raft.high_watermark
            part.current_voters = [own, *others]
            part.observers = [schema.ReplicaState(replica_id=n, log_end_offset=r.end_offset) for n, r in watching]
        topic = schema.DescribeQuorumResponseTopicData(wire.METADATA_TOPIC, [part])
        return schema.DescribeQuorumResponse(topics=[topic])

    async def _ask_core(self, found: tuple[int, Request] | None) -> Any:
        """Put another node's request into the core and wait for its reply."""
        if found is None:
            raise MalformedFrame("a request to the quorum that is not about its log")
        sender, request = found
        self._tickets += 1
        ticket = self._tickets
        done = self._asked[ticket] = trio.Event()
        self._raft.step(Message(sender, self._settings.node_id, ticket, request), self._now_ms())
        self._work()
        try:
            await done.wait()
        finally:
            del self._asked[ticket]
        return self._answers.pop(ticket)

    # --------------------------------------------------------------------------------------------------------- running

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._work()
            task_status.started()
            while True:
                wait_s = max(0, self._raft.next_deadline_ms() - self._now_ms()) / 1000
                self._rearm = trio.Event()
                with self._env.timeout(min(wait_s, 3600.0)):
                    await self._rearm.wait()
                self._raft.tick(self._now_ms())
                self._work()

    def _now_ms(self) -> int:
        return int(self._env.mono() * 1000)

    def _work(self) -> None:
        """Carry out what the core wants, round by round, until it wants nothing. Callbacks may come back in here."""
        if self._working or self._nursery is None:
            return
        self._working = True
        try:
            while (ready := self._raft.ready()) is not None or self._tell():
                if ready is not None:
                    self._carry_out(ready)
        finally:
            self._working = False
        if self._raft.wants_sync and not self._syncing:
            self._syncing = True
            self._nursery.start_soon(self._sync)
        self._rearm.set()

    def _carry_out(self, ready: Ready) -> None:
        if ready.state is not None:
            text = ready.state.to_json(self._settings.voters, self._cluster_id)
            replace_file(self._env.fs, self._state_path, text.encode())
        for op in ready.log:
            self._write(op)
        for note in ready.notes:
            self._env.trace(f"quorum_{note.event}", **note.fields)
        assert self._nursery is not None
        for message in ready.messages:
            if not isinstance(message.body, REPLIES):
                self._nursery.start_soon(self._send, message.receiver, message.ticket, message.body)
            elif message.ticket in self._asked:
                self._answers[message.ticket] = message.body
                self._asked[message.ticket].set()

    def _write(self, op: LogOp) -> None:
        log, wall_ms = self._log, self._env.wall_ms()
        match op:
            case AppendOwn():
                assert isinstance(op.payload, bytes)
                self._append(memoryview(bytearray(op.payload)), op.base_offset, op.epoch)
            case AppendLeaderChange():
                change = LeaderChangeMessage(
                    leader_id=self._settings.node_id,
                    voters=[LeaderChangeMessageVoter(voter) for voter in op.voters],
                    granting_voters=[LeaderChangeMessageVoter(voter) for voter in op.granting],
                )
                key, value = encode_control_record(change)
                batch = encode_batch([Record(0, wall_ms, key, value, [])], control=True)
                self._append(memoryview(bytearray(batch)), op.offset, op.epoch)
            case AppendFetched():
                assert isinstance(op.payload, bytes)
                log.append_as_follower(memoryview(op.payload))
                assert log.log_end_offset == op.spans[-1].end_offset
            case Truncate():
                log.truncate_to(op.to_offset)
                self._generation = op.generation

    def _append(self, batch: memoryview, offset: int, epoch: int) -> None:
        done = self._log.append_as_leader(batch, epoch, self._env.wall_ms(), client=False)
        assert not done.error, f"the metadata log refused a batch: {done.message}"
        assert done.base_offset == offset, f"a batch for {offset} was written at {done.base_offset}"

    async def _sync(self) -> None:
        """Sync what has been written, again and again until all of it is durable."""
        try:
            while self._raft.wants_sync:
                generation = self._generation
                job = self._log.begin_flush()
                end_offset = self._log.log_end_offset if job is None else job.end_offset
                if job is not None:
                    await self._env.cpu(job.run)
                    self._log.finish_flush(job, self._env.wall_ms())
                self._raft.synced(end_offset, generation, self._now_ms())
                self._work()
        finally:
            self._syncing = False

    async def _send(self, receiver: int, ticket: int, request: Request) -> None:
        """A request to another node, and its reply or failure into the core."""
        own_id = self._settings.node_id
        api_key, version, body = wire.encode_request(request, own_id, receiver, self._cluster_id)
        fetches = isinstance(request, Fetch)
        try:
            reply = await self._peers.exchange(
                receiver,
                api_key,
                version,
                body,
                lambda view: wire.decode_reply(request, view),
                self._settings.fetch_timeout_ms if fetches else self._request_timeout_ms,
                lane=_FETCH_LANE if fetches else _LANE,
            )
        except (OSError, MalformedFrame):
            self._raft.failed(receiver, ticket, self._now_ms())
        else:
            self._raft.step(Message(receiver, own_id, ticket, reply), self._now_ms())
        self._work()

    # --------------------------------------------------------------------------------------------------------- telling

    def _tell(self) -> bool:
        """Hand on what became committed, then what became of leadership. True where there was something."""
        told = self._tell_committed()
        leadership = self._raft.leadership
        leads = leadership is not None and self._applied > leadership.epoch_start_offset
        if self._announced >= 0 and (leadership is None or leadership.epoch != self._announced):
            epoch, self._announced = self._announced, -1
            self._on_leadership(False, epoch)
            self._wake()
            told = True
        if leads and leadership is not None and self._announced != leadership.epoch:
            self._announced = leadership.epoch
            self._on_leadership(True, leadership.epoch)
            told = True
        return told

    def _tell_committed(self) -> bool:
        end = min(self._raft.high_watermark, self._log.log_end_offset)
        if end <= self._applied:
            return False
        found: Committed = []
        for header, batch in self._log.read_batches(self._applied, end):
            if header.base_offset < self._applied or header.attributes & _CONTROL:
                continue
            for record in decode_batch(header, memoryview(batch)):
                assert record.value is not None
                found.append((record.offset, header.leader_epoch, decode_metadata_record(record.value)))
        self._applied = end
        self._on_committed(found)
        self._wake()
        return True

    def _wake(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()
