"""Tracks what retention could have removed from the beginning of a log, by the settings in force and the ages of
records.

Kafka removes whole segments from the beginning of a log (Kafka documentation, topic configs;
`UnifiedLog.deleteOldSegments`): by time once a segment's largest timestamp is older than retention.ms, and by size
while the rest still has retention.bytes. Histories do not show where segments begin.

- By time, a record that is too young keeps its own segment and all later ones. So everything before the first such
  record counts as removable, older records of its segment included.
- By size, the newest records that could fill retention.bytes are kept, each taken at its largest. Everything before
  them counts as removable. If a producer is not idempotent, it may append a record several times; then all count.

A record's age is the time, by the harness's clock, from its timestamp until a log start offset above it was first
reported. With CreateTime the timestamp is the record's own, with LogAppendTime the broker's. If the response to the
send has no timestamp, the time of the send is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.checkers.anomalies.anomaly import PROGRAM
from squall.checkers.history.partition import ANY, ObservedPartition
from squall.checkers.history.seal import declared_seal
from squall.checkers.history.tables import OUT_OF_RANGE, ClientProcess, int64

LIMITS = ("retention.ms", "retention.bytes", "min.insync.replicas")
CLOCKS_MS = 1_000
"""Is by how many ms a broker's clock may differ from the harness's without a clock fault. The margin for retention by
time also has a hundredth of retention.ms.
"""
STOP_MS = 30_000
"""Is how long after the end of the history, in ms, brokers may still run and remove segments."""
OVERHEAD_BYTES = 256
"""Is how many bytes a record takes at most beside its value: key, headers, and its share of its batch and of markers.
"""
SLOT_MS = 100
"""Is the width of a slot of time, in ms: timestamps in one slot count as equal."""


class PartitionRetentionTracker:
    """Tracks what retention could have removed from one partition. `finish` sets two offsets of the partition:
    `expired_to`, up to which retention explains the log starts that were reported, and `expirable_to`, up to which
    retention could have removed records by the end of the run. `began_ms` is the wall clock when the run began.
    `skew_ms` is by how many ms brokers' clocks may have been off (`squall.checkers.nemesis_log.skew_ms`).
    """

    def __init__(self, partition: ObservedPartition, began_ms: int, skew_ms: int) -> None:
        self.partition, self._began_ms, self._skew_ms = partition, began_ms, skew_ms
        self._first: dict[int, int] = {}
        """Maps each slot of time to the lowest offset of a record with a timestamp in it."""
        self._bytes = 0
        """Adds up the largest possible sizes of all records that were sent so far. The log holds no more bytes, unless
        a record was appended twice.
        """
        self._once = True
        """Is True if nothing is appended twice, because all producers are idempotent."""
        self._acked: list[tuple[int, int, int]] = []
        """Holds, for each acknowledged record, its offset, the most bytes that it can take, and the most bytes that had
        been sent when it was acknowledged (`_bytes`). Empty if retention.bytes is not set.
        """
        self._starts: list[tuple[int, int, int]] = []
        """Holds (log start, wall clock in ms when a response first reported it or hinted at it, the most bytes that had
        been sent by then), in the order of the responses.
        """

    def sent(self, size: int, *, once: bool) -> None:
        """Record that a record with a value of `size` bytes was sent. `once` is True if the producer is idempotent."""
        self._bytes += size + OVERHEAD_BYTES
        self._once &= once

    def appended(self, off: int, stamp_ms: int, size: int) -> None:
        """Record that a record was acknowledged at `off`, with this timestamp and a value of `size` bytes."""
        if self.partition.retention_bytes >= 0:
            self._acked.append((off, size + OVERHEAD_BYTES, self._bytes))
        slot = stamp_ms // SLOT_MS
        # Only the lowest offset of a slot matters, so memory grows with the run's length and not with its records.
        if off < self._first.get(slot, ANY):
            self._first[slot] = off

    def starts_at(self, log_start: int, wall_ms: int) -> None:
        """Record the first response by which the log begins, or may begin, at `log_start`."""
        self._starts.append((log_start, wall_ms, self._bytes))
        expired = min(log_start, self._removable_to(wall_ms, self._bytes))
        self.partition.expired_to = max(self.partition.expired_to, expired)

    def configured(self, settings: Mapping[str, Any]) -> None:
        """Record the topic's settings in force, as text by name, such as {"retention.ms": "1000"}. The first call
        replaces the settings with which the partition was declared. A later call can only weaken them (a shorter
        retention, a lower min ISR, unclean elections), because the weakest settings count for the whole run.
        """
        # `min_isr` is not known before the first description.
        partition, first = self.partition, self.partition.min_isr < 0
        partition.described = bool(settings)
        if not settings:
            return
        ms, size, min_isr = (int64(int(settings[name])) for name in LIMITS)
        cleanup, unclean = str(settings["cleanup.policy"]), settings["unclean.leader.election.enable"] == "true"
        if first:
            partition.cleanup, partition.retention_ms, partition.retention_bytes = cleanup, ms, size
            partition.min_isr, partition.unclean = min_isr, int(unclean)
            return
        self.shortened(ms)
        partition.retention_bytes = _lower(partition.retention_bytes, size)
        partition.min_isr, partition.unclean = min(partition.min_isr, min_isr), max(partition.unclean, int(unclean))
        if "delete" in cleanup and "delete" not in partition.cleanup:
            partition.cleanup += ",delete"

    def shortened(self, retention_ms: int) -> None:
        """Record another retention.ms of the topic; a higher one changes nothing."""
        self.partition.retention_ms = _lower(self.partition.retention_ms, retention_ms)

    def finish(self, wall_ms: int) -> None:
        """End the history at `wall_ms`. Compute up to which offset retention explains the log starts that were reported
        (`expired_to`), and up to which it could have removed records by the end of the run (`expirable_to`). That needs
        all records: some may have been acknowledged only after a response had reported a later log start.
        """
        expired = (min(start, self._removable_to(at_ms, size)) for start, at_ms, size in self._starts)
        self.partition.expired_to = max(expired, default=0)
        self.partition.expirable_to = self._removable_to(wall_ms + STOP_MS, self._bytes)

    def _removable_to(self, wall_ms: int, appended: int) -> int:
        """Return the offset below which retention, by time or by size, could have removed everything by `wall_ms`. At
        most `appended` bytes had been appended by then.
        """
        partition = self.partition
        # Settings that no broker reported may permit any removal.
        if not partition.described:
            return ANY
        if "delete" not in partition.cleanup:
            return 0
        return max(self._too_large(appended), self._too_old(wall_ms))

    def _too_large(self, appended: int) -> int:
        """Return the offset below which retention by size could have removed everything when at most `appended` bytes
        had been appended.
        """
        keep, left = self.partition.retention_bytes, appended
        if not 0 <= keep <= left:
            return 0
        self._acked.sort()
        for off, size, by_then in self._acked if self._once else ():
            # A record that was acknowledged later may not have been in the log by then.
            left -= size if by_then <= appended else 0
            if left < keep:
                return off
        return ANY

    def _too_old(self, wall_ms: int) -> int:
        """Return the offset below which retention by time could have removed everything by `wall_ms`."""
        partition = self.partition
        if partition.retention_ms < 0:
            return 0
        margin_ms = CLOCKS_MS + partition.retention_ms // 100 + self._skew_ms
        # Records with a timestamp after `oldest` are certainly too young to be removed.
        oldest = wall_ms + margin_ms - partition.retention_ms
        # No record is older than the run, unless a client gave it a timestamp of the past.
        unknown = ANY if self._first or oldest >= self._began_ms else 0
        return min((off for slot, off in self._first.items() if slot * SLOT_MS > oldest), default=unknown)


class RetentionTracker:
    """Tracks what retention could have removed from each partition of a history. `skew_ms` is by how many ms brokers'
    clocks may have been off (`squall.checkers.nemesis_log.skew_ms`).
    """

    def __init__(self, skew_ms: int) -> None:
        self._skew_ms, self._wall_ms, self._mono_ns = skew_ms, 0, 0
        self._watches: dict[int, PartitionRetentionTracker] = {}
        self._settings: dict[str, Mapping[str, Any]] = {}
        """Maps each topic to its settings as they were last reported."""
        self._shortened: dict[str, int] = {}
        """Maps each topic to the shortest retention.ms that an administrator requested, for partitions added later."""
        self.seal = 0
        """Is the CRC-32 of all lines so far that declare partitions or topic settings (`seal.declared_seal`)."""

    def began(self, wall_ms: int, mono_ns: int) -> None:
        """Record the wall-clock and the monotonic time in the history's header. They convert later monotonic times to
        the wall clock.
        """
        self._wall_ms, self._mono_ns = wall_ms, mono_ns

    def declared(self, partition: ObservedPartition, line: Mapping[str, Any]) -> ObservedPartition:
        """Record a partition that this line declares, and return it."""
        self.seal = declared_seal(self.seal, {name: line[name] for name in line.keys() - {"e", "part"}})
        watch = self._watches[partition.part] = PartitionRetentionTracker(partition, self._wall_ms, self._skew_ms)
        if partition.topic in self._settings:
            watch.configured(self._settings[partition.topic])
        if partition.topic in self._shortened:
            watch.shortened(self._shortened[partition.topic])
        return partition

    def configured(self, line: Mapping[str, Any]) -> None:
        """Record a line with a topic's settings in force, as text by name; empty if no broker reported them."""
        topic, settings = str(line["topic"]), dict(line["settings"])
        self.seal = declared_seal(self.seal, {"topic": topic, "settings": settings})
        self._settings[topic] = settings
        for watch in self._watches.values():
            if watch.partition.topic == topic:
                watch.configured(settings)

    def administered(self, part: int, line: Mapping[str, Any], t: int) -> None:
        """Record an administrator's request at `t` that may remove records, such as "delete_records" or a change of
        retention.ms. `part` is the partition; -1: all partitions. Lines of early versions do not have the requested
        retention.ms.
        """
        for watch in self._watches.values() if part == -1 else (self._watches[part],):
            if "retention_ms" in line:
                retention_ms, topic = int64(line["retention_ms"]), watch.partition.topic
                watch.shortened(retention_ms)
                self._shortened[topic] = _lower(self._shortened.get(topic, -1), retention_ms)
            else:
                watch.partition.administered(str(line.get("what")), int64(line.get("to", -1)), t)

    def sent(self, part: int, size: int, process: ClientProcess) -> None:
        """Record that a record with a value of `size` bytes was sent by a producer."""
        self._watches[part].sent(size, once=process.settings.get("idempotence") is True)

    def appended(self, invoked: Mapping[str, Any], off: int, stamp_ms: int, client: str) -> None:
        """Record that the record of this send was acknowledged at `off`. `stamp_ms` is its timestamp in the response;
        -1 if it has none. `client` is the `ClientProcess.client` of its producer.

        Only a program under test (PROGRAM) may give its records timestamps of the past. For other clients, a timestamp
        that is too early is raised to the time of the send, less the most by which clocks may differ.
        """
        sent_ms = self._wall(invoked["t"])
        if client != PROGRAM:
            stamp_ms = max(stamp_ms, sent_ms - CLOCKS_MS - self._skew_ms) if stamp_ms >= 0 else sent_ms
        stamp_ms = stamp_ms if stamp_ms >= 0 else sent_ms
        self._watches[invoked["part"]].appended(off, stamp_ms, int64(invoked.get("b", 0)))

    def starts_at(self, part: int, log_start: int, t: int) -> None:
        """Record that a response at `t` was the first to say that a log begins at `log_start`."""
        self._watches[part].starts_at(log_start, self._wall(t))

    def thrown(self, t: int, part: int, kind: int, position: int) -> None:
        """Record that a reader learned at `t` that its position is invalid. `kind` is `InvalidatedPosition.kind`: if
        the position is out of range, the log may begin after it.
        """
        if kind == OUT_OF_RANGE:
            self.starts_at(part, position + 1, t)

    def finish(self, t: int) -> None:
        """End the history at `t`."""
        for watch in self._watches.values():
            watch.finish(self._wall(t))

    def _wall(self, t: int) -> int:
        return self._wall_ms + (t - self._mono_ns) // 1_000_000


def _lower(one: int, other: int) -> int:
    """Return the lower of two limits, of which -1 means no limit."""
    return max(one, other) if min(one, other) < 0 else min(one, other)
