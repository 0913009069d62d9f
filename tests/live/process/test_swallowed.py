"""Faults of real brokers that have no effect, are ended early, or hit a broker that was silent already: none has
evidence. Every kind that processes or containers can play has such a test somewhere (`SWALLOWED_BY`).
"""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from squall.chaos.faults import context
from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.proofs import CPU_SLACK_S
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.runtimes import damage
from squall.chaos.runtimes.contract import Cut, Evidence, Link, LinkFault, StreamDirection
from squall.chaos.runtimes.process import node as process_node
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from squall.chaos.runtimes.real import bit_rot
from squall.chaos.runtimes.real.proc import run_state
from squall.chaos.runtimes.real.processes.child import ChildProcess
from squall.chaos.runtimes.real.processes.throttle import cpu_seconds
from tests.live.contract.player import Seen, play, unproven
from tests.live.process.conftest import MakeRuntime
from tests.live.process.test_lying_toxiproxy import OF_TOXIPROXY
from tests.live.process.test_nodes import pids
from tests.support.patience import scaled, slowed

SEEN = Seen(ClusterSnapshot((1, 2, 3), 1, {"t-0": 2}, {"t-0": (1, 2, 3)}, {"t-0": (1, 2, 3)}))


@pytest.mark.gate
async def test_a_pause_that_somebody_ended_is_no_pause(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = runtime.pause

    async def pause_and_let_go(node: int) -> Evidence:
        told = await pause(node)
        os.kill(pids(runtime)[f"broker {node}"], signal.SIGCONT)
        return told

    with monkeypatch.context() as undone:
        undone.setattr(runtime, "pause", pause_and_let_go)
        (line,) = await play(runtime, make_fault(0, 0, 1.0, "pause", "node:2", {}), cluster=SEEN)
    assert line["evidence"] is None
    assert "let go by somebody else" in line["error"]
    assert unproven(line)
    (line,) = await play(runtime, make_fault(0, 0, 1.0, "pause", "node:2", {}), cluster=SEEN)
    assert line["evidence"]


@pytest.mark.gate
@pytest.mark.parametrize("seen", [True, False], ids=["at-the-look", "at-no-look"])
async def test_a_pause_that_is_undone_and_put_on_again_is_no_pause(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """If it is undone between two checks, only the CPU time that the broker used shows it."""
    pid, outlast = pids(runtime)["broker 2"], FaultContext.outlast

    async def undo() -> None:
        before = cpu_seconds(pid)
        os.kill(pid, signal.SIGCONT)
        while cpu_seconds(pid) - before <= 2 * CPU_SLACK_S:
            await runtime.probe(Link("CLIENT", 2))

    async def stop_again() -> None:
        os.kill(pid, signal.SIGSTOP)
        while run_state(pid) != "T":
            await trio.sleep(0.01)

    async def undone(
        context: FaultContext, p: FaultExecution, look: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        assert look is not None

        async def looked() -> None:
            await undo()
            await look()
            await stop_again()

        if not seen:
            await undo()
            await stop_again()
        await outlast(context, p, looked if seen else look)

    with monkeypatch.context() as undoing:
        undoing.setattr(FaultContext, "outlast", undone)
        (line,) = await play(runtime, make_fault(0, 0, 1.0, "pause", "node:2", {}), cluster=SEEN)
    assert line["evidence"] is None
    assert ("let go by somebody else in between" if seen else "did something while") in line["error"]
    assert unproven(line)


@pytest.mark.gate
async def test_a_broker_that_is_started_again_in_between_was_not_killed(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    outlast = FaultContext.outlast

    async def undone(
        context: FaultContext, p: FaultExecution, look: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        assert look is not None

        async def looked() -> None:
            await runtime.start_node(2)
            await look()
            await runtime.kill(2)

        await outlast(context, p, looked)

    with monkeypatch.context() as undoing:
        undoing.setattr(FaultContext, "outlast", undone)
        (line,) = await play(runtime, make_fault(0, 0, 1.0, "kill", "node:2", {}), cluster=SEEN)
    assert line["evidence"] is None
    assert "a node ran in the middle" in line["error"]
    assert unproven(line)


@pytest.mark.parametrize("manner", ["refuse", "drop", "hold"])
async def test_a_cut_of_links_to_a_broker_that_was_dead_all_the_time_is_no_cut(
    runtime: ProcessRuntime, manner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "BEHIND_OTHERS_S", 0.0)  # else the cut waits until the broker is back
    kill = make_fault(0, 0, scaled(4.5), "kill", "node:2", {})
    cut = make_fault(1, scaled(0.5), scaled(4.3), "partition", "node:2", {"manner": manner, "side": "clients"})
    killed, isolated = await play(runtime, kill, cut, cluster=SEEN)
    assert killed["evidence"]
    assert isolated["evidence"] is None
    assert "no link answered before it was cut" in isolated["error"]
    assert unproven(isolated)


async def test_a_cut_of_answers_alone_is_no_cut_of_both_directions(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path / "run", nodes=1, settings=slowed(FAST_FAILOVER), seed=7)
    alone = Seen(ClusterSnapshot((1,), 1, {}, {}, {}))
    cut = runtime.fault_link

    async def answers_alone(name: str, link: Link, fault: LinkFault) -> Evidence:
        return await cut(name, link, replace(fault, stream=StreamDirection.BACK) if isinstance(fault, Cut) else fault)

    try:
        await runtime.start()
        for manner in ("drop", "hold"):
            fault = make_fault(0, 0, scaled(4.0), "partition", "node:1", {"manner": manner, "side": "clients"})
            runtime.fault_link = cut  # type: ignore[method-assign]
            (line,) = await play(runtime, fault, cluster=alone)
            assert [way["reached"] for way in line["evidence"]["ways"]] == [False, False], line
            runtime.fault_link = answers_alone  # type: ignore[method-assign]
            (line,) = await play(runtime, fault, cluster=alone)
            assert line["evidence"] is None
            assert "a request still came over link" in line["error"], line
            assert unproven(line)
    finally:
        await runtime.stop()


@pytest.mark.gate
async def test_a_cut_that_somebody_healed_is_no_cut(runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    landed, check = trio.Event(), FaultContext.check_landed

    def checked(*given: Any) -> None:
        check(*given)
        landed.set()

    async def heal() -> None:
        await landed.wait()
        for link in runtime.links():
            await runtime.heal_link("fault-0", link)

    fault = make_fault(0, 0, scaled(2.5), "partition", "node:2", {"manner": "drop", "side": "both"})
    with monkeypatch.context() as watched:
        watched.setattr(FaultContext, "check_landed", checked)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal)
            (line,) = await play(runtime, fault, cluster=SEEN)
    assert line["evidence"] is None
    assert "a cut link answered" in line["error"]
    (line,) = await play(runtime, fault, cluster=SEEN)
    assert line["evidence"], line


@pytest.mark.gate
async def test_a_broker_that_survives_its_kill_was_not_killed(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_node, "SIGNAL_TIMEOUT_S", 0.3)
    send = ChildProcess.signal

    def never_kill(child: ChildProcess, number: int) -> None:
        if number != signal.SIGKILL:
            send(child, number)

    with monkeypatch.context() as swallowing:
        swallowing.setattr(ChildProcess, "signal", never_kill)
        (line,) = await play(runtime, make_fault(0, 0, 1.0, "kill", "node:2", {}), cluster=SEEN)
        (rolled,) = await play(runtime, make_fault(0, 0, 5.0, "rolling", "node:2", {"how": "kill"}), cluster=SEEN)
    for each in (line, rolled):
        assert each["evidence"] is None
        assert "survived SIGKILL" in each["error"]
        assert unproven(each)
    (line,) = await play(runtime, make_fault(0, 0, 1.0, "kill", "node:2", {}), cluster=SEEN)
    assert line["evidence"]


@pytest.mark.parametrize(("action", "params"), [("stop", {}), ("rolling", {"how": "stop"})])
async def test_a_broker_that_ignores_sigterm_did_not_leave(
    make_runtime: MakeRuntime, action: str, params: dict[str, Any]
) -> None:
    runtime = make_runtime(settings={"stub.stubborn": "yes"})
    await runtime.start()
    patient = runtime.stop_node

    async def soon(node: int, *, grace_s: float = 30.0) -> Any:
        return await patient(node, grace_s=min(grace_s, 0.5))

    runtime.stop_node = soon  # type: ignore[method-assign]
    (line,) = await play(runtime, make_fault(0, 0, 5.0, action, "node:2", params), cluster=SEEN)
    assert line["evidence"] is None
    assert "no evidence that every node was controlled" in line["error"]
    assert unproven(line)


class Unchanging(type(Path())):  # type: ignore[misc]
    """A path whose file accepts every change and keeps its contents."""

    def open(self, mode: str = "r", *more: Any, **given: Any) -> Any:
        return _kept(self) if "+" in mode else super().open(mode, *more, **given)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove nothing."""


def _kept(path: Path) -> Any:
    """Open a copy of the file, so that writes do not reach the file itself."""
    copy = Path(f"{path}.copy")
    copy.write_bytes(path.read_bytes())
    return copy.open("r+b")


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """A log directory with a closed segment."""
    data = Unchanging(tmp_path / "data")
    (data / "t-0").mkdir(parents=True)
    for base in (0, 100):
        (data / f"t-0/{base:020}.log").write_bytes(bytes(range(200)))
    return data


@pytest.mark.gate
def test_bits_and_files_that_stay_as_they_were_are_no_damage(segments: Path) -> None:
    rotten = bit_rot.rot(segments, "*.log", 1, "checked", Random(1))
    assert rotten["path"]
    assert rotten["before"] == rotten["after"], "which the nemesis takes for no rot"
    for how in ("file", "tail"):
        told, _ = damage.damage(segments, how, 50, Random(1))  # type: ignore[arg-type]
        assert told["path"]
        assert told["before"] == told["after"], "which the nemesis takes for no damage"


SWALLOWED_BY = {
    **dict.fromkeys(OF_TOXIPROXY, "live/process/test_lying_toxiproxy.py::test_no_fault_of_a_link_lands_on_it"),
    "kill": "live/process/test_swallowed.py::test_a_broker_that_survives_its_kill_was_not_killed",
    "rolling": "live/process/test_swallowed.py::test_a_broker_that_ignores_sigterm_did_not_leave",
    "stop": "live/process/test_swallowed.py::test_a_broker_that_ignores_sigterm_did_not_leave",
    "pause": "live/process/test_swallowed.py::test_a_pause_that_somebody_ended_is_no_pause",
    "bit_rot": "live/process/test_swallowed.py::test_bits_and_files_that_stay_as_they_were_are_no_damage",
    "damage": "live/process/test_swallowed.py::test_bits_and_files_that_stay_as_they_were_are_no_damage",
    **dict.fromkeys(
        ("power_loss", "crash_at", "disk", "clock"),
        "live/contract/test_switched_off.py::test_only_what_is_left_on_has_evidence",
    ),
    "slow": "live/contract/test_slow_nodes.py::test_only_what_is_left_on_has_evidence",
    "upgrade": "live/contract/test_upgrades.py::test_clients_hear_the_second_version_and_only_then_there_is_evidence",
    "leadership": (
        "live/contract/test_leadership.py::"
        "test_leaders_are_moved_and_elected_as_clients_see_and_only_then_there_is_evidence"
    ),
    "packet_loss": (
        "live/contract/test_counted_losses.py::"
        "test_what_is_lost_is_late_and_counted_and_switched_off_there_is_no_evidence"
    ),
    "protocol": (
        "live/contract/test_frames.py::"
        "test_the_nemesis_proves_a_protocol_fault_by_what_it_hit_and_not_by_having_asked_for_it"
    ),
    **dict.fromkeys(
        ("client", "zombie", "topics", "member_crash", "member_twin", "load_kill"),
        "sim/world/test_swallowed_faults.py::test_a_fault_that_is_swallowed_has_not_landed",
    ),
}
"""For each kind of fault, the test in which it has no effect. Clients and administrators are part of the harness in
every world, so their kinds are tested in one.
"""


@pytest.mark.gate
def test_each_kind_of_real_runs_is_swallowed_in_some_test() -> None:
    assert set(SWALLOWED_BY) == {name for name, kind in KINDS.items() if kind.worlds & {"process", "docker"}}
    tests = Path(__file__).resolve().parents[2]
    for name, test in SWALLOWED_BY.items():
        file, _, function = test.partition("::")
        found = {node.name for node in ast.walk(ast.parse((tests / file).read_text())) if hasattr(node, "name")}
        assert function in found, f"{name}: there is no {test}"
