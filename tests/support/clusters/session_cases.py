"""Situations that break what must hold of fetch sessions, and beside each the nearest sound one."""

from __future__ import annotations

from squall.broker.protocol.hot import FetchRequestPartition
from squall.chaos.runtimes.sim.invariants.fetch_sessions import (
    ContinuedSession,
    FetcherPosition,
    NamedPositions,
    OmittedPartition,
    SentOffsets,
)
from tests.support.clusters.quorum_cases import Arguments, Case

KEY = b"topic", 0


def continued(epoch: int = 5, offset: int | None = 7) -> Arguments:
    """A session whose requests have named one partition at offset 7, and whose next epoch is 5."""
    requested = {KEY: FetchRequestPartition(0, 1, 7, 1, 0, 100, -1)}
    parts = {} if offset is None else {KEY: requested[KEY]._replace(offset=offset)}
    return (ContinuedSession(epoch, 5, parts, requested),)


def omitted(
    error: str = "", now: SentOffsets = (7, 2), sent: SentOffsets | None = (7, 2), unread: bool = False
) -> Arguments:
    return (OmittedPartition(KEY, error, now, sent, unread),)


def named(log_start: int | None) -> Arguments:
    position = FetcherPosition(1, 7, 1, 2)
    known = {} if log_start is None else {KEY: position._replace(log_start_offset=log_start)}
    return (NamedPositions({KEY: position}, known),)


SESSIONS: dict[str, list[Case]] = {
    "session-is-continued": [
        ("the epoch before", continued(epoch=4), continued()),
        ("another offset", continued(offset=6), continued()),
        ("a partition fewer", continued(offset=None), continued()),
    ],
    "session-omits-the-unchanged": [
        ("an error", omitted("FENCED_LEADER_EPOCH"), omitted()),
        ("another high watermark", omitted(now=(8, 2)), omitted()),
        ("another log start", omitted(now=(7, 3)), omitted()),
        ("never sent", omitted(sent=None), omitted()),
        ("records, and a response without any", omitted(unread=True), omitted()),
    ],
    "session-names-the-position": [
        ("an earlier log start", named(1), named(2)),
        ("not named at all", named(None), named(2)),
    ],
}
