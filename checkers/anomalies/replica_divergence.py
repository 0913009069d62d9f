"""Finds replica-divergence: compares the segment files of a partition's replicas with each other, below their high
watermarks.

Replicas hold the same batches byte for byte, because a follower appends batches as it fetched them. So batch headers
with their CRC suffice, once each CRC is verified. Compacted partitions are compared record by record, at the offsets
that both replicas still have. The brokers must have stopped before: a running broker has appended batches that its
checkpoint does not cover yet, which is harmless, and may have truncated batches that its checkpoint still covers, which
is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import BatchHeader, batches, check_crc, decode_batch
from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily
from squall.checkers.anomalies.check import AnomalyCheck
from squall.checkers.findings import Finding, Witness, findings_of, from_json, to_json
from squall.checkers.history.tables import ObservedPartition, int64

NAME = "replica-divergence"
NOT_COMPARED = "the replicas' logs were not compared (in a simulation, invariants look at them)"
ANOMALIES = (
    AnomalyDefinition(
        NAME,
        AnomalyFamily.DATA,
        "the logs of two replicas differ below both high watermarks",
        source="KIP-101: Alter Replication Protocol to use Leader Epoch (logs must not diverge)",
        other="the node whose log differs",
        meaning="offsets differ between replicas of one partition",
        meaning_of_one="offset differs between replicas of one partition",
    ),
)
CHECK = AnomalyCheck(__name__, ANOMALIES)
FILE = "replicas.json"
"""Is the file in the run directory that keeps the findings of the comparison for the verdict."""
SCHEMA = 1

HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"

MISSING, DAMAGED, CONTENT, EPOCH = "missing", "damaged", "content", "leader epoch"
"""Are the kinds of evidence: a replica lacks a batch; its bytes are no batch or have a wrong CRC; its batch has other
bytes; its batch has another leader epoch.
"""

Offsets = dict[tuple[str, int], int]


class _ReplicaBatch(NamedTuple):
    """Describes one batch of one replica; `sound` is False if its CRC is wrong."""

    end: int
    epoch: int
    crc: int
    sound: bool


@dataclass(slots=True)
class ReplicaFiles:
    """Describes one replica of one partition by its files."""

    node: int
    folder: Path
    high_watermark: int
    log_start: int


@dataclass(frozen=True, slots=True)
class ReplicaComparison:
    """Holds the findings of a comparison, and which offsets it compared."""

    findings: list[Finding]
    compared: dict[str, dict[str, object]] = field(default_factory=dict)
    """Maps each partition's name to {"nodes": [...], "from": offset, "to": offset (exclusive)}. The offsets are those
    at which the two replicas with the highest high watermarks were compared.
    """
    lacking: list[str] = field(default_factory=list)
    """Lists, in words, which replicas were not compared up to the end of the final reads, and why."""


def compare_run(run_dir: Path, partitions: Sequence[ObservedPartition], run: str = "") -> ReplicaComparison | None:
    """Compare the logs that the nodes of a run left in `run_dir`/nodes/N/data, and write the result to replicas.json.

    Return None, and write nothing, if fewer than two nodes left data. `run` is the run's name in its history, empty if
    it has none.
    """
    folders = {
        int(folder.parent.name): folder
        for folder in sorted((run_dir / "nodes").glob("*/data"))
        if folder.parent.name.isdigit()
    }
    if len(folders) < 2:
        return None
    comparison = compare(folders, partitions)
    write(run_dir, comparison.findings, comparison.compared, comparison.lacking, run)
    return comparison


def write(
    run_dir: Path, findings: Sequence[Finding], compared: Mapping[str, Any], lacking: Sequence[str] = (), run: str = ""
) -> None:
    """Write the findings of a comparison to replicas.json. `compared` and `lacking` are the fields of
    `ReplicaComparison`; `run` is the history's name for the run, empty if it has none.
    """
    stored = {
        "schema": SCHEMA,
        **({"run": run} if run else {}),
        "compared": dict(compared),
        "lacking": list(lacking),
        "findings": to_json(findings),
    }
    (run_dir / FILE).write_text(json.dumps(stored, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class RequiredReplicaComparison:
    """Describes the comparison that a run needs: the run, its partitions, and their number of replicas."""

    run: str
    """Is the run's name in the header of its history. A comparison that names another run does not count."""
    partitions: Sequence[ObservedPartition]
    replicas: int
    """Is the number of replicas of each partition. A single replica is compared with nothing."""


