"""Client libraries are the members of the workload `groups` while their coordinator is killed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from squall.broker.coordinators.partitions import partition_of
from squall.broker.real_env import RealEnv
from squall.chaos.drivers.host import LibraryDriver
from squall.checkers.anomalies.registry import find_all
from squall.checkers.history.group_tables import CRASHED, HELD, LOST, REVOKED
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import OK
from squall.workloads.control import ClientHandle, LoadControls
from squall.workloads.counters import LoadCounters
from squall.workloads.groups import GroupsLoad
from squall.workloads.groups.scenario import GROUP
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from squall.workloads.scenario import ScenarioEnvironment
from tests.support.patience import scaled_ms

pytestmark = pytest.mark.night("a foreign library through long failovers; the gate has one")

if TYPE_CHECKING:
    from squall.checkers.history.group_tables import GroupCommit
    from squall.checkers.history.tables import History
    from tests.live.workloads.conftest import Brokers


LOG = "__consumer_offsets"

LIMIT_S = 300


def coordinator_of(bootstrap: str) -> int:
    """Return the broker that coordinates the group."""
    from confluent_kafka.admin import AdminClient

    partitions = AdminClient({"bootstrap.servers": bootstrap}).list_topics(LOG, 20).topics[LOG].partitions
    return int(partitions[partition_of(GROUP, len(partitions))].leader)


def members_of(history: History) -> set[int]:
    return {each.proc for each in history.processes if "member" in each.settings}


def committed(history: History) -> list[GroupCommit]:
    """Return the commits that succeeded."""
    members = members_of(history)
    return [commit for commit in history.commits.rows() if commit.proc in members and commit.st == OK]


class Play:
    """A load of groups in progress: what its members have read, own, and have committed."""

    def __init__(self, recorder: Recorder, path: Path, counters: LoadCounters, controls: LoadControls) -> None:
        self._recorder, self._path, self._counters, self.controls = recorder, path, counters, controls

    async def until_read(self, more: int) -> None:
        """Wait until so many more records were read, by members or by the additional reader."""
        goal = self._counters.read + more
        with trio.fail_after(LIMIT_S):
            while self._counters.read < goal:
                await trio.sleep(0.05)

    def so_far(self) -> History:
        self._recorder.flush()
        with self._path.open("rb") as lines:
            return parse(lines)

    async def until_held(self, handle: ClientHandle, how: int = HELD, times: int = 1) -> None:
        """Wait until the member's last process has had `times` ownerships that ended in this way. HELD means not ended:
        a member without partitions would lose none.
        """
        with trio.fail_after(LIMIT_S):
            while times > sum(
                hold.proc == handle.processes[-1] and hold.how == how for hold in self.so_far().holds.rows()
            ):
                await trio.sleep(0.2)

    async def until_committed(self, partitions: int) -> None:
        """Wait until offsets of so many partitions are committed. On a busy machine members may read a lot before."""
        with trio.fail_after(LIMIT_S):
            while {commit.part for commit in committed(self.so_far())} != set(range(partitions)):
                await trio.sleep(0.2)


async def played(
    scenario: GroupsLoad, brokers: Brokers, tmp_path: Path, body: Callable[[Play], Awaitable[None]]
) -> History:
    """Return the history of a load during which `body` runs."""
    env, counters, stop = RealEnv("harness"), LoadCounters(), trio.Event()
    path = tmp_path / "history.jsonl"
    recorder = Recorder(env, str(path), "run-1")
    bootstrap = ",".join(f"{host}:{port}" for host, port in brokers.bootstrap)
    driver = LibraryDriver(scenario.client, bootstrap, scenario.needs(), tmp_path / "clients.log")
    traffic = scenario.traffic()
    controls = LoadControls(traffic.producers, traffic.readers)
    around = ScenarioEnvironment(env, [ClientZone("", brokers.bootstrap, driver)], recorder, counters, stop, controls)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scenario.run, around)
        await body(Play(recorder, path, counters, controls))
        stop.set()
        around.readers.may_end.set()
    await scenario.final_reads(env, brokers.bootstrap, recorder, counters, 60, "")
    recorder.close()
    with path.open("rb") as lines:
        return parse(lines)


@pytest.mark.parametrize(
    ("client", "protocol"),
    [
        ("confluent", "classic"),
        ("confluent", "consumer"),
        ("kafka-python", "classic"),
        ("aiokafka", "classic"),
    ],
)
async def test_a_library_keeps_its_partitions_through_the_death_of_its_coordinator(
    brokers: Brokers, tmp_path: Path, client: str, protocol: str
) -> None:
    """One of its members is killed as well; the others get its partitions."""
    scenario = GroupsLoad(client=client, group_protocol=protocol, rate=20, churn=0, session_timeout_ms=scaled_ms(6_000),
                          max_poll_interval_ms=scaled_ms(10_000))  # fmt: skip

    async def body(play: Play) -> None:
        await play.until_read(200)
        coordinator = coordinator_of(",".join(f"{host}:{port}" for host, port in brokers.bootstrap))
        brokers.kill(coordinator)
        await play.until_read(200)
        member = play.controls.readers[1]
        await play.until_held(member)
        member.crash(0)
        brokers.start(coordinator)
        await play.until_read(200)
        member.replace(0)
        await play.until_read(200)
        await play.until_committed(scenario.partitions)

    history = await played(scenario, brokers, tmp_path, body)
    assert history.problem is None, history.problem
    members = members_of(history)
    assert {each.client for each in history.processes if each.proc in members} == {client}
    holds = [hold for hold in history.holds.rows() if hold.proc in members]
    assert {hold.part for hold in holds} == set(range(scenario.partitions))
    assert all(hold.gen > 0 for hold in holds), "each library tells its generation"
    assert {hold.how for hold in holds} >= {REVOKED, CRASHED}
    assert {hold.how for hold in holds} <= {REVOKED, CRASHED, LOST}, "nothing is held to the end: all of them left"
    assert any(hold.proved >= hold.t0 for hold in holds), "a commit proves whose it was"
    assert {commit.part for commit in committed(history)} == set(range(scenario.partitions))
    assert [fetch for fetch in history.fetches.rows() if fetch.proc in members]
    assert find_all(history) == []


async def test_a_member_that_was_away_for_longer_than_it_may_between_polls_comes_back(
    brokers: Brokers, tmp_path: Path
) -> None:
    """Some libraries leave the group after too long without a poll. Only aiokafka reports it before the next poll."""
    scenario = GroupsLoad(client="aiokafka", rate=20, churn=0, session_timeout_ms=scaled_ms(6_000),
                          max_poll_interval_ms=scaled_ms(2_000))  # fmt: skip

    async def body(play: Play) -> None:
        member = play.controls.readers[1]
        await play.until_read(100)
        await play.until_held(member)
        member.hold(0)
        await play.until_held(member, LOST)
        member.let_go(0)
        await play.until_held(member)
        await play.until_read(100)

    assert find_all(await played(scenario, brokers, tmp_path, body)) == []
