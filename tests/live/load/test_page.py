"""Each command and program of docs/load.md does what the page says, on a broker of the test's own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from squall.chaos.toolchain.java import java
from tests.architecture.source import ROOT
from tests.support.load.clusters import one_broker
from tests.support.load.loads import kill_whole, load_started, rows_of_lake, wait_during
from tests.support.pages import commands
from tests.support.patience import scaled

pytestmark = pytest.mark.night("starts Spark three times")
PAGE = (ROOT / "docs/load.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:9092"
ORDERS, PAID = 40, 30


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with 40 orders in two partitions; 30 of them are paid."""
    with one_broker("squall") as address:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        for done in admin.create_topics([NewTopic(name, 2, 1) for name in ("orders", "payments")]).values():
            done.result()
        produce(address, "orders", range(ORDERS))
        produce(address, "payments", range(PAID))
        yield address


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(topic, value=f"value {number}", key=f"id-{number:02}", partition=number % 2)
    producer.flush()


def played(programs: list[str], bootstrap: str, folder: Path) -> str:
    """Return what programs of the page print, in one process whose folder and broker are those of the test."""
    script = folder / "program.py"
    script.write_text("\n".join(programs).replace(ADDRESS, bootstrap))
    here = {"JAVA_HOME": str(java(print).home), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an environment that is active
    command = [sys.executable, str(script)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **here, "PATH": path}, capture_output=True, text=True,
        timeout=scaled(300),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_programs_read_topics_and_join_them(bootstrap: str, tmp_path: Path) -> None:
    printed = played(PROGRAMS[1:], bootstrap, tmp_path)
    assert re.findall(r"^\| +([01])\| +(\d+)\|$", printed, re.MULTILINE) in ([("0", "20"), ("1", "20")],
                                                                       [("1", "20"), ("0", "20")])  # fmt: skip
    assert sorted(re.findall(r"\|(id-\d+)\|", printed)) == [f"id-{number:02}" for number in range(PAID, ORDERS)]


def test_commands_load_topics_and_duckdb_reads_the_folder(bootstrap: str, tmp_path: Path) -> None:
    once, follow = (each.text.partition(" #")[0].split() for each in commands(PAGE))
    program = [sys.executable, "-P", "-m", "squall.chaos"]
    once, follow = (
        [*program, *(word.replace(ADDRESS, bootstrap).replace("lake/", str(tmp_path / "lake")) for word in words[1:])]
        for words in (once, follow)
    )
    done = subprocess.run(once, cwd=ROOT, capture_output=True, text=True, timeout=scaled(300))
    assert done.returncode == 0, done.stderr
    assert "70 records, 70 of them now" in done.stdout
    printed = played(PROGRAMS[:1], bootstrap, tmp_path)
    assert re.findall(r"│ +(\d+) │ +(\d+) │ +(\d+) │", printed) == [("0", "20", "5"), ("1", "20", "5")]
    commits = tmp_path / "lake/_checkpoint/commits"
    before = len(list(commits.iterdir()))
    load = load_started(follow, tmp_path / "follow.log")
    try:
        produce(bootstrap, "orders", range(ORDERS, ORDERS + 1))
        wait_during(load, lambda: len(list(commits.iterdir())) > before, tmp_path / "follow.log", scaled(120))
        os.kill(load.pid, signal.SIGINT)
        assert load.wait(scaled(120)) == 0
    finally:
        if load.poll() is None:
            kill_whole(load)
    assert len(rows_of_lake(tmp_path / "lake")) == ORDERS + PAID + 1