def read(
    run_dir: Path, wanted: RequiredReplicaComparison, troubles: list[str], notes: list[str]
) -> tuple[bool, list[Finding]]:
    """Return (whether the logs were compared as required, the findings). `notes` gets a sentence if there is no
    replicas.json. `troubles` gets sentences if the file cannot be read, belongs to another run or lacks some replicas.
    """
    try:
        stored = json.loads((run_dir / FILE).read_text())
        if stored["schema"] != SCHEMA:
            raise ValueError(f"schema {stored['schema']}, and this program reads {SCHEMA}")
        findings, lacking = from_json(stored["findings"]), [*map(str, stored.get("lacking", []))]
        if another := _of_another(stored, findings, wanted):
            raise ValueError(another)
        if wanted.replicas > 1 and not lacking:
            lacking += (why for each in wanted.partitions for why in _uncompared(each, stored["compared"]))
        troubles += dict.fromkeys(lacking)
        return wanted.replicas > 1 and not lacking, findings
    except FileNotFoundError:
        notes.append("the replicas' logs were not compared")
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        troubles.append(f"{FILE}: {type(error).__name__}: {error}")
    return False, []


def _of_another(stored: Mapping[str, Any], findings: Sequence[Finding], wanted: RequiredReplicaComparison) -> str:
    """Return why a comparison belongs to another run; empty if nothing shows that. Comparisons of early versions do not
    name their run.
    """
    run = stored.get("run", wanted.run)
    if run != wanted.run:
        return f"it is about the run {run!r}, and the history about {wanted.run!r}"
    names, parts = {each.name for each in wanted.partitions}, {each.part for each in wanted.partitions}
    if strange := sorted(set(stored["compared"]) - names):
        return f"it compared {strange[0]}, which the history does not name"
    for finding in findings:
        if finding.anomaly != NAME:
            return f"it tells of {finding.anomaly!r}, which no comparison finds"
        if not {witness.part for witness in finding.witnesses} <= parts:
            return "it tells of a partition that the history does not name"
    return ""


