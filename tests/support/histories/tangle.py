"""Random histories of transactions that read each other's records: committed ones, records of open transactions, and
cycles.
"""

from __future__ import annotations

from random import Random

from squall.checkers.history.tables import FAIL, INFO, OK
from tests.support.histories.builder import MS, HistoryBuilder

TRANSACTIONS, UNDER_WAY = 24, 4


def tangle(seed: int) -> HistoryBuilder:
    """Return a history of 24 transactions. At most 4 are open at a time; each reads records of any earlier one."""
    rng = Random(repr((seed, "tangle")))
    h = HistoryBuilder()
    open_: list[tuple[int, int]] = []
    written = []
    for off in range(TRANSACTIONS):
        proc = h.producer(isolation=rng.choice((1, 1, 1, 0)))
        txn = h.begin(proc, f"id-{proc}")
        written.append((txn, h.ok(h.send(proc, txn=txn), off)))
        open_.append((proc, off))
        while len(open_) > rng.randrange(UNDER_WAY + 1):
            proc, which = rng.choice(open_)
            if rng.random() < 0.75:
                back = rng.randrange(max(0, off - 3), off + 1)
                h.poll(proc, [(back, written[back][1].val)], txn=written[which][0])
            else:
                h.tick(rng.choice((1, 1, 1, 1, 900)) * MS)
                how, st = rng.choice(("commit", "commit", "commit", "abort")), rng.choice((OK, OK, OK, FAIL, INFO))
                h.end(written[which][0], how, st)
                open_.remove((proc, which))
    return h
