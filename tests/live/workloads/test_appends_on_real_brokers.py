"""The workload `appends` on three real brokers: acknowledged records are read again, whatever happened to one broker.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from squall.broker.protocol.timestamps import EARLIEST
from squall.broker.real_env import RealEnv
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import FAIL, OK, POLL, SEND
from squall.workloads.appends import AppendsLoad
from squall.workloads.client.admin import describe_cluster, list_offsets
from squall.workloads.client.client import Client
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.epochs import leader_epochs
from squall.workloads.counters import LoadCounters
from squall.workloads.final_reads import FinalReadResult, final_reads
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from tests.support.clusters.drive import drive
from tests.support.patience import scaled_ms

if TYPE_CHECKING:
    from tests.live.workloads.conftest import Brokers


ROOT = Path(__file__).parents[3]
SETTINGS = AppendsLoad(rate=300, request_timeout_ms=scaled_ms(5000))


class Run:
    """A run on real brokers."""

    def __init__(self, brokers: Brokers, path: Path, settings: AppendsLoad = SETTINGS) -> None:
        self.brokers = brokers
        self.path = path / "history.jsonl"
        self.settings = settings
        self.counters = LoadCounters()
        self.finals: list[FinalReadResult] = []
        self.env = RealEnv("harness")

    async def play(self, story: Callable[[Run], Awaitable[None]]) -> Any:
        env = self.env
        recorder = Recorder(env, str(self.path), "run-1")
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            zones = [ClientZone("", self.brokers.bootstrap)]
            nursery.start_soon(drive, env, zones, self.settings, recorder, stop, self.counters)
            await self.until_acked(200)
            await story(self)
            stop.set()
        self.finals = await final_reads(env, self.brokers.bootstrap, self.settings.places(), recorder)
        recorder.close()
        return read_history(self.path)

    async def until_acked(self, more: int) -> None:
        """Wait until so many more records of every partition are acknowledged."""
        goal = self.counters.acked + more
        since = self.env.mono()
        with trio.fail_after(90):
            while self.counters.acked < goal or not self.all_acked_since(since):
                await trio.sleep(0.05)

    def all_acked_since(self, since: float) -> bool:
        last = self.counters.last_ack
        return len(last) == len(self.settings.places()) and all(at >= since for at in last.values())


def read_history(path: Path, *, killed: bool = False) -> Any:
    """Read an undamaged history. If the harness was `killed`, it lacks its last line and nothing else."""
    with path.open("rb") as lines:
        history = parse(lines)
    if killed:
        assert history.problem is not None and history.problem.why.startswith("the history ends here without its last")
        assert not history.problem.untrusted
    else:
        assert history.problem is None, history.problem
    return history


def check_nothing_is_lost(run: Run, history: Any) -> None:
    """Assert that every final read has every acknowledged record at its offset, and no record that failed."""
    sends = [record for record in history.records.rows() if record.kind == SEND]
    acknowledged = {(record.part, record.off): record.val for record in sends if record.st == OK}
    assert len(acknowledged) == run.counters.acked
    assert all(final.complete for final in history.finals) and len(history.finals) == 4 * len(run.settings.places())
    read: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    for record in history.records.rows():
        if record.kind == POLL and record.final:
            read.setdefault((record.final, record.iso), {})[record.part, record.off] = record.val
    assert len(read) == 4
    failed = {record.val for record in sends if record.st == FAIL}
    sent = {record.val for record in sends}
    for found in read.values():
        assert acknowledged.items() <= found.items()
        values = list(found.values())
        assert len(values) == len(set(values)) and set(values) <= sent and not failed & set(values)


async def test_a_quiet_run_is_whole(brokers: Brokers, tmp_path: Path) -> None:
    run = Run(brokers, tmp_path)

    async def quiet(run: Run) -> None:
        await run.until_acked(600)

    history = await run.play(quiet)
    check_nothing_is_lost(run, history)
    assert run.counters.info == run.counters.failed == 0


@pytest.mark.gate
async def test_a_killed_leader_costs_nothing_that_was_acknowledged(brokers: Brokers, tmp_path: Path) -> None:
    run = Run(brokers, tmp_path)

    async def kill_and_start(run: Run) -> None:
        for node in (1, 2):
            brokers.kill(node)
            await run.until_acked(200)
            brokers.start(node)
            await run.until_acked(200)

    check_nothing_is_lost(run, await run.play(kill_and_start))


async def test_leaders_tell_where_their_epochs_start(brokers: Brokers, tmp_path: Path) -> None:
    run = Run(brokers, tmp_path)
    told: dict[tuple[str, int], list[list[int]]] = {}

    async def kill_and_ask(run: Run) -> None:
        brokers.kill(1)
        await run.until_acked(200)
        async with trio.open_nursery() as nursery:
            client = Client(run.env, brokers.bootstrap)
            await nursery.start(client.run)
            ends = await list_offsets(client, run.settings.places(), EARLIEST)
            assert not any(end.error for end in ends.values())
            told.update({place: await leader_epochs(client, *place) for place in run.settings.places()})
            client.close()
            nursery.cancel_scope.cancel()
        brokers.start(1)
        await run.until_acked(200)

    history = await run.play(kill_and_ask)
    read = [(record.part, record.off) for record in history.records.rows() if record.kind == POLL and record.final]
    ends = {part: max(off for where, off in read if where == part) for part, _ in read}
    assert max(len(chain) for chain in told.values()) > 1, "broker 1 led something"
    for (topic, index), chain in told.items():
        epochs, starts = zip(*chain, strict=True)
        part = next(each.part for each in history.partitions if each.name == f"{topic}-{index}")
        assert starts[0] == 0 and [*starts] == sorted(starts) and [*epochs] == sorted({*epochs})
        assert starts[-1] <= ends[part]


async def test_a_paused_leader_costs_nothing_that_was_acknowledged(brokers: Brokers, tmp_path: Path) -> None:
    run = Run(brokers, tmp_path)

    async def pause(run: Run) -> None:
        brokers.pause(3)
        await run.until_acked(200)
        brokers.resume(3)
        await run.until_acked(200)

    check_nothing_is_lost(run, await run.play(pause))


@pytest.mark.parametrize(("acks", "codec"), [(0, "none"), (1, "lz4"), (-1, "zstd")])
async def test_other_acks_and_codecs_are_read_back(acks: int, codec: str, brokers: Brokers, tmp_path: Path) -> None:
    run = Run(brokers, tmp_path, AppendsLoad(rate=300, acks=acks, codec=codec, idempotence=acks == -1))

    async def quiet(run: Run) -> None:
        await run.until_acked(300)

    history = await run.play(quiet)
    final = {record.val for record in history.records.rows() if record.kind == POLL and record.final}
    assert final == {record.val for record in history.records.rows() if record.kind == SEND}


HARNESS = """
import json, sys, trio
from squall.broker.real_env import RealEnv
from tests.support.clusters.drive import drive
from squall.workloads.appends import AppendsLoad
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder

