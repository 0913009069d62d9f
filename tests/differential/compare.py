"""Plays rows at both brokers, and compares each answer. The outcomes are equal, named (a known difference),
unexplained, or behind (not compared because of an earlier difference).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from squall.broker.protocol.apis import APIS
from tests.differential.answers import Tree, differences
from tests.differential.named import NAMED, Named
from tests.differential.player import Broker, Player
from tests.differential.steps import Row

EQUAL, EXPLAINED, UNEXPLAINED, BEHIND = OUTCOMES = ("equal", "named", "unexplained", "behind")
"""Outcomes of a request. BEHIND: an earlier difference of the row has made the brokers' states different."""


@dataclass(frozen=True)
class Difference:
    """A path at which two answers differ, and both values."""

    path: str
    ours: Tree
    theirs: Tree
    named: Named | None


@dataclass(frozen=True)
class Result:
    """The outcome of one request, or of one action of Java's clients."""

    api: str
    version: int
    row: str
    request: str
    ours: Tree
    theirs: Tree
    outcome: str
    repeat: str
    """Arguments of `python -m tests.differential` that repeat the request."""
    differences: Sequence[Difference] = field(default=())

    @property
    def ends(self) -> bool:
        """Return whether the two brokers' states differ from here on."""
        return self.outcome == UNEXPLAINED or any(
            each.named is not None and each.named.ends for each in self.differences
        )


def judged(api: str, version: int, row: str, request: str, ours: Tree, theirs: Tree, repeat: str) -> Result:
    """Compare the two answers to one request."""
    found = [
        Difference(path, one, other, named(api, version, row, path, one, other))
        for path, one, other in differences(ours, theirs)
    ]
    outcome = EQUAL if not found else EXPLAINED if all(each.named for each in found) else UNEXPLAINED
    return Result(api, version, row, request, ours, theirs, outcome, repeat, found)


def named(api: str, version: int, row: str, path: str, ours: Tree, theirs: Tree) -> Named | None:
    """Return the known difference that this one is an instance of; None if there is none."""
    return next((each for each in NAMED if each.matches(api, version, row, path, ours, theirs)), None)


def compared(row: Row, ours: Sequence[Tree], theirs: Sequence[Tree]) -> Iterator[Result]:
    """Yield the results of a row. A request that only prepares the row's state has a result only if its answers differ.
    """
    behind = False
    for ask, one, other in zip(row.steps, ours, theirs, strict=True):
        api, request = APIS[ask.api].name, repr(ask.request)
        if behind:
            result = Result(api, ask.version, row.name, request, one, other, BEHIND, row.repeat)
        else:
            result = judged(api, ask.version, row.name, request, one, other, row.repeat)
        if not ask.setup or result.outcome == UNEXPLAINED:
            yield result
        behind = behind or result.ends


def play(rows: Sequence[Row], ours: Broker, theirs: Broker, say: Callable[[str], None]) -> list[Result]:
    """Play each row at both brokers at the same time, and return the results."""
    found: list[Result] = []
    with ThreadPoolExecutor(2) as pool:
        for number, row in enumerate(rows, 1):
            results = _asked(row, ours, theirs, pool)
            if row.again is not None and any(result.outcome == UNEXPLAINED for result in results):
                results = _asked(row.again, ours, theirs, pool)
            found += results
            if number % 250 == 0:
                say(f"{number:,} of {len(rows):,} rows")
    return found


def _asked(row: Row, ours: Broker, theirs: Broker, pool: ThreadPoolExecutor) -> list[Result]:
    one, other = [pool.submit(Player(broker).play, row) for broker in (ours, theirs)]
    return list(compared(row, one.result(), other.result()))