def _uncompared(partition: ObservedPartition, compared: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a partition was not compared up to the end of its final reads. `compared` is the field of replicas.json
    with an entry for each partition. Raise KeyError or TypeError if the partition's entry is malformed.
    """
    wanted = partition.cover_to
    if partition.name not in compared:
        if wanted > 0:
            yield f"{FILE}: the replicas of {partition.name} were not compared"
        return
    entry = compared[partition.name]
    if len(set(entry["nodes"])) < 2:
        yield f"{FILE}: the replicas of {partition.name} were not compared: it names fewer than two nodes"
    elif max(int64(entry["from"]), int64(entry["to"])) < wanted:
        yield f"{FILE}: {partition.name} was compared below {entry['to']} only, and its final reads came to {wanted}"


def compare(log_dirs: Mapping[int, Path], partitions: Iterable[ObservedPartition]) -> ReplicaComparison:
    """Compare the replicas of each partition in these log directories, which are given by node id. Nodes without the
    partition do not count.
    """
    marks = {node: read_offsets(log_dir / HIGH_WATERMARKS) for node, log_dir in log_dirs.items()}
    starts = {node: read_offsets(log_dir / LOG_STARTS) for node, log_dir in log_dirs.items()}
    witnesses: list[Witness] = []
    compared: dict[str, dict[str, object]] = {}
    lacking: list[str] = []
    for partition in partitions:
        key = (partition.topic, partition.index)
        removable_to = max(partition.requested_to, partition.expirable_to)
        replicas = [
            ReplicaFiles(
                node,
                log_dir / partition.name,
                marks[node].get(key, 0),
                # A log may begin later than its checkpoint says, but only as far as records could have been removed:
                # beyond that they are missing.
                max(starts[node].get(key, 0), min(first_offset(log_dir / partition.name), removable_to)),
            )
            for node, log_dir in sorted(log_dirs.items())
            if (log_dir / partition.name).is_dir()
        ]
        # Each replica is compared with the one that has the highest high watermark: if two others differ, one differs
        # from it.
        replicas.sort(key=lambda replica: (-replica.high_watermark, replica.node))
        for other in replicas[1:]:
            if not partition.compacted:
                other.high_watermark = _agreed_to(replicas[0], other)
            witnesses += _differences(partition, replicas[0], other)
        if len(replicas) > 1:
            low, high = _range(replicas[0], replicas[1])
            compared[partition.name] = {"nodes": [each.node for each in replicas], "from": low, "to": high}
            for each in replicas:
                lacking += _too_short(partition, each, reported=key in marks[each.node])
    return ReplicaComparison(findings_of(witnesses), compared, lacking)


def _too_short(partition: ObservedPartition, replica: ReplicaFiles, *, reported: bool) -> Iterator[str]:
    """Yield why a replica's files end before the final reads of the partition do. `reported` is True if its checkpoint
    has a high watermark.
    """
    wanted = partition.cover_to
    if replica.log_start >= wanted:
        return
    of = f"nodes/{replica.node}/data/"
    if not reported:
        yield f"{of}{HIGH_WATERMARKS} tells no high watermark of {partition.name}: that replica was not compared"
    elif replica.high_watermark < wanted:
        yield (
            f"{of}{HIGH_WATERMARKS}: {partition.name} was compared below {replica.high_watermark} only, "
            f"and its final reads came to {wanted}"
        )
    elif (held := _held_to(replica, compacted=partition.compacted)) < wanted:
        yield f"{of}{partition.name}: its log holds batches below {held} only, and its final reads came to {wanted}"


def _held_to(replica: ReplicaFiles, *, compacted: bool) -> int:
    """Return the offset up to which a log has every batch from its start on. In a compacted log, missing batches do not
    count.
    """
    at = replica.log_start
    for header, _ in _whole_batches(replica.folder):
        if header is None or (header.base_offset > at and not compacted):
            break
        at = max(at, header.next_offset)
    return at


def read_offsets(path: Path) -> Offsets:
    """Return the offsets in one of Kafka's checkpoint files (version, count, then lines of "topic partition offset");
    empty if it cannot be parsed.
    """
    try:
        _, _, *rows = path.read_text().splitlines()
        return {(topic, int(index)): int(offset) for topic, index, offset in map(str.split, rows)}
    except (OSError, ValueError):
        return {}


def first_offset(folder: Path) -> int:
    """Return the offset at which a log's first segment begins; 0 if there is no segment. If the log start is the begin
    of a segment, it must be read here, because Kafka's checkpoint then leaves it out.
    """
    return min((int(segment.stem) for segment in folder.glob("*.log") if segment.stem.isdigit()), default=0)


def _range(one: ReplicaFiles, other: ReplicaFiles) -> tuple[int, int]:
    """Return [from, to): the offsets at which both replicas have every record and, by their high watermarks, know that
    it is committed.
    """
    low = max(one.log_start, other.log_start)
    return low, max(low, min(one.high_watermark, other.high_watermark))


def _agreed_to(best: ReplicaFiles, other: ReplicaFiles) -> int:
    """Return the offset (exclusive) up to which `other` has the same batches as `best`. It is never below the high
    watermark in the checkpoint of `other`.

    A follower learns of a new high watermark only with its next fetch. If its broker stops before that fetch, the
    checkpoint has the old one. Batches above it may differ without harm, because the follower may still have had to
    truncate them.
    """
    at = other.high_watermark
    mine, _ = _in_range(best.folder, at, best.high_watermark)
    theirs, _ = _in_range(other.folder, at, best.high_watermark)
    while (batch := mine.get(at)) is not None and batch.sound and theirs.get(at) == batch:
        at = batch.end
    return at


def _differences(partition: ObservedPartition, one: ReplicaFiles, other: ReplicaFiles) -> Iterator[Witness]:
    low, high = _range(one, other)
    if partition.compacted:
        found = _differing_records(one.folder, other.folder, low, high)
    else:
        found = _differing_batches(one, other, low, high)
    for offset, evidence, node in found:
        who = other.node if node < 0 else node
        yield Witness(NAME, evidence, partition.part, offset, -1, -1, -1, who)


def _differing_batches(one: ReplicaFiles, other: ReplicaFiles, low: int, high: int) -> Iterator[tuple[int, str, int]]:
    """Yield (offset, evidence, node) of each difference; node is -1 if it cannot be said which of the two replicas is
    wrong.
    """
    mine, my_end = _in_range(one.folder, low, high)
    theirs, their_end = _in_range(other.folder, low, high)
    for base in sorted(mine.keys() | theirs.keys()):
        if base >= min(my_end, their_end):
            break
        here, there = mine.get(base), theirs.get(base)
        if here is None or not here.sound:
            yield base, MISSING if here is None else DAMAGED, one.node
        elif there is None or not there.sound:
            yield base, MISSING if there is None else DAMAGED, other.node
        elif (here.end, here.crc) != (there.end, there.crc):
            yield base, CONTENT, -1
        elif here.epoch != there.epoch:
            yield base, EPOCH, -1
    # Batches behind bytes that are no batch cannot be compared.
    for end, node in ((my_end, one.node), (their_end, other.node)):
        if end < high:
            yield end, DAMAGED, node


def _in_range(folder: Path, low: int, high: int) -> tuple[dict[int, _ReplicaBatch], int]:
    """Return the batches with all of their offsets in [low, high), by base offset, and the offset up to which the log
    can be read.
    """
    found: dict[int, _ReplicaBatch] = {}
    at = low
    for header, batch in _whole_batches(folder):
        if header is None:
            return found, min(at, high)
        at = max(at, header.next_offset)
        if header.base_offset >= low and header.next_offset <= high:
            sound = check_crc(batch, 0, len(batch))
            found[header.base_offset] = _ReplicaBatch(header.next_offset, header.leader_epoch, header.crc, sound)
    return found, high


def _whole_batches(folder: Path) -> Iterator[tuple[BatchHeader | None, memoryview]]:
    """Yield each batch of a log with its header, segment after segment. A header of None says that the bytes from here
    on are no batches.
    """
    for segment in sorted(folder.glob("*.log")):
        view = memoryview(segment.read_bytes())
        try:
            for header, start, end in batches(view):
                yield header, view[start:end]
        except MalformedFrame:
            yield None, view
            return


def _differing_records(one: Path, other: Path, low: int, high: int) -> Iterator[tuple[int, str, int]]:
    """Yield (offset, evidence, -1) of each difference between two logs of a compacted partition, at offsets in [low,
    high). Only records that both logs still have are compared. -1 says that it is not known which replica is wrong.
    """
    mine, theirs = _records(one, low, high), _records(other, low, high)
    for offset in sorted(mine.keys() & theirs.keys()):
        if mine[offset] != theirs[offset]:
            yield offset, DAMAGED if None in (mine[offset], theirs[offset]) else CONTENT, -1


def _records(folder: Path, low: int, high: int) -> dict[int, tuple[object, ...] | None]:
    """Return the records of a log by offset; None for a record that cannot be read."""
    found: dict[int, tuple[object, ...] | None] = {}
    for header, batch in _whole_batches(folder):
        if header is None:
            return found
        try:
            if not check_crc(batch, 0, len(batch)):
                raise MalformedFrame("wrong CRC")
            records = decode_batch(header, batch)
        except MalformedFrame:
            found.update(dict.fromkeys(range(max(header.base_offset, low), min(header.next_offset, high))))
            continue
        for record in records:
            if low <= record.offset < high:
                found[record.offset] = (record.timestamp, record.key, record.value, tuple(record.headers))
    return found
