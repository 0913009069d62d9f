"""Group commit for topics with flush.messages or flush.ms (R14): fsyncs run off the event loop, one at a time a log.

While a flush by flush.messages is due or running, nobody sees new records until they are durable. The state machine
learns of the records only then, so no fetch, no high watermark and no acknowledgement goes beyond them. One fsync
covers all records appended before it began. Nobody waits for a flush that flush.ms asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from squall.broker.env import Env
    from squall.broker.log.config import LogConfig
    from squall.broker.log.log import Log
    from squall.broker.replicas.hosted_partition import HostedPartition


class UnflushedAppend(NamedTuple):
    """The leader's offsets that came with records which are not durable yet. They are applied once the records are."""

    hosted: HostedPartition
    leader_epoch: int
    generation: int
    """Of the log: a truncation meanwhile makes all of it void."""
    end_offset: int
    leader_high_watermark: int
    leader_log_start: int


class FlushScheduler:
    """The flushes of one broker's logs that are under way."""

    def __init__(
        self, env: Env, is_hosted: Callable[[HostedPartition], bool], flushed: Callable[[HostedPartition, int], None]
    ) -> None:
        """`flushed` is called with a replica and the offset before which it is as durable as its settings ask for."""
        self._env, self._is_hosted, self._flushed = env, is_hosted, flushed
        self._start_soon: Callable[..., None] | None = None
        self._running: dict[HostedPartition, trio.Event] = {}
        """The running flush of each log: the event is set when it ends."""

    def bind(self, start_soon: Callable[..., None]) -> None:
        """Set where tasks run. An OSError there must end the node: after a failed fsync the disk's state is unknown."""
        self._start_soon = start_soon

    def opened(self, log: Log, config: LogConfig) -> None:
        """A log is taken up under its topic's settings. Blocks for the disk where flush.messages asks for it: a broker
        that crashed has left records in the system's memory that no flush has reached, and from here on they count.
        """
        log.configure(config)
        if log.is_flush_required:
            log.flush(self._env.wall_ms())

    def begin(self, h: HostedPartition) -> bool:
        """Flush a log, and go on until no flush is due. True if nobody may see new records before the flush."""
        h.holding = h.holding or h.log.is_flush_required
        if not h.flushing:
            assert self._start_soon is not None
            h.flushing = True
            self._running[h] = trio.Event()
            self._start_soon(self._run, h)
        return h.holding

    async def _run(self, h: HostedPartition) -> None:
        log = h.log
        try:
            while True:
                generation, end = log.generation, log.log_end_offset
                job = log.begin_flush()
                if job is not None:
                    await self._env.cpu(job.run)
                    log.finish_flush(job, self._env.wall_ms())
                if not log.flush_due(self._env.wall_ms()):
                    # Records that arrived meanwhile need no flush of their own, so they are announced at once.
                    self._flushed(h, log.log_end_offset)
                    return
                if log.generation == generation:
                    self._flushed(h, end)
                done, self._running[h] = self._running[h], trio.Event()
                done.set()
        except OSError:
            if self._is_hosted(h):
                raise
            # No failure of the disk: the log was deleted during the flush, with the directory to be synced.
        finally:
            h.flushing = h.holding = False
            self._running.pop(h).set()

    async def until_durable(self, held: Iterable[UnflushedAppend]) -> None:
        """Wait until each append is on disk, or a truncation has removed it. The flushes run side by side."""
        waiting = list(held)
        for item in waiting:
            self.begin(item.hosted)
        for item in waiting:
            h = item.hosted
            while h.log.generation == item.generation and h.log.recovery_point < item.end_offset:
                self.begin(h)
                await self._running[h].wait()

    def now(self, h: HostedPartition) -> None:
        """Flush at a change of roles: no append of the old role may be pending in the new one. Blocks for the disk.

        A running flush goes on, but has nothing left to announce.
        """
        job = h.log.begin_flush()
        if job is not None:
            job.run()
        self._flushed(h, h.log.log_end_offset)

    async def idle(self) -> None:
        """Until no flush is under way: before logs are closed."""
        while self._running:
            await next(iter(self._running.values())).wait()
