"""A driver's process, as the harness starts it, talks to it and ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
import trio

from squall.broker.overriding import override
from squall.chaos.drivers.frames import FrameCodec
from squall.chaos.drivers.library import DriverConfig
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.real.processes.child import TETHER, tail
from squall.chaos.toolchain.places import PACKAGES

UP_S = 60.0
SLOW_S = 5.0
"""A process that takes longer than this to be ready is said to be waited for."""
END_S = 5.0
FINISH_SLACK_S = 20.0
"""How much longer than its library may take a process is waited for."""
READ_BYTES = 1 << 16
PIPE_BYTES = 1 << 20
"""No pipe of an unprivileged process holds more, unless the machine is set up otherwise."""
MAX_LOG_BYTES = 256 << 20
"""What all programs of a run may write to standard error."""
CLIENT_ENDED = "CLIENT_ENDED"
"""A driver's process ended, or was ended, before it reported the outcome of a record or of a call."""


def once(text: str) -> str:
    """A text that says the same several times, as several processes do that end alike, said once."""
    lines = text.splitlines()
    periods = range(1, len(lines) // 2 + 1)
    length = next((n for n in periods if lines[n:] == lines[:-n]), len(lines))
    return "\n".join(lines[-length:])


class MessageCodec(Protocol):
    """Translates the messages of one process to bytes and back."""

    def encode(self, message: list[Any], /) -> bytes:
        """A message to the process."""

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """The messages that are whole now."""


class PipedProcess:
    """A process that is spoken with on its pipes, tethered to this one. Its standard error goes to `log`."""

    FAILED = "ended: {why} (see {log})"
    """What is said of the process once it sends ["x", why]."""

    def __init__(
        self, what: str, program: Sequence[str], log: Path, tongue: MessageCodec, directory: str | None = None
    ) -> None:
        assert threading.current_thread() is threading.main_thread(), "the tether follows the thread that starts"
        self.what = what
        self.log = log
        self.encode = tongue.encode
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env=self.environment(),
                cwd=directory,
                start_new_session=True,
            )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._in = trio.lowlevel.FdStream(os.dup(self._popen.stdin.fileno()))
        self._out = trio.lowlevel.FdStream(os.dup(self._popen.stdout.fileno()))
        self._popen.stdin.close()
        self._popen.stdout.close()
        self._feed = tongue.feed
        self._messages: list[list[Any]] = []
        self._receiving = trio.CancelScope()
        self._killed = False

    async def next(self) -> list[Any] | None:
        """Return the next message of the process; None once it has ended or was killed. HarnessError where it ends for
        an error.
        """
        while not self._messages:
            data: bytes | bytearray = b""
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError), trio.CancelScope() as self._receiving:
                # What it has started may have left its group and hold the pipe: no end of it comes then.
                data = b"" if self._killed else await self._out.receive_some(READ_BYTES)
            if not data:
                return None
            self._messages += self._feed(bytes(data))
        message = self._messages.pop(0)
        if message[0] == "x":
            raise self.trouble(self.FAILED.format(why=message[1], log=self.log))
        return message

    async def readable(self) -> None:
        """Until `drain` finds something, or the end."""
        if not self._messages:
            await trio.lowlevel.wait_readable(self._out.fileno())

    def drain(self) -> list[list[Any]] | None:
        """Return what it has said by now, without waiting; None once its output has ended. Killed ones count, too."""
        found, self._messages = self._messages, []
        with suppress(BlockingIOError):
            for _ in range(PIPE_BYTES // READ_BYTES):  # who writes faster than this reads keeps no other one waiting
                if not (data := os.read(self._out.fileno(), READ_BYTES)):
                    return found or None
                found += self._feed(data)
        return found

    def reap(self) -> None:
        """Wait, without the event loop, for the end of one that was killed: a matter of milliseconds."""
        if self._popen.returncode is None:
            os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)

    def trouble(self, what: str) -> HarnessError:
        """The error that says `what` of the process."""
        return HarnessError(f"the {self.what} {what}")

    def silence(self, what: str) -> HarnessError:
        """The error that says `what` of a process that does not answer, with the end of its log."""
        last = once(tail(self.log))
        return self.trouble(f"{what}; it last said:\n{last}" if last else f"{what}; its log is empty")

    async def up(self) -> None:
        """Until it is ready. HarnessError where it is not soon."""
        with trio.move_on_after(UP_S) as limit:
            message = await self._first()
            if message is not None and message[0] == "up":
                return
        how = f"was not ready within {UP_S:g} s" if limit.cancelled_caught else "ended before it was ready"
        raise self.silence(how)

    async def _first(self) -> list[Any] | None:
        with trio.move_on_after(SLOW_S):
            return await self.next()
        self.is_slow(UP_S - SLOW_S)
        return await self.next()

    def is_slow(self, left_s: float) -> None:
        """It is not ready yet, and has so long to be."""

    async def tell(self, data: bytes) -> None:
        """Encoded messages to it; nothing where it has ended."""
        try:
            await self._in.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def must_be_quiet(self) -> None:
        """HarnessError where the programs of the run have filled its log, as disks have an end."""
        if self.log.stat().st_size > MAX_LOG_BYTES:
            raise self.trouble(f"wrote more than {MAX_LOG_BYTES >> 20} MiB to its standard error")

    async def no_more(self) -> None:
        """Send nothing more: its standard input ends."""
        await self._in.aclose()

    async def end(self) -> None:
        """Kill it where it does not end by itself, and whatever it has started. Idempotent."""
        with trio.CancelScope(shield=True):
            await self._in.aclose()
            with trio.move_on_after(END_S):
                while not self._ended():
                    await trio.sleep(0.02)
            self.kill()
            self._popen.wait()
            await self._out.aclose()

    def _ended(self) -> bool:
        """Return whether it has ended, without reaping it: until then its process id, also its group's, cannot be
        reused.
        """
        if self._popen.returncode is not None:
            return True
        return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """Kill it at once, with all processes of its group. What it has said and was not read yet does not count any
        more.
        """
        self._killed = True
        self._receiving.cancel()
        if self._popen.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    def hold(self, *, still: bool) -> None:
        """Stop all processes of its group, or continue them."""
        if self._popen.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGSTOP if still else signal.SIGCONT)

    def environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        return dict(os.environ)


class DriverProcess(PipedProcess):
    """A driver's process."""

    def __init__(self, order: DriverConfig, log: Path) -> None:
        program = [sys.executable, "-P", "-m", "squall.chaos.drivers", msgspec.json.encode(order).decode()]
        super().__init__(f"{order.library} {order.role}", program, log, FrameCodec())

    @override
    def environment(self) -> dict[str, str]:
        """Return this process' environment, with the path of its packages: the driver imports the same ones."""
        return {**os.environ, "PYTHONPATH": str(PACKAGES)}
