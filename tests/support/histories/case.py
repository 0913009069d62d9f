"""The test histories of one module of anomalies: short ones with the anomalies expected in them, and functions that
plant an anomaly in a long history that has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from squall.checkers.anomalies.registry import find_all
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder

Build = Callable[[], HistoryBuilder]
Plant = Callable[[GeneratedHistory], None]
Found = tuple[str, str]
"""An anomaly that is expected in a history: (its name, the evidence of its witness)."""

LOST, UNSEEN = ("lost-write", ""), ("unseen", "")
SKIPPED = ("int-poll-skip", "")
"""Is expected beside a lost record that readers pass: they cannot know that it is gone, so it counts as skipped."""


@dataclass(frozen=True, slots=True)
class Case:
    """One short history. Exactly the anomalies of `found` are in it."""

    build: Build
    found: frozenset[Found]


@dataclass(frozen=True, slots=True)
class Cases:
    """The cases in the test file of one module of anomalies. Both engines are tested with all of them: see
    tests/parity.
    """

    short: dict[str, Case] = field(default_factory=dict)
    """Short histories, by a sentence that says what each shows."""
    plants: dict[str, Plant] = field(default_factory=dict)
    """For each anomaly, a function that changes a history without anomalies so that it has this one. Others may follow
    from the change.
    """

    def case(self, sentence: str, *found: Found) -> Callable[[Build], Build]:
        """Decorate a function that builds the history for this sentence. `found` has the anomalies that are expected.
        """

        def add(build: Build) -> Build:
            assert sentence not in self.short, sentence
            self.short[sentence] = Case(build, frozenset(found))
            return build

        return add

    def plant(self, name: str) -> Callable[[Plant], Plant]:
        """Decorate a function that plants the anomaly `name`."""

        def add(plant: Plant) -> Plant:
            assert name not in self.plants, name
            self.plants[name] = plant
            return plant

        return add

    def test(self) -> Callable[[str], None]:
        """Return a parametrized test that runs the reference finders on each short history. Assign it to a name
        test_...
        """

        @pytest.mark.parametrize("sentence", self.short)
        def reference_finds_it_and_nothing_else(sentence: str) -> None:
            case = self.short[sentence]
            found = {(witness.anomaly, witness.evidence) for witness in find_all(case.build().history())}
            assert found == case.found

        return reference_finds_it_and_nothing_else
