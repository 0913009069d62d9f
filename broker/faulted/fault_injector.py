"""Injects a broker's disk faults: failing calls, slow calls, no space left, and crash points (a kill just before a
chosen call).
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

from squall.broker.faulted.fault_commands import FaultCommand, FaultCommandsError, FaultCommandSet, parse_commands
from squall.broker.faulted.tally import FaultTally, TallyHeader

LOOK_INTERVAL_S = 0.01
TRUNCATION = -1
"""Is passed to `check_write` as `growth` for a truncation, which needs no space and so never fails with ENOSPC."""


def failure(code: int, path: str) -> OSError:
    """Return the OSError that the operating system raises with this errno for this path."""
    return OSError(code, os.strerror(code), path)


class FaultInjector:
    """Applies the faults and the crash point of the harness's control file (`fault_commands`), and counts them.

    It is called from the event loop and from the threads of `Env.cpu`, so `lock` is held while something is counted.
    """

    def __init__(self, folder: str, incarnation: int, used: Callable[[], int]) -> None:
        self.lock = threading.RLock()
        self.commands = FaultCommandSet()
        self._folder, self._incarnation, self._used = folder, incarnation, used
        self._tally = FaultTally(f"{folder}/tally")
        self._stamp: tuple[int, int] | None = None
        self._crash_left = 0
        self.apply_if_changed()

    def watch(self) -> None:
        """Start a daemon thread that applies the control file after each change. An invalid control file ends the
        thread.
        """
        threading.Thread(target=self._watch, name="faults", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_INTERVAL_S)
            try:
                self.apply_if_changed()
            except (FaultCommandsError, OSError) as error:
                sys.stderr.write(f"broker: {self._folder}/control: {error}\n")
                return

    def apply_if_changed(self) -> None:
        """Read the control file and apply it if it has changed. Raises FaultCommandsError if it is invalid."""
        path = f"{self._folder}/control"
        try:
            stat = os.stat(path)
            stamp = (stat.st_mtime_ns, stat.st_ino)
            if stamp == self._stamp:
                return
            with open(path, encoding="utf-8") as file:
                commands = parse_commands(file.read())
        except FileNotFoundError:
            stamp, commands = (0, 0), FaultCommandSet()
            if stamp == self._stamp:
                return
        with self.lock:
            self._stamp = stamp
            self._take_over(commands)

    def _take_over(self, commands: FaultCommandSet) -> None:
        for fault in commands.faults:
            count = self._tally.count(fault.number)
            if fault.kind == "quota" and not count.limit:
                count.limit = self._used() + fault.free_bytes
            self._tally.put(fault.number, count)
        if commands.crash is not None and commands.crash != self.commands.crash:
            self._crash_left = 0 if self._has_crashed(commands.crash.number) else commands.crash.nth
        self.commands = commands
        self._tally.note(TallyHeader(commands.serial, self._incarnation, self._tally.head.through_bytes))

    def _has_crashed(self, number: int) -> bool:
        try:
            with open(f"{self._folder}/crashed", encoding="utf-8") as file:
                return bool(json.load(file)["number"] == number)
        except (FileNotFoundError, ValueError):
            return False

    def count_written_back(self, size: int) -> None:
        """Count `size` unsynced bytes that are now treated as durable, as if the kernel had written them back."""
        head = self._tally.head
        self._tally.note(replace(head, through_bytes=head.through_bytes + size))

    # ---------------------------------------------------------------------------------------------------- the calls

    def check_crash_point(self, op: str, what: str) -> None:
        """Count an fsync, write or send that is about to happen. Kill this OS process if the crash point names this
        call. `what`: the file's path or the peer's address, for the report about the crash.
        """
        with self.lock:
            self._tally.call(op)
            crash = self.commands.crash
            if crash is None or crash.op != op or not self._crash_left:
                return
            self._crash_left -= 1
            if self._crash_left:
                return
            # Before the kill: the next incarnation reads it, and does not crash at the same point again.
            with open(f"{self._folder}/crashed.new", "w", encoding="utf-8") as file:
                json.dump({"number": crash.number, "op": op, "at": what}, file)
            os.replace(f"{self._folder}/crashed.new", f"{self._folder}/crashed")
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # the signal ends all threads, but may take a moment to arrive

    def delay(self, op: str) -> None:
        """Sleep as long as the faults that slow this call say. The calling thread waits, as for a slow device."""
        delay_s = 0.0
        with self.lock:
            for fault in self.commands.faults:
                if fault.kind == "slow" and fault.op == op:
                    self._hit(fault)
                    delay_s += fault.delay_ms / 1000
        if delay_s:
            time.sleep(delay_s)

    def check_fsync(self, path: str) -> None:
        """Raise OSError if an fsync that is about to begin must fail. Every matching fault counts the call."""
        with self.lock:
            codes = [self._count_match(fault, "fsync", path) for fault in self.commands.faults]
        if code := next(filter(None, codes), 0):
            raise failure(code, path)

    def check_write(self, path: str, growth: int) -> None:
        """Raise OSError if a write that makes its file `growth` bytes longer, or a truncation, must fail."""
        code = 0
        with self.lock:
            for fault in self.commands.faults:
                if fault.kind == "quota":
                    space = self._tally.count(fault.number).limit - self._used() if growth > 0 else 0
                    if growth > max(0, space):
                        self._hit(fault)
                        code = code or errno.ENOSPC
                elif growth != TRUNCATION or fault.errno != "ENOSPC":
                    struck = self._count_match(fault, "write", path)
                    code = code or struck
        if code:
            raise failure(code, path)

    def _count_match(self, fault: FaultCommand, op: str, path: str) -> int:
        """Count a call that a fault matches. Returns the errno if the fault makes the call fail, else 0."""
        if fault.kind != "fail" or fault.op != op or not fnmatchcase(path, fault.path_glob):
            return 0
        count = self._tally.count(fault.number)
        count.calls += 1
        struck = count.calls >= fault.nth
        count.hits += struck
        self._tally.put(fault.number, count)
        return int(getattr(errno, fault.errno)) if struck else 0

    def _hit(self, fault: FaultCommand) -> None:
        count = self._tally.count(fault.number)
        count.hits += 1
        self._tally.put(fault.number, count)
