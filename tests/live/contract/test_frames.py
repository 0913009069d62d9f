"""Protocol faults through the relay that parses Kafka's frames, in processes and containers: the effect of each on a
request, what is counted, and what passes unchanged.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from squall.broker.protocol.header import decode_response_header, encode_request
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataResponse
from squall.chaos.errors import HarnessError
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.contract import Cut, CutMode, FrameAct, Frames, Latency, Link, StreamDirection
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.runtimes.layout import addresses
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from squall.chaos.runtimes.real import inquiry
from squall.chaos.runtimes.real.processes import registry
from tests.live.contract.player import Seen, play
from tests.live.engine import STUB_INSIDE, STUB_MOUNT, engine_and_images
from tests.live.hurt_links import answers
from tests.live.process.conftest import STUB
from tests.support.clusters.pretender import Pretending
from tests.support.patience import LONG_S, scaled

FRAMED, UNFRAMED = Link("CLIENT", 1), Link("CLIENT", 2)
METADATA, VERSION = 3, 12
VIEW = ClusterSnapshot((1, 2), 1, {"t-0": 1}, {"t-0": (1, 2)}, {"t-0": (1, 2)})


FramedRuntime = ProcessRuntime | DockerRuntime


@pytest.fixture(params=["process", "docker"])
def not_started(request: pytest.FixtureRequest, tmp_path: Path) -> FramedRuntime:
    """Return a runtime with two stub brokers; clients of the first one connect through the relay. It is a fixture of
    its own because a skip inside of trio loses its reason.
    """
    if request.param == "process":
        return ProcessRuntime(tmp_path / "run", nodes=2, program=STUB, framed=(FRAMED,))
    stub = {"program": STUB_INSIDE, "mounts": (STUB_MOUNT,)}
    return DockerRuntime(tmp_path / "run", *engine_and_images(), nodes=2, framed=(FRAMED,), **stub)  # type: ignore[arg-type]


@pytest.fixture
async def runtime(not_started: FramedRuntime) -> AsyncIterator[FramedRuntime]:
    """Yield that runtime, started."""
    made = not_started
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


class Asking:
    """One connection, over which requests are sent."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def send(self, correlation_id: int) -> None:
        body = MetadataRequest(topics=[]).encode(VERSION)
        await self.stream.send_all(encode_request(METADATA, VERSION, correlation_id, "test", body))

    async def answer(self) -> tuple[int, MetadataResponse]:
        size = int.from_bytes(await self._exactly(4), "big")
        view = memoryview(await self._exactly(size))
        correlation_id, at = decode_response_header(view, METADATA, VERSION)
        return correlation_id, MetadataResponse.decode(view, at, VERSION)[0]

    async def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await self.stream.receive_some(count - len(data))
            assert more, "the connection ended"
            data += more
        return data

    async def nothing_for(self, seconds: float) -> bool:
        with trio.move_on_after(scaled(seconds)):
            await self.stream.receive_some()
            return False
        return True


async def connected(runtime: FramedRuntime, body: Callable[[Asking], Awaitable[None]], node: int = 1) -> None:
    async with await trio.open_tcp_stream(*addresses(runtime.bootstrap("CLIENT"))[node - 1]) as stream:
        with trio.fail_after(LONG_S):
            await body(Asking(stream))


async def test_a_dropped_request_has_no_answer_and_the_next_one_has(runtime: FramedRuntime) -> None:
    async def body(inquiry: Asking) -> None:
        await runtime.fault_link("f", FRAMED, Frames(METADATA, FrameAct.DROP, nth=2))
        for number in (1, 2, 3):
            await inquiry.send(number)
        assert [(await inquiry.answer())[0], (await inquiry.answer())[0]] == [1, 3]

    await connected(runtime, body)
    assert (await runtime.heal_link("f", FRAMED))["hits"] == 1


async def test_a_delayed_answer_comes_late_and_in_order(runtime: FramedRuntime) -> None:
    async def body(inquiry: Asking) -> None:
        await runtime.fault_link(
            "f", FRAMED, Frames(METADATA, FrameAct.DELAY, delay_ms=300, stream=StreamDirection.BACK)
        )
        began = trio.current_time()
        await inquiry.send(1)
        await inquiry.send(2)
        assert [(await inquiry.answer())[0], (await inquiry.answer())[0]] == [1, 2]
        assert trio.current_time() - began >= 0.3

    await connected(runtime, body)


async def test_a_doubled_request_has_one_answer(runtime: FramedRuntime) -> None:
    async def body(inquiry: Asking) -> None:
        await runtime.fault_link("f", FRAMED, Frames(METADATA, FrameAct.DUPLICATE))
        await inquiry.send(1)
        await inquiry.send(2)
        assert [(await inquiry.answer())[0], (await inquiry.answer())[0]] == [1, 2]
        assert await inquiry.nothing_for(0.2)

    await connected(runtime, body)
    assert (await runtime.heal_link("f", FRAMED))["hits"] == 1


async def test_a_request_that_another_one_overtook_is_answered_in_its_turn(runtime: FramedRuntime) -> None:
    async def body(inquiry: Asking) -> None:
        await runtime.fault_link("f", FRAMED, Frames(METADATA, FrameAct.REORDER, delay_ms=10_000))
        await inquiry.send(1)
        assert await inquiry.nothing_for(0.2)
        await inquiry.send(2)
        assert [(await inquiry.answer())[0], (await inquiry.answer())[0]] == [1, 2]

    await connected(runtime, body)
    assert (await runtime.heal_link("f", FRAMED))["hits"] == 1


