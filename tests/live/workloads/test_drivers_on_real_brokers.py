"""Client libraries run the workload against three real brokers, one of which is killed: nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from squall.broker.real_env import RealEnv
from squall.chaos.drivers.host import LibraryDriver
from squall.chaos.drivers.library import CLIENTS
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import OK, POLL, SEND
from squall.workloads.appends import AppendsLoad
from squall.workloads.counters import LoadCounters
from squall.workloads.final_reads import final_reads
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from tests.support.clusters.drive import drive
from tests.support.patience import scaled_ms

pytestmark = pytest.mark.night("a foreign library through long failovers; the gate has one")

if TYPE_CHECKING:
    from tests.live.workloads.conftest import Brokers


SETTINGS = AppendsLoad(topics=1, producers=2, readers=2, rate=300, request_timeout_ms=scaled_ms(3000))


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_library_drives_the_workload_through_a_leaders_death(
    brokers: Brokers, tmp_path: Path, client: str
) -> None:
    env, counters, stop = RealEnv("harness"), LoadCounters(), trio.Event()
    path = tmp_path / "history.jsonl"
    recorder = Recorder(env, str(path), "run-1")
    bootstrap = ",".join(f"{host}:{port}" for host, port in brokers.bootstrap)
    driver = LibraryDriver(client, bootstrap, SETTINGS.needs(), tmp_path / "clients.log")

    async def until_acked(more: int) -> None:
        goal = counters.acked + more
        with trio.fail_after(90):
            while counters.acked < goal:
                await trio.sleep(0.05)

    async def run() -> None:
        await drive(env, [ClientZone("", brokers.bootstrap, driver)], SETTINGS, recorder, stop, counters)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await until_acked(200)
        brokers.kill(1)
        await until_acked(200)
        brokers.start(1)
        await until_acked(200)
        with trio.fail_after(90):  # On a busy machine readers begin after all of that.
            while not counters.read:
                await trio.sleep(0.05)
        stop.set()
    await final_reads(env, brokers.bootstrap, SETTINGS.places(), recorder, rounds=1)
    recorder.close()
    with path.open("rb") as lines:
        history = parse(lines)
    assert history.problem is None, history.problem
    driven = [process for process in history.processes if process.role in ("producer", "reader")]
    assert {process.client for process in driven} == {client}
    assert counters.read > 0
    assert counters.bad == 0
    records = list(history.records.rows())
    acks = [each for each in records if each.kind == SEND and each.st == OK]
    assert len(acks) == counters.acked
    acknowledged = {(each.part, each.off): each.val for each in acks if each.off >= 0}
    # librdkafka gets no offset if the new leader only knows that it has the batch (DUPLICATE_SEQUENCE_NUMBER).
    somewhere = {each.val for each in acks if each.off < 0}
    assert len(acknowledged) + len(somewhere) == counters.acked
    found = {(each.part, each.off): each.val for each in records if each.kind == POLL and each.final}
    assert acknowledged.items() <= found.items()
    assert somewhere <= set(found.values())
    under_load = {(each.part, each.off): each.val for each in records if each.kind == POLL and not each.final}
    assert under_load.items() <= found.items()
