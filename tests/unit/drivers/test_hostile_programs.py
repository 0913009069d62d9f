"""Programs under test that mean ill: each ends in one sentence or in doubt, soon, and never in a failure of ours."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from squall.chaos.drivers import process
from squall.chaos.drivers.lines import MAX_ERROR_CHARS, MAX_LINE_BYTES, LineProtocol
from squall.chaos.drivers.process import CLIENT_ENDED
from squall.workloads.client.outcomes import OperationStatus, Outcome
from tests.unit.drivers.test_programs import PLACE, READY, driver, sent, trouble_of


def asked() -> LineProtocol:
    """Lines with a record and a poll that wait for an answer."""
    lines = LineProtocol()
    lines.encode(["s", 0, *PLACE, None, b"x", 1])
    lines.encode(["poll"])
    return lines


RECORD = '{"type":"records","id":1,"records":[{"partition":0,"offset":%s,"key":%s,"value":null}]}'
HUGE = "9" * 30


@pytest.mark.parametrize(
    "line",
    [
        f'{{"type":"ok","id":0,"partition":0,"offset":{HUGE}}}',
        '{"type":"ok","id":0,"partition":0,"offset":9223372036854775807}',
        '{"type":"ok","id":0,"partition":0,"offset":1,"timestamp_ms":18446744073709551615}',
        '{"type":"ok","id":0,"partition":0,"offset":-2}',
        f'{{"type":"ok","id":{HUGE},"partition":0,"offset":1}}',
        RECORD % ("9223372036854775807", "null"),
        RECORD % (1, r'"\udc00"'),
        '{"type":"ok","id":0,"x":' + "[" * 50_000 + "]" * 50_000 + "}",
        r'{"type":"fail","id":0,"error":"\ud800"}',
        "\x00\x1b[2J",
    ],
)
def test_a_line_that_no_history_could_hold_is_no_answer(line: str) -> None:
    ((kind, why),) = asked().feed(line.encode() + b"\n")
    assert kind == "x"
    assert why.startswith(("it wrote the line", "it answered")), why
    assert len(why) < 600


def test_of_a_long_error_the_history_keeps_the_begin() -> None:
    ((_, answers),) = asked().feed(b'{"type":"info","id":0,"error":"%s"}\n' % (b"e" * 1_000_000))
    ((_, _, _, _, error),) = answers
    assert error == "e" * MAX_ERROR_CHARS


def test_a_line_without_an_end_takes_no_longer_the_longer_it_is(bound_s: float) -> None:
    lines, piece = asked(), b"x" * process.READ_BYTES
    began = time.process_time()
    for _ in range(MAX_LINE_BYTES // len(piece)):
        assert not list(lines.feed(piece))
    ((kind, why),) = lines.feed(piece)
    assert (kind, "without the end of a line" in why) == ("x", True)
    assert time.process_time() - began < bound_s, "quadratic it is two minutes"
    assert not list(lines.feed(b"\n"))


def test_what_comes_in_pieces_is_what_comes_whole() -> None:
    answer = b'{"type":"ok","id":0,"partition":0,"offset":3}\n\n'
    whole = list(asked().feed(answer))
    for size in (1, 2, 7, len(answer) - 1):
        lines = asked()
        pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
        assert [message for piece in pieces for message in lines.feed(piece)] == whole


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall.chaos.drivers.host.FINISH_SLACK_S", -0.9)
    monkeypatch.setattr("squall.chaos.drivers.host.SILENT_EVERY_S", 0.05)
    monkeypatch.setattr(process, "END_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "does",
    [
        "os.close(0)\nimport time\ntime.sleep(100)",
        "os.close(1)\nimport time\ntime.sleep(100)",
        "os.kill(os.getpid(), __import__('signal').SIGSTOP)",
        "next(lines)\nwhile True: os.write(1, b'\\n' * 65536)",
        "import time\ntime.sleep(100)",
    ],
    ids=["closes stdin", "closes stdout", "stops itself", "floods with empty lines", "never reads"],
)
async def test_who_does_not_answer_is_ended_and_what_it_had_is_in_doubt(tmp_path: Path, does: str) -> None:
    of = driver(tmp_path, READY + does + "\n")
    values = [b"x" * 50_000] * 40  # more than a pipe holds
    outcomes = await sent(of, *values, until=lambda producer: bool(producer.retired))
    assert outcomes == [Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED)] * len(values)


@pytest.mark.usefixtures("impatient")
async def test_a_child_that_left_its_group_and_holds_the_pipe_holds_up_nothing(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\n"
        "words = [sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)']\n"
        "child = subprocess.Popen(words, start_new_session=True)\n"
        "open('child', 'w').write(str(child.pid))\n"
        f"{READY}os._exit(0)\n"
    )
    of = driver(tmp_path, script)
    try:
        (outcome,) = await sent(of, b"x", until=lambda producer: bool(producer.retired))
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert outcome == Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED)


@pytest.mark.usefixtures("impatient")
async def test_an_answer_that_comes_too_late_counts_for_nothing(tmp_path: Path) -> None:
    late = "asked = next(lines)\nimport time\ntime.sleep(0.6)\nsay(type='ok', id=0, partition=0, offset=1)\n"
    (outcome,) = await sent(driver(tmp_path, READY + late), b"x", until=lambda producer: bool(producer.retired))
    assert outcome.status is OperationStatus.INFO


async def test_who_fills_the_disk_with_its_standard_error_is_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall.chaos.drivers.host.SILENT_EVERY_S", 0.05)
    monkeypatch.setattr(process, "MAX_LOG_BYTES", 1 << 20)
    flood = "while True: os.write(2, b'e' * 65536)\n"
    assert "wrote more than 1 MiB to its standard error" in await trouble_of(driver(tmp_path, READY + flood), b"x")
