"""The histories of one module of anomalies: short ones with what is in them, and ways to spoil clean long ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from squall.checkers.anomalies.registry import find_all
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder

Build = Callable[[], HistoryBuilder]
Plant = Callable[[GeneratedHistory], None]
Found = tuple[str, str]
"""(anomaly, evidence)"""

LOST, UNSEEN = ("lost-write", ""), ("unseen", "")
SKIPPED = ("int-poll-skip", "")
"""Readers who pass the place of an acknowledged record that is gone skip it: they cannot know why."""


@dataclass(frozen=True, slots=True)
class Case:
    """One short history: all of `found` is in it, and nothing else."""

    build: Build
    found: frozenset[Found]


@dataclass(frozen=True, slots=True)
class Cases:
    """Holds the cases in a test file of one module of anomalies. Both engines judge all of them: see tests/parity."""

    short: dict[str, Case] = field(default_factory=dict)
    """By the sentence that says what it shows."""
    plants: dict[str, Plant] = field(default_factory=dict)
    """Anomaly -> spoils a clean history so that this is in it; others may follow from it."""

    def case(self, sentence: str, *found: Found) -> Callable[[Build], Build]:
        """The decorated function builds the history that the sentence is about."""

        def add(build: Build) -> Build:
            assert sentence not in self.short, sentence
            self.short[sentence] = Case(build, frozenset(found))
            return build

        return add

    def plant(self, name: str) -> Callable[[Plant], Plant]:
        """The decorated function plants the anomaly `name`."""

        def add(plant: Plant) -> Plant:
            assert name not in self.plants, name
            self.plants[name] = plant
            return plant

        return add

    def test(self) -> Callable[[str], None]:
        """The test of the reference finders on each short history. Name it test_..."""

        @pytest.mark.parametrize("sentence", self.short)
        def reference_finds_it_and_nothing_else(sentence: str) -> None:
            case = self.short[sentence]
            found = {(witness.anomaly, witness.evidence) for witness in find_all(case.build().history())}
            assert found == case.found

        return reference_finds_it_and_nothing_else
