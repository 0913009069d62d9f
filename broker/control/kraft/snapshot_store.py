"""Keeps snapshots of the metadata log as files beside its segments, in Kafka's names and format (KIP-630).

`<end offset>-<epoch>.checkpoint` holds record batches: one with a header record, then the metadata records, then one
with a footer record. A file without footer is incomplete. Offsets in a file count from 0: they are not offsets of the
log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.cluster.feed import UnsupportedFeature
from squall.broker.log.checkpoints import replace_file
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.metadata_frame import (
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    decode_control_record,
    decode_metadata_record,
    encode_control_record,
    encode_metadata_record,
)
from squall.broker.protocol.records import Record, batches, check_crc, decode_batch, encode_batch
from squall.broker.protocol.schema.control_records import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from squall.broker.quorum.messages import SnapshotId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.env import Fs

SUFFIX, PART = ".checkpoint", ".checkpoint.part"
RECORDS_PER_BATCH = 500


class SnapshotStore:
    """Reads and writes the snapshots of one directory. Calls block. `ids` changes only on the event loop."""

    def __init__(self, fs: Fs, directory: str) -> None:
        self._fs, self._directory = fs, directory
        self.ids: list[SnapshotId] = []
        """Lists the complete snapshots, oldest first."""
        for name in fs.list(directory):
            snapshot = id_of(name)
            if snapshot is not None:
                self.ids.append(snapshot)
            elif name.endswith(PART):
                fs.remove(f"{directory}/{name}")
        self.ids.sort()

    @property
    def newest(self) -> SnapshotId | None:
        """Returns the snapshot with the highest end offset, or None."""
        return self.ids[-1] if self.ids else None

    @property
    def size(self) -> int:
        """Returns the bytes of all snapshots."""
        return sum(found[0] for found in (self.piece(snapshot, 0, 0) for snapshot in self.ids) if found is not None)

    def write(self, snapshot: SnapshotId, data: bytes) -> None:
        """Write a snapshot durably. May run off the event loop; the caller then calls `add`."""
        replace_file(self._fs, self._path(snapshot), data)

    def add(self, snapshot: SnapshotId) -> None:
        """Add to `ids` a snapshot that `write` has written."""
        self.ids = sorted({*self.ids, snapshot})

    def read(self, snapshot: SnapshotId) -> bytes:
        """Return the bytes of a snapshot. Raises OSError if it was deleted."""
        return self._pread(self._path(snapshot), 0, None)

    def piece(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """Return the size of a snapshot and its bytes from `position` on; None if there is no such snapshot."""
        if snapshot not in self.ids:
            return None
        file = self._fs.open(self._path(snapshot))
        try:
            return file.size(), file.pread(max_bytes, position)
        finally:
            file.close()

    def write_part(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        """Append the next chunk of a snapshot that is being fetched to its partial file."""
        file = self._fs.open(self._part(snapshot), create=True, truncate=not position)
        try:
            assert file.size() == position, f"a piece for {position} of a part of {file.size()} bytes"
            file.append(data)
        finally:
            file.close()

    def with_part(self, snapshot: SnapshotId, position: int, last: bytes) -> bytes:
        """Return the bytes of the partial file up to `position`, followed by the last chunk."""
        return (self._pread(self._part(snapshot), 0, position) if position else b"") + last

    def install(self, snapshot: SnapshotId) -> None:
        """Turn a complete partial file into a snapshot, durably, and delete all other snapshots."""
        file = self._fs.open(self._part(snapshot))
        try:
            file.fsync()
        finally:
            file.close()
        self._fs.rename(self._part(snapshot), self._path(snapshot))
        self._fs.fsync_dir(self._directory)
        # Not earlier: until the new name is durable, only the older snapshots surely survive a power loss.
        for older in self.ids:
            if older != snapshot:
                self._fs.remove(self._path(older))
        self.ids = [snapshot]

    def delete(self, snapshot: SnapshotId) -> None:
        """Delete the file of a snapshot, and remove the snapshot from `ids`."""
        self._fs.remove(self._path(snapshot))
        self.ids = [other for other in self.ids if other != snapshot]

    def _pread(self, path: str, at: int, length: int | None) -> bytes:
        file = self._fs.open(path)
        try:
            return file.pread(file.size() if length is None else length, at)
        finally:
            file.close()

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._directory}/{snapshot.end_offset:020d}-{snapshot.epoch:010d}{SUFFIX}"

    def _part(self, snapshot: SnapshotId) -> str:
        return self._path(snapshot).removesuffix(SUFFIX) + PART


def id_of(name: str) -> SnapshotId | None:
    """Return the snapshot that a file of this name holds; None for another file."""
    end_offset, dash, epoch = name.removesuffix(SUFFIX).partition("-")
    if not name.endswith(SUFFIX) or not dash or (len(end_offset), len(epoch)) != (20, 10):
        return None
    return SnapshotId(int(end_offset), int(epoch)) if (end_offset + epoch).isdigit() else None


def encode_snapshot(records: Sequence[tuple[Any, int]], epoch: int, wall_ms: int) -> bytes:
    """Return the file content of a snapshot with these (message, version) pairs. `wall_ms`: the time of its last
    record.
    """
    header = encode_control_record(SnapshotHeaderRecord(last_contained_log_timestamp=wall_ms))
    footer = encode_control_record(SnapshotFooterRecord())
    values = [encode_metadata_record(message, version) for message, version in records]
    parts = [_control(header, 0, epoch, wall_ms)]
    for at in range(0, len(values), RECORDS_PER_BATCH):
        run = [Record(at + n, wall_ms, None, value) for n, value in enumerate(values[at : at + RECORDS_PER_BATCH], 1)]
        parts.append(encode_batch(run, base_offset=at + 1, leader_epoch=epoch))
    parts.append(_control(footer, len(values) + 1, epoch, wall_ms))
    return b"".join(parts)


def _control(record: tuple[bytes, bytes], offset: int, epoch: int, wall_ms: int) -> bytes:
    return encode_batch([Record(offset, wall_ms, *record)], base_offset=offset, leader_epoch=epoch, control=True)


def decode_snapshot(data: bytes) -> tuple[int, list[Any]]:
    """Return (timestamp of the last record that the snapshot covers, metadata records) of a file.

    Raises MalformedFrame if the file is damaged or incomplete. Raises UnsupportedFeature if a control record in the
    file makes the log itself define the voters (KIP-853).
    """
    view = memoryview(data)
    found: list[Any] = []
    kinds: list[int] = []
    wall_ms, end = -1, 0
    for header, start, stop in batches(view):
        end = stop
        if not check_crc(view, start, stop):
            raise MalformedFrame(f"a batch of a snapshot has a wrong CRC at {start}")
        for record in decode_batch(header, view[start:stop]):
            if header.is_control:
                kind, message = decode_control_record(record.key, record.value)
                kinds.append(kind)
                refuse_dynamic_voters(message)
                if isinstance(message, SnapshotHeaderRecord):
                    wall_ms = message.last_contained_log_timestamp
            elif record.value is not None and kinds == [SNAPSHOT_HEADER]:
                found.append(decode_metadata_record(record.value))
            else:
                raise MalformedFrame("a record outside of a snapshot's header and footer")
    if kinds[:1] != [SNAPSHOT_HEADER] or kinds[-1:] != [SNAPSHOT_FOOTER] or end != len(data):
        raise MalformedFrame(f"a snapshot with control records {kinds} and {len(data) - end} bytes behind")
    return wall_ms, found


def refuse_dynamic_voters(message: Any) -> None:
    """Raise UnsupportedFeature for a control record that makes the log itself define the voters (KIP-853)."""
    if isinstance(message, KRaftVersionRecord) and message.k_raft_version > 0:
        level = message.k_raft_version
        raise UnsupportedFeature(
            f"the metadata log has kraft.version at level {level}, and this broker supports level 0 only: "
            "voters that controller.quorum.voters names"
        )
