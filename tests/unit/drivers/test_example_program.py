"""Checks what docs/examples/my_producer.py answers: people begin with a copy of it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from confluent_kafka import Message

from squall.chaos.drivers.library import OK
from squall.chaos.drivers.lines import LineProtocol

PROGRAM = Path(__file__).parents[3] / "docs/examples/my_producer.py"


@pytest.mark.parametrize(("told", "offset"), [(12, 12), (0, 0), (-1, -1), (-1001, -1)])
def test_a_record_whose_place_the_library_was_not_told(
    capsys: pytest.CaptureFixture[str], told: int, offset: int
) -> None:
    record = Message(topic="command-0", partition=1, offset=told)
    runpy.run_path(str(PROGRAM))["answered"](7, None, 1, record.offset())
    line = capsys.readouterr().out
    assert json.loads(line) == {"type": "ok", "id": 7, "partition": 1, "offset": offset}
    lines = LineProtocol()
    lines.encode(["s", 7, "command-0", 1, b"0-7", b"value", 0])
    assert list(lines.feed(line.encode())) == [["o", [[7, OK, offset, -1, ""]]]]
