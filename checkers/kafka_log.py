"""Turns Apache Kafka's own log (`nodes/N/broker.log`) into the events that our brokers' traces have. Pure, except for
`read_logs`.

Kafka writes no trace, but its log reports the same events: roles with epochs (state.change.logger), elections and ISRs
(ReplicationControlManager of the active controller; other controllers replay what is committed), truncations
(ReplicaFetcherThread), and recoveries (LogLoader). The patterns match lines of Kafka 3.x and 4.x, and were checked with
4.3.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] (\w+) (.*) \(([\w.$]+)\)$")
"""Matches a line of the log: time, level, message, logger."""
_OF_KAFKA = ("__consumer_offsets-", "__share_group_state-", "__cluster_metadata-")
"""Lists name prefixes of internal partitions that no workload writes to."""
BYTES_AT_MOST = 256 << 20
"""Is the size of a log, in bytes, above which the log is not read at all."""
_ZONE_MS = 15 * 60_000
"""Is the granularity of time zones: a quarter of an hour."""

ROLES, ELECTIONS = "state.change.logger", "org.apache.kafka.controller.ReplicationControlManager"
TRUNCATIONS, ISRS = "kafka.server.ReplicaFetcherThread", "kafka.cluster.Partition"
_NEEDED: Mapping[str, tuple[str, str, str]] = {
    ROLES: ("INFO", "Leader TOPIC-N ... starts at leader epoch", "who led in which epoch, and where its log ended"),
    TRUNCATIONS: ("INFO", "Truncating partition TOPIC-N", "what followers truncated"),
    ISRS: ("INFO", "ISR updated to", "when the leader saw its ISR change"),
    ELECTIONS: ("DEBUG", "partition change for TOPIC-N", "what the controller decided, and when"),
}  # fmt: skip
"""Maps each logger to (its level, an example of its lines, what only this logger reports)."""


@dataclass
class BrokerLogEvents:
    """Holds the events that one broker's log reports. `loggers` names the loggers that wrote a line; the controller's
    logger (ELECTIONS) is among them only if it logged a partition change.
    """

    events: list[Event] = field(default_factory=list)
    last_t: float = 0.0
    """Is the time of the last line of the log, in seconds on the run's monotonic clock. Lines without a time stamp do
    not count.
    """
    loggers: set[str] = field(default_factory=set)
    replayed: set[tuple[str, str]] = field(default_factory=set)
    """Holds (partition, change) of each partition change that this node's controller decided or replayed."""


def read_logs(
    run_dir: Path, wall_ms: int, mono_ns: int, trouble: Callable[[str], None] = lambda _: None
) -> dict[int, BrokerLogEvents]:
    """Return the events in the logs nodes/N/broker.log of a run directory, by node. Elections that were never committed
    are left out.

    `wall_ms` and `mono_ns` are the wall-clock and the monotonic time in the history's header. `trouble` is called with
    a sentence for each log that cannot be read.
    """
    reported: dict[int, BrokerLogEvents] = {}
    for path in sorted((run_dir / "nodes").glob("*/broker.log")):
        try:
            if not path.parent.name.isdigit() or path.stat().st_size > BYTES_AT_MOST:
                continue
            # A damaged byte spoils its own line only.
            with path.open(errors="replace") as lines:
                first = first_ms(lines)
            if first is not None:
                # Kafka logs local times without their zone. The first line is from near the header's time, and shows
                # it.
                zone_ms, node = zone_of(first, wall_ms), int(path.parent.name)
                with path.open(errors="replace") as lines:
                    reported[node] = read_log(lines, node, partial(_traced_at, wall_ms, mono_ns), zone_ms)
        except OSError as error:
            trouble(f"{path.relative_to(run_dir)} cannot be read: {error.strerror}.")
    drop_uncommitted_elections(list(reported.values()))
    return reported


def _traced_at(wall_ms: int, mono_ns: int, at_ms: int) -> float:
    """Convert a wall-clock time of Kafka's log, which has whole milliseconds, to seconds on the run's monotonic clock,
    as in traces. The end of the millisecond is taken, so that no event seems to come before the client's request that
    caused it.
    """
    return mono_ns / 1e9 + (at_ms + 1 - wall_ms) / 1000


def read_log(lines: Iterable[str], node: int, seconds: Callable[[int], float], zone_ms: int = 0) -> BrokerLogEvents:
    """Return the events of one log, in its order. `seconds` converts wall-clock ms to seconds on the run's monotonic
    clock. `zone_ms` is by how many ms the log's time zone is ahead of UTC.
    """
    reader = _BrokerLogReader(node, seconds, zone_ms)
    for line in lines:
        reader.take(line)
    return reader.said


