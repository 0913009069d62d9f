"""A reader whose every poll goes into the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.env import Env
from broker.protocol.timestamps import EARLIEST, LATEST
from workloads import payload
from workloads.client.admin import Listed, list_offsets
from workloads.client.client import Client
from workloads.client.cluster import Place
from workloads.client.connection import VERSION
from workloads.client.consumer import Consumer, Fetched, Polled, ReadEvent
from workloads.client.outcomes import Status
from workloads.client.settings import ConsumerSettings
from workloads.counters import Counters
from workloads.recorder import Bad, Got, ReadOutcome, Recorder

EMPTY_EVERY_NS = 500_000_000
"""Of a partition that brings nothing, one empty poll in this time is recorded."""
ERROR_EVERY_NS = 500_000_000


class RecordedReader:
    """One logical process that reads. Needs a running client."""

    def __init__(
        self,
        env: Env,
        client: Client,
        recorder: Recorder,
        counters: Counters,
        *,
        role: str = "reader",
        consumer: ConsumerSettings,
        zone: str = "",
        extra: Mapping[str, object] | None = None,
        process: int | None = None,
    ) -> None:
        """process: one that was declared already, with this consumer's isolation; None: one of this role is."""
        self._env = env
        self._client = client
        self._recorder = recorder
        self._counters = counters
        self._isolation = consumer.isolation
        self._last_empty: dict[int, int] = {}
        self._last_error = -ERROR_EVERY_NS
        self.consumer = Consumer(client, consumer)
        if process is None:
            settings = {"isolation": consumer.isolation, "max_wait_ms": consumer.max_wait_ms, **(extra or {})}
            process = recorder.process(role, VERSION, settings, zone=zone)
        self.process = process

    async def list_offsets(
        self, places: Sequence[Place], timestamp: int, timeout_s: float, isolation: int | None = None
    ) -> dict[Place, Listed]:
        """As `admin.list_offsets`, one recorded operation for each partition. `isolation`: the reader's, if None."""
        isolation = self._isolation if isolation is None else isolation
        which = {LATEST: "lso" if isolation else "latest", EARLIEST: "earliest"}.get(timestamp, "timestamp")
        ops = {}
        for place in places:
            fields = {"part": self._recorder.partitions[place], "which": which}
            ops[place] = self._recorder.invoke(self.process, "list_offsets", fields)
        found = await list_offsets(self._client, places, timestamp, isolation=isolation, timeout_s=timeout_s)
        for place, op in ops.items():
            listed = found[place]
            if listed.error:
                self._recorder.complete(op, Status.FAIL, listed.error)
            else:
                self._recorder.complete(op, Status.OK, off=listed.offset, epoch=listed.leader_epoch)
        self._recorder.flush()
        return found

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets."""
        op = self._recorder.invoke(self.process, "assign", {"at": self._at(positions)})
        self.consumer.assign(positions)
        self._recorder.complete(op, Status.OK)
        self._recorder.flush()

    def seek(self, place: Place, position: int) -> None:
        """Go on at another offset."""
        op = self._recorder.invoke(self.process, "seek", {"at": self._at({place: position})})
        self.consumer.seek(place, position)
        self._recorder.complete(op, Status.OK)

    async def poll(
        self,
        f: str,
        limit_s: float,
        *,
        began_ns: int | None = None,
        ends: Mapping[Place, int] | None = None,
        txn: int = -1,
    ) -> Polled:
        """Poll and record. `ends`: for final reads, what remains to be reached; `began_ns`: when it really began;
        `txn`: the transaction that it is part of.
        """
        at = self._at(self.consumer.positions)
        began = self._recorder.now_ns() if began_ns is None else began_ns
        polled = await self.consumer.poll(limit_s)
        got: list[Got] = []
        bad: list[Bad] = []
        end: dict[int, int] = {}
        now = self._recorder.now_ns()
        for fetched in polled.fetched:
            part = self._recorder.partitions[fetched.place]
            goal = (ends or {}).get(fetched.place)
            if goal is not None and fetched.position >= goal:
                end[part] = goal
            if fetched.records or fetched.damage or part in end or self._empty_is_due(part, now):
                got.append(self._judge(part, fetched, bad))
        if got:
            self._recorder.read(self.process, f, began, at, ReadOutcome(got=got, bad=bad, end=end), txn)
        self._note(polled, now)
        self._recorder.flush()
        return polled

    def gave_up(self, f: str, began_ns: int, why: str) -> None:
        """A read that ends here without having come where it should."""
        at = self._at(self.consumer.positions)
        self._recorder.read(self.process, f, began_ns, at, ReadOutcome(Status.FAIL, error=why))
        self._recorder.flush()

    def _judge(self, part: int, fetched: Fetched, bad: list[Bad]) -> Got:
        pairs = []
        verify = payload.verify
        for offset, timestamp_ms, key, value, headers in fetched.records:
            found, why = verify(value, key, headers, timestamp_ms)
            pairs.append((offset, found))
            if why:
                bad.append(Bad(part, offset, why))
                self._counters.bad += 1
        for damage in fetched.damage:
            pairs.append((damage.offset, -1))
            bad.append(Bad(part, damage.offset, damage.why))
            self._counters.bad += 1
        if fetched.damage:
            pairs.sort()
        self._counters.read += len(fetched.records)
        bounds = (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset)
        return Got(part, fetched.position, *bounds, pairs, fetched.leader_epoch)

    def _empty_is_due(self, part: int, now_ns: int) -> bool:
        if now_ns - self._last_empty.get(part, -EMPTY_EVERY_NS) < EMPTY_EVERY_NS:
            return False
        self._last_empty[part] = now_ns
        return True

    def _note(self, polled: Polled, now_ns: int) -> None:
        self._counters.read_errors += len(polled.errors)
        if polled.errors and now_ns - self._last_error >= ERROR_EVERY_NS:
            self._last_error = now_ns
            told = [[self._part(error.place), error.error] for error in polled.errors]
            self._recorder.event("poll_errors", p=self.process, errors=told)
        for event in polled.events:
            self._recorder.event(event.kind.lower(), p=self.process, **self._told(event))

    def _told(self, event: ReadEvent) -> dict[str, int]:
        bounds = {"log_start": event.log_start_offset, "end": event.end_offset}
        return {"part": self._part(event.place), "position": event.position, **bounds}

    def _part(self, place: Place | None) -> int:
        return -1 if place is None else self._recorder.partitions.get(place, -1)

    def _at(self, positions: Mapping[Place, int]) -> dict[int, int]:
        return {self._recorder.partitions[place]: position for place, position in positions.items()}
