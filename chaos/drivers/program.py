"""Runs a program under test in place of a client library (`squall.workloads.libraries.LibraryClientFactory`): one OS
process for each client of the workload.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from squall.broker.overriding import override
from squall.chaos.drivers.host import LibraryProducer
from squall.chaos.drivers.lines import FetchedRecord, LineProtocol
from squall.chaos.drivers.member_lines import MemberLineProtocol
from squall.chaos.drivers.messages import parts_of
from squall.chaos.drivers.process import PipedProcess
from squall.chaos.drivers.program_member import ProgramMember, ReportSequencer
from squall.chaos.drivers.reading import EMPTY_EVERY_S
from squall.chaos.errors import HarnessError, PreconditionError
from squall.workloads.client.cluster import Place
from squall.workloads.libraries import (
    LibraryClientFactory,
    MemberConfig,
    PolledPartition,
    PolledRecords,
    PollError,
    ReaderAssigned,
    ReaderPositionReset,
    SelfPollingReader,
    TransactorConfig,
)
from squall.workloads.needs import LibraryRequirements

POLL_ANSWER_S = 30.0
"""Gives the seconds after which a program that does not answer a poll counts as hung."""
SAID_LETTERS = 80
"""Limits how many characters of the program's command are shown in messages."""
ISOLATIONS = ("read_uncommitted", "read_committed")
MEMBER = "member"
ACKS = {-1: "all", 0: "0", 1: "1"}


def program_of(command: str, directory: str) -> list[str]:
    """Return the absolute path of the program, and its arguments. Raise PreconditionError if there is no such program.
    """
    try:
        words = shlex.split(command)
    except ValueError as why:
        raise PreconditionError(f"--command {command!r}: {why}") from None
    if not words:
        raise PreconditionError('this workload drives a program of yours, and none is named: --command "./my-producer"')
    at_home = Path(directory or ".").absolute()
    if not at_home.is_dir():
        raise PreconditionError(f"--directory {directory}: there is no such folder")
    # As in a shell: a word with a slash is a path, from the folder in which the program runs; others are on PATH.
    found = str(at_home / words[0]) if "/" in words[0] else shutil.which(words[0])
    if found is None or not Path(found).is_file():
        raise PreconditionError(f"--command {command!r}: there is no program {words[0]!r} {_where(words[0], at_home)}")
    if not os.access(found, os.X_OK):
        raise PreconditionError(f"--command {command!r}: {found} may not be executed: chmod +x {shlex.quote(found)}")
    return [found, *words[1:]]


def _where(word: str, directory: Path) -> str:
    folder = "the current folder" if directory == Path.cwd() else "--directory"
    return f"in {directory}" if "/" in word else f"on PATH (a program of {folder} is ./NAME)"


def config_of(needs: LibraryRequirements) -> dict[str, str]:
    """Return the producer settings that a workload needs, by their names in Kafka."""
    w = needs.producer
    return {
        "acks": ACKS[w.acks],
        "enable.idempotence": str(w.idempotence).lower(),
        "max.in.flight.requests.per.connection": str(w.max_in_flight),
        "linger.ms": str(w.linger_ms),
        "request.timeout.ms": str(needs.request_timeout_ms),
        "delivery.timeout.ms": str(w.delivery_timeout_ms),
    }


class ProgramProtocolError(HarnessError):
    """Is raised if a program has never replied as the protocol requires. Then nothing about it can be judged."""


class ProgramProcess(PipedProcess):
    """Is one OS process of the program under test. It is ready when it has replied to `init`, the first request.

    words: the program's path and its arguments. needs: gives the program's command as the user typed it, and the folder
    in which it is started. about: the content of `init`, with the process' role, such as producer. understood: the
    roles in which the program is known to follow the protocol. All processes of the program share this set; each adds
    its role with its first valid message after the reply to `init`.
    """

    FAILED = "does not keep to the protocol: {why}"

    def __init__(
        self,
        words: Sequence[str],
        needs: LibraryRequirements,
        about: Mapping[str, Any],
        log: Path,
        understood: set[str],
        say: Callable[[str], None],
    ) -> None:
        said = " ".join(str(needs.program).split())
        said = said if len(said) <= SAID_LETTERS else f"{said[: SAID_LETTERS - 1]}…"
        lines = MemberLineProtocol() if about["role"] == MEMBER else LineProtocol()
        super().__init__(f"program `{said}` ({about['role']})", words, log, lines, needs.directory or None)
        self._about, self._understood, self._say = about, understood, say

    @override
    async def wait_until_ready(self) -> None:
        await self.send(self.encode(["init", dict(self._about)]))
        await super().wait_until_ready()

    @override
    def on_slow_start(self, left_s: float) -> None:
        self._say(f"waiting for the {self.what} to answer init with ready ({left_s:.0f} s left)")

    @override
    async def next(self) -> list[Any] | None:
        message = await super().next()
        if message is not None and message[0] != "up":
            self._understood.add(self._about["role"])
        return message

    @override
    def error_of(self, what: str) -> HarnessError:
        """Return the error for what the process did. It is a ProgramProtocolError if no process of the program with the
        same role, such as producer, has ever replied to a request after `init`; else a HarnessError.
        """
        kind = HarnessError if self._about["role"] in self._understood else ProgramProtocolError
        return kind(f"the {self.what} {what}")