def first_ms(lines: Iterable[str]) -> int | None:
    """Return the wall-clock time in ms of the first line that has a time, as if it were UTC; None if no line has one.
    """
    times = (_ms(found[1]) for line in lines if (found := _LINE.match(line.rstrip())) is not None)
    return next((at for at in times if at is not None), None)


def zone_of(first: int, wall_ms: int) -> int:
    """Return by how many ms a log's time zone is ahead of UTC, from the time of a line that was written near `wall_ms`.
    """
    return round((first - wall_ms) / _ZONE_MS) * _ZONE_MS


def drop_uncommitted_elections(reported: Sequence[BrokerLogEvents]) -> None:
    """Remove elections that no other node has replayed: a controller that was cut off may decide an election, but it is
    never committed. If only one node reports partition changes, its elections stay.
    """
    quorum = sum(bool(said.replayed) for said in reported)
    for said in reported:
        said.events = [
            event for event in said.events
            if event["e"] != "leader_elected" or quorum < 2 or _is_known(event, said, reported)
        ]  # fmt: skip
        for event in said.events:
            event.pop("change", None)


def _is_known(event: Event, own: BrokerLogEvents, reported: Sequence[BrokerLogEvents]) -> bool:
    change = f"{event['topic']}-{event['partition']}", event.get("change")
    return any(change in said.replayed for said in reported if said is not own)


def missing_loggers(reported: Sequence[BrokerLogEvents]) -> list[str]:
    """Return a sentence for each kind of event that these logs cannot report: the line that is missing, and the logger
    to turn on.
    """
    seen = {name for said in reported for name in said.loggers}
    # Without a change of leaders the controller had nothing to log.
    moved = any(e["e"] == "became_leader" and e["epoch"] > 0 for said in reported for e in said.events)
    return [
        f"{why[0].upper()}{why[1:]} is not known: no line `{line}` stands in nodes/*/broker.log; turn the logger "
        f"{name} on at {level}."
        for name, (level, line, why) in _NEEDED.items()
        if name not in seen and (moved or name != ELECTIONS)
    ]  # fmt: skip


def _ms(text: str) -> int | None:
    """Return the time in ms of a line's time stamp; None if it is no time, as in a damaged line."""
    try:
        moment = datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(moment.timestamp() * 1000)


_PARTITION = r"(?P<p>[\w.-]+-\d+)"
_LEADER = re.compile(
    rf"Leader {_PARTITION} with .*starts at leader epoch (?P<epoch>\d+) from offset (?P<leo>\d+) with partition epoch "
    r"(?P<partition_epoch>\d+), high watermark (?P<hw>\d+), ISR \[(?P<isr>[\d, ]*)\]"
)
_FOLLOWER = re.compile(
    rf"Follower {_PARTITION} starts at leader epoch (?P<epoch>\d+) from offset (?P<leo>\d+) with "
    r"partition epoch (?P<partition_epoch>\d+) and high watermark (?P<hw>\d+)\. Current leader is (?P<leader>-?\d+)"
)
_KNOWN = re.compile(
    rf"Skipped the become-leader state change for {_PARTITION} .*?isr=\[(?P<isr>[\d, ]*)\].*?"
    r"leaderEpoch=(?P<epoch>\d+), partitionEpoch=(?P<partition_epoch>\d+)\).*Current high watermark (?P<hw>\d+)"
)
_ISR = re.compile(
    rf"\[Partition {_PARTITION} broker=\d+\] ISR updated to (?P<isr>[\d,]+) .*"
    r"version updated to (?P<partition_epoch>\d+)"
)
_SHRINKS = re.compile(
    rf"\[Partition {_PARTITION} broker=\d+\] Shrinking ISR .*\(highWatermark: (?P<hw>\d+), endOffset: (?P<leo>\d+)\)"
)
_CUT = re.compile(
    rf"Truncating partition {_PARTITION} with TruncationState\(offset=(?P<to_offset>\d+), \w+=\w+\) due to (?P<why>.*)"
)
_END_OF_EPOCH = re.compile(r"EpochEndOffset\(.*leaderEpoch=(-?\d+), endOffset=(-?\d+)\)")
_CHANGE = re.compile(rf"partition change for {_PARTITION} with topic ID \S+: (?P<diff>.*)")
_CREATED = re.compile(rf"Replayed PartitionRecord for new partition {_PARTITION} .* isr=\[(?P<isr>[\d, ]*)\]")
_CHANGED = re.compile(r"(\w+): (?:\[[^\]]*\]|\S+) -> (\[[^\]]*\]|[^\s,]+)")
_LOADED = re.compile(rf"\[LogLoader partition={_PARTITION}, dir=.*\] Loading producer state till offset (?P<leo>\d+)")
_CORRUPT = re.compile(
    rf"\[LogLoader partition={_PARTITION}, dir=.*\] Corruption found in segment (?P<base>\d+), "
    r"truncating to offset (?P<leo>\d+)"
)
_NODE = (
    ("kafka.Log4jController", "node_started"),
    ("Kafka Server started", "node_ready"),
    ("Transition from STARTED to SHUTTING_DOWN (kafka.server.BrokerServer)", "node_stopping"),
    ("Transition from SHUTTING_DOWN to SHUTDOWN (kafka.server.BrokerServer)", "node_stopped"),
)
_ACTIVE = re.compile(r"\[QuorumController id=\d+\] Becoming the active controller at epoch (\d+)")
_RENOUNCED = re.compile(r"\[QuorumController id=(\d+)\] .* at epoch (\d+) in .*Renouncing leadership()")
_OVER = re.compile(r"\[QuorumController id=(\d+)\] In the new epoch (\d+), the leader is (\(none\)|\d+)")
_FENCED = re.compile(r"Fencing broker (\d+) at epoch \d+ because its session has timed out")
_UNFENCED = re.compile(r"The request from broker (\d+) to unfence has been granted")


