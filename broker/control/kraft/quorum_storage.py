"""Keeps the quorum's data on disk: the metadata log, its snapshots, and the small file with epoch and vote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.control.kraft.snapshot_store import SnapshotStore, decode_snapshot, refuse_dynamic_voters
from squall.broker.log.checkpoints import read_text, replace_file
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.metadata_frame import (
    decode_control_record,
    decode_metadata_record,
    encode_control_record,
    encode_metadata_record,
)
from squall.broker.protocol.records import Record, decode_batch, encode_batch
from squall.broker.protocol.schema.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from squall.broker.quorum.effects import (
    AppendFetchedBatches,
    AppendLeaderBatch,
    AppendLeaderChange,
    InstallSnapshot,
    Truncate,
    WriteSnapshotChunk,
)
from squall.broker.quorum.log_extent import LogExtent, continues_from_snapshot
from squall.broker.quorum.state import DamagedQuorumState, QuorumState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.env import Env
    from squall.broker.log.log import Log
    from squall.broker.log.slices import FileSlice
    from squall.broker.quorum.effects import LogOp
    from squall.broker.quorum.messages import SnapshotId
    from squall.broker.quorum.settings import QuorumSettings

STATE_FILE = "quorum-state"
CommittedRecords = list[tuple[int, int, Any]]
"""Lists (offset, epoch, metadata record) triples."""


class QuorumStorage:
    """Carries out the Raft core's effects on disk. Unless a method says otherwise, it writes to the page cache only."""

    def __init__(self, env: Env, log: Log, settings: QuorumSettings, cluster_id: str) -> None:
        self._env, self._log, self._settings, self._cluster_id = env, log, settings, cluster_id
        self._state_path = f"{log.directory}/{STATE_FILE}"
        self._generation = 0
        """Counts the log's truncations. A sync reports the count as of its start: if the log is truncated before the
        sync ends, its result is ignored.
        """
        self._synced = (-1, 0)
        """Holds the latest result of `sync`: the durable end offset, and the count of truncations (`_generation`)."""
        self.read_bytes = 0
        """Counts the bytes of all batches that `read` has decoded."""
        self.snapshots = SnapshotStore(env.fs, log.directory)
        self.loaded: list[Any] = self._load_snapshot()
        """Holds the records of the newest snapshot; empty if there is none."""

    # ---------------------------------------------------------------------------------------------------------- state

    def load_state(self) -> QuorumState:
        """Return the persisted state, made durable again; the initial state if there is none. Raises
        DamagedQuorumState, OSError.

        The previous run may have ended between renaming the file and syncing its name, or after a failed sync. A power
        loss could then undo a state that this node has sent to others. So the file is written anew: after a failed
        sync, a second sync of the same file or directory proves nothing.
        """
        if not self._env.fs.exists(self._state_path):
            return QuorumState()
        text = read_text(self._env.fs, self._state_path)
        if text is None:
            raise DamagedQuorumState(f"{self._state_path} is no text")
        state = QuorumState.from_json(text)
        self.persist(state)
        return state

    def persist(self, state: QuorumState) -> None:
        """Write the quorum's epoch, vote and leader durably to the quorum-state file. Blocks."""
        replace_file(self._env.fs, self._state_path, state.to_json(self._settings.voters, self._cluster_id).encode())

    # ------------------------------------------------------------------------------------------------------------ log

    def _load_snapshot(self) -> list[Any]:
        """Load the newest snapshot that is not damaged, and adjust the log's start to it. Raises DamagedQuorumState,
        OSError.

        A damaged snapshot is deleted; its records must then be in an older snapshot or the log.
        """
        records: list[Any] = []
        while (newest := self.snapshots.newest) is not None:
            try:
                _, records = decode_snapshot(self.snapshots.read(newest))
                break
            except MalformedFrame as wrong:
                self._env.trace("snapshot_damaged", offset=newest.end_offset, epoch=newest.epoch, why=str(wrong))
                self.snapshots.delete(newest)
        log = self._log
        if newest is not None and not continues_from_snapshot(newest, log.log_end_offset, log.epochs.entries):
            # The node died after it installed the snapshot, or before its last append or truncation was synced.
            log.truncate_fully_and_start_at(newest.end_offset)
            for older in self.snapshots.ids[:-1]:
                self.snapshots.delete(older)  # The log no longer continues older snapshots.
            return records
        # The first epoch shows that the log was trimmed, even if the log start was not yet written to its checkpoint.
        start = max(log.log_start_offset, *(first for _, first in log.epochs.entries[:1]), 0)
        if start:
            kept = [found for found in self.snapshots.ids if found.end_offset >= start]
            if not kept:
                raise DamagedQuorumState(f"{log} begins where no snapshot ends")
            log.increment_log_start(kept[0].end_offset)
        return records

    def extent(self) -> LogExtent:
        """Return the log's start and end offset and the first offset of each epoch."""
        start, end = self._log.log_start_offset, self._log.log_end_offset
        # A trimmed log starts where a snapshot ends (`_load_snapshot`), so its epoch is that of the record before.
        before = [found.epoch for found in self.snapshots.ids if found.end_offset == start]
        entries = self._log.epochs.entries
        # The epoch that spans the start begins there, as after `LogExtent.trim_to`.
        within = [epoch for epoch, first in entries if first <= start]
        epochs = [(within[-1], start)] if within and start < end else []
        epochs += [(epoch, first) for epoch, first in entries if start < first < end]
        return LogExtent(end, epochs, start, before[0] if start else 0)

    def trim(self, snapshot: SnapshotId, high_watermark: int) -> None:
        """Delete the log's records before the end offset of `snapshot`, and all older snapshots. Segments are deleted
        only below `high_watermark`.
        """
        self._log.increment_log_start(snapshot.end_offset)
        self._log.delete_old_segments(self._env.wall_ms(), high_watermark)
        for older in [found for found in self.snapshots.ids if found < snapshot]:
            self.snapshots.delete(older)

    def taken_ms(self, snapshot: SnapshotId) -> int:
        """Return the wall-clock time (ms) of a snapshot's last record."""
        return decode_snapshot(self.snapshots.read(snapshot))[0]

    @property
    def size(self) -> int:
        """Returns the bytes of the log and of all snapshots."""
        return self._log.size + self.snapshots.size

    def write(self, op: LogOp) -> None:
        """Apply an operation to the log on disk. The Raft core has already applied it to its model of the log, so an
        assertion fails if disk and model differ afterwards.
        """
        match op:
            case AppendLeaderBatch():
                assert isinstance(op.payload, bytes)
                self._append(op.payload, op.base_offset, op.epoch)
            case AppendLeaderChange():
                self._append(self._leader_change(op), op.offset, op.epoch)
            case AppendFetchedBatches():
                assert isinstance(op.payload, bytes)
                self._log.append_as_follower(memoryview(op.payload), op.spans[-1].epoch)
                assert self._log.log_end_offset == op.spans[-1].end_offset
            case Truncate():
                self._log.truncate_to(op.to_offset)
                self._generation = op.generation
                assert self._log.log_end_offset == op.to_offset
            case WriteSnapshotChunk():
                assert isinstance(op.payload, bytes)
                self.snapshots.write_part(op.snapshot, op.position, op.payload)
            case InstallSnapshot():
                self.snapshots.install(op.snapshot)
                self._log.truncate_fully_and_start_at(op.snapshot.end_offset)
                self._generation = op.generation
                _, self.loaded = decode_snapshot(self.snapshots.read(op.snapshot))

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
        """Encode (message, version) pairs as one batch. Its offsets and epoch are set when it is written."""
        wall_ms = self._env.wall_ms()
        values = (encode_metadata_record(message, version) for message, version in records)
        return encode_batch([Record(number, wall_ms, None, value) for number, value in enumerate(values)])

    def slice(self, offset: int, limit: int, max_bytes: int) -> FileSlice | None:
        """Return complete batches in [offset, limit), at most `max_bytes` but at least one batch; None if there is
        none.
        """
        if not self._log.log_start_offset <= offset < limit:
            return None
        return self._log.slice(offset, limit, max_bytes, True)

    def read(self, offset: int, limit: int) -> tuple[int, CommittedRecords]:
        """Return (end, records): the metadata records in [offset, end), without control records. `end` is `limit`, or
        the end of the log if the log does not reach `limit`.
        """
        end = min(limit, self._log.log_end_offset)
        found: CommittedRecords = []
        if end > offset:
            for header, batch in self._log.read_batches(offset, end):
                self.read_bytes += len(batch)
                if header.next_offset <= offset:
                    continue
                for record in decode_batch(header, memoryview(batch)):
                    if header.is_control:
                        refuse_dynamic_voters(decode_control_record(record.key, record.value)[1])
                        continue
                    assert record.value is not None
                    if record.offset < offset:
                        continue  # `offset` is in the middle of a batch: a snapshot or the log's start ended there.
                    found.append((record.offset, header.leader_epoch, decode_metadata_record(record.value)))
        return max(end, offset), found

    # ----------------------------------------------------------------------------------------------------------- sync

    @property
    def has_news(self) -> bool:
        """Is True if the log's end has changed, or the log was truncated, since the last `sync`."""
        return self._synced != (self._log.log_end_offset, self._generation)

    async def sync(self) -> tuple[int, int]:
        """Sync the written records off the event loop, and return (end offset, generation) for `Raft.synced`: the
        durable end of the log, and how often the log had been truncated when the sync began.

        Only one sync may run at a time. After an OSError the log's content is unknown, and this node must stop.
        """
        generation = self._generation
        job = self._log.begin_flush()
        end_offset = self._log.log_end_offset if job is None else job.end_offset
        if job is not None:
            await self._env.cpu(job.run)
            self._log.finish_flush(job, self._env.wall_ms())
        self._synced = (end_offset, generation)
        return self._synced
