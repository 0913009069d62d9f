"""Limits an OS process to a share of a CPU: stops it and lets it run in turn, ten times a second.

This needs no privilege and no control group; like a quota, it stops all threads at once. A thread of the harness sends
the signals, so that a busy event loop does not delay them. It sends them by a pidfd, so that a reused pid is never hit.
"""

# Rejected: a quota of a control group. Often no user may write one, and a node with little to do would not be slower.

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass

from squall.chaos.runtimes.real.proc import run_state

PERIOD_S = 0.1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class ThrottleUsage:
    """Holds measurements of a throttled OS process. lasted_s: how long it was throttled. cpu_s: CPU time of all its
    threads. stops: how often the throttle stopped it. stopped_s: how long these stops lasted in total. A stop is left
    out if another SIGCONT ended it early.
    """

    lasted_s: float = 0.0
    stopped_s: float = 0.0
    cpu_s: float = 0.0
    stops: int = 0

    def add(self, other: ThrottleUsage) -> None:
        """Add the measurements of a later throttle of the same broker. A broker that restarts gets a new throttle,
        because its OS process is a new one.
        """
        self.lasted_s += other.lasted_s
        self.stopped_s += other.stopped_s
        self.cpu_s += other.cpu_s
        self.stops += other.stops


class Throttle:
    """Throttles a process from the moment this object is made. `share` may be changed at any time. Ends by itself when
    the process does.
    """

    def __init__(self, pid: int, share: float) -> None:
        self.share = share
        self._pid = pid
        self._fd = os.pidfd_open(pid)
        self._began = time.monotonic()
        self._cpu_before = self._cpu_now = cpu_seconds(pid)
        self._measured = ThrottleUsage()
        self._free = threading.Lock()
        """Is locked while the throttle keeps the process stopped. `hold` locks it, too, so that the throttle does not
        interfere while another fault stops the process.
        """
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"throttle-{pid}", daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Let the process run until `release`, because another fault (a pause) is going to stop it."""
        self._free.acquire()

    def release(self) -> None:
        """Continue to throttle the process."""
        self._free.release()

    def end(self) -> ThrottleUsage:
        """Stop throttling: the process runs from now on. Returns the measured usage. Call this once, and not between
        `hold` and `release`.
        """
        self._over.set()
        self._thread.join()
        self._measured.lasted_s = time.monotonic() - self._began
        self._measured.cpu_s = max(self._cpu_now, cpu_seconds(self._pid)) - self._cpu_before
        os.close(self._fd)
        return self._measured

    def _beat(self) -> None:
        try:
            while not self._over.is_set():
                with self._free:
                    self._stop_once(PERIOD_S * (1.0 - self.share))
                self._over.wait(PERIOD_S * self.share)
        except ProcessLookupError:
            return

    def _stop_once(self, seconds: float) -> None:
        signal.pidfd_send_signal(self._fd, signal.SIGSTOP)
        began = time.monotonic()
        try:
            self._over.wait(seconds)
            # Seen at its end: whoever lets it go meanwhile has switched this off.
            self._cpu_now = max(self._cpu_now, cpu_seconds(self._pid))
            if run_state(self._pid) == "T":
                self._measured.stopped_s += time.monotonic() - began
                self._measured.stops += 1
        finally:
            signal.pidfd_send_signal(self._fd, signal.SIGCONT)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, in s; 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
