"""A program under test: what it is asked, what its answers mean, and what comes of one that misbehaves."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from squall.chaos.commands.run import plan_of
from squall.chaos.drivers import process, program
from squall.chaos.drivers.host import LibraryProducer
from squall.chaos.drivers.lines import LineProtocol
from squall.chaos.drivers.process import CLIENT_ENDED
from squall.chaos.drivers.program import ProgramDriver, ProgramProtocolError, program_of
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.plans.plan import PlanError, make_plan
from squall.chaos.runs.real import lacks
from squall.chaos.runtimes.real.proc import run_state
from squall.workloads import payload
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.command import CommandLoad
from squall.workloads.command.scenario import TOPIC
from squall.workloads.libraries import PolledRecords, PollError, ReaderAssigned

PLACE = (TOPIC, 0)
SPEAKS = """
import json, os, sys
def say(**answer): print(json.dumps(answer), flush=True)
lines = (json.loads(line) for line in sys.stdin)
init = next(lines)
"""
STRANGE = {"partition": 8, "offset": 1, "key": None, "value": None}
READY = SPEAKS + "say(type='ready', name='tiny')\n"


def driver(tmp_path: Path, script: str, say: Callable[[str], None] = lambda _: None, **settings: Any) -> ProgramDriver:
    """Return the driver of a program that this script is."""
    (tmp_path / "program.py").write_text(script)
    command = f"{sys.executable} -I -S program.py"
    needs = CommandLoad(command=command, directory=str(tmp_path), delivery_timeout_ms=1000, **settings).needs()
    return ProgramDriver("host:1,host:2", needs, [TOPIC], tmp_path / "clients.log", say)


async def sent(
    of: ProgramDriver, *values: bytes, until: Callable[[LibraryProducer], bool] | None = None
) -> list[Outcome]:
    """The outcomes of records, in the order in which they came."""
    outcomes: list[Outcome] = []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            producer = await of.producer(nursery, "squall-process-0", lambda: None)
            for value in values:
                producer.send(*PLACE, b"k", value, [], 5, outcomes.append)
            while until is not None and not until(producer):
                await trio.sleep(0.01)
            producer.retire("nothing more to send")
            await producer.finish()
    return outcomes


async def trouble_of(of: ProgramDriver, *values: bytes) -> str:
    """The harness's trouble with a program; every record of it is in doubt."""
    outcomes: list[Outcome] = []
    with pytest.raises(ExceptionGroup) as found, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            producer = await of.producer(nursery, "squall-process-0", lambda: None)
            for value in values:
                producer.send(*PLACE, b"k", value, [], 5, outcomes.append)
            await trio.sleep_forever()
    (trouble,) = found.value.exceptions
    while isinstance(trouble, ExceptionGroup):
        (trouble,) = trouble.exceptions
    assert isinstance(trouble, ProgramProtocolError)
    assert [each.status for each in outcomes] == [OperationStatus.INFO] * len(values)
    return str(trouble)


async def test_a_program_is_told_what_to_send_and_its_answers_are_the_outcomes(tmp_path: Path) -> None:
    script = READY + (
        "asked = [next(lines) for _ in range(3)]\n"
        "json.dump([init, *asked], open('said.json', 'w'))\n"
        "say(type='info', id=asked[2]['id'], error='TIMED_OUT')\n"
        "say(type='fail', id=asked[1]['id'], error='TOO_LARGE')\n"
        "say(type='ok', id=asked[0]['id'], partition=0, offset=41)\n"
        "assert next(lines) == {'type': 'finish'}\n"
    )
    outcomes = await sent(driver(tmp_path, script), b"\x00a", b"b", b"c")
    assert outcomes == [
        Outcome(OperationStatus.INFO, -1, -1, "TIMED_OUT"),
        Outcome(OperationStatus.FAIL, -1, -1, "TOO_LARGE"),
        Outcome(OperationStatus.OK, 41, -1, ""),
    ]
    init, first, *_ = json.loads((tmp_path / "said.json").read_text())
    assert (init["role"], init["bootstrap"], init["topics"]) == ("producer", "host:1,host:2", [TOPIC])
    assert init["config"]["client.id"] == "squall-process-0"
    assert (init["config"]["acks"], init["config"]["enable.idempotence"]) == ("all", "true")
    value = b64encode(b"\x00a").decode()
    wanted = {"type": "send", "id": 0, "topic": TOPIC, "partition": 0, "key": "k", "value": value, "timestamp_ms": 5}
    assert first == wanted


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("print('hello', flush=True)", "the line 'hello'"),
        ("say(type='okay', id=0)", "type: expected ready, ok, fail, info, records or error, got 'okay'"),
        ("say(type='ok', id=0, partition=0, offset='soon')", "offset: expected a whole number from -1 to 2^62 - 1, or"),
        ("say(type='ok', id=0, partition=0, offset='soon')", 'its digits in a string, got "soon"'),
        ("say(type='ok', id=0, partition=None, offset=1)", "partition: expected a whole number from 0"),
        ("say(type='ok', id=0, partition=0, offset=True)", "got true"),
        ("say(type='fail', id=0, error=None)", "error: expected `str`, got `null`"),
        ("say(type='ok', id=0, partition=0)", "missing required field `offset`"),
        ("say(type='ok', id=9, partition=0, offset=1)", "record 9, which it was not asked"),
        ("say(type='ok', id=0, partition=3, offset=1)", "to partition 3, and was asked for partition 0"),
        ("say(type='records', id=1, records=[])", "answered poll 1"),
        ("say(type='ready')", "it answered ready, and had answered init already"),
    ],
)
async def test_a_line_that_is_no_answer_is_trouble_with_the_line_in_it(tmp_path: Path, answer: str, told: str) -> None:
    said = await trouble_of(driver(tmp_path, READY + f"next(lines)\n{answer}\nnext(lines)\n"), b"x")
    assert told in said