async def test_an_overtaken_answer_comes_behind_the_next_one_and_alone_it_comes_late(runtime: FramedRuntime) -> None:
    async def body(inquiry: Asking) -> None:
        for count, expected in ((2, [2, 1]), (1, [1])):
            for number in range(1, count + 1):
                await inquiry.send(number)
            assert [(await inquiry.answer())[0] for _ in range(count)] == expected

    swapped = Frames(METADATA, FrameAct.REORDER, count=0, delay_ms=300, stream=StreamDirection.BACK)
    await runtime.fault_link("f", FRAMED, swapped)
    await connected(runtime, body)
    assert (await runtime.heal_link("f", FRAMED))["hits"] == 1


async def test_a_request_answered_by_the_link_never_reaches_the_broker(runtime: FramedRuntime) -> None:
    async def body(inquiry: Asking) -> None:
        await runtime.fault_link("f", FRAMED, Frames(METADATA, FrameAct.ERROR, error=41, count=1))
        await inquiry.send(1)
        await inquiry.send(2)
        assert [len((await inquiry.answer())[1].brokers), len((await inquiry.answer())[1].brokers)] == [0, 2]

    await connected(runtime, body)
    assert (await runtime.heal_link("f", FRAMED))["hits"] == 1


async def test_what_is_no_frame_passes_unharmed(runtime: FramedRuntime) -> None:
    await runtime.fault_link("f", FRAMED, Frames(METADATA, FrameAct.DROP, count=0))
    probe = await runtime.ending(FRAMED, spoil=True)
    assert probe.ok, "the broker saw the impossible frame, and ended the connection"
    assert await answers(runtime, FRAMED), "other APIs pass"


async def test_faults_of_the_proxy_work_before_the_relay_and_ending_one_leaves_the_other(
    runtime: FramedRuntime,
) -> None:
    async def body(inquiry: Asking) -> None:
        await inquiry.send(1)
        assert await inquiry.nothing_for(0.3)

    await runtime.fault_link("frames", FRAMED, Frames(METADATA, FrameAct.DROP, count=0))
    await runtime.fault_link("slow", FRAMED, Latency(40))
    assert (await runtime.probe(FRAMED, timeout_s=LONG_S)).round_trip_ms >= 80
    await connected(runtime, body)
    await runtime.heal_link("slow", FRAMED)
    await connected(runtime, body)
    await runtime.fault_link("cut", FRAMED, Cut(CutMode.REFUSE))
    assert not (await runtime.probe(FRAMED)).ok
    healed = await runtime.heal()
    assert healed["failed"] == []
    assert await inquiry.visible_brokers(*addresses(runtime.bootstrap("CLIENT"))[0]) == {1, 2}


async def test_a_link_that_no_plan_named_has_no_relay_and_says_so(runtime: FramedRuntime) -> None:
    with pytest.raises(HarnessError, match="link CLIENT->2 has no frame-aware relay"):
        await runtime.fault_link("f", UNFRAMED, Frames(METADATA, FrameAct.DROP))


async def test_a_broker_that_is_gone_is_felt_through_the_relay(runtime: FramedRuntime) -> None:
    await runtime.kill(1)
    assert not (await runtime.probe(FRAMED, timeout_s=2)).ok
    await runtime.start_node(1)
    assert await answers(runtime, FRAMED)


async def test_the_nemesis_proves_a_protocol_fault_by_what_it_hit_and_not_by_having_asked_for_it(
    runtime: FramedRuntime,
) -> None:
    async def played(world: Any) -> dict[str, Any]:
        params = {"api": "Metadata", "act": "drop", "count": 0, "side": "clients"}
        fault = make_fault(0, 0, scaled(1.0), "protocol", "node:1", params)
        answers: list[bool] = []

        async def ask(inquiry: Asking) -> None:
            await trio.sleep(scaled(0.4))
            await inquiry.send(1)
            answers.append(not await inquiry.nothing_for(0.3))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connected, runtime, ask)
            (line,) = await play(world, fault, cluster=Seen(VIEW))
        return {**line, "answered": answers}

    landed = await played(runtime)
    assert landed["answered"] == [False]
    assert sum(landed["evidence"]["hits"]) == 1
    off = await played(Pretending(runtime))
    assert off["answered"] == [True]
    assert off["evidence"] is None
    assert off["error"] == "nothing came over these links that it could have hit"


async def test_a_relay_that_is_gone_is_told_and_not_passed_over(runtime: FramedRuntime) -> None:
    await end_relay(runtime)
    with pytest.raises(HarnessError, match="the frame relay (ended|does not answer)"):
        await runtime.fault_link("f", FRAMED, Frames(METADATA, FrameAct.DROP))
    with pytest.raises(HarnessError, match="the frame relay (ended|does not answer)"):
        await runtime.heal()


async def end_relay(runtime: FramedRuntime) -> None:
    """End the relay's process, as a bug in it would."""
    if isinstance(runtime, DockerRuntime):
        engine, _ = engine_and_images()
        await trio.to_thread.run_sync(engine.kill, f"squall-{runtime.run}-frame-relay")
        return
    folder = runtime.log_path(1).parents[2]
    (pid,) = [
        each.process.pid
        for run in registry.runs()
        if Path(run.folder) == folder
        for each in run.processes
        if each.what == "frame relay"
    ]
    os.kill(pid, signal.SIGKILL)
