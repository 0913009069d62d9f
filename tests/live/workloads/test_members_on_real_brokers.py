"""The group members of docs/examples on three real brokers: correct ones have no finding, and planted bugs are found.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from squall.broker.real_env import RealEnv
from squall.chaos.drivers.program import ProgramDriver
from squall.checkers.anomalies.registry import find_all
from squall.checkers.history.parser import parse
from squall.workloads.command import CommandLoad
from squall.workloads.control import LoadControls
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from tests.support.clusters.drive import drive
from tests.support.member_examples import command_of
from tests.support.patience import scaled_ms

pytestmark = pytest.mark.night("foreign programs through long rebalances")

if TYPE_CHECKING:
    from tests.live.workloads.conftest import Brokers

LIMIT_S = 300
SOUND: list[tuple[str, str, set[str]]] = [(each, "", set()) for each in ("python", "javascript", "java", "go")]
OUTPUTS = "outputs"
BUGS = [(each, bug, {found}) for each in ("python", "javascript")
        for bug, found in (("commit-ahead", "commit-ahead"), ("keep-revoked", "revoked-read"))]  # fmt: skip


@pytest.mark.parametrize(("language", "bug", "found"), [*SOUND, *BUGS, ("python", OUTPUTS, set())])
async def test_a_member_is_judged_by_what_it_says(
    brokers: Brokers, tmp_path: Path, language: str, bug: str, found: set[str]
) -> None:
    """One of two members is killed and replaced: both times the group rebalances."""
    command, directory = command_of(language, bug.removeprefix(OUTPUTS))
    scenario = CommandLoad(
        command=command,
        directory=directory,
        role="member",
        partitions=4,
        rate=40,
        session_timeout_ms=scaled_ms(6_000),
        max_poll_interval_ms=scaled_ms(10_000),
        outputs="at-least-once" if bug == OUTPUTS else "none",
    )
    env, counters, stop, path = RealEnv("harness"), LoadCounters(), trio.Event(), tmp_path / "history.jsonl"
    recorder = Recorder(env, str(path), "run-1")
    bootstrap = ",".join(f"{host}:{port}" for host, port in brokers.bootstrap)
    driver = ProgramDriver(bootstrap, scenario.needs(), scenario.topic_names(), tmp_path / "clients.log")
    traffic = scenario.traffic()
    controls = LoadControls(traffic.producers, traffic.readers, members=traffic.members)
    killed, other = controls.readers[:2]

    reports, read = Counter[int](), 0

    def count_reports() -> None:
        """Count each process's reports of processed records in the new lines of the history. A report without records
        does not show that the process has joined.
        """
        nonlocal read
        recorder.flush()
        with path.open("rb") as lines:
            lines.seek(read)
            for each in map(json.loads, lines):
                reports[each.get("p", -1)] += each.get("f") == "poll" and bool(each.get("at"))
            read = lines.tell()

    async def until_processed(more: int, *numbers: int) -> None:
        """Wait for so many more reports from the present process of each of these members."""
        goals: dict[int, int] = {}
        with trio.fail_after(LIMIT_S):
            while True:
                count_reports()
                present = [controls.readers[number].processes[-1] for number in numbers]
                goals = {process: goals.get(process, reports[process] + more) for process in present}
                if all(reports[process] >= goal for process, goal in goals.items()):
                    return
                await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        zones = [ClientZone("", brokers.bootstrap, driver)]
        nursery.start_soon(lambda: drive(env, zones, scenario, recorder, stop, counters, controls=controls))
        with trio.fail_after(LIMIT_S):
            while not (killed.processes and other.processes):
                await trio.sleep(0.1)
        await until_processed(10, 0, 1)
        killed.crash(0)
        await until_processed(40, 1)
        killed.replace(0)
        with trio.fail_after(LIMIT_S):
            while not killed.alive:
                await trio.sleep(0.1)
        await until_processed(10, 0, 1)
        stop.set()
    await scenario.final_reads(env, brokers.bootstrap, recorder, counters, 60.0, "")
    recorder.close()
    assert counters.bad == 0
    _judge(path, bug, found)


def _judge(path: Path, bug: str, found: set[str]) -> None:
    """Assert that the history has the anomalies that the planted bug causes, and no others."""
    with path.open("rb") as lines:
        history = parse(lines)
    assert history.problem is None, history.problem
    assert {each.client for each in history.processes if "group" in each.settings} == {"program", "squall"}
    names = {witness.anomaly for witness in find_all(history)}
    # With outputs, what the killed one had written and not committed is written again: at least once.
    expected = {OUTPUTS: names <= {"eos-duplicate"} and len(history.outputs) > 0, "": not names}
    assert expected.get(bug, found <= names), names
