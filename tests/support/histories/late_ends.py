"""Histories for KAFKA-17754: two successive transactions of one producer, in which the request to end the first one may
reach the coordinator late and end the second one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.histories.builder import MS, HistoryBuilder

REQUEST_TIMEOUT_MS = 100


@dataclass(frozen=True, slots=True)
class Second:
    """Describes the second transaction."""

    how: str
    """How it ends: commit or abort."""
    visible: tuple[bool, bool]
    """Whether readers at read_committed find its first record (partition 0) and its second one (partition 1)."""
    polled: bool = False
    """Whether a reader polls its first record at read_committed before the client asks for its end."""


def in_a_row(
    first: str,
    second: Second,
    *,
    waits_ms: int = REQUEST_TIMEOUT_MS,
    epoch: int = 0,
    unanswered: int | None = None,
    plain: bool = False,
) -> HistoryBuilder:
    """Return such a history. The client waits `waits_ms` for the answer that ends the first transaction. `epoch` is the
    second transaction's producer epoch. `unanswered` is the number of unanswered requests that our client reports; None
    means a library, which does not report it. With `plain`, a record outside of any transaction follows in each
    partition.
    """
    h = HistoryBuilder(2)
    p = h.producer(request_timeout_ms=REQUEST_TIMEOUT_MS)
    h.initialised(p)
    txn = h.begin(p)
    before = h.ok(h.send(p, txn=txn), 0).val
    h.ask_end(txn, first)
    h.tick(waits_ms * MS - MS)
    txn.t1, txn.completion = h.tick(), {"st": 0, "how": first, "pid": 4000, "pe": 0}
    txn.completion |= {} if unanswered is None else {"unanswered": unanswered}
    txn = h.begin(p)
    one = h.ok(h.send(p, txn=txn), 2).val
    if second.polled:
        h.poll(h.reader(isolation=1), [(2, one)], at=2)
    two = h.ok(h.send(p, 1, txn=txn), 0).val
    h.end(txn, second.how)
    txn.completion["pe"] = epoch
    h.final([(0, before), (2, one)], end=5, position=5)
    h.final([(0, two)], part=1, end=2, position=2)
    committed = [*([(0, before)] if first == "commit" else []), *([(2, one)] if second.visible[0] else [])]
    h.final(committed, end=5, position=5, isolation=1)
    h.final([(0, two)] if second.visible[1] else [], part=1, end=2, position=2, isolation=1)
    for part, off in ((0, 5), (1, 2)) if plain else ():
        val = h.sent(h.producer(), off, part)
        for isolation in (0, 1):
            h.final([(off, val)], part=part, at=off, isolation=isolation)
    return h
