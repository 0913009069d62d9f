"""Answers other nodes' requests to the quorum: refuses invalid ones, and passes the others to the Raft core."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import trio

from squall.broker.control.kraft import quorum_wire as wire
from squall.broker.protocol.errors import ErrorCode
from squall.broker.quorum.messages import FetchReply, FetchSnapshotReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.control.kraft.quorum_storage import QuorumStorage
    from squall.broker.protocol.hot import FetchIn
    from squall.broker.quorum.messages import Reply, Request


class QuorumRequestPort(Protocol):
    """Passes the requests of other nodes to the Raft core. `MetadataQuorum` implements it."""

    def ask(self, found: tuple[int, Request], replied: Callable[[Reply], None]) -> int:
        """Pass (sender, request) to the Raft core, and return a ticket (a number) for `withdraw`. `replied` is called
        with the reply, now or later.
        """

    def withdraw(self, ticket: int) -> None:
        """Drop the request with this ticket, because its sender no longer waits for the reply."""


class QuorumRequestHandler:
    """Handles Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch of the metadata log, and FetchSnapshot."""

    def __init__(self, core: QuorumRequestPort, storage: QuorumStorage, node_id: int, cluster_id: str) -> None:
        self._core, self._storage, self._node_id, self._cluster_id = core, storage, node_id, cluster_id

    async def vote(self, request: Any) -> Any:
        """Decide whether the sender of a Vote gets this node's vote, or would get it (pre-vote). Return the answer."""
        error = wire.refusal(request, self._cluster_id, self._node_id)
        return wire.write_vote(error or await self._reply(wire.read_vote(request)))

    async def begin_quorum_epoch(self, request: Any) -> Any:
        """Handle BeginQuorumEpoch: follow the new leader that announces itself. Return the response."""
        error = wire.refusal(request, self._cluster_id, self._node_id)
        return wire.write_begin(error or await self._reply(wire.read_begin(request)))

    async def end_quorum_epoch(self, request: Any) -> Any:
        """Handle EndQuorumEpoch: the leader has resigned, so an election may begin. Return the response."""
        error = wire.refusal(request, self._cluster_id, self._node_id)
        return wire.write_end(error or await self._reply(wire.read_end(request)))

    def fetch(self, request: FetchIn, version: int, answer: Callable[[list[Any]], None]) -> None:
        """Handle another node's Fetch of the metadata log. The response is sent once there are new records or a higher
        high watermark, or after the request's max wait.

        `answer` is called once, now or later, with the response body in chunks. One chunk may be a slice of the log's
        file.
        """
        error = wire.fetch_refusal(request, self._cluster_id)
        if error is None and request.replica_id == self._node_id:
            error = ErrorCode.INVALID_REQUEST  # a node does not fetch from itself
        if error is not None:
            answer(wire.write_fetch_error(version, error))
            return

        def replied(reply: Reply) -> None:
            assert isinstance(reply, FetchReply)
            records = self._storage.slice(reply.offset, reply.limit, wire.MAX_BYTES)
            answer(wire.write_fetch(version, reply, records))

        self._core.ask(wire.read_fetch(request), replied)

    async def fetch_snapshot(self, request: Any) -> Any:
        """Handle FetchSnapshot: return a chunk of one of this node's snapshots, while this node leads."""
        from squall.broker.control.kraft import snapshot_wire  # rarely needed

        error = snapshot_wire.refusal(request, self._cluster_id)
        if error is None and request.replica_id == self._node_id:
            error = ErrorCode.INVALID_REQUEST  # else this node would be in its own list of observers
        if error is not None:
            return snapshot_wire.write_reply(error)
        sender, asked = snapshot_wire.read_request(request)
        reply: FetchSnapshotReply = await self._reply((sender, asked))
        if reply.error is not ErrorCode.NONE:
            return snapshot_wire.write_reply(reply)
        most = min(max(request.max_bytes, 1), snapshot_wire.MAX_PIECE_BYTES)
        piece = self._storage.snapshots.piece(asked.snapshot, asked.position, most)
        if piece is None:
            reply = replace(reply, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        elif asked.position >= piece[0]:
            reply, piece = replace(reply, error=ErrorCode.POSITION_OUT_OF_RANGE), None
        return snapshot_wire.write_reply(reply, piece)

    async def _reply(self, found: tuple[int, Request]) -> Any:
        """Pass `found` (sender id, request) to the Raft core, and return its reply."""
        replies: list[Reply] = []
        done = trio.Event()

        def replied(reply: Reply) -> None:
            replies.append(reply)
            done.set()

        ticket = self._core.ask(found, replied)
        try:
            await done.wait()
            return replies[0]
        finally:
            self._core.withdraw(ticket)