class ProgramReader(SelfPollingReader):
    """Runs the program as a consumer: requests one poll after another, beginning at the log's start."""

    def __init__(self, process: ProgramProcess, places: Sequence[Place], poll_pause_ms: int) -> None:
        self._process = process
        self._pause_s = poll_pause_ms / 1000
        self._topic = places[0][0]
        self._at: dict[Place, int] = {}
        self._places = places
        self._empty_told: dict[Place, float] = {}
        self._asked = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the process until `finish` is called."""
        try:
            await self._process.wait_until_ready()
            task_status.started()
            await self._asked.wait()
        finally:
            self._process.kill()
            await self._process.end()

    @override
    async def next(self) -> ReaderAssigned | PolledRecords | ReaderPositionReset | PollError | None:
        if not self._at:
            self._at = dict.fromkeys(self._places, 0)
            return ReaderAssigned(dict(self._at))
        while not self._asked.is_set():
            # A pause between two polls, which `finish` cuts short.
            with trio.move_on_after(self._pause_s):
                await self._asked.wait()
                break
            began_ns, at = time.monotonic_ns(), dict(self._at)
            message = await self._poll()
            if message is None:
                break
            if message[0] == "e":
                return PollError(message[1])
            if parts := self._parts(message[1]):
                return PolledRecords(began_ns, at, parts)
        return None

    async def _poll(self) -> list[Any] | None:
        """Return the program's answer to one poll; None once `finish` was called. Raise HarnessError if the program
        ended or hangs.
        """
        self._process.check_log_size()
        with trio.move_on_after(POLL_ANSWER_S):
            await self._process.send(self._process.encode(["poll"]))
            message = await self._process.next()
            if message is None and not self._asked.is_set():
                raise self._process.silence_error("ended by itself")
            return message
        if self._asked.is_set():
            return None
        raise self._process.silence_error(f"did not answer a poll for {POLL_ANSWER_S:g} s")

    def _parts(self, records: Sequence[FetchedRecord]) -> list[PolledPartition]:
        """Return the records of a poll by partition, with verified payloads. A partition without new records is in the
        result only every EMPTY_EVERY_S seconds.
        """
        for record in records:
            if (self._topic, int(record.partition)) not in self._at:
                raise self._process.error_of(f"read partition {record.partition}, which is not assigned")
        parts, now = parts_of(records, self._topic, self._at), time.monotonic()
        for place in self._at.keys() - {part.place for part in parts}:
            if now - self._empty_told.get(place, 0.0) >= EMPTY_EVERY_S:
                self._empty_told[place] = now
                parts.append(PolledPartition(place, self._at[place], (), ()))
        return parts

    @override
    def finish(self) -> None:
        """Kill the process, without waiting for the poll that is under way."""
        self._asked.set()
        self._process.kill()


class ProgramDriver(LibraryClientFactory):
    """Starts the OS processes of a program under test. `log` takes their standard error. `say` is called at most once
    for each role whose process takes long to start.
    """

    client = "program"

    def __init__(
        self,
        bootstrap: str,
        needs: LibraryRequirements,
        topics: Sequence[str],
        log: Path,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        assert needs.program is not None
        self._words = program_of(needs.program, needs.directory)
        self.version = needs.program
        self._needs, self._log = needs, log
        self._understood: set[str] = set()
        self._reports, self._topics = ReportSequencer(), topics
        self._say, self._said = say, set[str]()
        self._about = {"bootstrap": bootstrap, "topics": list(topics), "config": config_of(needs)}

    @override
    def about(self) -> Mapping[str, object]:
        """Return no producer settings. A program does not report its own, so the checkers assume those of the plan."""
        return {}

    def _process(self, role: str, **about: object) -> ProgramProcess:
        about = {"role": role, **self._about, **about}
        return ProgramProcess(self._words, self._needs, about, self._log, self._understood, self._say_once)

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    @override
    async def producer(self, nursery: trio.Nursery, client_id: str, flush: Callable[[], None]) -> LibraryProducer:
        config = {**config_of(self._needs), "client.id": client_id}
        made = LibraryProducer(self._process("producer", config=config), self._needs.producer, flush)
        await nursery.start(made.run)
        return made

    @override
    async def transactor(self, nursery: trio.Nursery, task: TransactorConfig, flush: Callable[[], None]) -> Any:
        """Raise AssertionError: no workload uses a program under test as a transactional producer."""
        raise AssertionError("no workload asks this of a program")

    @override
    async def member(
        self, nursery: trio.Nursery, task: MemberConfig, hearing: Any, flush: Callable[[], None]
    ) -> ProgramMember:
        """Start a member that polls and commits by itself, and reports both."""
        group = task.settings
        config = {
            "group.id": group.group,
            "session.timeout.ms": str(group.session_timeout_ms),
            "heartbeat.interval.ms": str(group.heartbeat_interval_ms),
            "max.poll.interval.ms": str(group.max_poll_interval_ms),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "isolation.level": ISOLATIONS[task.isolation],
            "client.id": f"squall-process-{hearing.process}",
        }
        process = self._process(MEMBER, config=config)
        made = ProgramMember(process, hearing, self._topics, self._reports, flush)
        await nursery.start(made.run)
        return made

    @override
    async def instance(self, nursery: trio.Nursery, task: Any, hearing: Any, flush: Callable[[], None]) -> Any:
        """Raise AssertionError: no workload uses a process of the program as a group member and a producer at once."""
        raise AssertionError("no workload asks this of a program")

    @override
    async def reader(self, nursery: trio.Nursery, places: Sequence[Place], isolation: int) -> SelfPollingReader:
        assigned = [{"topic": topic, "partition": index} for topic, index in places]
        process = self._process("reader", assigned=assigned, isolation=ISOLATIONS[isolation])
        made = ProgramReader(process, places, self._needs.poll_pause_ms)
        await nursery.start(made.run)
        return made
