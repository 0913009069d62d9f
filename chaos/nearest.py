"""Finds the known name that a mistyped name most likely means: letters in the wrong order, a shortened or a longer
word.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

ALIKE = 0.8
"""Is the least similarity of two similar names, 0 to 1, as `SequenceMatcher.ratio` measures it. `prune` and `run` have
0.75, so they are not similar.
"""
SHORTEST = 3
"""Is the least number of letters of an abbreviation. The beginning of a longer word counts as its abbreviation, and
thus as similar to it.
"""


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the known name that is most like `word`; empty if none is similar."""
    word = word.lower()
    likeness, name = max(((_likeness(word, name.lower()), name) for name in names), default=(0.0, ""))
    return name if likeness >= ALIKE else ""


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return "did you mean 'NAME'?"; if no name is similar, "one of" and all names."""
    names = list(names)
    near = nearest(word, names)
    return f"did you mean {near!r}?" if near else f"one of {', '.join(names)}" if names else "there are none"


def _likeness(word: str, name: str) -> float:
    if sorted(word) == sorted(name):
        return 1.0
    shorter = min(word, name, key=len)
    begins = len(shorter) >= SHORTEST and word.startswith(shorter) and name.startswith(shorter)
    return max(ALIKE * begins, SequenceMatcher(None, word, name).ratio())
