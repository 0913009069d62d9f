"""Implements a reader of Squall's own client that writes every poll into the history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from squall.broker.env import Env
from squall.broker.protocol.records import Record
from squall.broker.protocol.timestamps import EARLIEST, LATEST
from squall.workloads import payload
from squall.workloads.client.admin import ListedOffset, list_offsets
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import VERSION
from squall.workloads.client.consumer import Consumer, FetchedRecords, PollResult, PositionInvalidated
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.client.settings import ConsumerSettings
from squall.workloads.counters import LoadCounters
from squall.workloads.read_times import RecordTimestamps
from squall.workloads.recorder import CorruptRecord, PartitionPoll, ReadOutcome, Recorder

EMPTY_EVERY_NS = 500_000_000
"""Limits the recording of empty polls to one per partition in this time."""
ERROR_EVERY_NS = 500_000_000


class RecordedReader:
    """Reads partitions with Squall's own client, as one process of the history. The client must be running."""

    def __init__(
        self,
        env: Env,
        client: Client,
        recorder: Recorder,
        counters: LoadCounters,
        *,
        role: str = "reader",
        consumer: ConsumerSettings,
        zone: str = "",
        extra: Mapping[str, object] | None = None,
        process: int | None = None,
        times: RecordTimestamps | None = None,
    ) -> None:
        """Add a process with this role, such as `reader`, and this client zone to the history; `extra` holds further
        settings for it. If `process` is given, the caller has added that process already, with the same isolation
        level. `times` is for a reader that looks up offsets by timestamp: an empty object, in which the reader
        remembers its records' timestamps.
        """
        self._env = env
        self._client = client
        self._recorder = recorder
        self._counters = counters
        self._isolation = consumer.isolation
        self._last_empty: dict[int, int] = {}
        self._last_error = -ERROR_EVERY_NS
        self._times = times
        self.consumer = Consumer(client, consumer)
        if process is None:
            settings = {"isolation": consumer.isolation, "max_wait_ms": consumer.max_wait_ms, **(extra or {})}
            process = recorder.process(role, VERSION, settings, zone=zone)
        self.process = process

    async def list_offsets(
        self, places: Sequence[Place], timestamp: int, timeout_s: float, isolation: int | None = None
    ) -> dict[Place, ListedOffset]:
        """Ask for offsets (`admin.list_offsets`), and record one operation for each partition. `isolation` None means
        the reader's own. For an earliest offset, the operation's field `led` holds the epoch of the leader that
        answered.
        """
        isolation = self._isolation if isolation is None else isolation
        which = {LATEST: "lso" if isolation else "latest", EARLIEST: "earliest"}.get(timestamp, "timestamp")
        asked = {"ts": timestamp} if which == "timestamp" else {}
        ops = {}
        for place in places:
            part = self._recorder.partitions[place]
            op = self._recorder.invoke(self.process, "list_offsets", {"part": part, "which": which, **asked})
            ops[place] = op, part
        found = await list_offsets(self._client, places, timestamp, isolation=isolation, timeout_s=timeout_s)
        # Only lookups at the reader's own isolation level are comparable with the records that it got.
        times = self._times if asked and isolation == self._isolation else None
        for place, (op, part) in ops.items():
            listed = found[place]
            known = -1 if times is None else times.since(part, listed.led_epoch, timestamp)
            told: dict[str, Any] = {"known": known} if known >= 0 else {}
            told |= {"led": listed.led_epoch} if which == "earliest" else {}
            if listed.error:
                self._recorder.complete(op, OperationStatus.FAIL, listed.error)
            else:
                self._recorder.complete(op, OperationStatus.OK, off=listed.offset, epoch=listed.leader_epoch, **told)
        self._recorder.flush()
        return found

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets."""
        op = self._recorder.invoke(self.process, "assign", {"at": self._at(positions)})
        self.consumer.assign(positions)
        self._forget(positions)
        self._recorder.complete(op, OperationStatus.OK)
        self._recorder.flush()

    def seek(self, place: Place, position: int) -> None:
        """Continue to read the partition at another offset."""
        op = self._recorder.invoke(self.process, "seek", {"at": self._at({place: position})})
        self.consumer.seek(place, position)
        self._forget([place])
        self._recorder.complete(op, OperationStatus.OK)

    def _forget(self, places: Iterable[Place]) -> None:
        if self._times is not None:
            for place in places:
                self._times.forget(self._recorder.partitions[place])

    async def poll(
        self,
        f: str,
        limit_s: float,
        *,
        began_ns: int | None = None,
        ends: Mapping[Place, int] | None = None,
        txn: int = -1,
    ) -> PollResult:
        """Poll once and record the poll as the operation `f`. `ends` holds, for final reads, the end offsets still to
        be reached. `began_ns` is the time to record as the poll's begin; None means now. For the first poll of a final
        read, it is the time when the end offsets were requested. `txn` is the transaction that the poll is part of, -1
        for none.
        """
        at = self._at(self.consumer.positions)
        began = self._recorder.now_ns() if began_ns is None else began_ns
        polled = await self.consumer.poll(limit_s)
        got: list[PartitionPoll] = []
        bad: list[CorruptRecord] = []
        end: dict[int, int] = {}
        now = self._recorder.now_ns()
        for fetched in polled.fetched:
            part = self._recorder.partitions[fetched.place]
            goal = (ends or {}).get(fetched.place)
            if goal is not None and fetched.position >= goal:
                end[part] = goal
            # What only held markers and records of aborted transactions moves the position, too.
            moved = fetched.position != at.get(part)
            if moved or fetched.records or fetched.damage or part in end or self._empty_is_due(part, now):
                got.append(self._judge(part, fetched, bad))
        if got:
            self._recorder.read(self.process, f, began, at, ReadOutcome(got=got, bad=bad, end=end), txn)
        self._note(polled, now)
        self._recorder.flush()
        return polled

    def gave_up(self, f: str, began_ns: int, why: str) -> None:
        """Record a read as failed because it did not reach its end offsets. `f` names the operation, and `why` the
        reason.
        """
        at = self._at(self.consumer.positions)
        self._recorder.read(self.process, f, began_ns, at, ReadOutcome(OperationStatus.FAIL, error=why))
        self._recorder.flush()

    def _judge(self, part: int, fetched: FetchedRecords, bad: list[CorruptRecord]) -> PartitionPoll:
        before = len(bad)
        pairs = verified(part, fetched.records, bad)
        self._counters.bad += len(bad) - before
        if self._times is not None:
            proven = zip(fetched.records, pairs, strict=True)
            got = [(record.offset, record.timestamp) for record, (_, value) in proven if value >= 0]
            self._times.got(part, fetched.leader_epoch, got)
        for damage in fetched.damage:
            pairs.append((damage.offset, -1))
            bad.append(CorruptRecord(part, damage.offset, damage.why))
            self._counters.bad += 1
        if fetched.damage:
            # Damaged offsets were added last; checkers expect the order of the log.
            pairs.sort()
        self._counters.read += len(fetched.records)
        bounds = (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset)
        return PartitionPoll(part, fetched.position, *bounds, pairs, fetched.leader_epoch)

    def _empty_is_due(self, part: int, now_ns: int) -> bool:
        # A response names all partitions that were requested, and most of them have nothing new.
        if now_ns - self._last_empty.get(part, -EMPTY_EVERY_NS) < EMPTY_EVERY_NS:
            return False
        self._last_empty[part] = now_ns
        return True

    def _note(self, polled: PollResult, now_ns: int) -> None:
        self._counters.read_errors += len(polled.errors)
        if polled.errors and now_ns - self._last_error >= ERROR_EVERY_NS:
            self._last_error = now_ns
            told = [[self._part(error.place), error.error] for error in polled.errors]
            self._recorder.event("poll_errors", p=self.process, errors=told)
        for event in polled.events:
            self._recorder.event(event.kind.lower(), p=self.process, **self._told(event))

    def _told(self, event: PositionInvalidated) -> dict[str, int]:
        bounds = {"log_start": event.log_start_offset, "end": event.end_offset}
        return {"part": self._part(event.place), "position": event.position, **bounds}

    def _part(self, place: Place | None) -> int:
        return -1 if place is None else self._recorder.partitions.get(place, -1)

    def _at(self, positions: Mapping[Place, int]) -> dict[int, int]:
        return {self._recorder.partitions[place]: position for place, position in positions.items()}


def verified(part: int, records: Iterable[Record], bad: list[CorruptRecord]) -> list[tuple[int, int]]:
    """Return (offset, value) of each record of partition `part`; the value is -1 if the payload does not verify. Such
    records are added to `bad`, with the reason.
    """
    pairs = []
    verify = payload.verify
    for offset, timestamp_ms, key, value, headers in records:
        found, why = verify(value, key, headers, timestamp_ms)
        pairs.append((offset, found))
        if why:
            bad.append(CorruptRecord(part, offset, why))
    return pairs
