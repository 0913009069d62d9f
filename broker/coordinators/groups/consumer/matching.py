"""Finds the topics that a regular expression matches, once for each change of the cluster's topics.

Most expressions are matched at once. One that costs more is matched in turns, while others are served: the group learns
of the outcome at a later heartbeat, as with Kafka, whose coordinators resolve regular expressions in the background.
Cost is counted in steps, not in time, so that the same requests always take the same course.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from squall.broker.coordinators.patterns import BadPattern, RegexPattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from squall.broker.coordinators.groups.consumer.topics import TopicLookup
    from squall.broker.coordinators.patterns import ResumableNameSearch

MOST_KEPT: Final = 100
"""Compiled expressions."""
MOST_FOUND: Final = 10_000
MOST_NAMES_FOUND: Final = 1_000_000
"""Expressions whose topics are kept, and these topics, 8 bytes each. A group looks at all of its expressions in each
heartbeat: what is not kept is matched again and again.
"""
MOST_WAITING: Final = 100
"""Expressions that are being matched in turns. Others are begun again at a later heartbeat."""
STEPS_AT_ONCE: Final = 60_000
"""What is spent within a heartbeat: at most some 20 ms, and enough for 2,500 names of 20 characters."""
STEPS_TO_COMPILE: Final = 3_000
"""What it costs to compile an expression, some 1 ms."""
STEPS_IN_A_TURN: Final = 20_000
"""Some 2 to 7 ms."""


class TopicNameSnapshot(NamedTuple):
    """The names of all topics at one time."""

    listed: tuple[str, ...]
    known: frozenset[str]


class MatchedNames(NamedTuple):
    """Holds the names that an expression matches among the names of one time, sorted."""

    names: TopicNameSnapshot
    topics: tuple[str, ...]


class PendingRegexMatch(NamedTuple):
    """An expression that is matched in turns."""

    search: ResumableNameSearch
    names: TopicNameSnapshot
    kept: list[str]
    """What it is known to match besides."""


class RegexMatchCache:
    """Expressions that were used lately, with what they match. All shards of a coordinator may share one."""

    __slots__ = ("_found", "_kept_names", "_names", "_patterns", "_topics", "_version", "waiting")

    def __init__(self, topics: TopicLookup) -> None:
        self._topics = topics
        self._version: int | None = None
        self._names = TopicNameSnapshot((), frozenset())
        """As of `_version` of the topics."""
        self._patterns: dict[str, RegexPattern] = {}
        self._found: dict[str, MatchedNames] = {}
        self._kept_names = 0
        """How many topics `_found` has."""
        self.waiting: dict[str, PendingRegexMatch] = {}
        """What `go_on` is to be called for."""

    def pattern(self, regex: str) -> RegexPattern:
        """The compiled expression. Raises BadPattern."""
        found = self._patterns.get(regex)
        if found is None:
            found = RegexPattern(regex)
            if len(self._patterns) >= MOST_KEPT:
                self._patterns.clear()
            self._patterns[regex] = found
        assert len(self._patterns) <= MOST_KEPT
        return found

    def topics_of(self, regex: str) -> tuple[str, ...] | None:
        """The names of all topics that it matches; None: that is known later. An expression of a log that is not
        understood here matches none.
        """
        known = self._known(regex)
        return self._look(regex, STEPS_AT_ONCE)[0] if known is None else known

    def of_each(self, regexes: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """Yield the topics of each expression, as `topics_of` does; many together cost little more than one. What is
        known costs nothing.
        """
        spent = 0
        for regex in regexes:
            topics = self._known(regex)
            if topics is None and (spent == 0 or spent < STEPS_AT_ONCE):
                topics, cost = self._look(regex, STEPS_AT_ONCE - spent)
                spent += cost
            yield regex, topics

    def _known(self, regex: str) -> tuple[str, ...] | None:
        names, known = self._current(), self._found.get(regex)
        return known.topics if known is not None and known.names is names else None

    def _look(self, regex: str, steps: int) -> tuple[tuple[str, ...] | None, int]:
        """The topics of one that is not known, and what it has cost."""
        if regex in self.waiting:
            return None, 0
        names, known = self._current(), self._found.get(regex)
        spent = 0 if regex in self._patterns else STEPS_TO_COMPILE
        try:
            pattern = self.pattern(regex)
        except BadPattern:  # Kafka's coordinator took it: its library knows more
            return self._keep(regex, names, ()), spent
        if known is None:
            waiting = PendingRegexMatch(pattern.search(names.listed), names, [])
        else:
            # Whether a name matches never changes: of those that were looked at before, the outcome is kept.
            new = [name for name in names.listed if name not in known.names.known]
            waiting = PendingRegexMatch(
                pattern.search(new), names, [name for name in known.topics if name in names.known]
            )
        if waiting.search.go_on(steps):
            return self._learn(regex, waiting), spent + waiting.search.spent
        if len(self.waiting) < MOST_WAITING:
            self.waiting[regex] = waiting
        assert len(self.waiting) <= MOST_WAITING
        return None, spent + waiting.search.spent

    def _current(self) -> TopicNameSnapshot:
        """The same one as long as there are the same topics: most changes of a cluster are others."""
        version = self._topics.version()
        if version != self._version:
            self._version = version
            listed = tuple(self._topics.names())
            if listed != self._names.listed:
                self._names = TopicNameSnapshot(listed, frozenset(listed))
        return self._names

    def _learn(self, regex: str, waiting: PendingRegexMatch) -> tuple[str, ...]:
        return self._keep(regex, waiting.names, tuple(sorted(waiting.kept + waiting.search.found)))

    def _keep(self, regex: str, names: TopicNameSnapshot, topics: tuple[str, ...]) -> tuple[str, ...]:
        self._forget(regex)
        self._found[regex] = MatchedNames(names, topics)
        self._kept_names += len(topics)
        while len(self._found) > MOST_FOUND or (self._kept_names > MOST_NAMES_FOUND and len(self._found) > 1):
            self._forget(next(iter(self._found)))
        assert len(self._found) <= MOST_FOUND
        return topics

    def _forget(self, regex: str) -> None:
        gone = self._found.pop(regex, None)
        if gone is not None:
            self._kept_names -= len(gone.topics)
        assert self._kept_names >= 0

    def go_on(self) -> None:
        """One turn for the expression that has waited longest."""
        assert self.waiting
        regex, waiting = next(iter(self.waiting.items()))
        if waiting.search.go_on(STEPS_IN_A_TURN):
            del self.waiting[regex]
            self._learn(regex, waiting)
