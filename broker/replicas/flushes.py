"""Runs group commit for topics with flush.messages or flush.ms (mechanism R14 in docs/mechanisms.md): fsyncs run off
the event loop, and each log has at most one at a time.

While a flush by flush.messages is due or running, new records are invisible until they are durable: the state machine
learns of them only then, so no fetch, high watermark or acknowledgement includes them. One fsync covers all records
that were appended before it began. No request waits for a flush by flush.ms.
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
    """Holds the leader's high watermark and log start offset that came with records which are not durable yet. The
    follower applies both once the records are durable.
    """

    hosted: HostedPartition
    leader_epoch: int
    generation: int
    """Holds the number of truncations of the log when the records were appended. If the log was truncated since, the
    follower does not apply the leader's offsets.
    """
    end_offset: int
    leader_high_watermark: int
    leader_log_start: int


class FlushScheduler:
    """Runs the flushes of one broker's logs."""

    def __init__(
        self, env: Env, is_hosted: Callable[[HostedPartition], bool], flushed: Callable[[HostedPartition, int], None]
    ) -> None:
        """Set up the scheduler. `flushed` is called with a replica and the offset below which its records need no
        further flush.
        """
        self._env, self._is_hosted, self._flushed = env, is_hosted, flushed
        self._start_soon: Callable[..., None] | None = None
        self._running: dict[HostedPartition, trio.Event] = {}
        """Maps a replica to its running flush: the event is set when the flush ends."""

    def bind(self, start_soon: Callable[..., None]) -> None:
        """Set the function that starts tasks. An OSError in such a task must end the node: after a failed fsync the
        disk's state is unknown.
        """
        self._start_soon = start_soon

    def opened(self, log: Log, config: LogConfig) -> None:
        """Configure a log that this broker begins to host. If flush.messages asks for it, flush the log and block for
        the disk: a crashed broker may have left unsynced records in the page cache, and from now on they count as
        durable.
        """
        log.configure(config)
        if log.is_flush_required:
            log.flush(self._env.wall_ms())

    def begin(self, h: HostedPartition) -> bool:
        """Start a task that flushes the log until no flush is due, unless the task already runs. Return True if new
        records are invisible until a flush has made them durable.
        """
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
                # Taken before the fsync: it covers what was appended before it began, and no more.
                generation, end = log.generation, log.log_end_offset
                job = log.begin_flush()
                if job is not None:
                    await self._env.cpu(job.run)
                    log.finish_flush(job, self._env.wall_ms())
                if not log.flush_due(self._env.wall_ms()):
                    # Records appended meanwhile need no flush, so they become visible at once.
                    self._flushed(h, log.log_end_offset)
                    return
                if log.generation == generation:
                    self._flushed(h, end)
                done, self._running[h] = self._running[h], trio.Event()
                done.set()
        except OSError:
            if self._is_hosted(h):
                raise
            # The disk did not fail: the log and its directory were deleted during the flush.
        finally:
            h.flushing = h.holding = False
            self._running.pop(h).set()

    async def until_durable(self, held: Iterable[UnflushedAppend]) -> None:
        """Wait until each append is on disk, or a truncation has removed it. The flushes of different logs run
        concurrently.
        """
        waiting = list(held)
        for item in waiting:
            self.begin(item.hosted)
        for item in waiting:
            h = item.hosted
            while h.log.generation == item.generation and h.log.recovery_point < item.end_offset:
                self.begin(h)
                await self._running[h].wait()

    def flush_now(self, h: HostedPartition) -> None:
        """Flush a replica's log when its role changes, and acknowledge the appends that wait for a flush, so that none
        of them still waits in the new role. This blocks until the disk is done.

        A flush that already runs continues, but has nothing left to acknowledge.
        """
        job = h.log.begin_flush()
        if job is not None:
            job.run()
        self._flushed(h, h.log.log_end_offset)

    async def idle(self) -> None:
        """Wait until no flush is running. Call this before logs are closed."""
        while self._running:
            await next(iter(self._running.values())).wait()
