"""Finds the topics that a regular expression matches, once for each change of the cluster's topics.

Most expressions are matched at once. Costly expressions are matched in pieces, between which other requests are served:
the group gets the result at a later heartbeat, as with Kafka, whose coordinators resolve regular expressions in the
background. Cost is counted in steps (characters times the expression's size), not in time, so that the same requests
always have the same effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from squall.broker.coordinators.patterns import BadPattern, RegexPattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from squall.broker.coordinators.groups.consumer.topics import TopicLookup
    from squall.broker.coordinators.patterns import ResumableNameSearch

MOST_KEPT: Final = 100
"""Limits the compiled expressions that are cached."""
MOST_FOUND: Final = 10_000
MOST_NAMES_FOUND: Final = 1_000_000
"""Limits the topic names of all cached results together; each takes 8 bytes. MOST_FOUND limits the number of results.
Both limits are large, because each heartbeat looks up all expressions of its group, and an expression that is not
cached is matched again each time.
"""
MAX_PENDING: Final = 100
"""Limits the expressions that are being matched in pieces. Further expressions are tried again at a later heartbeat."""
STEPS_AT_ONCE: Final = 20_000
"""Limits the steps of all matches within a heartbeat (`RegexPattern.steps`). The limit takes at most some 20 ms, and is
enough for 2,500 names of 20 characters.
"""
STEPS_TO_COMPILE: Final = 1_000
"""Gives the number of steps that are counted for compiling an expression: at most some 1 ms."""
STEPS_IN_A_TURN: Final = 2_000
"""Limits the steps by which one call of `advance` continues a pending match: at most some 2 ms, or one name."""


class TopicNameSnapshot(NamedTuple):
    """Holds the names of all topics at one point in time."""

    listed: tuple[str, ...]
    known: frozenset[str]


class MatchedNames(NamedTuple):
    """Holds the sorted topic names that an expression matches among the names of one snapshot."""

    names: TopicNameSnapshot
    topics: tuple[str, ...]


class PendingRegexMatch(NamedTuple):
    """Holds the progress of an expression that is matched in pieces."""

    search: ResumableNameSearch
    names: TopicNameSnapshot
    kept: list[str]
    """Holds the topics that the previous match found and that still exist. `search` looks only at newer topics."""


class RegexMatchCache:
    """Caches recently used regular expressions and the topics that they match. All shards of a coordinator may share
    one cache.
    """

    __slots__ = ("_found", "_kept_names", "_names", "_patterns", "_topics", "_version", "waiting")

    def __init__(self, topics: TopicLookup) -> None:
        self._topics = topics
        self._version: int | None = None
        self._names = TopicNameSnapshot((), frozenset())
        """Holds all topic names, as of version `_version` of the cluster's topics."""
        self._patterns: dict[str, RegexPattern] = {}
        self._found: dict[str, MatchedNames] = {}
        self._kept_names = 0
        """Counts the topic names in all cached results (`_found`)."""
        self.waiting: dict[str, PendingRegexMatch] = {}
        """Maps an expression to its pending match; `advance` continues these matches."""

    def pattern(self, regex: str) -> RegexPattern:
        """Return the compiled expression. Raises BadPattern."""
        found = self._patterns.get(regex)
        if found is None:
            found = RegexPattern(regex)
            if len(self._patterns) >= MOST_KEPT:
                self._patterns.clear()
            self._patterns[regex] = found
        assert len(self._patterns) <= MOST_KEPT
        return found

    def topics_of(self, regex: str) -> tuple[str, ...] | None:
        """Return the topics that the expression matches, or None if the match is still pending. An expression from the
        log that this code cannot compile matches no topics.
        """
        known = self._known(regex)
        return self._look(regex, STEPS_AT_ONCE)[0] if known is None else known

    def of_each(self, regexes: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """Yield each expression with the topics that it matches, or with None if its match is still pending. All
        expressions share one limit of steps, STEPS_AT_ONCE; cached results cost nothing.
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
        """Match an expression that is not cached, in about `steps` steps at most. Return its topics (None if the match
        is pending) and the steps that it took.
        """
        assert self._known(regex) is None
        # `advance` continues it between other requests, so a heartbeat spends no steps on it.
        if regex in self.waiting:
            return None, 0
        names, known = self._current(), self._found.get(regex)
        spent = 0 if regex in self._patterns else STEPS_TO_COMPILE
        try:
            pattern = self.pattern(regex)
        except BadPattern:  # Kafka's regex library accepts more expressions
            return self._keep(regex, names, ()), spent
        if known is None:
            waiting = PendingRegexMatch(pattern.search(names.listed), names, [])
        else:
            # Whether a name matches never changes, so results for names of the previous snapshot are kept.
            new = [name for name in names.listed if name not in known.names.known]
            waiting = PendingRegexMatch(
                pattern.search(new), names, [name for name in known.topics if name in names.known]
            )
        if waiting.search.advance(steps):
            return self._learn(regex, waiting), spent + waiting.search.spent
        assert regex not in self.waiting
        if len(self.waiting) < MAX_PENDING:
            self.waiting[regex] = waiting
        assert len(self.waiting) <= MAX_PENDING
        return None, spent + waiting.search.spent

    def _current(self) -> TopicNameSnapshot:
        """Return the current topic names. The same object is returned as long as the topics are the same, because most
        changes of a cluster do not concern topic names.
        """
        version = self._topics.version()
        if version != self._version:
            self._version = version
            listed = tuple(self._topics.names())
            if listed != self._names.listed:
                self._names = TopicNameSnapshot(listed, frozenset(listed))
                assert self._kept_names == sum(len(found.topics) for found in self._found.values())
        assert len(self._names.known) == len(self._names.listed)
        return self._names

    def _learn(self, regex: str, waiting: PendingRegexMatch) -> tuple[str, ...]:
        assert regex not in self.waiting
        topics = tuple(sorted(waiting.kept + waiting.search.found))
        # Names of the previous snapshot were not searched again: each name is in one of the two lists.
        assert len(set(topics)) == len(topics)
        return self._keep(regex, waiting.names, topics)

    def _keep(self, regex: str, names: TopicNameSnapshot, topics: tuple[str, ...]) -> tuple[str, ...]:
        assert names.known.issuperset(topics)
        self._forget(regex)
        self._found[regex] = MatchedNames(names, topics)
        self._kept_names += len(topics)
        # The newest is kept whatever its size: the heartbeat that asked for it needs the topics now.
        while len(self._found) > MOST_FOUND or (self._kept_names > MOST_NAMES_FOUND and len(self._found) > 1):
            self._forget(next(iter(self._found)))
        assert len(self._found) <= MOST_FOUND
        assert self._kept_names <= MOST_NAMES_FOUND or len(self._found) == 1
        assert regex in self._found
        return topics

    def _forget(self, regex: str) -> None:
        gone = self._found.pop(regex, None)
        if gone is not None:
            self._kept_names -= len(gone.topics)
        assert self._kept_names >= 0
        assert self._found or self._kept_names == 0

    def advance(self) -> None:
        """Continue the match that has been pending longest, by STEPS_IN_A_TURN steps."""
        assert self.waiting
        regex, waiting = next(iter(self.waiting.items()))
        if waiting.search.advance(STEPS_IN_A_TURN):
            del self.waiting[regex]
            self._learn(regex, waiting)
