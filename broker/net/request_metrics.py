"""Counts the requests of a broker by API, the time until their responses, and the error codes of the responses.

The server measures only if it has a `RequestMetrics`: each `PendingResponse` then has a `RequestTiming`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MOST_LOOKED_AT = 1000
"""Limits the partitions, topics or groups of one response whose error codes are counted. A response may have 50,000,
and no other task runs while they are counted.
"""


class RequestMetrics:
    """Holds the numbers of requests, responses and errors, and the durations, since the start of the node. `mono`
    returns monotonic seconds (`Env.mono`).
    """

    def __init__(self, mono: Callable[[], float]) -> None:
        self.mono = mono
        self.requests: Counter[int] = Counter()
        """Counts the received requests by API key."""
        self.responses: Counter[int] = Counter()
        """Counts the answered requests by API key. They may be fewer than the received requests, because a connection
        can end before the answer.
        """
        self.seconds: dict[int, float] = {}
        """Sums, by API key, the seconds from each request until its response was known."""
        self.errors: Counter[tuple[int, int]] = Counter()
        """Counts error codes by (API key, error code), once for each partition, topic or group of a response."""

    def begin(self, key: int) -> RequestTiming:
        """Count a request of an API, and return its timing."""
        self.requests[key] += 1
        return RequestTiming(self, key)


class RequestTiming:
    """Measures one request from its receipt until its response is known."""

    __slots__ = ("_began_s", "_key", "_metrics")

    def __init__(self, metrics: RequestMetrics, key: int) -> None:
        self._metrics, self._key, self._began_s = metrics, key, metrics.mono()

    def end(self) -> None:
        """Count the response and its duration: the response is known now."""
        metrics, key = self._metrics, self._key
        metrics.responses[key] += 1
        metrics.seconds[key] = metrics.seconds.get(key, 0.0) + metrics.mono() - self._began_s

    def count_errors(self, codes: Iterable[int]) -> None:
        """Count the error codes of a response's partitions, topics or groups. Code 0 is no error and is not counted."""
        for code in codes:
            if code:
                self._metrics.errors[self._key, code] += 1

    def count_errors_of(self, response: Any) -> None:
        """Count the error codes of a decoded response: its own, and those of the first `MOST_LOOKED_AT` partitions,
        topics or groups in it.
        """
        self.count_errors(_error_codes(response))


def _error_codes(response: Any) -> Iterator[int]:
    """Yield the `error_code` of a message and, recursively, of the messages in its lists."""
    left, looked_at = [response], 0
    while left and looked_at < MOST_LOOKED_AT:
        looked_at += 1
        part = left.pop()
        for name in part.__slots__:
            value = getattr(part, name)
            if name == "error_code":
                yield value
            elif type(value) is list and value and hasattr(value[0], "__slots__"):
                left.extend(value[:MOST_LOOKED_AT])
