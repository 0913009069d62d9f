"""A short history with its sentence, and what the finders must say of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.histories.builder import HistoryBuilder

Build = Callable[[], HistoryBuilder]
Found = tuple[str, str]
"""(anomaly, evidence)"""


@dataclass(frozen=True, slots=True)
class Case:
    """One short history: all of `found` is in it, and nothing else."""

    sentence: str
    build: Build
    found: frozenset[Found]


CASES: dict[str, Case] = {}


def case(sentence: str, *found: Found) -> Callable[[Build], Build]:
    """The decorated function builds the history that the sentence is about."""

    def add(build: Build) -> Build:
        assert sentence not in CASES, sentence
        CASES[sentence] = Case(sentence, build, frozenset(found))
        return build

    return add
