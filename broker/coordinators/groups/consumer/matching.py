"""Which topics a regular expression matches, looked up once for each state of the cluster's topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinators.patterns import BadPattern, Pattern

if TYPE_CHECKING:
    from broker.coordinators.groups.consumer.topics import Topics

MOST_KEPT = 100


class Matching:
    """Expressions that were used lately, with what they match."""

    __slots__ = ("_found", "_patterns", "_topics")

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._patterns: dict[str, Pattern] = {}
        self._found: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Expression to the state of the topics that was looked at, and the names."""

    def pattern(self, regex: str) -> Pattern:
        """The compiled expression. Raises BadPattern."""
        found = self._patterns.get(regex)
        if found is None:
            found = Pattern(regex)
            if len(self._patterns) >= MOST_KEPT:
                self._patterns.clear()
            self._patterns[regex] = found
        return found

    def topics_of(self, regex: str) -> tuple[str, ...]:
        """The names of all topics that it matches. One of a log that is not understood here matches none."""
        version = self._topics.version()
        known = self._found.get(regex)
        if known is not None and known[0] == version:
            return known[1]
        try:
            pattern = self.pattern(regex)
        except BadPattern:  # Kafka's coordinator took it: its library knows more
            return ()
        found = tuple(sorted(pattern.among(self._topics.names())))
        if len(self._found) >= MOST_KEPT:
            self._found.clear()
        self._found[regex] = version, found
        return found
