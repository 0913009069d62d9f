"""ddmin: what is left is needed, all of it, and the way there is short."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from squall.chaos.shrinking.ddmin import ddmin, split


def counting(needed: set[int]) -> tuple[list[tuple[int, ...]], object]:
    """A predicate that wants all of `needed`, and what it was asked."""
    asked: list[tuple[int, ...]] = []

    def fails(kept: Sequence[int]) -> bool:
        asked.append(tuple(kept))
        return needed <= set(kept)

    return asked, fails


@pytest.mark.parametrize("needed", [set(), {0}, {99}, {3, 4}, {0, 50, 99}, {7, 8, 9, 60, 61}])
def test_what_is_needed_stays_and_nothing_else(needed: set[int]) -> None:
    asked, fails = counting(needed)
    assert ddmin(range(100), fails) == sorted(needed)  # type: ignore[arg-type]
    assert len(set(asked)) < 150


def test_a_failure_that_needs_nothing_is_found_at_once() -> None:
    asked, fails = counting(set())
    assert ddmin(range(1000), fails) == []  # type: ignore[arg-type]
    assert len(asked) == 1


def test_everything_is_kept_where_everything_is_needed() -> None:
    asked, fails = counting(set(range(9)))
    assert ddmin(range(9), fails) == list(range(9))  # type: ignore[arg-type]
    assert len(set(asked)) < 60


def test_the_result_is_1_minimal_also_where_needs_depend_on_each_other() -> None:
    def fails(kept: Sequence[int]) -> bool:
        # Either pair will do; an odd crowd hides it.
        pair = {1, 2} <= set(kept) or {7, 8} <= set(kept)
        return pair and len(kept) % 3 != 0

    kept = ddmin(range(10), fails)
    assert fails(kept)
    assert not any(fails([x for x in kept if x != gone]) for gone in kept)


@pytest.mark.parametrize(("count", "parts"), [(1, 4), (5, 2), (10, 3), (7, 7)])
def test_chunks_hold_everything_in_order_and_are_never_empty(count: int, parts: int) -> None:
    chunks = split(range(count), parts)
    assert [item for chunk in chunks for item in chunk] == list(range(count))
    assert all(chunks) and max(map(len, chunks)) - min(map(len, chunks)) <= 1
