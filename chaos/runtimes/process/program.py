"""Sets up and starts the program of a broker's process, and reads its reports."""

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

BROKER = (sys.executable, "-P", "-m", "squall.broker")


class BrokerReports(Protocol):
    """A broker's reports of itself since this object was made."""

    def ready(self, incarnation: int) -> Evidence | None:
        """None until the broker reports that this incarnation serves clients; then the other facts that it reported."""

    def left(self, code: int) -> ShutdownReport:
        """For a broker asked to stop, which ended with `code`: what it reported of that."""


class BrokerProgram(Protocol):
    """The program of one broker."""

    faults: NodeFaults | None
    """Orders to its disk, where it takes any."""

    async def prepare(self) -> None:
        """Do what must be done once, before the first start."""

    def configure(self, incarnation: int) -> None:
        """Write the files that the broker needs to start."""

    def command(self) -> list[str]:
        """The command that starts the broker."""

    def environment(self) -> Mapping[str, str]:
        """The variables that it needs besides the harness's own."""

    def words(self) -> BrokerReports:
        """Begin to read its reports."""

    async def software(self, pid: int, came_up: Evidence) -> Evidence:
        """Identify the running program. Evidence: as `Runtime.software`, without `speaks`. came_up: what its
        `BrokerReports.ready` returned.
        """

    def upgrade(self) -> Evidence:
        """Make a program that is down run the second version next. Evidence: as `Runtime.upgrade_node`."""


class SquallProgram(BrokerProgram):
    """A Squall broker. hurt: its files can lose power and fail, as in `squall.broker.faulted`. second: the version that
    it can be upgraded to, a folder as `squall.chaos.toolchain.sources.package_in` wants it.
    """

    def __init__(
        self,
        files: NodeFolder,
        settings: Mapping[str, str],
        *,
        program: tuple[str, ...] = BROKER,
        hurt: bool = False,
        second: Path | None = None,
    ) -> None:
        self.faults = NodeFaults(files.faults) if hurt else None
        self._files, self._settings, self._program = files, dict(settings), program
        self._packages, self._second = PACKAGES, second

    async def prepare(self) -> None:
        """Nothing to prepare."""

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
        program = self._program if module == BROKER[-1] else (*BROKER[:-1], module)
        return [*program, "--config", str(self._files.config), *faults]

    @override
    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(self._packages), "PYTHONUNBUFFERED": "1"}

    @override
    def words(self) -> BrokerReports:
        """Begin to read its trace."""
        return TraceReports(self._files.trace)

    @override
    async def software(self, pid: int, came_up: Evidence) -> Evidence:
        """Return a digest of the program's files: of those that, by the kernel's report, it was started with."""
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
    """The reports of a Squall broker: its trace."""

    def __init__(self, trace: Path) -> None:
        self._tail = TraceTail(trace)

    @override
    def ready(self, incarnation: int) -> Evidence | None:
        came = any(event["e"] == "node_ready" and event["i"] == incarnation for event in self._tail.events())
        return {} if came else None

    @override
    def left(self, code: int) -> ShutdownReport:
        return self._tail.leave(code)