async def main():
    env = RealEnv("harness")
    recorder = Recorder(env, sys.argv[1], "killed")
    zones = [ClientZone("", json.loads(sys.argv[2]))]
    await drive(env, zones, AppendsLoad(rate=500), recorder, trio.Event(), LoadCounters())

trio.run(main)
"""


def start_harness(path: Path, brokers: Brokers) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", HARNESS, str(path), json.dumps(brokers.bootstrap)], cwd=ROOT)


async def test_a_harness_killed_with_9_has_every_record_of_the_logs_in_its_history(
    brokers: Brokers, tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    harness = start_harness(path, brokers)
    try:
        with trio.fail_after(90):
            while not path.exists() or path.read_bytes().count(b'"st":0') < 500:
                await trio.sleep(0.1)
    finally:
        harness.kill()
        harness.wait()
    history = read_history(path, killed=True)
    sent = {record.val for record in history.records.rows() if record.kind == SEND}
    acknowledged = {record.val for record in history.records.rows() if record.kind == SEND and record.st == OK}
    assert len(acknowledged) > 300
    settings = AppendsLoad()
    env = RealEnv("harness-2")
    after = Recorder(env, str(tmp_path / "after.jsonl"), "after")
    for topic, index in settings.places():
        after.partition(topic, index)
    await final_reads(env, brokers.bootstrap, settings.places(), after, rounds=1, isolations=(0,))
    after.close()
    read = {record.val for record in read_history(tmp_path / "after.jsonl").records.rows() if record.kind == POLL}
    assert acknowledged <= read <= sent


@pytest.mark.gate
async def test_the_little_admin_works(brokers: Brokers) -> None:
    env = RealEnv("admin")
    async with trio.open_nursery() as nursery:
        client = Client(env, brokers.bootstrap)
        await nursery.start(client.run)
        with trio.fail_after(60):
            while True:
                with contextlib.suppress(RequestFailed):
                    answer = await describe_cluster(client)
                    if len(answer.brokers) == 3:
                        break
                await trio.sleep(0.2)
        assert {broker.broker_id for broker in answer.brokers} == {1, 2, 3}
        unknown = await list_offsets(client, [("nowhere", 0)], EARLIEST, timeout_s=1)
        assert unknown["nowhere", 0].error
        client.close()