class _BrokerLogReader:
    """Reads the lines of one broker's log in order, and keeps the state that later lines need."""

    def __init__(self, node: int, seconds: Callable[[int], float], zone_ms: int) -> None:
        self.said = BrokerLogEvents()
        self._node, self._seconds, self._zone_ms = node, seconds, zone_ms
        self._t = 0.0
        self._ends: dict[str, int] = {}
        """Maps each partition to its log end offset when a line last reported it."""
        self._leads: dict[str, int] = {}
        """Maps each partition that this broker leads to its leader epoch."""
        self._active, self._starts = False, 0
        self._in_sync: dict[str, list[int]] = {}
        """Maps each partition to its ISR as the controller knows it."""
        self._patterns: dict[str, tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], None]], ...]] = {
            ROLES: ((_LEADER, self._leader), (_FOLLOWER, self._follower), (_KNOWN, self._known)),
            ISRS: ((_ISR, self._isr), (_SHRINKS, self._shrinks)),
            TRUNCATIONS: ((_CUT, self._cut),),
            ELECTIONS: ((_CHANGE, self._change), (_FENCED, self._fenced), (_CREATED, self._created)),
            "org.apache.kafka.controller.BrokerHeartbeatManager": ((_UNFENCED, self._unfenced),),
            "org.apache.kafka.controller.QuorumController": (
                (_ACTIVE, self._activated),
                (_RENOUNCED, self._over),
                (_OVER, self._over),
            ),
            "org.apache.kafka.storage.internals.log.UnifiedLog": ((_LOADED, self._loaded),),
            "kafka.log.UnifiedLog": ((_LOADED, self._loaded),),
            "org.apache.kafka.storage.internals.log.LogLoader": ((_CORRUPT, self._corrupt),),
        }

    def take(self, line: str) -> None:
        """Read one line; a line that reports no event is ignored."""
        found = _LINE.match(line.rstrip())
        if found is None:
            return
        _, _, words, logger = found.groups()
        at = _ms(found[1])
        if at is None:
            return
        self._t = self.said.last_t = self._seconds(at - self._zone_ms)
        if logger in (ROLES, ISRS, TRUNCATIONS):
            self.said.loggers.add(logger)
        for pattern, act in self._patterns.get(logger, ()):
            if (match := pattern.search(words)) is not None:
                if not match.groupdict().get("p", "").startswith(_OF_KAFKA):
                    act(match)
                return
        name = next((name for mark, name in _NODE if mark in line), None)
        if name is not None:
            if name == "node_started":
                self._active, self._leads = False, {}
                self._starts += 1
            self._tell(name, incarnation=self._starts)

    def _tell(self, event: str, partition: str = "", **fields: Any) -> None:
        where = {}
        if partition:
            topic, _, index = partition.rpartition("-")
            where = {"topic": topic, "partition": int(index)}
        self.said.events.append({"t": self._t, "n": self._node, "e": event, **where, **fields})

    def _leader(self, match: re.Match[str]) -> None:
        found = _numbers(match, "epoch", "leo", "partition_epoch", "hw")
        self._leads[match["p"]], self._ends[match["p"]] = found["epoch"], found["leo"]
        self._tell("became_leader", match["p"], isr=_ids(match["isr"]), **found)

    def _follower(self, match: re.Match[str]) -> None:
        found = _numbers(match, "epoch", "leo", "partition_epoch", "hw", "leader")
        self._leads.pop(match["p"], None)
        self._ends[match["p"]] = found["leo"]
        self._tell("became_follower", match["p"], **found)

    def _known(self, match: re.Match[str]) -> None:
        """Record the ISR and epochs that the controller sends to the partition's leader."""
        isr = _ids(match["isr"])
        found = _numbers(match, "epoch", "partition_epoch", "hw")
        self._tell("isr_changed", match["p"], isr=isr, maximal=isr, **found)

    def _isr(self, match: re.Match[str]) -> None:
        isr = _ids(match["isr"])
        # The line has no leader epoch; the one with which this broker became the leader had it.
        epoch = {"epoch": self._leads[match["p"]]} if match["p"] in self._leads else {}
        self._tell("isr_changed", match["p"], isr=isr, maximal=isr, **_numbers(match, "partition_epoch"), **epoch)

    def _shrinks(self, match: re.Match[str]) -> None:
        found = _numbers(match, "leo", "hw")
        self._ends[match["p"]] = found["leo"]
        self._tell("offsets", match["p"], **found)

    def _cut(self, match: re.Match[str]) -> None:
        to, was = int(match["to_offset"]), self._ends.get(match["p"])
        if was is not None and to >= was:
            return  # Kafka logs this for each new follower, even if nothing is truncated
        self._ends[match["p"]] = to
        self._tell("truncated", match["p"], from_offset=to if was is None else was, to_offset=to,
                   reason=_reason(match["why"]))  # fmt: skip

    def _created(self, match: re.Match[str]) -> None:
        self._in_sync[match["p"]] = _ids(match["isr"])

    def _change(self, match: re.Match[str]) -> None:
        """Record a partition change that a controller decided, or replayed after it was committed."""
        self.said.loggers.add(ELECTIONS)
        self.said.replayed.add((match["p"], match["diff"]))
        now = dict(_CHANGED.findall(match["diff"]))
        if "isr" in now:
            self._in_sync[match["p"]] = _ids(now["isr"].strip("[]"))
        # All controllers log the change when they replay it; only the active one made the decision.
        if not self._active or "leaderEpoch" not in now:
            return
        fields: dict[str, Any] = {key: int(now[name]) for key, name in _ELECTED.items() if name in now}
        unclean = match.string[: match.start()].rstrip().endswith("UNCLEAN")
        isr = self._in_sync.get(match["p"], [])
        self._tell("leader_elected", match["p"], unclean=unclean, isr=isr, change=match["diff"], **fields)

    def _fenced(self, match: re.Match[str]) -> None:
        self._tell("broker_fenced", broker=int(match[1]))

    def _unfenced(self, match: re.Match[str]) -> None:
        self._tell("broker_unfenced", broker=int(match[1]))

    def _activated(self, match: re.Match[str]) -> None:
        self._active = True
        self._tell("controller_active", epoch=int(match[1]))

    def _over(self, match: re.Match[str]) -> None:
        # A line that names this controller itself as the leader ends nothing.
        if self._active and match[3] != match[1]:
            self._active = False
            self._tell("controller_resigned", epoch=int(match[2]))

    def _loaded(self, match: re.Match[str]) -> None:
        """Record the log end after a recovery. Kafka writes this line twice for each log at a start, first with the
        log's begin, so offset 0 does not count.
        """
        leo = int(match["leo"])
        if leo > 0:
            self._ends[match["p"]] = leo
            self._tell("recovered", match["p"], leo=leo)

    def _corrupt(self, match: re.Match[str]) -> None:
        self._tell("recovered", match["p"], leo=int(match["leo"]), truncated_bytes=1,
                   reason=f"corruption in segment {match['base']}")  # fmt: skip


_ELECTED = {"epoch": "leaderEpoch", "leader": "leader", "partition_epoch": "partitionEpoch"}


def _numbers(match: re.Match[str], *names: str) -> dict[str, int]:
    return {name: int(match[name]) for name in names}


def _ids(text: str) -> list[int]:
    return sorted(int(each) for each in text.replace(" ", "").split(",") if each)


def _reason(why: str) -> str:
    """Return Kafka's reason for a follower's truncation, without the names of its classes."""
    found = _END_OF_EPOCH.search(why)
    if found is None:
        return why
    return f"its leader says that epoch {found[1]} ends at {found[2]}"
