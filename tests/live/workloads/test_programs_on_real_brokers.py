"""The example programs of docs/workloads/command.md on three real brokers, one of which is killed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from squall.broker.real_env import RealEnv
from squall.chaos.drivers.program import ProgramDriver
from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import OK, POLL, SEND
from squall.workloads.command import CommandLoad
from squall.workloads.counters import LoadCounters
from squall.workloads.final_reads import final_reads
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from tests.support.clusters.drive import drive
from tests.support.lacks import without

pytestmark = pytest.mark.night("a foreign library through long failovers; the gate has one")

if TYPE_CHECKING:
    from tests.live.workloads.conftest import Brokers


EXAMPLES = Path(__file__).parents[3] / "docs/examples"


def _java() -> str:
    """Return the command of the Java program in docs/workloads/command.md."""
    return shlex.join(apache_kafka(lambda line: None).command(f"{EXAMPLES}/MyProgram.java", ()))


JAVA = pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH))


@pytest.mark.parametrize("language", ["python", pytest.param("java", marks=JAVA)])
async def test_an_example_program_gets_through_a_leaders_death(brokers: Brokers, tmp_path: Path, language: str) -> None:
    command = f"{sys.executable} {EXAMPLES}/my_producer.py" if language == "python" else _java()
    role = "producer" if language == "python" else "both"
    scenario = CommandLoad(command=command, role=role, partitions=2, rate=200)  # type: ignore[arg-type]
    env, counters, stop = RealEnv("harness"), LoadCounters(), trio.Event()
    path = tmp_path / "history.jsonl"
    recorder = Recorder(env, str(path), "run-1")
    bootstrap = ",".join(f"{host}:{port}" for host, port in brokers.bootstrap)
    driver = ProgramDriver(bootstrap, scenario.needs(), scenario.topic_names(), tmp_path / "clients.log")

    async def until_acked_and_read(more: int) -> None:
        goal = counters.acked + more
        with trio.fail_after(90):
            while counters.acked < goal or not counters.read:
                await trio.sleep(0.05)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drive, env, [ClientZone("", brokers.bootstrap, driver)], scenario, recorder, stop, counters)
        await until_acked_and_read(100)
        brokers.kill(1)
        await until_acked_and_read(100)
        brokers.start(1)
        await until_acked_and_read(100)
        stop.set()
    await final_reads(env, brokers.bootstrap, scenario.places(), recorder, rounds=1)
    recorder.close()
    with path.open("rb") as lines:
        history = parse(lines)
    assert history.problem is None, history.problem
    clients = {process.role: process.client for process in history.processes}
    assert clients == {"producer": "program", "reader": "program" if role == "both" else "squall", "final": "squall"}
    records = list(history.records.rows())
    acknowledged = {(each.part, each.off): each.val for each in records if each.kind == SEND and each.st == OK}
    found = {(each.part, each.off): each.val for each in records if each.kind == POLL and each.final}
    under_load = {(each.part, each.off): each.val for each in records if each.kind == POLL and not each.final}
    somewhere = {value for (_, offset), value in acknowledged.items() if offset < 0}
    assert {place: value for place, value in acknowledged.items() if place[1] >= 0}.items() <= found.items()
    assert somewhere <= set(found.values())
    assert under_load
    assert under_load.items() <= found.items()
    assert counters.bad == 0
