"""Reads and writes the small text files beside the logs, in Kafka's formats. A write replaces the whole file, durably.

A reader treats a file that does not parse as missing, because each caller has a safe default for a missing file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from squall.broker.env import Fs

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
TEMPORARY = ".tmp"

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]


def replace_file(fs: Fs, path: str, data: bytes) -> None:
    """Replace the content of `path` by `data` atomically: a power loss leaves the file's old or its new content."""
    assert not path.endswith(TEMPORARY), f"{path} would be removed by the next start"
    temporary = path + TEMPORARY
    # Fsync the bytes first: if only the new name were durable, the file could be empty after a power loss.
    _write_file(fs, temporary, data)
    fs.rename(temporary, path)
    fs.fsync_dir(parent(path))


def _write_file(fs: Fs, path: str, data: bytes) -> None:
    """Write a file and fsync its bytes. The file's name is not yet durable on return."""
    file = fs.open(path, create=True, truncate=True)
    try:
        file.append(data)
        file.fsync()
    finally:
        file.close()


def parent(path: str) -> str:
    """Return the directory that contains `path`."""
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def read_text(fs: Fs, path: str) -> str | None:
    """Return the content of the file, or None if the file is missing or is not UTF-8."""
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.pread(file.size(), 0).decode("utf-8")
    except UnicodeDecodeError:
        return None
    finally:
        file.close()


def _rows(text: str | None, columns: int) -> list[list[str]] | None:
    """Return the rows of a version 0 checkpoint ("0", the number of rows, then a row per line), or None if it is
    incomplete.
    """
    lines = (text or "").splitlines()
    if len(lines) < 2 or lines[0].strip() != "0" or not lines[1].strip().isdigit():
        return None
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]) or any(len(row) != columns for row in rows):
        return None
    return rows


def _checkpoint(rows: list[str]) -> bytes:
    assert not any("\n" in row for row in rows)
    return "\n".join(["0", str(len(rows)), *rows, ""]).encode()


def read_offsets(fs: Fs, path: str) -> Offsets:
    """Return the offsets of an offset checkpoint by (topic, partition). The result is empty if the file is missing or
    damaged.
    """
    try:
        rows = _rows(read_text(fs, path), 3) or []
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError:
        return {}
    return {} if min(offsets.values(), default=0) < 0 else offsets


def write_offsets(fs: Fs, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replace an offset checkpoint durably."""
    replace_file(fs, path, _offsets(offsets))


def write_offsets_to(fs: Fs, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write the content of an offset checkpoint to `path`. The caller renames the file to its final name later."""
    _write_file(fs, path, _offsets(offsets))


def _offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    assert min(offsets.values(), default=0) >= 0, "the next start would take the checkpoint for damaged"
    return _checkpoint([f"{topic} {index} {offsets[topic, index]}" for topic, index in sorted(offsets)])


class EpochEntry(NamedTuple):
    """Holds a leader epoch and the offset of the first batch of that epoch."""

    epoch: int
    start_offset: int


def read_epochs(fs: Fs, path: str) -> list[EpochEntry] | None:
    """Return the entries of a leader epoch checkpoint, both fields strictly ascending; None if the file is missing or
    damaged.
    """
    try:
        rows = _rows(read_text(fs, path), 2)
        if rows is None:
            return None
        entries = [EpochEntry(int(epoch), int(start)) for epoch, start in rows]
    except ValueError:
        return None
    return entries if _are_rising([EpochEntry(-1, -1), *entries]) else None


def _are_rising(entries: Sequence[EpochEntry]) -> bool:
    pairs = zip(entries, entries[1:], strict=False)
    return all(one.epoch < other.epoch and one.start_offset < other.start_offset for one, other in pairs)


def write_epochs(fs: Fs, path: str, entries: Sequence[EpochEntry]) -> None:
    """Replace a leader epoch checkpoint durably."""
    assert _are_rising(entries), f"the next start would take {path} for damaged"
    replace_file(fs, path, _checkpoint([f"{epoch} {start}" for epoch, start in entries]))


def uuid_text(value: bytes) -> str:
    """Return Kafka's text form of a 16-byte id: URL-safe base64 without padding."""
    assert len(value) == 16
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def uuid_bytes(text: str) -> bytes | None:
    """Return the 16 bytes of an id's text form, or None if the text is not an id."""
    try:
        value = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return value if len(value) == 16 else None


def read_topic_id(fs: Fs, directory: str) -> bytes | None:
    """Return the topic id that partition.metadata names for a partition directory, or None if there is no valid one."""
    for line in (read_text(fs, f"{directory}/{PARTITION_METADATA}") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            return uuid_bytes(value.strip())
    return None


def write_topic_id(fs: Fs, directory: str, topic_id: bytes) -> None:
    """Write a partition directory's topic id to its partition.metadata, durably."""
    assert len(topic_id) == 16
    assert any(topic_id), "a log without an id is used for any topic of its name"
    replace_file(fs, f"{directory}/{PARTITION_METADATA}", f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode())


def read_properties(fs: Fs, path: str) -> dict[str, str]:
    """Return the names and values of a Java properties file without escapes; empty if the file is missing."""
    lines = (read_text(fs, path) or "").splitlines()
    pairs = [line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith(("#", "!"))]
    return {name.strip(): value.strip() for name, _, value in pairs}


def write_properties(fs: Fs, path: str, values: Mapping[str, str]) -> None:
    """Replace a properties file durably. Kafka also writes the date as a comment, which nothing reads."""
    assert not any("=" in name for name in values)
    replace_file(fs, path, "".join(f"{name}={value}\n" for name, value in values.items()).encode())


def read_clean_shutdown(fs: Fs, path: str) -> int | None:
    """Return the broker epoch in the clean-shutdown file (KIP-966), -1 if the file has none, None if there is no such
    file.
    """
    if not fs.exists(path):
        return None
    try:
        return int(json.loads(read_text(fs, path) or "{}").get("brokerEpoch", -1))
    except (ValueError, AttributeError, TypeError):
        return -1


def write_clean_shutdown(fs: Fs, path: str, broker_epoch: int) -> None:
    """Write the clean-shutdown file durably."""
    assert broker_epoch >= -1
    replace_file(fs, path, json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode())
