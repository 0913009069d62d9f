"""Drives a single Raft core by hand, without network and disk."""

from __future__ import annotations

import random
from typing import TypeVar

from squall.broker.protocol.errors import ErrorCode
from squall.broker.quorum.effects import Ready
from squall.broker.quorum.election import Role
from squall.broker.quorum.log_extent import LogExtent
from squall.broker.quorum.messages import BatchSpan, Fetch, FetchReply, QuorumMessage, Reply, Request, Vote, VoteReply
from squall.broker.quorum.raft import Raft
from squall.broker.quorum.settings import QuorumSettings
from squall.broker.quorum.state import QuorumState

T = TypeVar("T")
NOTHING = Ready(None, (), (), ())
OK = ErrorCode.NONE
FRESH = QuorumState()


def core(
    node_id: int = 1,
    voters: tuple[int, ...] = (1, 2, 3),
    state: QuorumState = FRESH,
    log: tuple[tuple[int, int], ...] = (),
    end: int = 0,
) -> Raft:
    """Return a node started at 0 ms. `log` lists (epoch, first offset), `end` is its end offset."""
    return Raft(QuorumSettings(node_id, voters), random.Random(1), state, LogExtent(end, log), 0)


def ready(raft: Raft) -> Ready:
    """Return the core's pending effects."""
    return raft.ready() or NOTHING


def tell(raft: Raft, sender: int, body: Request | Reply, now_ms: int = 0, ticket: int = 77) -> Ready:
    """Deliver a message to the core, and return its effects."""
    raft.step(QuorumMessage(sender, raft.node_id, ticket, body), now_ms)
    return ready(raft)


def said(effects: Ready, kind: type[T]) -> list[T]:
    """Return the bodies of that kind among the sent messages."""
    return [message.body for message in effects.messages if isinstance(message.body, kind)]


def asked(effects: Ready, receiver: int) -> QuorumMessage:
    """Return the only message to that node."""
    (message,) = [message for message in effects.messages if message.receiver == receiver]
    return message


def stand(raft: Raft) -> Ready:
    """Let the election timeout pass and grant all pre-votes, so that the core asks for votes in a new epoch."""
    while raft.role is not Role.PROSPECTIVE:
        raft.tick(raft.next_deadline_ms())
    return _granted(raft, ready(raft), Role.CANDIDATE)


def lead(raft: Raft) -> Ready:
    """Make the core a leader."""
    return _granted(raft, stand(raft), Role.LEADER)


def _granted(raft: Raft, effects: Ready, role: Role) -> Ready:
    """Grant as many votes as are needed, and return the effects."""
    for request in effects.messages:
        if raft.role is not role and isinstance(request.body, Vote):
            grant = VoteReply(OK, raft.epoch, -1, granted=True)
            effects = tell(raft, request.receiver, grant, ticket=request.ticket)
    assert raft.role is role
    return effects


def fetch(
    raft: Raft, sender: int, offset: int, last_epoch: int, now_ms: int = 0, hw: int = 0, ticket: int = 88
) -> Ready:
    """Deliver a fetch of a follower in the core's epoch."""
    return tell(raft, sender, Fetch(raft.epoch, offset, last_epoch, hw, 500), now_ms, ticket)


def records(raft: Raft, *spans: tuple[int, int, int], hw: int = 0) -> FetchReply:
    """Return a leader's fetch reply with batches (base, end, epoch)."""
    sent = tuple(BatchSpan(*span) for span in spans)
    return FetchReply(OK, raft.epoch, raft.leader_id, hw, spans=sent, payload="batches")
