"""Finds out which requests still come to their target over a link that is cut.

A probe fails if either direction of a link is cut, so it does not show which one is. What shows that requests pass is
the target's memory of a fetch session (KIP-227). Before the cut, a connection is opened over the link, and beside it,
over no link, a session with the target. During the cut, a Fetch of this session is sent over the connection. If it
comes to the target, the session is in its second epoch from then on, and the target says so when it is asked directly.

That answers alone pass, over a link whose requests are cut, cannot be seen: there are no answers then.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import Any, Protocol, TypeGuard

import trio

from squall.broker.env import Env, Transport
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.header import decode_response_header, encode_request
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.timeouts import POLL_S
from squall.chaos.runtimes.contract import Cut, CutMode, Link, StreamDirection
from squall.chaos.runtimes.layout import INTERNAL, Address, addresses

CLIENT_ID, TOPIC = "squall-probe", "squall-probe"
"""A session needs a partition that is fetched. There is no such topic, which does not matter."""
VERSION = 12
"""The last one in which topics have names."""
FIRST, SECOND = 1, 2
"""Epochs of a session: of its first incremental fetch, and of the one after that."""
PEEK_S = 0.3
"""Within which a target answers what it is asked directly: else it is not known whether the request came."""
_SIZE = Struct(">i")


class LinkDialer(Protocol):
    """A runtime whose links can be dialled."""

    async def connect(self, link: Link) -> Transport:
        """Open a connection over a link, through its faults. OSError where it is refused."""


def can_dial_links(runtime: object) -> TypeGuard[LinkDialer]:
    """Return whether a runtime is one. Why not by `isinstance`: see `counts_calls`."""
    return hasattr(runtime, "connect")


@dataclass(slots=True)
class DirectionProbe:
    """One link that is going to be cut in `stream`, its connection, and the session of its target."""

    link: Link
    stream: StreamDirection
    target: Address
    connection: Transport | None = None
    session: int = 0
    reached: bool | None = None
    """True if the request came to the target during the cut; None: not known."""

    def evidence(self) -> dict[str, Any]:
        """Return what is written to nemesis.jsonl."""
        return {"link": str(self.link), "stream": self.stream.value, "reached": self.reached}


class DirectionProbes:
    """The connections and sessions for one look during a cut. Links of refused connections are left out: a refusal
    knows no direction.
    """

    def __init__(
        self, context: FaultContext, p: FaultExecution, cuts: Sequence[tuple[Link, Cut]], whole: Sequence[Link]
    ) -> None:
        self._context, self.found = context, list[DirectionProbe]()
        runtime = context.runtime
        if not can_dial_links(context.runtime):
            return
        self._env: Env = runtime.env(f"directions-{p.fault.id}")
        direct = dict(zip(runtime.nodes, addresses(runtime.bootstrap(INTERNAL)), strict=True))
        for link, cut in cuts:
            if link in whole and cut.manner is not CutMode.REFUSE:
                self.found.append(DirectionProbe(link, cut.stream, direct[link.target]))

    async def open(self) -> None:
        """Open connections and sessions. Those that do not answer in time are left out: of them nothing is known."""
        await self._each(self._open)
        self.found = [way for way in self.found if way.session]

    async def look(self) -> None:
        """Send a request over each link, and ask its target whether it came."""
        await self._each(self._look)

    def close(self) -> None:
        """Close the connections."""
        for way in self.found:
            if way.connection is not None:
                way.connection.close()

    async def _each(self, act: Any) -> None:
        async with trio.open_nursery() as nursery:
            for way in self.found:
                nursery.start_soon(act, way)

    async def _open(self, way: DirectionProbe) -> None:
        runtime = self._context.runtime
        assert can_dial_links(runtime), "there are ways"
        with suppress(OSError, MalformedFrame), trio.move_on_after(self._context.probe_timeout_s):
            way.connection = await runtime.connect(way.link)
            way.session = (await self._ask(way.target, 0, 0)).session_id
        if way.connection is not None and not way.session:
            way.connection.close()

    async def _look(self, way: DirectionProbe) -> None:
        """A request that must not pass has all of the time to do so. One that must is waited for that long."""
        assert way.connection is not None, "it was opened"
        try:
            way.connection.send((_frame(way.session, FIRST),))
        except OSError:
            return
        if way.stream is not StreamDirection.BACK:
            await trio.sleep(self._context.probe_timeout_s - PEEK_S)
            await self._peek(way)
            return
        with trio.move_on_after(self._context.probe_timeout_s):
            while not way.reached:
                await self._peek(way)
                await trio.sleep(POLL_S)

    async def _peek(self, way: DirectionProbe) -> None:
        """Ask for the session's second epoch: it is refused, and nothing changes, as long as the session is in its
        first one.
        """
        with suppress(OSError, MalformedFrame), trio.move_on_after(PEEK_S):
            code = (await self._ask(way.target, way.session, SECOND)).error_code
            known = {int(ErrorCode.NONE): True, int(ErrorCode.INVALID_FETCH_SESSION_EPOCH): False}
            way.reached = known.get(code)

    async def _ask(self, target: Address, session: int, epoch: int) -> FetchResponse:
        """The answer to one Fetch, over a connection of its own."""
        connection = await self._env.connect(*target)
        try:
            connection.send((_frame(session, epoch),))
            (size,) = _SIZE.unpack(await _exactly(connection, _SIZE.size))
            view = memoryview(await _exactly(connection, size))
            _, at = decode_response_header(view, FetchRequest.API_KEY, VERSION)
            return FetchResponse.decode(view, at, VERSION)[0]
        finally:
            connection.close()


def _frame(session: int, epoch: int) -> bytes:
    """A Fetch that waits for nothing. Epoch 0 asks for a new session."""
    named = [] if session else [FetchTopic(TOPIC, partitions=[FetchPartition(0)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=epoch, topics=named)
    return encode_request(FetchRequest.API_KEY, VERSION, 1, CLIENT_ID, request.encode(VERSION))


async def _exactly(connection: Transport, count: int) -> bytes:
    data = bytearray(count)
    view, at = memoryview(data), 0
    while at < count:
        got = connection.recv_into(view[at:])
        if got is None:
            await connection.wait_readable()
        elif got == 0:
            raise ConnectionResetError("the connection was closed")
        else:
            at += got
    return bytes(data)
