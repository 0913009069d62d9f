"""The receive buffer: whole frames whatever the pieces, bounded memory whatever the lengths announced."""

from __future__ import annotations

import random
from struct import pack
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.env import LinkClosed
from squall.broker.net.frames import LARGE, SMALL, FrameReader, ReceiveMemoryLimit
from squall.broker.protocol.errors import MalformedFrame
from tests.support.brokers.memory_env import FakeEnv, MemoryTransport, Pipe


class Pieces:
    """A link on which given pieces arrive one after the other; then the peer closes its side."""

    peer = "test:1"

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()

    def recv_into(self, view: memoryview) -> int | None:
        if not self._pieces:
            return 0
        piece = self._pieces[0]
        taken = min(len(piece), len(view))
        view[:taken] = piece[:taken]
        if taken == len(piece):
            self._pieces.pop(0)
        else:
            self._pieces[0] = piece[taken:]
        return taken


def frames_over(
    pieces: list[bytes], memory: ReceiveMemoryLimit | None = None, max_frame: int = 100 << 20
) -> FrameReader:
    return FrameReader(FakeEnv(), Pieces(pieces), memory or ReceiveMemoryLimit(1 << 30), max_frame, patience_s=0.01)  # type: ignore[arg-type]


async def received(frames: FrameReader) -> list[bytes]:
    found: list[bytes] = []
    try:
        while True:
            found += [bytes(view) for view in await frames.burst()]
    except LinkClosed:
        return found


@pytest.mark.parametrize("seed", range(20))
async def test_frames_come_out_whole_and_in_order_however_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([0, 1, 10, 5000, SMALL - 4, SMALL, SMALL + 1, 300_000]) for _ in range(12)]
    bodies = [rng.randbytes(size) for size in sizes]
    stream = b"".join(pack(">i", len(body)) + body for body in bodies)
    pieces = []
    while stream:
        n = rng.choice([1, 3, 7, 1000, SMALL, 1 << 20])
        pieces.append(stream[:n])
        stream = stream[n:]
    assert await received(frames_over(pieces)) == bodies


async def test_several_frames_of_one_receive_are_one_burst() -> None:
    stream = b"".join(pack(">i", 3) + b"abc" for _ in range(5))
    assert [bytes(v) for v in await frames_over([stream]).burst()] == [b"abc"] * 5


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
async def test_an_impossible_length_is_malformed(length: int) -> None:
    with pytest.raises(MalformedFrame, match="allowed"):
        await frames_over([pack(">i", length) + b"x"], max_frame=1000).burst()


async def test_a_length_is_not_believed_before_its_bytes_arrive() -> None:
    memory = ReceiveMemoryLimit(1 << 30)
    frames = frames_over([pack(">i", 90 << 20), b"x" * 1000], memory)
    with pytest.raises(LinkClosed):
        await frames.burst()
    assert memory.used <= LARGE


