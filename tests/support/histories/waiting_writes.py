"""Histories of sends that overlap in time."""

from __future__ import annotations

import random
from collections.abc import Iterable

from squall.checkers.history.tables import FAIL, INFO, OK
from tests.support.histories.builder import MS, HistoryBuilder

Write = tuple[int, int | None, int]
"""Time of the send, time of its outcome (None: never), both in ms; and the outcome: OK, FAIL or INFO."""


def add_writes(h: HistoryBuilder, writes: Iterable[Write], part: int = 0) -> None:
    """Add these sends by one producer to one partition."""
    given, proc = list(writes), h.producer()
    moments = [(begin, True, number) for number, (begin, _, _) in enumerate(given)]
    moments += [(end, False, number) for number, (_, end, _) in enumerate(given) if end is not None]
    end_with = {OK: lambda send: h.ok(send, h.now), FAIL: h.fail, INFO: h.info}
    asked = {}
    for ms, begins, number in sorted(moments):
        h.now = (ms - 1) * MS
        if begins:
            asked[number] = h.send(proc, part)
        else:
            end_with[given[number][2]](asked[number])


def drawn_writes(seed: int) -> list[Write]:
    """Draw many sends of a few ms: some overlap, some touch, some are apart."""
    rng = random.Random(f"writes that wait {seed}")
    writes: list[Write] = []
    for _ in range(rng.randint(1, 12)):
        begin, st = rng.randint(100, 160), rng.choice((OK, FAIL, INFO))
        never = st == INFO and rng.random() < 0.5
        writes.append((begin, None if never else begin + rng.randint(1, 12), st))
    return writes