@pytest.mark.parametrize("answer", ["print('hello')", "say(type='ok', id=0, partition=0, offset=1)"])
async def test_a_program_that_answers_init_with_something_else_is_refused(tmp_path: Path, answer: str) -> None:
    said = await trouble_of(driver(tmp_path, f"{SPEAKS}{answer}\nsys.stdout.flush()\nnext(lines)\n"))
    assert "does not keep to the protocol: it " in said


async def test_a_program_that_was_understood_before_is_not_refused(tmp_path: Path) -> None:
    answers = "say(type='ok', id=0, partition=0, offset=1)\nsay(type='ok', id=1, partition=0, offset='soon')\n"
    of = driver(tmp_path, f"{READY}next(lines)\nnext(lines)\n{answers}next(lines)\n")
    with pytest.raises(ExceptionGroup) as found:
        await sent(of, b"x", b"y", until=lambda producer: False)
    assert found.group_contains(HarnessError, match='got "soon"')
    assert not found.group_contains(ProgramProtocolError)


async def test_numbers_may_be_strings_of_digits_and_a_byte_order_mark_may_come_first(tmp_path: Path) -> None:
    script = SPEAKS + (
        "sys.stdout.reconfigure(encoding='utf-8-sig')\nsay(type='ready')\nnext(lines)\n"
        "say(type='ok', id='0', partition='0', offset='41', timestamp_ms='1764000000000')\n"
    )
    (outcome,) = await sent(driver(tmp_path, script), b"x", until=lambda producer: bool(producer.retired))
    assert outcome == Outcome(OperationStatus.OK, 41, 1764000000000, "")
    assert {type(each) for each in outcome} == {OperationStatus, int, str}


async def test_an_answer_given_twice_is_trouble(tmp_path: Path) -> None:
    script = READY + "next(lines)\nfor _ in 'ab': say(type='info', id=0, error='x')\nnext(lines)\n"
    of = driver(tmp_path, script)
    with pytest.raises(ExceptionGroup) as found:
        await sent(of, b"x", until=lambda producer: False)
    assert found.group_contains(HarnessError, match="has answered already")


async def test_what_a_dying_program_had_is_in_doubt_and_it_takes_no_more(tmp_path: Path) -> None:
    of = driver(tmp_path, READY + "next(lines)\nos._exit(3)\n")
    (outcome,) = await sent(of, b"x", until=lambda producer: bool(producer.retired))
    assert outcome == Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED)


async def test_a_silent_program_is_ended_and_what_it_had_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall.chaos.drivers.host.FINISH_SLACK_S", -0.9)
    monkeypatch.setattr("squall.chaos.drivers.host.SILENT_EVERY_S", 0.05)
    of = driver(tmp_path, READY + "for line in lines: pass\nimport time\ntime.sleep(100)\n")
    (outcome,) = await sent(of, b"x", until=lambda producer: bool(producer.retired))
    assert outcome == Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED)


async def test_a_program_that_is_never_ready_is_named_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = await trouble_of(driver(tmp_path, SPEAKS + "sys.exit('no broker')\n"))
    command = f"{sys.executable} -I -S program.py"
    assert said.startswith(f"the program `{command[:79]}{'…' if len(command) > 80 else command[79:]}` (producer) ended")
    assert "ended before it was ready; it last said:\nno broker" in said
    monkeypatch.setattr(process, "SLOW_S", 0.1)
    monkeypatch.setattr(process, "UP_S", 0.3)
    heard: list[str] = []
    assert "was not ready within 0.3 s" in await trouble_of(driver(tmp_path, SPEAKS + "next(lines)\n", heard.append))
    (line,) = heard
    assert line.startswith("waiting for the program") and line.endswith("to answer init with ready (0 s left)")


@pytest.mark.parametrize(
    ("text", "said"), [("a\n b\na\n b", "a\n b"), ("a\nb\nb", "a\nb\nb"), ("x\nx\nx", "x"), ("x", "x"), ("", "")]
)
def test_last_words_of_several_processes_are_said_once_if_they_are_the_same(text: str, said: str) -> None:
    assert process.without_repetition(text) == said


