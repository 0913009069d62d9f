"""Defines the invariants of incremental fetch sessions (KIP-227), and models such sessions: which partitions a
session's requests have named, and which offsets its responses have sent.

The models are built from the requests and responses alone, and not from the broker's own session state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from squall.broker.protocol.fetch_sessions import FIRST_EPOCH, INITIAL_EPOCH, next_epoch
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from squall.broker.protocol.hot import FetchIn, FetchRequestPartition, FetchResponsePartition

PartitionKey = tuple[bytes, int]
"""Identifies a partition in a fetch session: its topic's id or name, whichever the session's requests use, and its
index.
"""
SentOffsets = tuple[int, int]
"""Holds the high watermark and the log start offset that a response has sent for a partition."""


class ContinuedSession(NamedTuple):
    """Describes a fetch session after a broker has accepted one more request of it."""

    epoch: int
    expected_epoch: int
    parts: Mapping[PartitionKey, FetchRequestPartition]
    """Holds the session's partitions, as the broker has them after this request."""
    requested: Mapping[PartitionKey, FetchRequestPartition]
    """Holds the session's partitions, as all its requests together name them."""


class OmittedPartition(NamedTuple):
    """Describes a partition of a fetch session that a response leaves out."""

    key: PartitionKey
    error: str
    """Describes an error of the partition, for which the response had to include it; empty if there is none."""
    now: SentOffsets
    sent: SentOffsets | None
    """Holds the offsets in the last response that named the partition; None if no response has named it."""
    unread: bool = False
    """Is True if there are records at the requested offset, and the response has no records of any partition."""


class FetcherPosition(NamedTuple):
    """Holds a follower's position in a partition, as a Fetch request names it."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


class NamedPositions(NamedTuple):
    """Holds a follower's present positions (`wanted`), and those that its requests in a fetch session have named
    (`named`).
    """

    wanted: Mapping[PartitionKey, FetcherPosition]
    named: Mapping[PartitionKey, FetcherPosition]


@invariant("session-is-continued", CheckTrigger.SESSION, "KIP-227: epoch and partitions of a fetch session")
def session_is_continued(found: ContinuedSession) -> str | None:
    """A broker accepts a request of a fetch session only if the request has the session epoch that follows the previous
    request's. The broker then serves exactly the partitions that the session's requests have named and not forgotten,
    each from the position that they named most recently.
    """
    if found.epoch != found.expected_epoch:
        return f"a request with session epoch {found.epoch} was accepted, the next epoch is {found.expected_epoch}"
    if found.parts == found.requested:
        return None
    for key in found.parts.keys() | found.requested.keys():
        served, requested = found.parts.get(key), found.requested.get(key)
        if served != requested:
            return f"partition {key[1]} is served as {served}, the requests name {requested}"
    return None


@invariant("session-omits-the-unchanged", CheckTrigger.OMITTED, "KIP-227: a response has what has changed")
def session_omits_the_unchanged(found: OmittedPartition) -> str | None:
    """A response of a fetch session leaves out a partition only if nothing has changed: the partition can be read from
    the requested position, and the fetcher already has its high watermark and log start offset. If the partition has
    records to read, it is left out only if the response has records of other partitions: the first batch always fits
    (KIP-74).
    """
    where = f"partition {found.key[1]} is not in the response"
    if found.error:
        return f"{where}, and has an error: {found.error}"
    if found.sent is None:
        return f"{where}, and was in no response of the session before"
    if found.now != found.sent:
        return f"{where}; its high watermark and log start are {found.now}, and the fetcher got {found.sent}"
    if found.unread:
        return f"{where}, and has records at the requested offset; the response has none"
    return None


@invariant("session-names-the-position", CheckTrigger.NAMED, "KIP-227: a request has what has changed")
def session_names_the_position(found: NamedPositions) -> str | None:
    """After each request of a follower's fetch session, the session's requests together name the follower's present
    position in each partition that it fetches, and name no other partition.
    """
    if found.wanted == found.named:
        return None
    for key in found.wanted.keys() | found.named.keys():
        wanted, named = found.wanted.get(key), found.named.get(key)
        if wanted != named:
            return f"in partition {key[1]} the follower is at {wanted}, and its requests name {named}"
    return None


class ServedSession:
    """Models a fetch session as the broker should have it, by the requests that it accepted and the responses that it
    sent.
    """

    __slots__ = ("epoch", "has_records", "parts", "sent")

    def __init__(self) -> None:
        self.epoch = FIRST_EPOCH
        self.has_records = False
        """Is True if the last response has records."""
        self.parts: dict[PartitionKey, FetchRequestPartition] = {}
        self.sent: dict[PartitionKey, SentOffsets] = {}

    def requested(self, request: FetchIn) -> int:
        """Apply a request that the broker accepted. Returns the session epoch that the request should have."""
        # A full request, of epoch 0, begins a session, which the next request continues with epoch 1.
        expected = INITIAL_EPOCH if request.session_epoch == INITIAL_EPOCH else self.epoch
        for key, parts in request.topics:
            for part in parts:
                self.parts[key, part.index] = part
        for key, indexes in request.forgotten:
            for index in indexes:
                self.parts.pop((key, index), None)
                self.sent.pop((key, index), None)
        if request.session_epoch != INITIAL_EPOCH:
            self.epoch = next_epoch(self.epoch)
        return expected

    def answered(self, response: Iterable[tuple[bytes, FetchResponsePartition]]) -> set[PartitionKey]:
        """Apply a response. Returns the partitions of the session that it leaves out."""
        omitted = set(self.parts)
        self.has_records = False
        for key, part in response:
            if part.records:
                self.has_records = True
            place = key, part.index
            omitted.discard(place)
            self.sent[place] = part.high_watermark, part.log_start_offset
        return omitted


class NamingSession:
    """Models a follower's fetch session: the positions that its requests have named so far."""

    __slots__ = ("named",)

    def __init__(self) -> None:
        self.named: dict[PartitionKey, FetcherPosition] = {}

    def requested(
        self,
        epoch: int,
        topics: Iterable[tuple[bytes, Iterable[FetchRequestPartition]]],
        forgotten: Iterable[tuple[bytes, Collection[int]]],
    ) -> None:
        """Apply a request that the follower sends. `epoch`: the request's session epoch."""
        if epoch == INITIAL_EPOCH:
            self.named.clear()
        for key, parts in topics:
            for part in parts:
                position = part.leader_epoch, part.offset, part.last_fetched_epoch, part.log_start_offset
                self.named[key, part.index] = FetcherPosition(*position)
        for key, indexes in forgotten:
            for index in indexes:
                self.named.pop((key, index), None)
