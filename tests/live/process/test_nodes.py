"""Faults of brokers in the process runtime take effect, have evidence, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import Link, NodeState, RuntimeCapability
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from squall.chaos.runtimes.real import runtime as runtime_module
from squall.chaos.runtimes.real.proc import run_state
from squall.chaos.runtimes.real.processes import registry
from squall.chaos.runtimes.real.processes.child import until
from tests.live.hurt_links import answers
from tests.live.process.conftest import MakeRuntime
from tests.support.patience import LONG_S, scaled


def pids(runtime: ProcessRuntime) -> dict[str, int]:
    """Return the pids of the runtime's live processes, from the registry."""
    folder = runtime.log_path(1).parents[2]
    return {
        each.what: each.process.pid for run in registry.runs() if Path(run.folder) == folder for each in run.processes
    }


def pid_of(evidence: dict[str, object]) -> int:
    pid = evidence["pid"]
    assert isinstance(pid, int)
    return pid


async def test_every_link_leads_to_a_broker_once_the_cluster_is_up(runtime: ProcessRuntime) -> None:
    assert len(runtime.links()) == 6 + 3
    for link in runtime.links():
        assert await answers(runtime, link), link


async def test_a_killed_broker_is_gone_and_comes_back_as_a_new_incarnation_on_its_port(runtime: ProcessRuntime) -> None:
    before = runtime.bootstrap("CLIENT")
    killed = await runtime.kill(1)
    assert killed["gone"] is True
    assert run_state(pid_of(killed)) is None
    assert runtime.state(1) is NodeState.DOWN
    assert not (await runtime.probe(Link("CLIENT", 1))).ok
    started = await runtime.start_node(1)
    assert started["incarnation"] == 2
    assert await answers(runtime, Link("CLIENT", 1))
    assert await answers(runtime, Link(2, 1))
    assert runtime.bootstrap("CLIENT") == before


async def test_a_paused_broker_is_stopped_for_the_kernel_and_answers_nothing_until_resumed(
    runtime: ProcessRuntime,
) -> None:
    paused = await runtime.pause(2)
    assert run_state(pid_of(paused)) == "T"
    assert paused["probe"] == paused["probe"] | {"ok": False}  # type: ignore[operator]
    assert (await runtime.probe(Link("CLIENT", 2), timeout_s=scaled(0.2))).error == "timed out"
    await runtime.resume(2)
    assert await answers(runtime, Link("CLIENT", 2))


async def test_a_stopped_broker_says_that_it_left_in_good_order(runtime: ProcessRuntime) -> None:
    stopped = await runtime.stop_node(3)
    assert stopped["controlled"] is True
    assert stopped["code"] == 0


async def test_a_broker_that_ignores_sigterm_is_killed_after_its_grace(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(nodes=1, proxied=False, settings={"stub.stubborn": "1"})
    await runtime.start()
    stopped = await runtime.stop_node(1, grace_s=0.1)
    assert stopped["controlled"] is False
    assert run_state(pid_of(stopped)) is None


async def test_acts_on_a_node_in_the_wrong_state_are_errors_not_guesses(runtime: ProcessRuntime) -> None:
    await runtime.kill(1)
    for act in (runtime.kill, runtime.pause, runtime.resume, runtime.stop_node):
        with pytest.raises(HarnessError, match="broker 1 is down"):
            await act(1)
    with pytest.raises(HarnessError, match="broker 2 is running"):
        await runtime.start_node(2)
    with pytest.raises(HarnessError, match="no node 9"):
        await runtime.kill(9)


async def test_heal_mends_whatever_was_done(runtime: ProcessRuntime) -> None:
    await runtime.kill(1)
    await runtime.pause(2)
    await runtime.set_clock(3, 60_000)
    healed = await runtime.heal()
    assert healed == {"resumed": [2], "started": [1], "links": 9, "failed": []}
    assert {runtime.state(node) for node in runtime.nodes} == {NodeState.RUNNING}


@pytest.mark.gate
async def test_a_broker_that_ends_by_itself_is_noticed_with_its_last_words(runtime: ProcessRuntime) -> None:
    assert runtime.exits() == ()
    runtime.log_path(2).write_text("it all went wrong\n")
    os.kill(pids(runtime)["broker 2"], signal.SIGABRT)
    assert await until(lambda: bool(runtime.exits()), LONG_S)
    (gone,) = runtime.exits()
    assert (gone.node, gone.incarnation, gone.code) == (2, 1, -signal.SIGABRT)
    assert "it all went wrong" in gone.last_words
    assert runtime.state(2) is NodeState.DOWN


@pytest.mark.gate
async def test_a_cluster_that_does_not_come_up_says_why_and_leaves_nothing(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(settings={"stub.fail": "1"})
    with pytest.raises(HarnessError, match=r"broker 1 ended with 1 before it was ready:\n.*told to fail"):
        await runtime.start()
    assert pids(runtime) == {}


async def test_a_broker_that_never_gets_ready_is_given_up(
    make_runtime: MakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "READY_S", 0.5)
    runtime = make_runtime(nodes=1, proxied=False, settings={"stub.deaf": "1"})
    with pytest.raises(HarnessError, match="broker 1 is not ready after"):
        await runtime.start()


async def test_stopping_twice_is_stopping_once_and_leaves_no_process(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    await runtime.start()
    before = pids(runtime)
    assert sorted(before) == ["broker 1", "broker 2", "broker 3", "toxiproxy"]
    await runtime.stop()
    await runtime.stop()
    assert {run_state(pid) for pid in before.values()} == {None}
    assert pids(runtime) == {}
    assert {runtime.state(node) for node in runtime.nodes} == {NodeState.DOWN}


async def test_started_again_on_its_folder_it_keeps_its_cluster_id_and_counts_on(make_runtime: MakeRuntime) -> None:
    first = make_runtime(nodes=1, proxied=False)
    await first.start()
    await first.stop()
    kept = (first.data_path(1).parents[2] / "cluster-id").read_text()
    again = make_runtime(nodes=1, proxied=False)
    await again.start()
    assert f"squall.cluster.id={kept.strip()}" in (again.data_path(1).parent / "broker.properties").read_text()
    incarnations = [json.loads(line)["i"] for line in again.trace_path(1).read_text().splitlines()]
    assert incarnations == [1, 1, 1, 2, 2]


async def test_two_clusters_on_one_folder_are_refused(make_runtime: MakeRuntime) -> None:
    await make_runtime(nodes=1, proxied=False).start()
    with pytest.raises(PreconditionError, match="another cluster is running on"):
        await make_runtime(nodes=1, proxied=False).start()


async def test_without_toxiproxy_brokers_are_reached_straight_and_no_link_can_be_hurt(
    make_runtime: MakeRuntime,
) -> None:
    runtime = make_runtime(proxied=False)
    await runtime.start()
    assert RuntimeCapability.LINK not in runtime.acts
    assert not (Path(runtime.data_path(1).parents[2]) / "toxiproxy.log").exists()
    for link in runtime.links():
        assert await answers(runtime, link)
    with pytest.raises(PreconditionError, match="without Toxiproxy"):
        await runtime.heal_link("x", Link(1, 2))
