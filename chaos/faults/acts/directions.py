"""Finds out in which direction a cut link still carries bytes: whether requests over the link reach their target.

A link is the path from a client or a broker to a broker, through a proxy or relay that injects faults. A probe (a
request and its response) fails if either direction of the link is cut, so a probe does not show which direction is cut.
A fetch session (KIP-227) shows it, because the target remembers the session's epoch. Before the cut, the nemesis
connects over the link, and opens a fetch session over a second connection that goes directly to the target. During the
cut, it sends a Fetch of this session over the link. If that Fetch arrives, the session enters its second epoch, which
the nemesis finds out over a direct connection.

If a link's requests are cut, nobody can see whether its responses would pass: there are no responses then.
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
"""Name the client and the topic of the probing fetches. A session needs a partition to fetch; the topic need not exist.
"""
VERSION = 12
"""Gives the version of Fetch, the last version in which requests name topics instead of topic ids."""
FIRST, SECOND = 1, 2
"""Give the epochs of a fetch session's first incremental fetch and of the fetch after that."""
PEEK_S = 0.3
"""Limits how long `_peek` waits for the target's response over a direct connection, in s. Without a response, it is
unknown whether the Fetch that was sent over the link has arrived.
"""
_SIZE = Struct(">i")


class LinkDialer(Protocol):
    """Opens connections over a link, so that the faults on the link apply to them. Only some runtimes can do so."""

    async def connect(self, link: Link) -> Transport:
        """Open a connection over a link, through the link's faults. Raises OSError if the connection is refused."""


def can_dial_links(runtime: object) -> TypeGuard[LinkDialer]:
    """Return whether a runtime is a `LinkDialer`. The test is not by `isinstance`, which ignores methods that a wrapper
    of a runtime passes on by `__getattr__`.
    """
    return hasattr(runtime, "connect")


@dataclass(slots=True)
class DirectionProbe:
    """Tests once whether requests pass over a link during a cut. It holds a connection over the link, and a fetch
    session with the link's target. `stream` is the direction that the fault cuts.
    """

    link: Link
    stream: StreamDirection
    target: Address
    connection: Transport | None = None
    session: int = 0
    reached: bool | None = None
    """Is True if the Fetch reached the target during the cut, False if it did not, and None if that is unknown."""

    def evidence(self) -> dict[str, Any]:
        """Return what nemesis.jsonl records about this link."""
        return {"link": str(self.link), "stream": self.stream.value, "reached": self.reached}


class DirectionProbes:
    """Holds a `DirectionProbe` for each link that a network partition cuts; each tests its link once during the cut.
    Links whose connections are refused are left out, because a refusal cuts both directions.
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
        """Open the connection and the fetch session of each probe, before the cut. Links that do not answer in time are
        left out: if a link was silent before the cut, its silence during the cut proves nothing.
        """
        await self._each(self._open)
        self.found = [way for way in self.found if way.session]

    async def look(self) -> None:
        """Send a Fetch over each link, and find out whether it reached the target."""
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
            # Opened over no link: a fetch session belongs to the broker and not to a connection (KIP-227), so a Fetch
            # over the link and a question past the link can share it.
            way.session = (await self._ask(way.target, 0, 0)).session_id
        if way.connection is not None and not way.session:
            way.connection.close()

    async def _look(self, way: DirectionProbe) -> None:
        """Send a Fetch over the link, and find out whether it reached the target. If the cut should stop requests, wait
        for the whole time-out before asking the target. If only responses are cut, return as soon as the Fetch has
        arrived.
        """
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
        """Find out, over a direct connection, whether the Fetch of epoch 1, which was sent over the link, has reached
        the target. To do so, send a Fetch of epoch 2. If the target has not got epoch 1, it refuses epoch 2, and the
        session stays unchanged.
        """
        with suppress(OSError, MalformedFrame), trio.move_on_after(PEEK_S):
            code = (await self._ask(way.target, way.session, SECOND)).error_code
            # KIP-227: a session accepts only its next epoch. Any other error, such as that of an evicted session,
            # proves neither.
            known = {int(ErrorCode.NONE): True, int(ErrorCode.INVALID_FETCH_SESSION_EPOCH): False}
            way.reached = known.get(code)

    async def _ask(self, target: Address, session: int, epoch: int) -> FetchResponse:
        """Return the response to one Fetch, sent over a connection of its own directly to the target."""
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
    """Encode a Fetch that does not wait for records. Epoch 0 requests a new session."""
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
