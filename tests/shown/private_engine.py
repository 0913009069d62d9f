"""Runs a private Docker engine in its own network namespace, so that killing it ends no other containers.

It needs root, and an engine that already runs, from which it gets the images. Runs that use it start in its namespace
(prefix `inside`), where they reach its networks.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import astuple
from pathlib import Path
from typing import IO

from squall.chaos.runtimes.real.processes.child import TETHER
from squall.chaos.toolchain.base_image import base_image
from squall.chaos.toolchain.engine import find_engine
from squall.chaos.toolchain.images import ensure_images

UP_S, DOWN_S = 60, 60
POLL_S = 0.05
NEEDED = ("dockerd", "docker", "unshare", "nsenter", "ip", "iptables")
_shared: list[PrivateEngine] = []


class NoEngine(Exception):
    """A private engine is not possible here. The message says why."""


class PrivateEngine:
    """One `dockerd`. It runs from construction to `close`, except between `kill` and `start`."""

    def __init__(self) -> None:
        lacking = [each for each in NEEDED if shutil.which(each) is None]
        if os.geteuid() != 0 or lacking:
            raise NoEngine(f"a Docker engine of its own needs root and {', '.join(lacking or NEEDED)}")
        self.folder = Path(tempfile.mkdtemp(prefix="squall-engine-"))
        self.socket = self.folder / "docker.sock"
        # Ends with its standard input, so with this process; as long as it lives, the namespace does.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && read end"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        self.inside = ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--")
        """Prefix of a command to run in the engine's namespace."""
        self._daemon: subprocess.Popen[bytes] | None = None
        try:
            self.start()
            self._take_images()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def shared() -> PrivateEngine:
        """Return the engine that all runs of this process share; it ends with the process. Raises NoEngine."""
        if not _shared:
            _shared.append(PrivateEngine())
            atexit.register(_shared[0].close)
        return _shared[0]

    def start(self) -> None:
        """Start the engine. After `kill` it finds the containers that still run, and ends them."""
        assert self._daemon is None, "it runs"
        folder = self.folder
        command = (
            *("dockerd", "--data-root", folder / "data", "--exec-root", folder / "run"),
            *("--pidfile", folder / "dockerd.pid", "--host", f"unix://{self.socket}"),
        )
        (folder / "dockerd.pid").unlink(missing_ok=True)
        nsenter = shutil.which(self.inside[0])
        assert nsenter is not None
        tethered = (sys.executable, "-I", "-S", TETHER, str(os.getpid()), nsenter, *self.inside[1:])
        with (folder / "log").open("ab") as log:
            self._daemon = subprocess.Popen([*map(str, (*tethered, *command))], stdout=log, stderr=log)
        deadline = time.monotonic() + UP_S
        while self._docker("info", check=False).returncode:
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                said = (folder / "log").read_text(errors="replace").splitlines()[-3:]
                raise NoEngine(f"a Docker engine of its own does not come up: {' '.join(said)}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        """Kill the engine by SIGKILL. Its containers keep running."""
        assert self._daemon is not None, "it does not run"
        self._daemon.kill()
        self._daemon.wait()
        self._daemon = None
        self._end_containerd()

    def close(self) -> None:
        """End the engine with its containers, and remove its files."""
        if self._daemon is None:
            with contextlib.suppress(NoEngine):
                self.start()  # for it alone can end the containers of its former self
        if self._daemon is not None:
            self._daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._daemon.wait(DOWN_S)
            self._daemon.kill()
            self._daemon.wait()
            self._daemon = None
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if Path(line.split()[1]).is_relative_to(self.folder):
                subprocess.run(["umount", "--lazy", line.split()[1]], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end_containerd(self) -> None:
        """Kill the engine's containerd, and wait for its end. A new engine that still finds it would wait for it in
        vain.
        """
        noted = self.folder / "run/containerd/containerd.pid"
        try:
            process = os.pidfd_open(int(noted.read_text()))
        except (OSError, ValueError):
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [], DOWN_S)
        os.close(process)
        noted.unlink(missing_ok=True)

    def _take_images(self) -> None:
        """Copy this checkout's images from the machine's engine."""
        engine = find_engine()
        try:
            made = ensure_images(engine, lambda line: None)
            base, _ = base_image(engine, lambda line: None)
        finally:
            engine.close()
        with subprocess.Popen(["docker", "save", base, *astuple(made)], stdout=subprocess.PIPE) as saving:
            self._docker("load", stdin=saving.stdout)

    def _docker(
        self, *arguments: str, check: bool = True, stdin: IO[bytes] | int | None = subprocess.DEVNULL
    ) -> subprocess.CompletedProcess[bytes]:
        command = ["docker", "--host", f"unix://{self.socket}", *arguments]
        return subprocess.run(command, stdin=stdin, capture_output=True, check=check)
