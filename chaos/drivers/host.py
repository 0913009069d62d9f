"""Runs driver programs as a workload's producers and readers. This is the harness's end of the pipes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import trio

from squall.broker.overriding import override
from squall.chaos.drivers.frames import frame
from squall.chaos.drivers.library import CLIENTS, DISTRIBUTIONS, DriverConfig
from squall.chaos.drivers.members.host import LibraryMember
from squall.chaos.drivers.messages import decode_read_message
from squall.chaos.drivers.process import CLIENT_ENDED, FINISH_SLACK_S, DriverProcess, PipedProcess
from squall.chaos.drivers.transactors.host import LibraryTransactionalMember, LibraryTransactor
from squall.chaos.errors import HarnessError
from squall.chaos.toolchain.lacks import MissingDependency, refuse
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.membership import CLASSIC
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.settings import ProducerSettings
from squall.workloads.libraries import (
    InstanceConfig,
    LibraryClientFactory,
    MemberConfig,
    MemberListener,
    MemberProcess,
    PolledRecords,
    PollError,
    ReaderAssigned,
    ReaderPositionReset,
    SelfPollingReader,
    TransactorConfig,
    WorkloadProducer,
)
from squall.workloads.needs import LibraryRequirements


def client_lacks(client: str) -> list[MissingDependency]:
    """Return what is missing for --client: the library, if it is not installed."""
    if client == "squall" or find_spec(CLIENTS[client]) is not None:
        return []
    return [MissingDependency(f"--client {client} needs the package {DISTRIBUTIONS[client]}", flag="--clients")]


FINISH = ["f"]
SILENT_EVERY_S = 1.0


class _PendingRecord(NamedTuple):
    """Holds a record that has no outcome yet."""

    size: int
    tell: Callable[[Outcome], None]
    since: float
    """Is the time at which the record was sent, by time.monotonic()."""


class LibraryProducer(WorkloadProducer):
    """Sends records through a driver program, which hands them over to a library's producer."""

    retired = ""

    def __init__(self, process: PipedProcess, settings: ProducerSettings, flush: Callable[[], None]) -> None:
        self._process = process
        self._buffer_bytes = settings.buffer_bytes
        self._give_up_s = settings.delivery_timeout_ms / 1000 + FINISH_SLACK_S
        self._flush = flush
        self._waiting: dict[int, _PendingRecord] = {}
        self._bytes = 0
        self._next = 0
        self._messages: list[list[Any]] = []
        self._something = trio.Event()
        self._over = trio.Event()
        self._closing = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until the driver program has ended."""
        try:
            await self._process.wait_until_ready()
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                nursery.start_soon(self._end_if_silent)
                while (message := await self._process.next()) is not None:
                    if message[0] != "o":
                        raise HarnessError(f"the {self._process.what} said {message!r} where it had records to answer")
                    for op, status, offset, timestamp_ms, error in message[1]:
                        self._answered(op, Outcome(OperationStatus(status), offset, timestamp_ms, error))
                    self._flush()
                nursery.cancel_scope.cancel()
        finally:
            self._end_of_all()
            await self._process.end()

    async def _write(self) -> None:
        while True:
            await self._something.wait()
            self._something = trio.Event()
            messages, self._messages = self._messages, []
            # The invocation must be in the history before a byte of the record can reach a broker.
            self._flush()
            await self._process.send(b"".join(map(self._process.encode, messages)))
            if messages[-1:] == [FINISH]:
                await self._process.close_input()

    async def _end_if_silent(self) -> None:
        """Kill the driver program if it has not reported a record's outcome long after the delivery time-out. The
        outcome of each record that has none by then is unknown.
        """
        while True:
            await trio.sleep(SILENT_EVERY_S)
            self._process.check_log_size()
            # A dict keeps the order of insertion, so its first entry is the oldest.
            oldest = next(iter(self._waiting.values()), None)
            if oldest is not None and time.monotonic() - oldest.since >= self._give_up_s:
                self._process.kill()

    @override
    def takes(self, size: int) -> bool:
        return not self.retired and self._bytes + size <= self._buffer_bytes

    @override
    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: list[tuple[str, bytes | None]],
        timestamp_ms: int,
        on_outcome: Callable[[Outcome], None],
        /,
    ) -> None:
        assert not headers, "this workload has none"
        op = self._next
        self._next += 1
        self._waiting[op] = _PendingRecord(len(value), on_outcome, time.monotonic())
        self._bytes += len(value)
        self._say(["s", op, topic, partition, key, value, timestamp_ms])

    @override
    def retire(self, why: str) -> None:
        self.retired = self.retired or why
        if not self._closing:
            self._closing = True
            self._say(FINISH)

    @override
    async def finish(self) -> None:
        """Wait until every record has its outcome. If the library does not finish in time, kill its driver program. The
        outcome of each record that has none by then is unknown.
        """
        with trio.move_on_after(self._give_up_s):
            await self._over.wait()
            return
        # Only if the time was over: the block above returns.
        self._process.kill()
        await self._over.wait()

    @override
    def close(self) -> None:
        """Do nothing: after `retire`, the driver program ends by itself once its last record has an outcome."""

    def _say(self, message: list[Any]) -> None:
        self._messages.append(message)
        self._something.set()

    def _answered(self, op: int, outcome: Outcome) -> None:
        size, tell, _ = self._waiting.pop(op)
        self._bytes -= size
        if outcome.status is not OperationStatus.OK:
            # As for our own client: a producer with a record in doubt or lost is replaced by a new one.
            self.retired = self.retired or outcome.error
        tell(outcome)

    def _end_of_all(self) -> None:
        self.retired = self.retired or CLIENT_ENDED
        for op in list(self._waiting):
            self._answered(op, Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED))
        self._flush()
        self._over.set()


class LibraryReader(SelfPollingReader):
    """Reads through a driver program, which polls a library's consumer."""

    def __init__(self, process: DriverProcess) -> None:
        self._process = process
        self._asked = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the driver program until `finish` is called."""
        try:
            await self._process.wait_until_ready()
            task_status.started()
            await self._asked.wait()
            await self._process.send(frame(["f"]))
        finally:
            await self._process.end()

    @override
    async def next(self) -> ReaderAssigned | PolledRecords | ReaderPositionReset | PollError | None:
        if self._asked.is_set():
            return None
        message = await self._process.next()
        if message is None:
            if self._asked.is_set():
                return None
            raise self._process.silence_error("ended by itself")
        return decode_read_message(message)

    @override
    def finish(self) -> None:
        """Kill the driver program, without waiting for the poll that is under way."""
        self._asked.set()
        self._process.kill()


class LibraryDriver(LibraryClientFactory):
    """Starts the driver programs of one library. `log` takes what the libraries print."""

    def __init__(self, client: str, bootstrap: str, needs: LibraryRequirements, log: Path) -> None:
        refuse("this client", client_lacks(client))
        self.client = client
        try:
            self.version = version(DISTRIBUTIONS[client])
        except PackageNotFoundError:
            self.version = "unknown"
        self._settings, self._log = needs.producer, log
        w = needs.producer
        self._config = partial(
            DriverConfig,
            library=client,
            bootstrap=bootstrap,
            acks=w.acks,
            idempotence=w.idempotence,
            max_in_flight=w.max_in_flight,
            linger_ms=w.linger_ms,
            batch_size=w.batch_size,
            codec=w.codec,
            request_timeout_ms=needs.request_timeout_ms,
            delivery_timeout_ms=w.delivery_timeout_ms,
            max_record_bytes=needs.max_record_bytes,
            poll_pause_ms=needs.poll_pause_ms,
        )

    @override
    def about(self) -> Mapping[str, object]:
        """Return the producer settings whose real value may differ from the plan's. max_in_flight is 1 in aiokafka,
        which sends one batch of a partition at a time, whatever the plan says.
        """
        return {"max_in_flight": 1} if self.client == "aiokafka" else {}

    @override
    async def producer(self, nursery: trio.Nursery, client_id: str, flush: Callable[[], None]) -> LibraryProducer:
        made = LibraryProducer(
            DriverProcess(self._config(role="producer", client_id=client_id), self._log), self._settings, flush
        )
        await nursery.start(made.run)
        return made

    @override
    async def transactor(
        self, nursery: trio.Nursery, task: TransactorConfig, flush: Callable[[], None]
    ) -> LibraryTransactor:
        config = self._config(
            role="transactor",
            transactional_id=task.transactional_id,
            transaction_timeout_ms=task.timeout_ms,
            places=list(task.places),
            isolation=task.isolation,
            beginning=task.beginning,
        )
        made = LibraryTransactor(DriverProcess(config, self._log), config, flush)
        await nursery.start(made.run)
        return made

    @override
    async def member(
        self, nursery: trio.Nursery, task: MemberConfig, hearing: MemberListener, flush: Callable[[], None]
    ) -> LibraryMember:
        config = self._config(role="member", isolation=task.isolation, **of_member(task))
        limit_s = (config.session_timeout_ms + config.max_poll_interval_ms) / 1000
        made = LibraryMember(DriverProcess(config, self._log), hearing, limit_s, flush)
        await nursery.start(made.run)
        return made

    @override
    async def instance(
        self, nursery: trio.Nursery, task: InstanceConfig, hearing: MemberListener, flush: Callable[[], None]
    ) -> MemberProcess:
        config = self._config(
            role="instance",
            transactional_id=task.transactional_id,
            transaction_timeout_ms=task.timeout_ms,
            isolation=task.isolation,
            **of_member(MemberConfig(task.settings, task.isolation)),
        )
        process = DriverProcess(config, self._log)
        made = LibraryTransactionalMember(process, config, flush)
        limit_s = (config.session_timeout_ms + config.max_poll_interval_ms) / 1000
        made.member = LibraryMember(process, hearing, limit_s, flush, made.say)
        await nursery.start(made.run)
        return MemberProcess(made.member, made)

    @override
    async def reader(self, nursery: trio.Nursery, places: Sequence[Place], isolation: int) -> LibraryReader:
        config = self._config(role="reader", places=list(places), isolation=isolation)
        made = LibraryReader(DriverProcess(config, self._log))
        await nursery.start(made.run)
        return made


def of_member(task: MemberConfig) -> dict[str, Any]:
    """Return the fields of a `DriverConfig` that make a driver program the group member that `task` describes."""
    member = task.settings
    return {
        "group": member.group,
        "topics": list(member.topics),
        "group_protocol": member.protocol,
        "assignor": member.assignors[0] if member.protocol == CLASSIC else member.server_assignor,
        "instance": member.instance,
        "session_timeout_ms": member.session_timeout_ms,
        "heartbeat_interval_ms": member.heartbeat_interval_ms,
        "max_poll_interval_ms": member.max_poll_interval_ms,
    }
