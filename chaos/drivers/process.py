"""Starts an OS process that runs a driver or a program under test, exchanges messages with it over pipes, and ends it.
"""

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
"""Gives the seconds after which `on_slow_start` is called for a process that is not ready."""
END_S = 5.0
FINISH_SLACK_S = 20.0
"""Gives the seconds that a process may take to finish, beyond its library's delivery time-out."""
READ_BYTES = 1 << 16
PIPE_BYTES = 1 << 20
"""Is the largest capacity, in bytes, that Linux by default allows for a pipe if the process is not privileged."""
MAX_LOG_BYTES = 256 << 20
"""Limits what all programs of a run together may write to standard error."""
CLIENT_ENDED = "CLIENT_ENDED"
"""Is the error of a record or a call whose driver process ended, or was killed, before it reported the outcome."""


def without_repetition(text: str) -> str:
    """Remove repetitions of a block of lines from a text. Several processes that end with the same error write such a
    text to one log.
    """
    lines = text.splitlines()
    periods = range(1, len(lines) // 2 + 1)
    length = next((n for n in periods if lines[n:] == lines[:-n]), len(lines))
    return "\n".join(lines[-length:])


class MessageCodec(Protocol):
    """Encodes the messages to one OS process, and decodes its bytes to messages."""

    def encode(self, message: list[Any], /) -> bytes:
        """Return the bytes of a message to the process."""

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Add received bytes, and yield the messages that are complete now."""


class PipedProcess:
    """Is a child process that exchanges messages over its pipes, writes its standard error to `log`, and ends with this
    process.
    """

    FAILED = "ended: {why} (see {log})"
    """Is the text of the error that is raised when the process sends ["x", why]."""

    def __init__(
        self, what: str, program: Sequence[str], log: Path, codec: MessageCodec, directory: str | None = None
    ) -> None:
        assert threading.current_thread() is threading.main_thread(), "the tether follows the thread that starts"
        self.what = what
        self.log = log
        self.encode = codec.encode
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                # Neither the environment nor site packages can change how the tether starts, and it starts in about 10
                # ms.
                [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env=self.environment(),
                cwd=directory,
                # A group of its own: `kill` reaches what the program starts, and Ctrl-C goes to the harness alone.
                start_new_session=True,
            )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        # An FdStream closes its descriptor itself. Popen's file objects would close the same number again, which may be
        # another file by then.
        self._in = trio.lowlevel.FdStream(os.dup(self._popen.stdin.fileno()))
        self._out = trio.lowlevel.FdStream(os.dup(self._popen.stdout.fileno()))
        self._popen.stdin.close()
        self._popen.stdout.close()
        self._feed = codec.feed
        self._messages: list[list[Any]] = []
        self._receiving = trio.CancelScope()
        self._killed = False

    async def next(self) -> list[Any] | None:
        """Return the next message of the process; None once the process has ended or was killed. Raise HarnessError for
        the message ["x", why], with which the process reports that it cannot continue.
        """
        while not self._messages:
            data: bytes | bytearray = b""
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError), trio.CancelScope() as self._receiving:
                # A grandchild in another process group may hold the pipe open: then no end of file comes after a kill.
                data = b"" if self._killed else await self._out.receive_some(READ_BYTES)
            if not data:
                return None
            self._messages += self._feed(bytes(data))
        message = self._messages.pop(0)
        if message[0] == "x":
            raise self.error_of(self.FAILED.format(why=message[1], log=self.log))
        return message

    async def readable(self) -> None:
        """Wait until `drain` returns at once: with messages, or because the output has ended."""
        if not self._messages:
            await trio.lowlevel.wait_readable(self._out.fileno())

    def drain(self) -> list[list[Any]] | None:
        """Return the messages that have arrived, without waiting; None once the output has ended. After a kill, it
        still returns the messages that the process sent before.
        """
        found, self._messages = self._messages, []
        with suppress(BlockingIOError):
            for _ in range(PIPE_BYTES // READ_BYTES):  # bounded, so that a fast writer does not delay others
                if not (data := os.read(self._out.fileno(), READ_BYTES)):
                    return found or None
                found += self._feed(data)
        return found

    def reap(self) -> None:
        """Wait until a killed process has ended. This blocks the event loop, but takes only milliseconds."""
        if self._popen.returncode is None:
            # WNOWAIT as in `_ended`: the group's id must stay valid until `end` has killed the rest of the group.
            os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)

    def error_of(self, what: str) -> HarnessError:
        """Return a HarnessError that says `what` the process did."""
        return HarnessError(f"the {self.what} {what}")

    def silence_error(self, what: str) -> HarnessError:
        """Return a HarnessError about a process that does not reply, with the end of its log."""
        last = without_repetition(tail(self.log))
        return self.error_of(f"{what}; it last said:\n{last}" if last else f"{what}; its log is empty")

    async def wait_until_ready(self) -> None:
        """Wait until the process has sent ["up", ...]. Raise HarnessError if it ends before that, or is not ready
        within UP_S.
        """
        with trio.move_on_after(UP_S) as limit:
            message = await self._first()
            if message is not None and message[0] == "up":
                return
        how = f"was not ready within {UP_S:g} s" if limit.cancelled_caught else "ended before it was ready"
        raise self.silence_error(how)

    async def _first(self) -> list[Any] | None:
        with trio.move_on_after(SLOW_S):
            return await self.next()
        self.on_slow_start(UP_S - SLOW_S)
        return await self.next()

    def on_slow_start(self, left_s: float) -> None:
        """Is called if the process is not ready after SLOW_S; `left_s` seconds remain. Does nothing here."""

    async def send(self, data: bytes) -> None:
        """Write encoded messages to the process; nothing if it has ended."""
        try:
            await self._in.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def check_log_size(self) -> None:
        """Raise HarnessError if the programs of the run have written more than MAX_LOG_BYTES to the log, so that the
        disk cannot fill up.
        """
        if self.log.stat().st_size > MAX_LOG_BYTES:
            raise self.error_of(f"wrote more than {MAX_LOG_BYTES >> 20} MiB to its standard error")

    async def close_input(self) -> None:
        """Close the standard input of the process."""
        await self._in.aclose()

    async def end(self) -> None:
        """Wait END_S for the end of the process, then kill it and all processes of its group. Idempotent."""
        with trio.CancelScope(shield=True):
            await self._in.aclose()
            with trio.move_on_after(END_S):
                while not self._ended():
                    await trio.sleep(0.02)
            # Also if the process has ended: what it has started may still run.
            self.kill()
            self._popen.wait()
            await self._out.aclose()

    def _ended(self) -> bool:
        """Return whether the process has ended, without reaping it: until it is reaped, its process id and its group's
        id cannot be reused.
        """
        if self._popen.returncode is not None:
            return True
        return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """Kill the process at once, with all processes of its group. After that, `next` reads no more from the pipe;
        `drain` still does.
        """
        self._killed = True
        self._receiving.cancel()
        if self._popen.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    def set_stopped(self, *, still: bool) -> None:
        """Send SIGSTOP to all processes of its group if `still`, else SIGCONT."""
        if self._popen.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGSTOP if still else signal.SIGCONT)

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the process."""
        return dict(os.environ)


class DriverProcess(PipedProcess):
    """Is the OS process of a driver program (`python -m squall.chaos.drivers`)."""

    def __init__(self, config: DriverConfig, log: Path) -> None:
        program = [sys.executable, "-P", "-m", "squall.chaos.drivers", msgspec.json.encode(config).decode()]
        super().__init__(f"{config.library} {config.role}", program, log, FrameCodec())

    @override
    def environment(self) -> dict[str, str]:
        """Return the harness's environment, with PYTHONPATH set so that the driver imports the harness's packages."""
        return {**os.environ, "PYTHONPATH": str(PACKAGES)}
