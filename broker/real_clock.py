"""Provides a node's wall and monotonic clock, which the harness can skew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

CLOCK_LOOK_INTERVAL_S = 0.05
SAY_INTERVAL_S = 0.5


class RealClock:
    """Provides wall and monotonic time, skewed as a file says: "OFFSET_MS" or "OFFSET_MS RATE" (1.0 = true time).

    The file is checked at most every 50 ms, by its modification time. A missing file means true time; a file that does
    not parse is ignored until it does. Monotonic time stays continuous when the rate changes; wall time jumps to the
    new offset, and what an earlier rate had added is dropped.

    `say` is called with offset and rate whenever they change, and every half a second while the clock is skewed: the
    node's own trace must show the skew.
    """

    def __init__(self, path: str | None = None, say: Callable[..., None] = lambda **fields: None) -> None:
        self._path = path
        self._trace = say
        self._last_traced_s = 0.0
        self._next_look = 0.0
        self._stamp: tuple[int, int] | None = None
        self._offset_ms = 0.0
        self.rate = 1.0
        self._anchor_real = self._anchor_node = time.monotonic()

    def mono(self) -> float:
        """Return monotonic seconds at this node's rate."""
        now = time.monotonic()
        if self._path is None:
            return now
        self._look(now)
        return self._anchor_node + (now - self._anchor_real) * self.rate

    def wall_ms(self) -> int:
        """Return the node's wall clock, in ms since the Unix epoch: the true time, plus the configured offset, plus
        what the clock's rate has added since offset or rate last changed.
        """
        if self._path is None:
            return int(time.time() * 1000)
        self._look(time.monotonic())
        drifted_s = (time.monotonic() - self._anchor_real) * (self.rate - 1.0)
        return int(time.time() * 1000 + self._offset_ms + drifted_s * 1000)

    def _look(self, now: float) -> None:
        if now < self._next_look:
            return
        self._next_look = now + CLOCK_LOOK_INTERVAL_S
        assert self._path is not None
        try:
            stat = os.stat(self._path)
        except OSError:
            if self._stamp is not None:
                self._stamp = None
                self._set(now, 0.0, 1.0)
            return
        if (stamp := (stat.st_mtime_ns, stat.st_ino)) != self._stamp:
            self._read(now, stamp)
        elif (self._offset_ms or self.rate != 1.0) and now >= self._last_traced_s + SAY_INTERVAL_S:
            self._trace_skew(now)

    def _read(self, now: float, stamp: tuple[int, int]) -> None:
        assert self._path is not None
        try:
            with open(self._path, encoding="ascii") as file:
                words = file.read().split()
            offset_ms, rate = float(words[0]), float(words[1]) if len(words) > 1 else 1.0
        except (OSError, ValueError, IndexError):
            return  # Half written: looked at again, because the stamp is not taken.
        if rate > 0:
            self._stamp = stamp
            self._set(now, offset_ms, rate)

    def _set(self, now: float, offset_ms: float, rate: float) -> None:
        self._anchor_node += (now - self._anchor_real) * self.rate
        self._anchor_real = now
        self._offset_ms = offset_ms
        self.rate = rate
        self._trace_skew(now)

    def _trace_skew(self, now: float) -> None:
        self._last_traced_s = now
        self._trace(offset_ms=self._offset_ms, rate=self.rate)
