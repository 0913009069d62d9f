"""The client between nodes: replies in order, lanes, time-outs, and peers that lie."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.control.forwarder import Forwarder
from squall.broker.control.port import NoController
from squall.broker.env import LinkClosed
from squall.broker.net.peers import PeerClient, PeerTimeout, Unreachable
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.header import decode_request_header, encode_response_header
from squall.broker.protocol.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tests.support.brokers.memory_env import FakeEnv, MemoryTransport, Pipe

VERSION = 1
ASK = BrokerHeartbeatRequest(broker_id=1)


class Peer:
    """Node 2: keeps the requests and answers when the test says so."""

    def __init__(self) -> None:
        self.links: list[MemoryTransport] = []
        self.up = True

    def connect(self, host: str, port: int) -> MemoryTransport:
        if not self.up:
            raise ConnectionRefusedError(f"{host}:{port}")
        there, back = Pipe(1 << 20), Pipe(1 << 20)
        self.links.append(MemoryTransport("client", there, back))
        return MemoryTransport(f"{host}:{port}", back, there)

    def requests(self, link: int) -> list[int]:
        """Correlation ids of what arrived on a link since last asked."""
        buffer = bytearray(1 << 16)
        got = self.links[link].recv_into(memoryview(buffer)) or 0
        found, at = [], 0
        while at < got:
            size = int.from_bytes(buffer[at : at + 4], "big")
            found.append(decode_request_header(memoryview(buffer)[at + 4 : at + 4 + size]).correlation_id)
            at += 4 + size
        return found

    def answer(self, link: int, correlation_id: int, error: int = 0) -> None:
        head = encode_response_header(ApiKey.BROKER_HEARTBEAT, VERSION, correlation_id)
        frame = head + BrokerHeartbeatResponse(error_code=error).encode(VERSION)
        self.links[link].send([len(frame).to_bytes(4, "big") + frame])


class Desk:
    """A client of node 2 with its nursery, and what its requests came to."""

    def __init__(self, peer: Peer, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.client = PeerClient(FakeEnv(peer), {2: ("node-2", 9092)}.get, "node-1")
        self.outcomes: list[object] = []

    def ask(self, lane: str = "", timeout_ms: int = 1000, node_id: int = 2) -> None:
        self.nursery.start_soon(self._ask, node_id, lane, timeout_ms)

    async def _ask(self, node_id: int, lane: str, timeout_ms: int) -> None:
        try:
            reply = await self.client.request(node_id, ApiKey.BROKER_HEARTBEAT, VERSION, ASK, timeout_ms, lane=lane)
            self.outcomes.append(reply.error_code)
        except OSError as error:
            self.outcomes.append(type(error))


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
async def desk(peer: Peer, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> Desk:
    found = Desk(peer, nursery)
    await nursery.start(found.client.run)
    return found


async def test_requests_share_a_link_and_get_their_own_answers(peer: Peer, desk: Desk) -> None:
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert len(peer.links) == 1
    first, second = peer.requests(0)
    peer.answer(0, first, error=7)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes == [7]
    peer.answer(0, second, error=8)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes == [7, 8]


async def test_a_lane_that_waits_holds_up_no_other(peer: Peer, desk: Desk) -> None:
    desk.ask(lane="long polls")
    await trio.testing.wait_all_tasks_blocked()
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert len(peer.links) == 2
    peer.answer(1, peer.requests(1)[0], error=8)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes == [8]


async def test_overdue_answer_ends_the_link_and_the_next_request_dials_anew(peer: Peer, desk: Desk) -> None:
    desk.ask(timeout_ms=300)
    await trio.testing.wait_all_tasks_blocked()
    desk.ask(timeout_ms=5000)
    await trio.sleep(0.4)
    assert desk.outcomes[0] is PeerTimeout
    assert issubclass(desk.outcomes[1], OSError)  # type: ignore[arg-type]
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    peer.answer(1, peer.requests(1)[0])
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes[2:] == [0]


async def test_heartbeat_that_gets_no_answer_gives_its_link_up(autojump_clock: Any, peer: Peer, desk: Desk) -> None:
    config: Any = SimpleNamespace(node_id=1)
    forwarder = Forwarder(FakeEnv(peer), config, desk.client, None, lambda: 2)
    for tried in range(1, 4):
        with pytest.raises(NoController):
            await forwarder.ask(ApiKey.BROKER_HEARTBEAT, VERSION, ASK, 300)
        assert len(peer.links) == tried


async def test_a_request_with_less_time_than_its_time_out_leaves_the_link_to_others(peer: Peer, desk: Desk) -> None:
    with pytest.raises(PeerTimeout, match="within 100 ms"):
        await desk.client.request(2, ApiKey.BROKER_HEARTBEAT, VERSION, ASK, 300, left_s=0.1)
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert len(peer.links) == 1
    first, second = peer.requests(0)
    peer.answer(0, first, 1)
    peer.answer(0, second)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes == [0]


async def test_who_waits_for_a_controller_that_is_none_any_more_asks_the_next_one_on_the_link_that_is_there(
    autojump_clock: Any, peer: Peer, desk: Desk
) -> None:
    config: Any = SimpleNamespace(node_id=1)
    controllers = [2]
    forwarder = Forwarder(FakeEnv(peer), config, desk.client, None, lambda: controllers[0])
    answers: list[int] = []

    async def ask() -> None:
        answers.append((await forwarder.ask(ApiKey.BROKER_HEARTBEAT, VERSION, ASK, 5000)).error_code)

    desk.nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    controllers[0] = 3
    forwarder.controller_moved()
    controllers[0] = 2
    await trio.sleep(0.1)
    first, second = peer.requests(0)
    peer.answer(0, first, 1)
    peer.answer(0, second)
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [0]
    assert len(peer.links) == 1


async def test_who_has_its_answer_keeps_it_when_others_are_waited_for_no_longer(peer: Peer, desk: Desk) -> None:
    given_up: list[bool] = []

    def decode(_: memoryview) -> int:
        desk.client.wait_only_for(3, ("",))  # the first has its answer by now, and has not looked at it yet
        return 0

    async def ask() -> None:
        with pytest.raises(LinkClosed):
            await desk.client.exchange(2, ApiKey.BROKER_HEARTBEAT, VERSION, ASK.encode(VERSION), decode, 1000)
        given_up.append(True)

    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    desk.nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    for correlation_id in peer.requests(0):
        peer.answer(0, correlation_id)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes == [0]
    assert given_up == [True]


async def test_nobody_dials_on_for_a_node_that_is_not_asked_any_more(
    autojump_clock: Any, peer: Peer, nursery: trio.Nursery
) -> None:
    class Unanswered(FakeEnv):
        async def connect(self, host: str, port: int) -> Any:
            await trio.sleep_forever()

    client = PeerClient(Unanswered(peer), {2: ("node-2", 9092)}.get, "node-1")
    await nursery.start(client.run)
    began = trio.current_time()
    nursery.start_soon(_later, 0.1, client.wait_only_for, 3, ("",))
    with pytest.raises(PeerTimeout):
        await client.request(2, ApiKey.BROKER_HEARTBEAT, VERSION, ASK, 60_000)
    assert trio.current_time() - began < 1


async def _later(seconds: float, act: Callable[..., object], *args: object) -> None:
    await trio.sleep(seconds)
    act(*args)


async def test_refused_connection_fails_at_once_and_is_tried_again(peer: Peer, desk: Desk) -> None:
    peer.up = False
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes == [ConnectionRefusedError]
    peer.up = True
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    peer.answer(0, peer.requests(0)[0])
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes[1:] == [0]


async def test_node_without_an_address_is_unreachable(desk: Desk) -> None:
    desk.ask(node_id=9)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes == [Unreachable]


async def test_answer_that_was_not_asked_for_breaks_the_link(peer: Peer, desk: Desk) -> None:
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    peer.answer(0, peer.requests(0)[0] + 1)
    await trio.testing.wait_all_tasks_blocked()
    assert issubclass(desk.outcomes[0], OSError)  # type: ignore[arg-type]


async def test_answer_that_does_not_decode_fails_its_request_at_once(peer: Peer, desk: Desk) -> None:
    desk.ask(timeout_ms=60_000)
    await trio.testing.wait_all_tasks_blocked()
    head = encode_response_header(ApiKey.BROKER_HEARTBEAT, VERSION, peer.requests(0)[0])
    peer.links[0].send([(len(head) + 1).to_bytes(4, "big") + head + b"\xff"])
    await trio.testing.wait_all_tasks_blocked()
    assert issubclass(desk.outcomes[0], OSError)  # type: ignore[arg-type]


async def test_peer_that_closes_fails_everything_under_way(peer: Peer, desk: Desk) -> None:
    desk.ask()
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    peer.links[0].close()
    await trio.testing.wait_all_tasks_blocked()
    assert len(desk.outcomes) == 2
    assert all(issubclass(outcome, OSError) for outcome in desk.outcomes)  # type: ignore[arg-type]


async def test_link_to_a_node_that_moved_is_dialled_anew(peer: Peer, desk: Desk) -> None:
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    desk.client.forget(2)
    await trio.testing.wait_all_tasks_blocked()
    desk.ask()
    await trio.testing.wait_all_tasks_blocked()
    assert len(peer.links) == 2
    peer.answer(1, peer.requests(1)[0])
    await trio.testing.wait_all_tasks_blocked()
    assert desk.outcomes[1] == 0
