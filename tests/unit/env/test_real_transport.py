"""RealEnv's network over real loopback sockets."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from squall.broker.env import Env, LinkClosed, Listener, Transport
from squall.broker.real_env import MAX_PIECES, RealEnv

pytestmark = pytest.mark.trio


class Pair:
    """Two ends of one connection, and the listener they came from."""

    def __init__(self, near: Transport, far: Transport, listener: Listener) -> None:
        self.near, self.far, self.listener = near, far, listener


@pytest.fixture
def env() -> Env:
    return RealEnv("node-1", seed=1)


@pytest.fixture
async def pair(env: Env) -> AsyncIterator[Pair]:
    listener = await env.listen("127.0.0.1", 0)
    near = await env.connect("127.0.0.1", listener.port)
    far = await listener.accept()
    yield Pair(near, far, listener)
    near.close()
    far.close()
    listener.close()


async def receive(link: Transport, length: int) -> bytes:
    """Exactly `length` bytes, or fewer at the end of the stream."""
    data = bytearray(length)
    at = 0
    with trio.fail_after(5):
        while at < length:
            got = link.recv_into(memoryview(data)[at:])
            if got is None:
                await link.wait_readable()
            elif got == 0:
                break
            else:
                at += got
    return bytes(data[:at])


async def test_what_is_sent_in_pieces_arrives_in_order(pair: Pair) -> None:
    taken = pair.near.send([b"one ", bytearray(b"two "), memoryview(b"three")])
    assert taken == 13
    assert await receive(pair.far, 13) == b"one two three"


async def test_recv_into_returns_none_where_nothing_has_come(pair: Pair) -> None:
    assert pair.far.recv_into(memoryview(bytearray(10))) is None


async def test_recv_into_returns_zero_at_the_end_of_the_stream(pair: Pair) -> None:
    pair.near.send([b"last"])
    pair.near.close()
    assert await receive(pair.far, 10) == b"last"
    assert pair.far.recv_into(memoryview(bytearray(10))) == 0


async def test_send_takes_nothing_when_the_buffers_are_full_and_more_after_the_peer_has_read(pair: Pair) -> None:
    block = bytes(1 << 20)
    sent = 0
    while taken := pair.near.send([block]):
        sent += taken
    with trio.move_on_after(0.01) as scope:
        await pair.near.wait_writable()
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive, pair.far, sent)
        with trio.fail_after(5):
            await pair.near.wait_writable()
    assert pair.near.send([block]) > 0


async def test_more_pieces_than_the_kernel_takes_at_once_are_taken_in_part(pair: Pair) -> None:
    pieces = [b"%05d" % n for n in range(MAX_PIECES + 10)]
    taken = pair.near.send(pieces)
    assert taken == MAX_PIECES * 5
    taken += pair.near.send(pieces[MAX_PIECES:])
    assert await receive(pair.far, taken) == b"".join(pieces)


async def test_a_header_sent_with_more_and_the_file_after_it_arrive_as_one_stream(
    env: Env, pair: Pair, tmp_path: Path
) -> None:
    file = env.fs.open(str(tmp_path / "data"), create=True)
    file.append(b"0123456789")
    assert pair.near.send([b"head:"], more=True) == 5
    assert pair.near.send_file(file, 2, 5) == 5
    assert await receive(pair.far, 10) == b"head:23456"


async def test_a_file_that_ends_early_ends_the_connection(env: Env, pair: Pair, tmp_path: Path) -> None:
    file = env.fs.open(str(tmp_path / "data"), create=True)
    file.append(b"0123456789")
    file.truncate(2)
    with pytest.raises(LinkClosed):
        pair.near.send_file(file, 2, 5)
    assert await receive(pair.far, 1) == b""


async def test_a_closed_file_ends_the_connection(env: Env, pair: Pair, tmp_path: Path) -> None:
    file = env.fs.open(str(tmp_path / "data"), create=True)
    file.append(b"0123456789")
    file.close()
    with pytest.raises(LinkClosed):
        pair.near.send_file(file, 0, 5)


async def test_close_wakes_a_waiting_reader_with_link_closed(pair: Pair) -> None:
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(LinkClosed), trio.fail_after(5):
                await pair.far.wait_readable()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        pair.far.close()


async def test_every_call_on_a_closed_link_raises_link_closed(pair: Pair) -> None:
    pair.near.close()
    pair.near.close()
    with pytest.raises(LinkClosed):
        pair.near.recv_into(memoryview(bytearray(1)))
    with pytest.raises(LinkClosed):
        pair.near.send([b"x"])
    with pytest.raises(LinkClosed):
        await pair.near.wait_readable()
    with pytest.raises(LinkClosed):
        await pair.near.wait_writable()


async def test_a_reset_by_the_peer_is_link_closed(env: Env) -> None:
    listener = await env.listen("127.0.0.1", 0)
    peer = socket.create_connection(("127.0.0.1", listener.port))
    link = await listener.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    peer.close()
    with trio.fail_after(5):
        await link.wait_readable()
    with pytest.raises(LinkClosed):
        link.recv_into(memoryview(bytearray(1)))
    listener.close()


async def test_abort_resets_the_connection_and_what_was_not_delivered_is_gone(pair: Pair) -> None:
    while pair.near.send([bytes(1 << 16)]):
        pass  # until neither end's buffers take any more
    pair.near.abort()
    pair.near.abort()
    with pytest.raises(LinkClosed, match="reset"), trio.fail_after(5):
        while True:
            await pair.far.wait_readable()
            assert pair.far.recv_into(memoryview(bytearray(1 << 20))) != 0, "an orderly end"
    with pytest.raises(LinkClosed):
        pair.near.send([b"x"])


async def test_abort_wakes_a_waiting_reader_with_link_closed(pair: Pair) -> None:
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(LinkClosed):
                await pair.near.wait_readable()

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        pair.near.abort()


async def test_aborting_a_closed_link_does_nothing(pair: Pair) -> None:
    pair.near.close()
    pair.near.abort()
    assert await receive(pair.far, 1) == b""


async def test_peers_are_named_by_host_and_port(pair: Pair) -> None:
    assert pair.near.peer == f"127.0.0.1:{pair.listener.port}"
    assert pair.far.peer.startswith("127.0.0.1:")


async def test_connecting_where_nobody_listens_is_refused(env: Env) -> None:
    listener = await env.listen("127.0.0.1", 0)
    port = listener.port
    listener.close()
    with pytest.raises(OSError, match="cannot connect"):
        await env.connect("127.0.0.1", port)


@pytest.mark.parametrize("host", ["a\0b", "a" * 64 + ".test", "\u00ad"])
async def test_what_is_no_host_cannot_be_connected_to(env: Env, host: str) -> None:
    """A broker may have registered it: a client that connected to it ended with a ValueError."""
    with pytest.raises(OSError):
        await env.connect(host, 1)


async def test_a_socket_that_connected_to_itself_is_refused(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    class SelfDialled(socket.socket):
        def connect_ex(self, address: object) -> int:
            self.bind(("127.0.0.1", 0))
            return super().connect_ex(self.getsockname())

    monkeypatch.setattr(socket, "socket", SelfDialled)
    with pytest.raises(ConnectionRefusedError):
        await env.connect("127.0.0.1", 1)


async def test_connect_can_be_cancelled(env: Env) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [await env.connect("127.0.0.1", port)]
        with env.timeout(0.05) as scope:
            # A backlog of 0 holds one or two connections; the next one's handshake hangs.
            while True:
                fillers.append(await env.connect("127.0.0.1", port))
        assert scope.cancelled_caught
        for link in fillers:
            link.close()


async def test_a_name_is_looked_up(env: Env) -> None:
    listener = await env.listen("localhost", 0)
    link = await env.connect("localhost", listener.port)
    (await listener.accept()).close()
    link.close()
    listener.close()


async def test_a_port_can_be_listened_on_again_at_once(env: Env) -> None:
    listener = await env.listen("127.0.0.1", 0)
    link = await env.connect("127.0.0.1", listener.port)
    (await listener.accept()).close()  # This side closed first: its port is in TIME_WAIT.
    link.close()
    listener.close()
    again = await env.listen("127.0.0.1", listener.port)
    assert again.port == listener.port
    again.close()


async def test_listening_on_a_taken_port_is_an_error(env: Env) -> None:
    listener = await env.listen("127.0.0.1", 0)
    with pytest.raises(OSError, match="cannot listen"):
        await env.listen("127.0.0.1", listener.port)
    listener.close()


async def test_closing_a_listener_wakes_accept_with_link_closed(env: Env) -> None:
    listener = await env.listen("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(LinkClosed), trio.fail_after(5):
                await listener.accept()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        listener.close()
    with pytest.raises(LinkClosed):
        await listener.accept()
