"""Reads every partition after a run: fresh readers read from the start to the end offset that was known when they
began.

The checkers compare acknowledgements with the records that these readers return. Therefore a partition that could not
be read is recorded as carefully as the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from squall.broker.env import Env
from squall.broker.protocol.timestamps import EARLIEST, LATEST
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Address, Place
from squall.workloads.client.consumer import OFFSET_OUT_OF_RANGE, PollResult, PositionInvalidated
from squall.workloads.client.settings import ClientSettings, ConsumerSettings
from squall.workloads.counters import LoadCounters
from squall.workloads.reader import RecordedReader
from squall.workloads.recorder import Recorder

POLL_LIMIT_S = 1.0
LIST_EVERY_S = 2.0
"""Gives the interval in seconds between two requests for offsets that are still unknown, while other partitions are
read.
"""
LIST_LIMIT_S = 2.0
READ_UNCOMMITTED = 0
BOTH_ISOLATIONS = (READ_UNCOMMITTED, 1)


@dataclass(slots=True)
class UnreadPartition:
    """Describes a partition that a final reader did not read to its end."""

    position: int
    """Gives the reader's position; -1 if reading never began."""
    end: int
    """Gives the end offset; -1 if the offset is not known."""
    why: str


@dataclass(slots=True)
class FinalReadResult:
    """Holds the result of one reader that read all partitions after the run. There is one such reader for each round
    and isolation level.
    """

    process: int
    round: int
    isolation: int
    records: int = 0
    """Counts the records that the reader returned, plus the batches that it could not read: each such batch counts as
    one record.
    """
    ends: dict[Place, int] = field(default_factory=dict)
    """Maps each partition that was read completely to the end offset that was known when the reader began."""
    waiting: list[Place] = field(default_factory=list)
    """Lists the partitions that the reader had not finished when its time was over. `missing` contains them too,
    besides the partitions whose read ended with an error.
    """
    idle_s: float = 0.0
    """Gives the seconds from the reader's last progress to the end of its time; 0 if its time did not run out. Progress
    is a record of any partition, or the start of reading another partition.
    """
    missing: dict[Place, UnreadPartition] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Is True if every partition was read to its end."""
        return not self.missing


async def final_reads(
    env: Env,
    bootstrap: Sequence[Address],
    partitions: Sequence[Place],
    recorder: Recorder,
    rounds: int = 2,
    isolations: Sequence[int] = BOTH_ISOLATIONS,
    *,
    timeout_s: float = 60.0,
    client_settings: ClientSettings | None = None,
    counters: LoadCounters | None = None,
    zone: str = "",
) -> list[FinalReadResult]:
    """Read all partitions `rounds` times in each isolation level, with a fresh client each time.

    Each reader has `timeout_s` seconds and retries after every error. The function never raises for the cluster's
    errors.
    """
    reads = []
    # The later round shows whether the cluster still has what it returned in the first.
    for round_ in range(1, rounds + 1):
        for isolation in isolations:
            async with trio.open_nursery() as nursery:
                client = Client(env, bootstrap, client_settings)
                await nursery.start(client.run)
                consumer = ConsumerSettings(isolation=isolation, max_wait_ms=100)
                reader = RecordedReader(
                    env,
                    client,
                    recorder,
                    counters or LoadCounters(),
                    role="final",
                    consumer=consumer,
                    zone=zone,
                    extra={"round": round_},
                )
                final = FinalReadResult(reader.process, round_, isolation)
                await _FinalReader(env, recorder, reader, final, env.mono() + timeout_s).run(partitions)
                reads.append(final)
                client.close()
    return reads


class _FinalReader:
    """Reads all partitions once with one fresh client."""

    def __init__(
        self, env: Env, recorder: Recorder, reader: RecordedReader, final: FinalReadResult, give_up_at: float
    ) -> None:
        self._env = env
        self._recorder = recorder
        self._reader = reader
        self._final = final
        self._give_up_at = give_up_at
        self._ends: dict[Place, int] = {}
        self._moved_at = env.mono()

    async def run(self, partitions: Sequence[Place]) -> None:
        """Read all partitions as far as possible, and fill in the `FinalReadResult`. If some partitions were not read
        to their end, the history gets an event that lists them.
        """
        began_ns = self._recorder.now_ns()
        pending = dict.fromkeys(partitions, UnreadPartition(-1, -1, "TIMED_OUT"))
        listed_at, first_ns = -LIST_EVERY_S, None
        while (pending or self._ends) and self._left() > 0:
            if pending and self._env.mono() - listed_at >= LIST_EVERY_S:
                listed_at, first_ns = self._env.mono(), self._recorder.now_ns()
                await self._begin(pending)
            if not self._ends:
                await self._env.sleep(min(LIST_EVERY_S, max(self._left(), 0)))
                continue
            limit_s = min(POLL_LIMIT_S, max(self._left(), 0))
            before = self._recorder.operations
            # What was acknowledged before the ends were asked for must be found: so the first read begins there.
            polled = await self._reader.poll("final_read", limit_s, began_ns=first_ns, ends=self._ends)
            if self._recorder.operations > before:
                first_ns = None
            await self._note_progress(polled)
        self._final.missing.update(pending)
        self._final.waiting = [*pending, *self._ends]
        if self._final.waiting:
            self._final.idle_s = self._env.mono() - self._moved_at
        for place, end in self._ends.items():
            self._final.missing[place] = UnreadPartition(self._reader.consumer.positions[place], end, "TIMED_OUT")
        if self._final.missing:
            self._record_incomplete(began_ns)

    async def _begin(self, pending: dict[Place, UnreadPartition]) -> None:
        """Ask for the start and end offsets of the pending partitions, and begin to read each partition that has both.
        """
        # Up to three requests, one after the other, must fit into what is left.
        limit_s = min(LIST_LIMIT_S, self._left() / 3)
        if self._final.isolation:  # the last stable offset: for the checkers to see
            await self._reader.list_offsets(list(pending), LATEST, limit_s)
        # The high watermark at either isolation: what is committed may still wait for its marker, and has to be read.
        ends = await self._reader.list_offsets(list(pending), LATEST, limit_s, isolation=READ_UNCOMMITTED)
        known = [place for place, listed in ends.items() if not listed.error]
        starts = await self._reader.list_offsets(known, EARLIEST, limit_s)
        found: dict[Place, int] = {}
        for place in list(pending):
            start = starts.get(place, ends[place])
            if start.error:
                pending[place] = UnreadPartition(-1, ends[place].offset, start.error)
            else:
                del pending[place]
                found[place], self._ends[place] = start.offset, ends[place].offset
        if found:
            self._moved_at = self._env.mono()
            self._reader.assign({**self._reader.consumer.positions, **found})

    def _left(self) -> float:
        return self._give_up_at - self._env.mono()

    async def _note_progress(self, polled: PollResult) -> None:
        for fetched in polled.fetched:
            self._final.records += len(fetched.records) + len(fetched.damage)
            if fetched.records:
                self._moved_at = self._env.mono()
            end = self._ends.get(fetched.place)
            if end is not None and fetched.position >= end:
                self._final.ends[fetched.place] = end
                del self._ends[fetched.place]
                self._reader.consumer.drop(fetched.place)
        for event in polled.events:
            if event.place in self._ends:
                await self._recover(event)

    async def _recover(self, event: PositionInvalidated) -> None:
        """Seek to the new start of the log if retention moved it during the read. Any other error ends the partition's
        read, for the checkers to judge.
        """
        place = event.place
        if event.kind == OFFSET_OUT_OF_RANGE:
            start = (await self._reader.list_offsets([place], EARLIEST, self._left()))[place]
            if not start.error and start.offset > event.position:
                self._reader.seek(place, start.offset)
                return
        self._final.missing[place] = UnreadPartition(event.position, self._ends.pop(place), event.kind)
        self._reader.consumer.drop(place)

    def _record_incomplete(self, began_ns: int) -> None:
        missing = {
            self._recorder.partitions[place]: [lacks.position, lacks.end, lacks.why]
            for place, lacks in self._final.missing.items()
        }
        about = {"round": self._final.round, "isolation": self._final.isolation, "missing": missing}
        self._recorder.event("final_read_incomplete", p=self._reader.process, **about)
        why = next(iter(self._final.missing.values())).why
        self._reader.gave_up("final_read", began_ns, why)
