"""Implements `squall.broker.real_env.RealEnv` with disk faults, and with crash points before network sends."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

from squall.broker.env import Buffer, File, Listener
from squall.broker.faulted.files import FaultedFs
from squall.broker.overriding import override
from squall.broker.real_env import RealEnv, RealTransport

CrashPointCheck = Callable[[str, str], None]


class FaultedTransport(RealTransport):
    """Represents a connection that counts its sends, so that a crash point can kill the broker just before one of them.
    """

    __slots__ = ("_check_crash_point",)

    def __init__(self, sock: socket.socket, peer: str, check: CrashPointCheck) -> None:
        super().__init__(sock, peer)
        self._check_crash_point = check

    @override
    def send(self, pieces: Sequence[Buffer], *, more: bool = False) -> int:
        self._check_crash_point("send", self.peer)
        return super().send(pieces, more=more)

    @override
    def send_file(self, file: File, offset: int, length: int) -> int:
        self._check_crash_point("send", self.peer)
        return super().send_file(file, offset, length)


class FaultedListener(Listener):
    """Accepts connections and applies crash points to their sends (`FaultedTransport`)."""

    def __init__(self, inner: Listener, check: CrashPointCheck) -> None:
        self._inner, self._check_crash_point = inner, check
        self.port = inner.port

    @override
    async def accept(self) -> FaultedTransport:
        return _with_crash_points(await self._inner.accept(), self._check_crash_point)

    @override
    def close(self) -> None:
        self._inner.close()


def _with_crash_points(link: object, check: CrashPointCheck) -> FaultedTransport:
    assert isinstance(link, RealTransport), "a faulted Env stands on the real one"
    return FaultedTransport(link._sock, link.peer, check)


class FaultedEnv(RealEnv):
    """Provides the Env of a broker whose disk can be faulted. `folder` holds the journals and the control file; it is
    created if it is missing. `roots` are the log directories.

    Raises FaultCommandsError for an invalid control file, OSError for an unusable folder.
    """

    def __init__(
        self,
        name: str,
        *,
        folder: str,
        roots: Sequence[str],
        incarnation: int = 1,
        trace_path: str | None = None,
        clock_offset_path: str | None = None,
    ) -> None:
        super().__init__(name, incarnation, None, trace_path, clock_offset_path)
        for path in (folder, *roots):
            os.makedirs(path, exist_ok=True)
            if os.stat(path).st_dev != os.stat(folder).st_dev:
                raise OSError(f"--faults {folder} must be on the file system of log.dirs, {path}")
        fs = FaultedFs(folder, roots, incarnation)
        self.fs = fs
        self._check_crash_point = fs.injector.check_crash_point
        fs.injector.watch()

    @override
    async def listen(self, host: str, port: int) -> FaultedListener:  # type: ignore[override]
        return FaultedListener(await super().listen(host, port), self._check_crash_point)

    @override
    async def connect(self, host: str, port: int) -> FaultedTransport:
        return _with_crash_points(await super().connect(host, port), self._check_crash_point)
