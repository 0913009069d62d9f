"""Sets up and starts the program of a broker's OS process, and reads what the program reports about itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import trio

from squall.broker.overriding import override
from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.contract import Evidence
from squall.chaos.runtimes.layout import properties_text
from squall.chaos.runtimes.real.node_faults import NodeFaults
from squall.chaos.runtimes.real.node_folder import NodeFolder
from squall.chaos.runtimes.real.proc import environment
from squall.chaos.runtimes.real.trace_tail import ShutdownReport, TraceTail
from squall.chaos.toolchain.places import PACKAGES
from squall.chaos.toolchain.sources import digest_of, package_in

# -P: no module of the working directory may take the place of one of ours.
BROKER = (sys.executable, "-P", "-m", "squall.broker")


class BrokerReports(Protocol):
    """Reads what a broker reports about itself in its trace or log, beginning with the lines that are added after this
    object was made.
    """

    def ready(self, incarnation: int) -> Evidence | None:
        """Return None until the broker reports that this incarnation serves clients. Then return what else it reported
        about itself, such as its version.
        """

    def shutdown_report(self, code: int) -> ShutdownReport:
        """Return how a broker that was asked to stop, and ended with `code`, reported its shutdown."""


class BrokerProgram(Protocol):
    """Describes the program of one broker: how it is configured, started, read and upgraded."""

    faults: NodeFaults | None
    """Sends commands for disk faults to the broker; None if this broker cannot carry them out."""

    async def prepare(self) -> None:
        """Prepare the node once, before its first start: for Apache Kafka, format the log directory."""

    def configure(self, incarnation: int) -> None:
        """Write the files that the broker needs to start."""

    def command(self) -> list[str]:
        """Return the command that starts the broker."""

    def environment(self) -> Mapping[str, str]:
        """Return the variables that the broker needs besides the harness's own."""

    def reports(self) -> BrokerReports:
        """Return a reader of the broker's trace or log. It reads the lines that are added from now on."""

    async def software(self, pid: int, came_up: Evidence) -> Evidence:
        """Identify the program that the OS process `pid` runs. came_up: the result of `BrokerReports.ready`. Evidence:
        runs (the program's digest or version), by (the source of `runs`).
        """

    def upgrade(self) -> Evidence:
        """Prepare a broker that is down: from its next start on, it runs the second of the run's two software versions.
        Evidence: from, to (the two versions). Raise PreconditionError if the run has no second version.
        """


class SquallProgram(BrokerProgram):
    """Describes the program of a Squall broker. faulted: the broker runs with `squall.broker.faulted`, which carries
    out disk faults and power losses. second: the version to which the broker can be upgraded: a checkout of Squall, or
    a folder of installed packages.
    """

    def __init__(
        self,
        files: NodeFolder,
        settings: Mapping[str, str],
        *,
        program: tuple[str, ...] = BROKER,
        faulted: bool = False,
        second: Path | None = None,
    ) -> None:
        self.faults = NodeFaults(files.faults) if faulted else None
        self._files, self._settings, self._program = files, dict(settings), program
        self._packages, self._second = PACKAGES, second

    async def prepare(self) -> None:
        """Do nothing: a Squall broker needs no preparation."""

    @override
    def configure(self, incarnation: int) -> None:
        settings: dict[str, str | Path] = {
            **self._settings,
            "log.dirs": self._files.data,
            "squall.incarnation": str(incarnation),
            "squall.trace.path": self._files.trace,
            "squall.clock.offset.path": self._files.clock,
        }
        self._files.config.write_text(properties_text(settings))

    @override
    def command(self) -> list[str]:
        faults = ["--faults", str(self.faults.folder)] if self.faults is not None else []
        module, _ = package_in(self._packages)
        # The second version may be an old checkout, whose broker has another module name.
        program = self._program if module == BROKER[-1] else (*BROKER[:-1], module)
        return [*program, "--config", str(self._files.config), *faults]

    @override
    def environment(self) -> Mapping[str, str]:
        # Unbuffered, so that the log has the last words of a broker that is killed.
        return {"PYTHONPATH": str(self._packages), "PYTHONUNBUFFERED": "1"}

    @override
    def reports(self) -> BrokerReports:
        """Return a reader of the broker's trace. It reads the lines that are added from now on."""
        return TraceReports(self._files.trace)

    @override
    async def software(self, pid: int, came_up: Evidence) -> Evidence:
        """Return a digest of the files of the program that the OS process `pid` runs. Their folder is the PYTHONPATH
        with which the process was started, read from /proc/PID/environ.
        """
        folder = Path(environment(pid)["PYTHONPATH"])
        runs = await trio.to_thread.run_sync(digest_of, package_in(folder)[1])
        return {"runs": runs, "by": "its process's PYTHONPATH: a digest of the files there", "folder": str(folder)}

    @override
    def upgrade(self) -> Evidence:
        if self._second is None:
            raise PreconditionError("there is no second version to upgrade to")
        before, self._packages = self._packages, self._second
        return {"from": str(before), "to": str(self._packages)}


class TraceReports(BrokerReports):
    """Reads from a Squall broker's trace when the broker is ready to serve clients, and how it shut down."""

    def __init__(self, trace: Path) -> None:
        self._tail = TraceTail(trace)

    @override
    def ready(self, incarnation: int) -> Evidence | None:
        came = any(event["e"] == "node_ready" and event["i"] == incarnation for event in self._tail.events())
        return {} if came else None

    @override
    def shutdown_report(self, code: int) -> ShutdownReport:
        return self._tail.shutdown_report(code)
