"""Group commit for topics with flush.messages or flush.ms (R14): fsyncs run off the event loop, one at a time a log.

While a flush by flush.messages is due or running, nobody sees what is appended until it is durable. The state machine
learns of it only then, so no fetch, no high watermark and no acknowledgement goes beyond it. One fsync covers all that
was appended before it began. Nobody waits for a flush that flush.ms asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.env import Env
    from broker.replicas.hosted import Hosted


class HeldAppend(NamedTuple):
    """The leader's offsets that came with records which are not durable yet: applied when they are."""

    hosted: Hosted
    leader_epoch: int
    generation: int
    """Of the log: a truncation meanwhile makes all of it void."""
    end_offset: int
    leader_high_watermark: int
    leader_log_start: int


class Flushes:
    """The flushes of one broker's logs that are under way."""

    def __init__(self, env: Env, is_hosted: Callable[[Hosted], bool], flushed: Callable[[Hosted, int], None]) -> None:
        """`flushed` hears of each replica up to which offset it is as durable as its log's settings ask for."""
        self._env, self._is_hosted, self._flushed = env, is_hosted, flushed
        self._start_soon: Callable[..., None] | None = None
        self._running: dict[Hosted, trio.Event] = {}
        """The running flush of each log: the event is set when it ends."""

    def bind(self, start_soon: Callable[..., None]) -> None:
        """Set where tasks run. An OSError there must end the node: after a failed fsync nothing is known."""
        self._start_soon = start_soon

    def begin(self, h: Hosted) -> bool:
        """Flush a log, and go on until nothing is due any more. True if nobody may see new records before."""
        h.holding = h.holding or h.log.is_flush_promised
        if not h.flushing:
            assert self._start_soon is not None
            h.flushing = True
            self._running[h] = trio.Event()
            self._start_soon(self._run, h)
        return h.holding

    async def _run(self, h: Hosted) -> None:
        log = h.log
        try:
            while True:
                generation, end = log.generation, log.log_end_offset
                job = log.begin_flush()
                if job is not None:
                    await self._env.cpu(job.run)
                    log.finish_flush(job, self._env.wall_ms())
                if not log.flush_due(self._env.wall_ms()):
                    # What came meanwhile and asks for no flush of its own need not wait for one.
                    self._flushed(h, log.log_end_offset)
                    return
                if log.generation == generation:
                    self._flushed(h, end)
                done, self._running[h] = self._running[h], trio.Event()
                done.set()
        except OSError:
            if self._is_hosted(h):
                raise
            # The log was deleted under the flush, with the directory that was to be synced.
        finally:
            h.flushing = h.holding = False
            self._running.pop(h).set()

    async def until_durable(self, held: Iterable[HeldAppend]) -> None:
        """Wait until each of them is on disk, or gone by a truncation. The flushes run side by side."""
        waiting = list(held)
        for item in waiting:
            self.begin(item.hosted)
        for item in waiting:
            h = item.hosted
            while h.log.generation == item.generation and h.log.recovery_point < item.end_offset:
                self.begin(h)
                await self._running[h].wait()

    def now(self, h: Hosted) -> None:
        """At a change of roles: nothing appended before may be pending in the new one. Waits for the disk, here.

        A running flush goes on; nothing is left for it to announce.
        """
        job = h.log.begin_flush()
        if job is not None:
            job.run()
        self._flushed(h, h.log.log_end_offset)

    async def idle(self) -> None:
        """Until no flush is under way: before logs are closed."""
        while self._running:
            await next(iter(self._running.values())).wait()
