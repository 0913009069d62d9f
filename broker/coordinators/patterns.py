"""Compiles and matches regular expressions over names (topics, transactional ids) in bounded time, in the part of RE2's
syntax that names need.

Any client may send any expression, and Python's `re` takes exponential time for some: a single heartbeat could stop a
broker. Here the steps of a match are at most the name's length times the expression's states, of which there are at
most MOST_STATES. As in RE2 there are no back-references and no look-around. Flags, Unicode classes and word boundaries
are refused as well.

    choice  = series *("|" series)            series = *(one ["*" | "+" | "?" | "{m}" | "{m,}" | "{m,n}"] ["?"])
    one     = char | "." | "\\d" ... | "[" ... "]" | "(" ["?:" | "?P<name>"] choice ")" | "^" | "$"
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final

from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_CHARS: Final = 1000
MOST_STATES: Final = 500
MOST_NESTED: Final = 50
MOST_REPEATS: Final = 100
MOST_STEPS_KEPT: Final = 2000
"""Limits the cached transitions of one matcher. A transition leads from a set of states, by a character, to the next
set of states. If it is cached, it is not computed again.
"""
MOST_CHARS_KEPT: Final = 300

Ranges = tuple[tuple[str, str], ...]

_DIGIT: Final[Ranges] = (("0", "9"),)
_LETTERS: Final[Ranges] = (("a", "z"), ("A", "Z"))
_WORD: Final[Ranges] = (*_LETTERS, *_DIGIT, ("_", "_"))
_SPACE: Final[Ranges] = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES: Final[dict[str, Ranges]] = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_NAMED: Final[dict[str, Ranges]] = {
    "alnum": (*_LETTERS, *_DIGIT),
    "alpha": _LETTERS,
    "digit": _DIGIT,
    "lower": (("a", "z"),),
    "upper": (("A", "Z"),),
    "word": _WORD,
}


class BadPattern(Exception):
    """Reports that a text is not a regular expression, or not a supported one. The message says why."""


class _CharacterSet:
    """Holds a set of characters: those in the ranges, or all others if `negated`."""

    __slots__ = ("negated", "ranges")

    def __init__(self, ranges: Ranges, *, negated: bool = False) -> None:
        assert ranges
        assert all(low <= high for low, high in ranges)
        self.ranges, self.negated = ranges, negated

    def has(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated


class _NfaState:
    """Holds one state of the automaton. If it has `chars`, one character of this set leads to the states `ways`. If
    not, these states follow without a character: always, or only at the start ("^") or the end ("$") of a name, as `at`
    says.
    """

    __slots__ = ("at", "chars", "ways")

    def __init__(self, chars: _CharacterSet | None = None, at: str = "") -> None:
        assert at in ("", "^", "$")
        self.chars, self.at = chars, at
        self.ways: list[int] = []


class _NfaMatcher:
    """Matches many names. Sets of states are bit sets in an int; transitions between these sets are cached, so that
    most characters of a name need only a lookup.
    """

    def __init__(self, states: list[_NfaState], first: int, last: int) -> None:
        assert first < len(states)
        assert last < len(states)
        self._states, self._first, self._last = states, first, 1 << last
        self._reach: dict[tuple[int, bool, bool], int] = {}
        self._having: dict[str, int] = {}
        self._steps: dict[tuple[int, str], int] = {}
        self.spent = 0
        """Counts the characters and states that were processed: the cost so far, independent of the machine."""

    def has(self, name: str) -> bool:
        """Return whether the expression matches the whole name."""
        steps = self._steps
        self.spent += len(name)
        now = self._reached(self._first, True, not name)
        for char in name[:-1]:
            led = steps.get((now, char))
            if led is None:
                led = self._next_states(now, char, is_end=False)
                if len(steps) >= MOST_STEPS_KEPT:
                    steps.clear()
                steps[now, char] = led
            if not led:
                return False
            now = led
        if name:
            # Not from the cache: only behind the last character does "$" lead on.
            now = self._next_states(now, name[-1], is_end=True)
        assert len(steps) <= MOST_STEPS_KEPT
        return bool(now & self._last)

    def _next_states(self, now: int, char: str, *, is_end: bool) -> int:
        """Return, as a bit set, the states that `char` leads to from the states `now`. `is_end` says that `char` is the
        last character of the name, so that "$" matches after it.
        """
        led, left = 0, now & self._states_accepting(char)
        self.spent += left.bit_count()
        while left:
            state = self._states[left.bit_length() - 1]
            for way in state.ways:
                led |= self._reached(way, False, is_end)
            left &= (1 << (left.bit_length() - 1)) - 1
        assert led.bit_length() <= len(self._states)
        return led

    def _states_accepting(self, char: str) -> int:
        found = self._having.get(char)
        if found is None:
            states = enumerate(self._states)
            self.spent += len(self._states)
            found = sum(1 << at for at, state in states if state.chars is not None and state.chars.has(char))
            if len(self._having) >= MOST_CHARS_KEPT:
                self._having.clear()
            self._having[char] = found
        assert len(self._having) <= MOST_CHARS_KEPT
        assert found.bit_length() <= len(self._states)
        return found

    def _reached(self, start: int, is_start: bool, is_end: bool) -> int:
        """Return, as a bit set, the states that are reachable from `start` without consuming a character. "^" is passed
        only if `is_start`, "$" only if `is_end`.
        """
        known = self._reach.get((start, is_start, is_end))
        if known is not None:
            return known
        found = 0
        todo = [start]
        while todo:
            at = todo.pop()
            if found >> at & 1:
                continue
            found |= 1 << at
            self.spent += 1
            state = self._states[at]
            open_ = state.at == "" or (is_start if state.at == "^" else is_end)
            if state.chars is None and open_:
                todo += state.ways
        assert found >> start & 1
        assert found.bit_length() <= len(self._states)
        self._reach[start, is_start, is_end] = found
        return found


class ResumableNameSearch:
    """Finds the names that a regular expression matches, in parts between which other tasks can run."""

    __slots__ = ("_at", "_matching", "_names", "found")

    def __init__(self, matching: _NfaMatcher, names: Sequence[str]) -> None:
        self._matching, self._names, self._at = matching, names, 0
        self.found: list[str] = []
        """Holds the matching names so far, in their order."""

    @property
    def spent(self) -> int:
        """Return the steps that the search has taken so far."""
        return self._matching.spent

    def advance(self, steps: int) -> bool:
        """Match more names, at least one, until `steps` steps are spent. Return whether all names are done.

        Each character of a name is a step. If the transition for a character is not cached, each state that has to be
        looked at is a step as well. One name takes at most its length times the number of states.
        """
        assert steps >= 0
        matching, names = self._matching, self._names
        before = matching.spent
        until = before + steps
        while self._at < len(names) and matching.spent < until:
            name = names[self._at]
            self._at += 1
            if matching.has(name):
                self.found.append(name)
        assert self._at <= len(names)
        assert len(self.found) <= self._at
        assert before <= matching.spent
        DONE.steps += matching.spent - before
        return self._at == len(names)


class RegexPattern:
    """Compiles a regular expression. Raises BadPattern if the text is not a supported expression."""

    __slots__ = ("_at", "_depth", "_first", "_last", "_states", "_text")

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARS:
            raise BadPattern("it is too long")
        self._text, self._at, self._depth = text, 0, 0
        self._states: list[_NfaState] = []
        self._first, self._last = self._choice()
        if self._at < len(text):
            raise BadPattern("unexpected )")
        assert self._at == len(text)
        assert self._depth == 0
        assert len(self._states) <= MOST_STATES
        # Nothing leads out of the last state: it is reached by the end of a name only.
        assert not self._states[self._last].ways
        assert self._states[self._first].chars is None

    # --------------------------------------------------------------------------------------------------------- matching

    def matches(self, name: str) -> bool:
        """Return whether the expression matches the whole name."""
        return self.matching((name,)) == [name]

    def matching(self, names: Iterable[str]) -> list[str]:
        """Return the names that the expression matches as a whole, in their order."""
        matching = self._matching()
        return [name for name in names if matching.has(name)]

    def search(self, names: Sequence[str]) -> ResumableNameSearch:
        """Return a search that finds the same names as `matching`, in parts."""
        return ResumableNameSearch(self._matching(), names)

    def _matching(self) -> _NfaMatcher:
        return _NfaMatcher(self._states, self._first, self._last)

    # ---------------------------------------------------------------------------------------------------------- reading

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self, wanted: str = "") -> str:
        char = self._peek()
        if not char or (wanted and char != wanted):
            raise BadPattern(f"missing {wanted}" if wanted else "it ends too early")
        self._at += 1
        return char

    def _state(self, chars: _CharacterSet | None = None, at: str = "") -> int:
        if len(self._states) >= MOST_STATES:
            raise BadPattern("it is too large")
        self._states.append(_NfaState(chars, at))
        return len(self._states) - 1

    def _link(self, one: int, other: int) -> None:
        assert other < len(self._states)
        self._states[one].ways.append(other)

    def _choice(self) -> tuple[int, int]:
        first, last = self._state(), self._state()
        while True:
            begin, end = self._series()
            self._link(first, begin)
            self._link(end, last)
            if self._peek() != "|":
                return first, last
            self._at += 1

    def _series(self) -> tuple[int, int]:
        first = last = self._state()
        while self._peek() and self._peek() not in "|)":
            begin, end = self._repeated()
            self._link(last, begin)
            last = end
        return first, last

    def _repeated(self) -> tuple[int, int]:
        begins = self._at
        if self._peek() in "*+?":
            raise BadPattern(f"nothing to repeat before {self._peek()}")
        piece = self._one()
        low, high = self._count()
        assert high is None or low <= high
        if (low, high) == (1, 1):
            return piece
        ends = self._at
        assert begins < ends
        first = last = self._state()
        for n in range(max(low, 0 if high is None else high)):
            begin, end = piece if n == 0 else self._again(begins)
            self._link(last, begin)
            if n >= low:
                self._skip(last, end)
            last = end
        if high is None:
            begin, end = piece if low == 0 else self._again(begins)
            loop = self._state()
            self._link(last, loop)
            self._link(loop, begin)
            self._link(end, loop)
            last = loop
        # Copies are parsed from the text again, and end where the piece does, before its repetition.
        assert self._at <= ends
        self._at = ends
        after = self._state()
        self._link(last, after)
        return first, after

    def _skip(self, one: int, other: int) -> None:
        """Make the piece from state `one` to state `other` optional, by a transition that consumes no character."""
        self._link(one, other)

    def _again(self, begins: int) -> tuple[int, int]:
        """Parse a repeated piece once more: the piece that begins at position `begins`, such as the "[a-z]" of
        "[a-z]{3}". Return the first and the last state of the new copy.
        """
        assert begins < self._at
        # The states of a piece lead to the states after it, so each copy needs its own. MOST_STATES limits {100}.
        self._at = begins
        return self._one()

    def _count(self) -> tuple[int, int | None]:
        char = self._peek()
        found: tuple[int, int | None] = (1, 1)
        if char and char in "*+?":
            self._at += 1
            found = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif char == "{":
            end = self._text.find("}", self._at)
            low, comma, high = self._text[self._at + 1 : max(end, self._at)].partition(",")
            if not low.isdecimal() or not (high.isdecimal() or high == ""):
                raise BadPattern("a number of times is expected in {}")
            most = int(low) if not comma else (int(high) if high else None)
            if max(int(low), most or 0) > MOST_REPEATS or (most is not None and most < int(low)):
                raise BadPattern(f"a piece is repeated at most {MOST_REPEATS} times")
            self._at, found = end + 1, (int(low), most)
        if found != (1, 1) or char == "{":
            if self._peek() == "?":  # the lazy form matches the same names
                self._at += 1
            if self._peek() and self._peek() in "*+?{":
                raise BadPattern("a repetition is repeated")
        low_bound, high_bound = found
        assert 0 <= low_bound <= MOST_REPEATS
        assert high_bound is None or low_bound <= high_bound <= MOST_REPEATS
        assert self._at <= len(self._text)
        return found

    def _one(self) -> tuple[int, int]:
        char = self._take()
        if char == "(":
            return self._group()
        if char in "^$":
            return self._edge(None, char)
        if char == "\\" and self._peek() and self._peek() in "Az":
            return self._edge(None, "^" if self._take() == "A" else "$")
        if char == "[":
            return self._edge(self._bracket())
        if char == ".":
            return self._edge(_CharacterSet((("\n", "\n"),), negated=True))
        if char == "\\":
            return self._edge(self._escape())
        return self._edge(_CharacterSet(((char, char),)))

    def _edge(self, chars: _CharacterSet | None, at: str = "") -> tuple[int, int]:
        assert (chars is None) == bool(at)
        one, other = self._state(chars, at), self._state()
        self._link(one, other)
        return one, other

    def _group(self) -> tuple[int, int]:
        if self._peek() == "?":
            self._at += 1
            if self._peek() == ":":
                self._at += 1
            else:
                if self._peek() == "P":
                    self._at += 1
                self._take("<")
                if self._peek() in "=!":
                    raise BadPattern("looking around is not possible")
                while self._take() != ">":
                    pass
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise BadPattern("it is nested too deeply")
        found = self._choice()
        self._take(")")
        self._depth -= 1
        assert self._depth >= 0
        return found

    def _escape(self) -> _CharacterSet:
        char = self._take()
        if char.lower() in _CLASSES:
            return _CharacterSet(_CLASSES[char.lower()], negated=char.isupper())
        if char in string.punctuation:
            return _CharacterSet(((char, char),))
        raise BadPattern(f"\\{char} is not understood")

    def _bracket(self) -> _CharacterSet:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[str, str]] = []
        # A "]" that comes first is a member of the set.
        while self._peek() != "]" or not ranges:
            if self._text.startswith("[:", self._at):
                end = self._text.find(":]", self._at)
                name = self._text[self._at + 2 : max(end, self._at)]
                if name not in _NAMED:
                    raise BadPattern(f"[:{name}:] is not understood")
                ranges += _NAMED[name]
                self._at = end + 2
                continue
            low = self._in_bracket()
            if isinstance(low, _CharacterSet):
                ranges += low.ranges
            elif self._peek() == "-" and not self._text.startswith("-]", self._at):  # a last "-" is a member
                self._at += 1
                high = self._in_bracket()
                if isinstance(high, _CharacterSet) or high < low:
                    raise BadPattern("a range in [] is none")
                ranges.append((low, high))
            else:
                ranges.append((low, low))
        self._take("]")
        assert ranges
        return _CharacterSet(tuple(ranges), negated=negated)

    def _in_bracket(self) -> str | _CharacterSet:
        char = self._take()
        if char != "\\":
            return char
        found = self._escape()
        if found.negated:
            raise BadPattern("an excluding class in [] is not understood")
        return found if len(found.ranges) > 1 or found.ranges[0][0] != found.ranges[0][1] else found.ranges[0][0]
