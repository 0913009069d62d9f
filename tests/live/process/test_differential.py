"""Runs `python -m tests.differential` with one of our nodes and one of Apache Kafka's."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from squall.chaos.toolchain.kafka import kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.differential import compare, report, sequences
from tests.support.lacks import without

pytestmark = [
    pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH)),
    pytest.mark.night("Apache Kafka is fetched for it"),
]
ROOT = Path(__file__).parents[3]


def test_the_printed_command_asks_both_brokers_the_sequence_again(tmp_path: Path) -> None:
    row = sequences.sequence(3)
    result = compare.judged("Fetch", 4, row.name, "request", 1, 2, row.repeat)
    python, *words = shlex.split(report.text_of(result).rpartition("again: ")[2])
    assert python == ".venv/bin/python"
    command = [sys.executable, *words, "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    asked = sum(not ask.setup for ask in row.steps)
    assert f"{asked} answers, 1 random sequences" in done.stdout, done.stdout
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "report/index.html").exists()
