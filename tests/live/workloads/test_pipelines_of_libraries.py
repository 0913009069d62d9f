"""Client libraries read, transform and write, in transactions and without, while brokers are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from squall.broker.real_env import RealEnv
from squall.chaos.drivers.host import LibraryDriver
from squall.checkers.anomalies.registry import find_all
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import COMMIT, OK, History
from squall.workloads.client.cluster import Place
from squall.workloads.control import LoadControls
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import ClientZone
from squall.workloads.pipeline import PipelineLoad
from squall.workloads.pipeline.scenario import MultiInstanceLoad
from squall.workloads.recorder import Recorder
from squall.workloads.scenario import ScenarioEnvironment
from squall.workloads.semantics import SemanticsLoad
from tests.support.patience import scaled_ms

pytestmark = pytest.mark.night("a foreign library through long failovers; the gate has one")

if TYPE_CHECKING:
    from tests.live.workloads.conftest import Brokers

LIMIT_S = 300
PATIENT = {"session_timeout_ms": scaled_ms(6_000), "max_poll_interval_ms": scaled_ms(10_000)}


def last(path: Path, lines: int = 60) -> str:
    """Return the last lines of a file, if there is one."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""


async def played(scenario: MultiInstanceLoad, brokers: Brokers, folder: Path) -> History:
    """Return the history of a run in which a broker is killed and restarted, and one instance crashes."""
    env, counters, stop = RealEnv("harness"), LoadCounters(), trio.Event()
    path = folder / "history.jsonl"
    recorder = Recorder(env, str(path), "run-1")
    bootstrap = ",".join(f"{host}:{port}" for host, port in brokers.bootstrap)
    driver = LibraryDriver(scenario.client, bootstrap, scenario.needs(), folder / "clients.log")
    traffic = scenario.traffic()
    controls, made = LoadControls(traffic.producers, traffic.readers), Counter[Place]()
    outputs = [place for place in scenario.places() if place[0] != scenario.INPUT]

    def acknowledged(topic: str, partition: int, offset: int, value: int) -> None:
        made[topic, partition] += 1

    zones = [ClientZone("", brokers.bootstrap, driver)]
    around = ScenarioEnvironment(env, zones, recorder, counters, stop, controls, acknowledged=acknowledged)

    async def until_made(more: int) -> None:
        """Wait for so many more outputs in each output partition of each application."""
        goals = {place: made[place] + more for place in outputs}
        try:
            with trio.fail_after(LIMIT_S):
                while any(made[place] < goal for place, goal in goals.items()):
                    await trio.sleep(0.05)
        except trio.TooSlowError:
            recorder.flush()
            raise AssertionError(
                f"of {goals} there are {dict(made)}; the clients said:\n{last(folder / 'clients.log')}\n"
                f"and did:\n{last(path)}"
            ) from None

    first = controls.producers[scenario.producers]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scenario.run, around)
        await until_made(10)
        brokers.kill(2)
        await until_made(10)
        first.crash(0)
        brokers.start(2)
        first.replace(0)
        await until_made(20)
        stop.set()
        around.readers.may_end.set()
    await scenario.final_reads(env, brokers.bootstrap, recorder, counters, 60, "")
    recorder.close()
    with path.open("rb") as lines:
        history = parse(lines)
    assert history.problem is None, history.problem
    return history


@pytest.mark.parametrize(("client", "instances"), [("confluent", 2), ("kafka-python", 2), ("aiokafka", 1)])
async def test_a_library_makes_one_output_of_each_input(
    brokers: Brokers, tmp_path: Path, client: str, instances: int
) -> None:
    scenario = PipelineLoad(client=client, instances=instances, churn=0, **PATIENT)
    history = await played(scenario, brokers, tmp_path)
    own = {each.proc for each in history.processes if "member" in each.settings}
    assert {each.client for each in history.processes if each.proc in own} == {client}
    committed = {txn.op for txn in history.txns.rows() if (txn.how, txn.st) == (COMMIT, OK)}
    offsets = [each for each in history.commits.rows() if each.txn in committed and each.st == OK]
    assert {each.part for each in offsets} == set(range(scenario.partitions)), "offsets inside transactions"
    assert {each.proc for each in offsets} <= own
    assert len({each.src for each in history.outputs.rows()}) > 50
    assert {each.proc for each in offsets} <= {hold.proc for hold in history.holds.rows()}
    assert find_all(history) == []


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
async def test_a_library_is_what_each_application_promises(brokers: Brokers, tmp_path: Path, client: str) -> None:
    scenario = SemanticsLoad(client=client, churn=0, **PATIENT)
    history = await played(scenario, brokers, tmp_path)
    commits = [each for each in history.commits.rows() if each.st == OK]
    groups = {history.names[each.group]: each.txn >= 0 for each in commits}
    assert groups == {"squall-at-most-once": False, "squall-at-least-once": False, "squall-exactly-once": True}
    promised = {"squall-at-most-once": "eos-duplicate", "squall-at-least-once": "eos-loss"}
    of_group = {
        each.proc: promised.get(str(each.settings["group"]), "")
        for each in history.processes
        if "group" in each.settings
    }
    for witness in find_all(history):
        assert witness.anomaly in ("eos-duplicate", "eos-loss")
        assert of_group[witness.proc] not in ("", witness.anomaly), witness
