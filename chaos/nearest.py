"""Finds the known name that somebody meant who mistyped it: a slip of the fingers, a shortened or lengthened word."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

ALIKE = 0.8
"""Shares of equal letters below this suggest unrelated names: `prune` and `run` have 0.75."""
SHORTEST = 3
"""Letters that a shortened name has at least."""


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the name that was most likely meant; empty if none is like it."""
    word = word.lower()
    likeness, name = max(((_likeness(word, name.lower()), name) for name in names), default=(0.0, ""))
    return name if likeness >= ALIKE else ""


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return `did you mean 'NAME'?`; if no name is like it, `one of` all of them."""
    names = list(names)
    near = nearest(word, names)
    return f"did you mean {near!r}?" if near else f"one of {', '.join(names)}" if names else "there are none"


def _likeness(word: str, name: str) -> float:
    if sorted(word) == sorted(name):
        return 1.0
    shorter = min(word, name, key=len)
    begins = len(shorter) >= SHORTEST and word.startswith(shorter) and name.startswith(shorter)
    return max(ALIKE * begins, SequenceMatcher(None, word, name).ratio())
