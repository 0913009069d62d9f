"""Compiles and matches regular expressions over names (topics, transactional ids), with RE2: Kafka's coordinators take
the same syntax (RE2/J, KIP-848).

Any client may send any expression, and Python's `re` takes exponential time for some: a single heartbeat could stop a
broker. RE2 takes time in proportion to a name's length and the expression's size, which is limited here. It has no
back-references and no look-around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import re2

from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_CHARS: Final = 1_000
MOST_INSTRUCTIONS: Final = 2_000
"""Limits the size of a compiled expression, in RE2's instructions."""
MEMORY_BYTES: Final = 1 << 18
"""Limits the memory of a compiled expression, its cached states included."""
PRODUCTS_IN_A_STEP: Final = 100
"""Says how many products of a character and an instruction count as one step: at most about a microsecond."""


class BadPattern(Exception):
    """Reports that a text is not a regular expression, or one that is too large. The message says why."""


class ResumableNameSearch:
    """Finds the names that a regular expression matches, in parts between which other tasks can run."""

    __slots__ = ("_at", "_names", "_pattern", "found", "spent")

    def __init__(self, pattern: RegexPattern, names: Sequence[str]) -> None:
        self._pattern, self._names, self._at = pattern, names, 0
        self.found: list[str] = []
        """Holds the matching names so far, in their order."""
        self.spent = 0
        """Counts the steps that the search has taken so far."""

    def advance(self, steps: int) -> bool:
        """Match more names until `steps` steps are spent, the last name's beyond. Return whether all names are done."""
        assert steps >= 0
        before, until = self.spent, self.spent + steps
        while self._at < len(self._names) and self.spent < until:
            name = self._names[self._at]
            self._at += 1
            self.spent += self._pattern.steps(name)
            if self._pattern.matches(name):
                self.found.append(name)
        DONE.steps += self.spent - before
        return self._at == len(self._names)


class RegexPattern:
    """Compiles a regular expression. Raises BadPattern if the text is none, or one that is too large."""

    __slots__ = ("_pattern", "_size")

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARS:
            raise BadPattern(f"it is too long: {len(text):,} characters, and {MOST_CHARS:,} are allowed")
        options = re2.Options()
        options.max_mem, options.log_errors = MEMORY_BYTES, False
        try:
            self._pattern = re2.compile(text, options)
        except re2.error as why:
            raise BadPattern(_reason(why)) from None
        self._size: int = self._pattern.programsize
        if self._size > MOST_INSTRUCTIONS:
            raise BadPattern(f"it is too large: {self._size:,} instructions, and {MOST_INSTRUCTIONS:,} are allowed")

    def steps(self, name: str) -> int:
        """Return the most steps that it takes to match this name: a count that is the same on every machine."""
        return 1 + len(name) * self._size // PRODUCTS_IN_A_STEP

    def matches(self, name: str) -> bool:
        """Return whether the expression matches the whole name."""
        return self._pattern.fullmatch(name) is not None

    def matching(self, names: Iterable[str]) -> list[str]:
        """Return the names that the expression matches as a whole, in their order."""
        return [name for name in names if self.matches(name)]

    def search(self, names: Sequence[str]) -> ResumableNameSearch:
        """Return a search that finds the same names as `matching`, in parts."""
        return ResumableNameSearch(self, names)


def _reason(why: re2.error) -> str:
    """Return RE2's error message as text."""
    (said,) = why.args
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
