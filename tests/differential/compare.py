"""Plays rows at both brokers and judges each answer: equal, named, unexplained, or behind a difference."""

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
"""Behind: the request rests on states that an earlier difference of its row has made different."""


@dataclass(frozen=True)
class Difference:
    """One place in which two answers differ."""

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
    """Arguments of the command that asks this again."""
    differences: Sequence[Difference] = field(default=())

    @property
    def ends(self) -> bool:
        """True where the two brokers' states differ from here on."""
        return self.outcome == UNEXPLAINED or any(
            each.named is not None and each.named.ends for each in self.differences
        )


def judged(api: str, version: int, row: str, request: str, ours: Tree, theirs: Tree, repeat: str) -> Result:
    """The result of one request."""
    found = [
        Difference(path, one, other, named(api, version, row, path, one, other))
        for path, one, other in differences(ours, theirs)
    ]
    outcome = EQUAL if not found else EXPLAINED if all(each.named for each in found) else UNEXPLAINED
    return Result(api, version, row, request, ours, theirs, outcome, repeat, found)


def named(api: str, version: int, row: str, path: str, ours: Tree, theirs: Tree) -> Named | None:
    """The named difference that this one is."""
    return next((each for each in NAMED if each.matches(api, version, row, path, ours, theirs)), None)


def compared(row: Row, ours: Sequence[Tree], theirs: Sequence[Tree]) -> Iterator[Result]:
    """The results of a row. What only makes a state counts where it differs."""
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
    """The results of all rows, each played at both brokers at the same time."""
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
