"""What the quorum keeps on disk: the metadata log, and the small file of what must never be forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.log.checkpoints import read_text, replace_file
from broker.protocol.metadata_frame import decode_metadata_record, encode_control_record, encode_metadata_record
from broker.protocol.records import Record, decode_batch, encode_batch
from broker.protocol.schema.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from broker.quorum.effects import AppendFetched, AppendLeaderChange, AppendOwn, Truncate
from broker.quorum.shape import LogShape
from broker.quorum.state import DamagedQuorumState, QuorumState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.env import Env
    from broker.log.log import Log
    from broker.log.slices import FileSlice
    from broker.quorum.effects import LogOp
    from broker.quorum.settings import QuorumSettings

STATE_FILE = "quorum-state"
Committed = list[tuple[int, int, Any]]
"""(offset, epoch, metadata record) triples."""


class QuorumStorage:
    """Carries out the core's effects on disk. Written means in the page cache, unless said otherwise."""

    def __init__(self, env: Env, log: Log, settings: QuorumSettings, cluster_id: str) -> None:
        self._env, self._log, self._settings, self._cluster_id = env, log, settings, cluster_id
        self._state_path = f"{log.directory}/{STATE_FILE}"
        self._generation = 0
        """Of the last truncation done: what a sync that begins now is reported under."""
        self._synced = (-1, 0)
        """(end offset, generation) as last reported."""

    # ---------------------------------------------------------------------------------------------------------- state

    def load_state(self) -> QuorumState:
        """What was persisted last; the initial state where nothing was. Raises DamagedQuorumState, OSError."""
        if not self._env.fs.exists(self._state_path):
            return QuorumState()
        text = read_text(self._env.fs, self._state_path)
        if text is None:
            raise DamagedQuorumState(f"{self._state_path} is no text")
        return QuorumState.from_json(text)

    def persist(self, state: QuorumState) -> None:
        """Durable on return. Blocks."""
        replace_file(self._env.fs, self._state_path, state.to_json(self._settings.voters, self._cluster_id).encode())

    # ------------------------------------------------------------------------------------------------------------ log

    def shape(self) -> LogShape:
        """The log as it is."""
        return LogShape(self._log.log_end_offset, self._log.epochs.entries, self._log.log_start_offset)

    def write(self, op: LogOp) -> None:
        """Do to the log what has already been done to its shape: that it turns out otherwise is a bug."""
        match op:
            case AppendOwn():
                assert isinstance(op.payload, bytes)
                self._append(op.payload, op.base_offset, op.epoch)
            case AppendLeaderChange():
                self._append(self._leader_change(op), op.offset, op.epoch)
            case AppendFetched():
                assert isinstance(op.payload, bytes)
                self._log.append_as_follower(memoryview(op.payload))
                assert self._log.log_end_offset == op.spans[-1].end_offset
            case Truncate():
                self._log.truncate_to(op.to_offset)
                self._generation = op.generation
                assert self._log.log_end_offset == op.to_offset

    def _append(self, batch: bytes, offset: int, epoch: int) -> None:
        done = self._log.append_as_leader(memoryview(bytearray(batch)), epoch, self._env.wall_ms(), client=False)
        assert not done.error, f"the metadata log refused a batch: {done.message}"
        assert done.base_offset == offset, f"a batch for {offset} was written at {done.base_offset}"

    def _leader_change(self, op: AppendLeaderChange) -> bytes:
        change = LeaderChangeMessage(
            leader_id=self._settings.node_id,
            voters=[LeaderChangeMessageVoter(voter) for voter in op.voters],
            granting_voters=[LeaderChangeMessageVoter(voter) for voter in op.granting],
        )
        key, value = encode_control_record(change)
        return encode_batch([Record(0, self._env.wall_ms(), key, value)], control=True)

    def encode(self, records: Sequence[tuple[Any, int]]) -> bytes:
        """(message, version) pairs as one batch. Its offsets and epoch are put in when it is written."""
        wall_ms = self._env.wall_ms()
        values = (encode_metadata_record(message, version) for message, version in records)
        return encode_batch([Record(number, wall_ms, None, value) for number, value in enumerate(values)])

    def slice(self, offset: int, limit: int, max_bytes: int) -> FileSlice | None:
        """Whole batches in [offset, limit), at most `max_bytes` of them but always one; None where there is none."""
        return self._log.slice(offset, limit, max_bytes, True) if limit > offset else None

    def read(self, offset: int, limit: int) -> tuple[int, Committed]:
        """Where what is written of [offset, limit) ends, and the metadata records in it, without control records."""
        end = min(limit, self._log.log_end_offset)
        found: Committed = []
        if end > offset:
            for header, batch in self._log.read_batches(offset, end):
                if not header.is_control and header.base_offset >= offset:
                    for record in decode_batch(header, memoryview(batch)):
                        assert record.value is not None
                        found.append((record.offset, header.leader_epoch, decode_metadata_record(record.value)))
        return max(end, offset), found

    # ----------------------------------------------------------------------------------------------------------- sync

    @property
    def has_news(self) -> bool:
        """True when `sync` would report something that it has not reported yet."""
        return self._synced != (self._log.log_end_offset, self._generation)

    async def sync(self) -> tuple[int, int]:
        """Make durable what is written now, off the event loop. (end offset, generation) as `Raft.synced` wants them.

        One at a time. OSError: what the log holds is not known any more, and this node must stop.
        """
        generation = self._generation
        job = self._log.begin_flush()
        end_offset = self._log.log_end_offset if job is None else job.end_offset
        if job is not None:
            await self._env.cpu(job.run)
            self._log.finish_flush(job, self._env.wall_ms())
        self._synced = (end_offset, generation)
        return self._synced