async def test_what_a_program_has_started_ends_with_it(tmp_path: Path) -> None:
    script = READY + (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(100)'])\n"
        "open('child', 'w').write(str(child.pid))\nfor line in lines: pass\n"
    )
    await sent(driver(tmp_path, script))
    child = int((tmp_path / "child").read_text())
    with trio.fail_after(60):
        while (run_state(child) or "Z") != "Z":
            await trio.sleep(0.01)


async def test_a_reader_is_polled_from_the_start_and_its_records_are_verified(tmp_path: Path) -> None:
    content, _ = payload.make(7, b"k")
    good = {"partition": 0, "offset": "4", "key": "k", "value": b64encode(content).decode()}
    bad = {"partition": 0, "offset": 5, "key": "k", "value": b64encode(b"text").decode()}
    script = READY + (
        "json.dump(init, open('said.json', 'w'))\n"
        f"say(type='records', id=next(lines)['id'], records=[{good!r}, {bad!r}])\n"
        "say(type='error', id=next(lines)['id'], error='no broker')\n"
        "for line in lines: say(type='records', id=line['id'], records=[])\n"
    )
    said: list[Any] = []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            reader = await driver(tmp_path, script, poll_pause_ms=0).reader(nursery, [PLACE], 1)
            while len(said) < 4:
                said.append(await reader.next())
            reader.finish()
            assert await reader.next() is None
    assigned, read, troubled, empty = said
    assert assigned == ReaderAssigned({PLACE: 0})
    assert isinstance(read, PolledRecords)
    ((place, position, records, damage),) = read.parts
    assert (read.at, place, position, list(records)) == ({PLACE: 0}, PLACE, 6, [(4, 7), (5, -1)])
    assert damage == [(5, "payload of 4 bytes")]
    assert troubled == PollError("no broker")
    assert isinstance(empty, PolledRecords)
    assert (empty.at, empty.parts[0].position) == ({PLACE: 6}, 6)
    init = json.loads((tmp_path / "said.json").read_text())
    assert (init["isolation"], init["assigned"]) == ("read_committed", [{"topic": TOPIC, "partition": 0}])


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("sys.exit('gone')", "ended by itself"),
        ("next(lines)\nnext(lines)", "did not answer a poll"),
        ("say(type='records', id=2, records=[])\nnext(lines)\nnext(lines)", "answered poll 2"),
        (f"next(lines)\nsay(type='records', id=1, records=[{STRANGE}])\nnext(lines)", "partition 8, which is not ass"),
    ],
)
async def test_a_reader_that_misbehaves_is_trouble(
    tmp_path: Path, does: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "POLL_ANSWER_S", 0.3 if "did not answer" in told else 20)
    with pytest.raises(ExceptionGroup) as found, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            reader = await driver(tmp_path, READY + does + "\n", poll_pause_ms=0).reader(nursery, [PLACE], 0)
            while True:
                await reader.next()
    assert found.group_contains(HarnessError, match=told)


def test_lines_come_whole_however_they_are_cut_and_nothing_follows_a_wrong_one() -> None:
    lines = LineProtocol()
    for number in range(2):
        lines.encode(["s", number, TOPIC, 0, None, b"x", 1])
    data = b'{"type":"ok","id":0,"partition":0,"offset":3}\n\nwrong\n{"type":"info","id":1,"error":"e"}\n'
    found = [message for at in range(len(data)) for message in lines.feed(data[at : at + 1])]
    assert [each[0] for each in found] == ["o", "x"]


def test_a_program_that_is_not_there_is_refused_before_anything_begins(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    for command, why in (
        ("", "none is named"),
        ("./nothing", "there is no program './nothing'"),
        ("surely-nothing-on-path", r"on PATH \(a program of --directory is ./NAME\)"),
        ("./text", "chmod"),
        ("'", "No closing quotation"),
    ):
        with pytest.raises(PreconditionError, match=why):
            program_of(command, str(tmp_path))
    with pytest.raises(PreconditionError, match=r"on PATH \(a program of the current folder is ./NAME\)"):
        program_of("surely-nothing-on-path", "")
    (lack,) = lacks(make_plan({"workload": {"name": "command", "command": "./nothing"}}))
    assert "there is no program './nothing'" in str(lack)
    assert lacks(make_plan({"workload": {"name": "command", "command": sys.executable}})) == []


def test_a_plan_says_where_its_program_was_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    flags = {"workload": "command", "command": "./mine", "broker_settings": {}, "topic_settings": {}}
    assert plan_of(None, flags).workload.model_dump()["directory"] == str(tmp_path)
    flags["directory"] = "below"
    assert plan_of(None, flags).workload.model_dump()["directory"] == str(tmp_path / "below")


def test_the_simulator_starts_no_program() -> None:
    with pytest.raises(PlanError, match="workload command needs processes"):
        make_plan({"runtime": "sim", "workload": {"name": "command", "command": "x"}})
