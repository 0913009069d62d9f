"""Real client libraries as drivers: the frames, a driver's process, and what the workload makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from squall.broker.real_env import RealEnv
from squall.chaos.drivers import host
from squall.chaos.drivers.frames import FrameCodec, frame
from squall.chaos.drivers.host import CLIENT_ENDED, LibraryDriver, LibraryProducer
from squall.chaos.drivers.library import DriverConfig
from squall.chaos.drivers.messages import decode_read_message
from squall.chaos.errors import HarnessError
from squall.chaos.plans.plan import PlanError, make_plan
from squall.workloads.appends import AppendsLoad
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.settings import ProducerSettings
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import (
    PolledRecords,
    PollError,
    ReaderAssigned,
    ReaderConfig,
    ReaderPositionReset,
    read_by,
    record,
)
from squall.workloads.live_readers import LiveReaders
from squall.workloads.recorder import Recorder

PLACE = ("t", 0)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LibraryDriver:
    """Return a driver whose library is `scripted_library`."""
    here = str(Path(__file__).parent)
    start = subprocess.Popen
    into = f"import sys; sys.path.insert(0, {here!r}); sys.argv = ['squall.chaos.drivers', *sys.argv[1:]]; "
    into += "import scripted_library, squall.chaos.drivers.__main__ as m; "
    into += "m.load = lambda name: scripted_library; m.main()"

    def scripted(command: list[str], **more: Any) -> Any:
        at = command.index("-m")
        return start([*command[: at - 1], "-c", into, command[-1]], **more)

    monkeypatch.setattr(subprocess, "Popen", scripted)
    return LibraryDriver(
        "confluent", "nowhere:1", AppendsLoad(delivery_timeout_ms=1000).needs(), tmp_path / "clients.log"
    )


class Sent:
    """Sends records, and keeps their outcomes."""

    def __init__(self) -> None:
        self.outcomes: dict[bytes, Outcome] = {}
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1

    def send(self, producer: LibraryProducer, value: bytes) -> None:
        def keep(outcome: Outcome) -> None:
            assert value not in self.outcomes, "one outcome a record"
            self.outcomes[value] = outcome

        producer.send(*PLACE, b"k", value, [], 123, keep)


async def with_producer(driver: LibraryDriver, test: Callable[[LibraryProducer, Sent], Awaitable[None]]) -> Sent:
    sent = Sent()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            producer = await driver.producer(nursery, "squall-process-0", sent.flush)
            await test(producer, sent)
            producer.retire("nothing more to send")
            await producer.finish()
            producer.close()
    return sent


def test_frames_come_whole_however_they_are_cut() -> None:
    data = frame(["s", 1, "t", 0, None, b"x" * 300, 5]) + frame(["f"])
    frames = FrameCodec()
    found = [message for at in range(len(data)) for message in frames.feed(data[at : at + 1])]
    assert found == [["s", 1, "t", 0, None, b"x" * 300, 5], ["f"]]


async def test_outcomes_are_told_once_and_as_the_library_told_them(driver: LibraryDriver) -> None:
    async def two(producer: LibraryProducer, sent: Sent) -> None:
        sent.send(producer, b"ok")
        while not sent.outcomes:
            await trio.sleep(0.01)
        assert not producer.retired
        sent.send(producer, b"fail")

    sent = await with_producer(driver, two)
    assert sent.outcomes == {
        b"ok": Outcome(OperationStatus.OK, 0, 123, ""),
        b"fail": Outcome(OperationStatus.FAIL, -1, -1, "REFUSED"),
    }
    assert sent.flushes >= 2


async def test_who_has_something_in_doubt_takes_no_more_records(driver: LibraryDriver) -> None:
    async def one(producer: LibraryProducer, sent: Sent) -> None:
        sent.send(producer, b"doubt")
        while not producer.retired:
            await trio.sleep(0.01)
        assert not producer.takes(1)

    assert (await with_producer(driver, one)).outcomes[b"doubt"] == Outcome(OperationStatus.INFO, -1, -1, "TIMED_OUT")


@pytest.mark.parametrize("last", [b"silent", b"die"])
async def test_what_a_library_never_answered_is_in_doubt(driver: LibraryDriver, last: bytes) -> None:
    async def one(producer: LibraryProducer, sent: Sent) -> None:
        sent.send(producer, last)

    assert (await with_producer(driver, one)).outcomes[last] == Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED)


async def test_a_library_that_breaks_is_trouble_of_the_harness_and_its_records_are_in_doubt(
    driver: LibraryDriver,
) -> None:
    sent = Sent()
    with pytest.raises(ExceptionGroup) as raised, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            producer = await driver.producer(nursery, "squall-process-0", sent.flush)
            sent.send(producer, b"raise")
            await trio.sleep_forever()
    assert raised.group_contains(HarnessError, match="a library's bug")
    assert sent.outcomes[b"raise"].status is OperationStatus.INFO


def test_room_is_bounded_by_the_bytes_that_have_no_answer(driver: LibraryDriver) -> None:
    settings = ProducerSettings(buffer_bytes=10)
    producer = LibraryProducer(None, settings, lambda: None)  # type: ignore[arg-type]
    assert producer.takes(10)
    producer.send(*PLACE, None, b"x" * 8, [], 0, lambda outcome: None)
    assert not producer.takes(3)
    producer._answered(0, Outcome(OperationStatus.OK, 0, 0, ""))
    assert producer.takes(10)


async def test_a_reader_tells_of_polls_damage_seeks_and_errors(driver: LibraryDriver) -> None:
    said: list[Any] = []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            reader = await driver.reader(nursery, [PLACE], 0)
            while len(said) < 4:
                said.append(await reader.next())
            reader.finish()
            assert await reader.next() is None
    assigned, read, sought, troubled = said
    assert assigned == ReaderAssigned({PLACE: 0})
    assert isinstance(read, PolledRecords)
    assert read.at == {PLACE: 0}
    assert [list(pair) for pair in read.parts[0].records] == [[0, 7], [1, -1]]
    assert read.parts[0].position == 2
    assert read.parts[0].bad[0][0] == 1
    assert sought == ReaderPositionReset(PLACE, 1, "gone")
    assert troubled == PollError("RuntimeError: no broker")


async def test_a_library_s_reader_lives_on_until_it_may_end_and_says_where_it_is(
    driver: LibraryDriver, tmp_path: Path
) -> None:
    recorder = Recorder(RealEnv("test"), str(tmp_path / "history.jsonl"), "run")
    recorder.partition(*PLACE)
    readers = LiveReaders(stay=True)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            task = ReaderConfig(0, [PLACE], 0, "CLIENT")
            nursery.start_soon(read_by, driver, recorder, LoadCounters(), task, readers)
            readers.load_over()
            while not len(readers):
                await trio.lowlevel.checkpoint()
            assert await readers.reach(RealEnv("test"), {PLACE: 1}, 20, 20) == []
            # Its script reads to 2, and is thrown back to 1.
            behind = await readers.reach(RealEnv("test"), {PLACE: 3}, 0.5, 20)
            readers.let_go()
    recorder.close()
    assert [(each.client, each.place, each.position) for each in behind] == [("confluent", PLACE, 1)]


def test_a_libraries_poll_stands_in_the_history_as_our_own_does(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    recorder = Recorder(RealEnv("test"), str(path), "run")
    recorder.partition(*PLACE)
    process = recorder.process("reader", "2", {}, client="confluent")
    counters = LoadCounters()
    for message in (["a", [["t", 0, 0]]], ["r", 5, [["t", 0, 0]], [["t", 0, 2, [[0, 7], [1, -1]], [[1, "checksum"]]]]]):
        record(decode_read_message(message), recorder, counters, process)
    recorder.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[2]["client"] == "confluent"
    invoked, completed, _ = lines[-3:]
    assert (invoked["f"], invoked["t"], invoked["at"]) == ("poll", 5, {"0": 0})
    assert completed["got"] == [[0, 2, -1, -1, -1, [[0, 7], [1, -1]], -1]]
    assert completed["bad"] == [[0, 1, "checksum"]]
    assert (counters.read, counters.bad) == (2, 1)


def test_only_our_own_client_runs_in_the_simulator() -> None:
    with pytest.raises(PlanError, match="our own client only"):
        make_plan({"runtime": "sim", "workload": {"client": "aiokafka"}})
    assert make_plan({"workload": {"client": "aiokafka"}}).workload.client == "aiokafka"


def test_a_library_that_is_not_installed_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    (lack,) = host.client_lacks("confluent")
    assert lack.what == "--client confluent needs the package confluent-kafka"
    assert (lack.flag, lack.packages, host.client_lacks("squall")) == ("--clients", (), [])


def test_a_driver_reads_nothing_but_frames_from_its_process() -> None:
    """`python -m squall.chaos.drivers` with a client that does not exist ends in one frame that says so."""
    config = msgspec.json.encode(DriverConfig("nobody", "producer", "x:1")).decode()
    command = [sys.executable, "-P", "-m", "squall.chaos.drivers", config]
    environment = {**os.environ, "PYTHONPATH": str(Path(host.__file__).parents[2])}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=environment)
    ((kind, why),) = list(FrameCodec().feed(done.stdout))
    assert kind == "x"
    assert "with_nobody" in why
