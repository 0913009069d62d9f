"""Client libraries run the workload `transactions` while the coordinator of one of them is killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from squall.broker.coordinators.partitions import partition_of
from squall.broker.real_env import RealEnv
from squall.chaos.drivers.host import LibraryDriver
from squall.chaos.drivers.library import CLIENTS
from squall.checkers.anomalies.registry import find_all
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import ABORT, COMMIT, OK, POLL, SEND, History
from squall.checkers.history.values import SEQUENCE_BITS
from squall.workloads.control import LoadControls
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import ClientZone, TransactorConfig
from squall.workloads.recorder import Recorder
from squall.workloads.topics import make_topics
from squall.workloads.transactions import TransactionsLoad
from tests.support.clusters.drive import drive

pytestmark = pytest.mark.night("a foreign library through long failovers; the gate has one")

if TYPE_CHECKING:
    from tests.live.workloads.conftest import Brokers


LOG = "__transaction_state"


def now_ms() -> int:
    return RealEnv("harness").wall_ms()


def coordinator_of(transactional_id: str, bootstrap: str) -> int:
    """Return the broker that coordinates this transactional id."""
    from confluent_kafka.admin import AdminClient

    partitions = AdminClient({"bootstrap.servers": bootstrap}).list_topics(LOG, 20).topics[LOG].partitions
    return int(partitions[partition_of(transactional_id, len(partitions))].leader)


def values_of(history: History, how: int) -> set[int]:
    """Return the values sent in transactions that ended in this way according to their library."""
    ended = {txn.op for txn in history.txns.rows() if (txn.how, txn.st) == (how, OK)}
    return {member.val for member in history.members.rows() if member.kind == SEND and member.txn in ended}


def finally_read(history: History, isolation: int) -> set[int]:
    return {each.val for each in history.records.rows() if each.kind == POLL and each.final and each.iso == isolation}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_library_transacts_through_the_death_of_its_coordinator(
    brokers: Brokers, tmp_path: Path, client: str
) -> None:
    scenario = TransactionsLoad(client=client, producers=2, readers=2, rate=15)
    env, counters, stop = RealEnv("harness"), LoadCounters(), trio.Event()
    path = tmp_path / "history.jsonl"
    recorder = Recorder(env, str(path), "run-1")
    bootstrap = ",".join(f"{host}:{port}" for host, port in brokers.bootstrap)
    driver = LibraryDriver(client, bootstrap, scenario.needs(), tmp_path / "clients.log")

    async def until_acked(more: int) -> None:
        goal = counters.acked + more
        with trio.fail_after(90):
            while counters.acked < goal:
                await trio.sleep(0.05)

    async def run() -> None:
        await drive(env, [ClientZone("", brokers.bootstrap, driver)], scenario, recorder, stop, counters)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await until_acked(60)
        coordinator = coordinator_of("squall-0", bootstrap)
        brokers.kill(coordinator)
        await until_acked(60)
        brokers.start(coordinator)
        await until_acked(60)
        stop.set()
    await scenario.final_reads(env, brokers.bootstrap, recorder, counters, 60, "")
    recorder.close()
    with path.open("rb") as lines:
        history = parse(lines)
    assert history.problem is None, history.problem
    assert {each.client for each in history.processes if each.role in ("producer", "reader")} == {client}
    assert [each for each in history.members.rows() if each.kind == POLL], "polls inside transactions"
    committed, aborted = values_of(history, COMMIT), values_of(history, ABORT)
    assert len(committed) > 60 and aborted
    assert committed <= finally_read(history, 1)
    assert not aborted & finally_read(history, 1)
    assert find_all(history) == []


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_library_s_zombie_is_refused_whatever_it_tries(brokers: Brokers, tmp_path: Path, client: str) -> None:
    """A process hangs inside a transaction, its successor takes over and commits, and then the first one continues."""
    scenario = TransactionsLoad(client=client, producers=1, readers=2, rate=15)
    env, counters, stop, controls = RealEnv("harness"), LoadCounters(), trio.Event(), LoadControls(1, 2)
    path = tmp_path / "history.jsonl"
    recorder = Recorder(env, str(path), "run-1")
    bootstrap = ",".join(f"{host}:{port}" for host, port in brokers.bootstrap)
    driver = LibraryDriver(client, bootstrap, scenario.needs(), tmp_path / "clients.log")

    async def run() -> None:
        zones = [ClientZone("", brokers.bootstrap, driver)]
        await drive(env, zones, scenario, recorder, stop, counters, controls=controls)

    handle = controls.producers[0]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with trio.fail_after(120):
            while not counters.acked:
                await trio.sleep(0.05)
            zombie_run = handle.make_zombie(0)
            while not zombie_run.transactions:
                await trio.sleep(0.05)
            handle.wake(0)
            while not zombie_run.over:
                await trio.sleep(0.05)
        stop.set()
    await scenario.final_reads(env, brokers.bootstrap, recorder, counters, 60, "")
    recorder.close()
    with path.open("rb") as lines:
        history = parse(lines)
    assert history.problem is None, history.problem
    assert (zombie_run.sends, zombie_run.ends) == (2, 1)
    assert [told for told in zombie_run.results if told.split()[1] == "ok"] == []
    late = [
        each for each in history.members.rows() if each.kind == SEND and zombie_run.zombie == each.val >> SEQUENCE_BITS
    ]
    assert len(late) == 3  # one before it hung
    assert not {each.val for each in late} & finally_read(history, 1)
    assert find_all(history) == []


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_library_keeps_its_epoch_from_one_transaction_to_the_next(
    brokers: Brokers, tmp_path: Path, client: str
) -> None:
    """So it uses transaction protocol V1 on a cluster that supports V2, as the plan's description of it says."""
    scenario = TransactionsLoad(client=client, producers=1, readers=1, rate=15, aborts=0)
    assert scenario.generation == 1
    bootstrap = ",".join(f"{host}:{port}" for host, port in brokers.bootstrap)
    driver = LibraryDriver(client, bootstrap, scenario.needs(), tmp_path / "clients.log")
    recorder = Recorder(RealEnv("harness"), str(tmp_path / "history.jsonl"), "run-1")
    task = TransactorConfig("one", 10_000, scenario.places(), 1, "start")
    with trio.fail_after(120):
        await make_topics(RealEnv("harness"), brokers.bootstrap, scenario, recorder)
        async with trio.open_nursery() as nursery:
            producer = await driver.transactor(nursery, task, lambda: None)
            first = await producer.init()
            assert first.producer_id >= 0 and first.epoch >= 0
            for commit in (True, False, True):
                await producer.begin()
                producer.send(scenario.places()[0], b"k", b"value", now_ms(), lambda outcome: None)
                await producer.flushed()
                assert (await producer.end(commit=commit)).status == OK
                assert producer.identity == first
            producer.close()