async def test_exhausted_receive_memory_ends_the_connection_that_wants_more() -> None:
    memory = ReceiveMemoryLimit(SMALL // 2)
    with pytest.raises(LinkClosed, match="memory"):
        await frames_over([pack(">i", SMALL * 2), b"x" * SMALL * 2], memory).burst()


@pytest.mark.parametrize("received", [SMALL + 1, 2 * SMALL + 1, 10 * SMALL, LARGE + 1])
async def test_at_most_twice_what_has_come_is_claimed(received: int) -> None:
    memory = ReceiveMemoryLimit(1 << 30)
    with pytest.raises(LinkClosed):
        await frames_over([pack(">i", 90 << 20), b"x" * received], memory).burst()
    assert received - SMALL < memory.used < 2 * received


async def test_a_peer_that_this_node_has_chosen_gets_a_large_buffer_at_once() -> None:
    memory = ReceiveMemoryLimit(1 << 30)
    link: Any = Pieces([pack(">i", SMALL + 10) + bytes(10), bytes(SMALL)])
    env: Any = FakeEnv()
    frames = FrameReader(env, link, memory, 100 << 20, grows_to=LARGE)
    assert [len(view) for view in await frames.burst()] == [SMALL + 10]
    assert memory.used == LARGE - SMALL


class Sender:
    """A client that sends when the test says so. `received` has the sizes of its frames, `ended_s` when it ended."""

    def __init__(self, memory: ReceiveMemoryLimit, nursery: trio.Nursery, first: bytes = b"") -> None:
        self._there = Pipe(1 << 30)
        self.frames = FrameReader(FakeEnv(), MemoryTransport("c:1", self._there, Pipe(0)), memory, 100 << 20)
        self.received: list[int] = []
        self.ended_s: float | None = None
        self.goes_on = trio.Event()
        self.goes_on.set()
        """Cleared while it uses what came."""
        self.send(first)
        nursery.start_soon(self._receive)

    def send(self, data: bytes) -> None:
        self._there.data += data
        self._there.change()

    async def _receive(self) -> None:
        try:
            while True:
                self.received += map(len, await self.frames.burst())
                await self.goes_on.wait()
        except LinkClosed:
            self.ended_s = trio.current_time()
        finally:
            self.frames.close()


HALF = pack(">i", 90 << 20) + bytes(SMALL + 10)
WHOLE = pack(">i", SMALL + 10) + bytes(SMALL + 10)


async def test_who_has_sent_a_large_frame_gets_a_large_buffer_and_gives_it_back_when_idle() -> None:
    memory = ReceiveMemoryLimit(1 << 30)
    async with trio.open_nursery() as nursery:
        sender = Sender(memory, nursery, pack(">i", SMALL * 3) + bytes(SMALL * 3))
        sender.goes_on = trio.Event()
        await trio.testing.wait_all_tasks_blocked()
        assert sender.received == [SMALL * 3]
        assert memory.used == 3 * SMALL
        sender.frames.shrink_if_idle()
        assert memory.used == 3 * SMALL, "its bytes are in use"
        sender.goes_on.set()
        await trio.testing.wait_all_tasks_blocked()
        assert memory.used == LARGE - SMALL
        sender.frames.shrink_if_idle()
        assert memory.used == 0
        sender.send(pack(">i", 1) + b"y")
        await trio.testing.wait_all_tasks_blocked()
        assert sender.received == [SMALL * 3, 1]
        nursery.cancel_scope.cancel()


async def test_slow_frames_end_when_others_wait_for_their_memory(autojump_clock: Any) -> None:
    memory = ReceiveMemoryLimit(4 * SMALL)
    async with trio.open_nursery() as nursery:
        slow = [Sender(memory, nursery, HALF) for _ in range(4)]
        await trio.sleep(60)
        assert not any(sender.ended_s for sender in slow), "nobody waits"
        began = trio.current_time()
        other = Sender(memory, nursery, WHOLE)
        while not other.received:
            await trio.sleep(0.01)
        assert trio.current_time() - began < 0.6
        assert sum(sender.ended_s is not None for sender in slow) == 1, "no more than it takes"
        nursery.cancel_scope.cancel()
    assert memory.used == 0


async def test_a_frame_that_comes_fast_is_not_ended_for_others(autojump_clock: Any) -> None:
    memory = ReceiveMemoryLimit(LARGE - SMALL + 4 * SMALL)
    async with trio.open_nursery() as nursery:
        fast = Sender(memory, nursery, pack(">i", 3 << 20) + bytes((2 << 20) + 10))
        await trio.testing.wait_all_tasks_blocked()
        slow = [Sender(memory, nursery, HALF) for _ in range(4)]
        await trio.testing.wait_all_tasks_blocked()
        assert memory.used == memory.limit
        other = Sender(memory, nursery, WHOLE)
        for _ in range(9):
            fast.send(bytes(115_000))
            await trio.sleep(0.1)
        fast.send(bytes((1 << 20) - 10 - 9 * 115_000))
        await trio.sleep(0.1)
        assert (fast.received, other.received) == ([3 << 20], [SMALL + 10])
        assert sum(sender.ended_s is not None for sender in slow) == 1
        nursery.cancel_scope.cancel()


async def test_empty_buffers_are_given_back_at_once_to_who_waits_and_those_in_use_are_not(autojump_clock: Any) -> None:
    memory = ReceiveMemoryLimit(2 * (LARGE - SMALL))
    async with trio.open_nursery() as nursery:
        quiet, busy = (Sender(memory, nursery, WHOLE) for _ in range(2))
        await trio.testing.wait_all_tasks_blocked()
        busy.goes_on = trio.Event()
        busy.send(WHOLE)
        await trio.testing.wait_all_tasks_blocked()
        assert memory.used == memory.limit
        began = trio.current_time()
        other = Sender(memory, nursery, WHOLE)
        await trio.testing.wait_all_tasks_blocked()
        assert (other.received, trio.current_time()) == ([SMALL + 10], began)
        assert quiet.frames.enlarged_by == 0
        assert busy.frames.enlarged_by == LARGE - SMALL
        nursery.cancel_scope.cancel()


async def test_of_those_that_hold_most_and_wait_for_more_the_largest_end(autojump_clock: Any) -> None:
    memory = ReceiveMemoryLimit(8 * SMALL)
    async with trio.open_nursery() as nursery:
        stuck = [Sender(memory, nursery, pack(">i", 90 << 20) + bytes(4 * SMALL)) for _ in range(2)]
        await trio.sleep(0.1)
        other = Sender(memory, nursery, pack(">i", 3 * SMALL) + bytes(3 * SMALL))
        began = trio.current_time()
        while not other.received:
            await trio.sleep(0.01)
        assert trio.current_time() - began < 1.1
        assert any(sender.ended_s for sender in stuck)
        nursery.cancel_scope.cancel()
