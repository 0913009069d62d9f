"""A library as a transactional producer: its calls, made again where they can be, and what the workload sees."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from squall.chaos.drivers.host import LibraryDriver
from squall.chaos.drivers.process import CLIENT_ENDED
from squall.chaos.drivers.reading import start_offset
from squall.chaos.drivers.transactors import calls, host
from squall.chaos.drivers.transactors.calls import TransactionCalls
from squall.chaos.drivers.transactors.host import LibraryTransactor
from squall.chaos.drivers.transactors.outcomes import IN_DOUBT, REFUSED, RESUMED, ErrorMeaning
from squall.workloads.appends import AppendsLoad
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.transactions import EndTxnResult, ProducerIdAndEpoch, TransactionRequestFailed
from squall.workloads.libraries import PolledRecords, PollError, ReaderAssigned, ReaderPositionReset, TransactorConfig

OK, FAIL, INFO = 0, 1, 2
PLACE = ("t", 0)


class Scripted:
    """Each call raises what is next in its script; an empty word is success."""

    def __init__(self, script: Sequence[str], spent: str = "") -> None:
        self.script, self.spent, self.calls = list(script), spent, 0

    def call(self, which: str, within_s: float) -> None:
        self.calls += 1
        word = self.script.pop(0)
        if word == "late":
            time.sleep(60)
        if word:
            raise RuntimeError(word)

    def weigh(self, which: str, error: BaseException) -> ErrorMeaning:
        if isinstance(error, TimeoutError):
            return ErrorMeaning(*IN_DOUBT[:1], "TIMED_OUT", IN_DOUBT[1])
        status, then = {"refused": REFUSED, "resumed": RESUMED, "fenced": IN_DOUBT}[str(error)]
        return ErrorMeaning(status, str(error), then)

    def identity(self) -> tuple[int, int]:
        return 5, 6

    def send(self, *record: Any) -> None:
        raise AssertionError("not here")

    def pump(self) -> None:
        pass


class Said:
    """Collects the answers."""

    def __init__(self) -> None:
        self.messages: list[tuple[Any, ...]] = []

    def send(self, *message: Any) -> None:
        self.messages.append(message)

    def send_outcomes(self) -> None:
        pass


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ([""], (OK, "", "")),
        (["refused"], (FAIL, "refused", "refused")),
        (["fenced"], (INFO, "fenced", "fenced")),
        (["resumed", "resumed", ""], (OK, "", "")),
        # The first attempt may have arrived: the answer to the second one does not take that back.
        (["resumed", "refused"], (INFO, "refused", "refused")),
        (["late"], (INFO, "TIMED_OUT", "TIMED_OUT")),
        (["resumed"] * 50, (INFO, "resumed", "resumed")),
    ],
)
def test_a_call_is_made_until_it_has_an_answer_and_doubt_stays(
    script: list[str], answer: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "AGAIN_S", 0.02)
    monkeypatch.setattr(calls, "GRACE_S", 0.1)
    said = Said()
    TransactionCalls(Scripted(script), said, 0.3).make("commit")
    status, error, ends = answer
    assert said.messages == [("t", "commit", status, error, 5, 6, ends)]


def test_a_producer_that_lost_a_record_and_cannot_mend_it_ends_after_the_abort() -> None:
    said = Said()
    TransactionCalls(Scripted([""], spent="OutOfOrderSequenceNumber"), said, 1).make("abort")
    assert said.messages == [("t", "abort", OK, "", 5, 6, "OutOfOrderSequenceNumber")]


# ------------------------------------------------------------------------------------------------ the harness's end


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LibraryDriver:
    """Return a driver whose library is `scripted_library`."""
    here = str(Path(__file__).parent)
    start = subprocess.Popen
    into = f"import sys; sys.path.insert(0, {here!r}); sys.argv = ['squall.chaos.drivers', *sys.argv[1:]]; "
    into += "import scripted_library, squall.chaos.drivers.__main__ as m; "
    into += "m.transactors.load = m.load = lambda name: scripted_library; m.main()"

    def scripted(command: list[str], **more: Any) -> Any:
        at = command.index("-m")
        return start([*command[: at - 1], "-c", into, command[-1]], **more)

    monkeypatch.setattr(subprocess, "Popen", scripted)
    return LibraryDriver(
        "confluent", "nowhere:1", AppendsLoad(delivery_timeout_ms=1000).needs(), tmp_path / "clients.log"
    )


async def played(driver: LibraryDriver, script: str, play: Callable[[LibraryTransactor], Any]) -> LibraryTransactor:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            producer = await driver.transactor(
                nursery, TransactorConfig(script, 4000, [PLACE], 0, "start"), lambda: None
            )
            await play(producer)
            producer.close()
    return producer


def sent(producer: LibraryTransactor, value: bytes) -> list[Outcome]:
    outcomes: list[Outcome] = []
    producer.send(PLACE, b"k", value, 123, outcomes.append)
    return outcomes


async def test_a_transaction_of_a_library(driver: LibraryDriver) -> None:
    async def play(producer: LibraryTransactor) -> None:
        assert (producer.id, producer.timeout_ms, producer.identity) == ("plain", 4000, (-1, -1))
        assert await producer.init() == ProducerIdAndEpoch(7, 0)
        for commit in (True, False):
            await producer.begin()
            outcomes = sent(producer, b"ok")
            await producer.flushed()
            assert [each.status for each in outcomes] == [OperationStatus.OK]
            assert await producer.end(commit=commit) == EndTxnResult(OperationStatus.OK, "")
        assert not producer.retired

    await played(driver, "plain", play)


async def test_a_poll_inside_a_transaction_brings_what_its_consumer_did(driver: LibraryDriver) -> None:
    async def play(producer: LibraryTransactor) -> None:
        await producer.init()
        await producer.begin()
        assigned, read = await producer.poll()
        assert assigned == ReaderAssigned({PLACE: 0})
        assert isinstance(read, PolledRecords) and read.parts[0].position == 2
        assert list(await producer.poll()) == [ReaderPositionReset(PLACE, 1, "gone")]
        assert list(await producer.poll()) == [PollError("RuntimeError: no broker")]
        assert await producer.end(commit=True) == EndTxnResult(OperationStatus.OK, "")

    await played(driver, "plain", play)


@pytest.mark.parametrize(("beginning", "offset"), [("start", 10), ("middle", 15), ("end", 20)])
def test_where_polls_begin(beginning: str, offset: int) -> None:
    assert start_offset(beginning, 10, 20) == offset


async def test_a_failed_record_lets_the_abort_succeed_and_the_process_end(driver: LibraryDriver) -> None:
    async def play(producer: LibraryTransactor) -> None:
        await producer.init()
        await producer.begin()
        outcomes = sent(producer, b"doubt")
        await producer.flushed()
        assert [each.status for each in outcomes] == [OperationStatus.INFO]
        assert await producer.end(commit=False) == EndTxnResult(OperationStatus.OK, "")
        assert producer.retired == "a gap"

    await played(driver, "plain", play)


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("commit: doubt, ok", EndTxnResult(OperationStatus.OK, "")),
        ("commit: doubt, refused", EndTxnResult(OperationStatus.INFO, "refused")),
        ("commit: refused", EndTxnResult(OperationStatus.FAIL, "refused")),
        ("commit: ended", EndTxnResult(OperationStatus.INFO, "ended")),
        ("commit: die", EndTxnResult(OperationStatus.INFO, CLIENT_ENDED)),
        ("commit: silent", EndTxnResult(OperationStatus.INFO, CLIENT_ENDED)),
    ],
)
async def test_how_a_commit_comes_out(
    driver: LibraryDriver, script: str, ended: EndTxnResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "FINISH_SLACK_S", 1.0)

    async def play(producer: LibraryTransactor) -> None:
        await producer.init()
        await producer.begin()
        assert await producer.end(commit=True) == ended
        assert bool(producer.retired) is (ended.status is not OperationStatus.OK)

    await played(driver, script, play)


@pytest.mark.parametrize(("script", "doubt"), [("init: refused", False), ("init: ended", True), ("init: die", True)])
async def test_who_is_not_given_its_id_says_whether_it_may_have_been(
    driver: LibraryDriver, script: str, doubt: bool
) -> None:
    async def play(producer: LibraryTransactor) -> None:
        with pytest.raises(TransactionRequestFailed) as told:
            await producer.init()
        assert told.value.doubt is doubt

    await played(driver, script, play)


async def test_records_of_a_process_that_ended_are_in_doubt_and_later_ones_failed(driver: LibraryDriver) -> None:
    async def play(producer: LibraryTransactor) -> None:
        await producer.init()
        await producer.begin()
        last = sent(producer, b"die")
        await producer.flushed()
        assert last == [Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED)]
        assert sent(producer, b"ok") == [Outcome(OperationStatus.FAIL, -1, -1, CLIENT_ENDED)]
        assert await producer.end(commit=True) == EndTxnResult(OperationStatus.FAIL, CLIENT_ENDED)

    await played(driver, "plain", play)


async def test_a_client_that_crashes_is_killed_before_anything_else_happens(driver: LibraryDriver) -> None:
    """A library that may finish would deliver what its crash was to leave behind."""
    ended: list[float] = []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            producer = await driver.transactor(
                nursery, TransactorConfig("plain", 4000, [PLACE], 0, "start"), lambda: None
            )
            outcomes = sent(producer, b"silent")
            kill = producer._process.kill
            producer._process.kill = lambda: (ended.append(trio.current_time()), kill())[1]  # type: ignore[method-assign]
            began = trio.current_time()
            nursery.cancel_scope.cancel()
    assert ended and ended[0] - began < 1
    assert producer._process._popen.returncode is not None and producer._process._popen.returncode < 0
    assert outcomes == [Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED)]
