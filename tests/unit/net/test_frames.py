"""The receive buffer: whole frames whatever the pieces, bounded memory whatever the lengths announced."""

from __future__ import annotations

import random
from struct import pack

import pytest
import trio

from broker.env import LinkClosed
from broker.net.frames import LARGE, SMALL, Frames, ReceiveMemory
from broker.protocol.errors import MalformedFrame


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


class Clock:
    """Just the part of Env that Frames uses."""

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(seconds)


def frames_over(pieces: list[bytes], memory: ReceiveMemory | None = None, max_frame: int = 100 << 20) -> Frames:
    return Frames(Clock(), Pieces(pieces), memory or ReceiveMemory(1 << 30), max_frame, patience_s=0.01)  # type: ignore[arg-type]


async def received(frames: Frames) -> list[bytes]:
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
    memory = ReceiveMemory(1 << 30)
    frames = frames_over([pack(">i", 90 << 20), b"x" * 1000], memory)
    with pytest.raises(LinkClosed):
        await frames.burst()
    assert memory.used <= LARGE


async def test_exhausted_receive_memory_ends_the_connection_that_wants_more() -> None:
    memory = ReceiveMemory(LARGE // 2)
    with pytest.raises(LinkClosed, match="memory"):
        await frames_over([pack(">i", SMALL * 2), b"x" * SMALL * 2], memory).burst()


async def test_an_idle_connection_gives_its_enlarged_buffer_back() -> None:
    memory = ReceiveMemory(1 << 30)
    frames = frames_over([pack(">i", SMALL * 3) + b"x" * SMALL * 3, pack(">i", 1) + b"y"], memory)
    await frames.burst()
    assert memory.used == LARGE - SMALL
    frames.shrink_if_idle()
    assert memory.used == 0
    assert [bytes(v) for v in await frames.burst()] == [b"y"]
