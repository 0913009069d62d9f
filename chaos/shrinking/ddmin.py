"""Implements Zeller's and Hildebrandt's ddmin ("Simplifying and Isolating Failure-Inducing Input", 2002), which finds
the items that a failure needs. It does no I/O.

It tries ddmin's complement step (to leave out one chunk of the items) first: most of a failing plan has nothing to do
with the failure, so nearly every chunk can go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def ddmin(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return a 1-minimal subset of `items` for which `fails` returns True: if any single item of it is left out,
    `fails` returns False. The order is kept.

    `items` as a whole must fail, which is not tried again. `fails` may be called with the same items twice: the caller
    should cache its results.
    """
    kept = list(items)
    if kept and fails([]):
        return []
    parts = 2
    while len(kept) >= 2:
        chunks = split(kept, parts)
        smaller = _first_failing(chunks, fails)
        if smaller is not None:
            parts = max(parts - 1, 2) if len(smaller) > len(chunks[0]) else 2
            kept = smaller
        elif parts < len(kept):
            parts = min(len(kept), 2 * parts)
        else:
            break
        parts = min(parts, max(len(kept), 2))
    return kept


def _first_failing(chunks: Sequence[Sequence[T]], fails: Callable[[Sequence[T]], bool]) -> list[T] | None:
    """Return the first of two chunks that fails by itself. If there are more than two chunks, return the first
    complement that fails (all items but those of one chunk, beginning with the last chunk). Return None if nothing
    fails.
    """
    if len(chunks) == 2:
        for chunk in chunks:
            if fails(chunk):
                return list(chunk)
        return None
    for left_out in range(len(chunks) - 1, -1, -1):
        rest = [item for number, chunk in enumerate(chunks) if number != left_out for item in chunk]
        if fails(rest):
            return rest
    return None


def split(items: Sequence[T], parts: int) -> list[list[T]]:
    """Split `items` into `parts` chunks, in order. Their lengths differ by at most one, and no chunk is empty."""
    parts = min(parts, len(items))
    edges = [len(items) * number // parts for number in range(parts + 1)]
    return [list(items[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
