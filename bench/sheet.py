"""Collects the figures of a cluster, and counts the steps that gave no figure, so that no failure is overlooked."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException


def say(text: str) -> None:
    """Print progress to the error stream."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class MeasurementStep:
    """Describes one measurement of a round. In a round, a newly launched cluster goes through all measurements once."""

    name: str
    take: Callable[[], Mapping[str, float]]
    """Takes the measurement, and returns its figures by name. Raises RuntimeError or KafkaException if the cluster
    fails.
    """
    needed: bool = False
    """Is True if a failure of this step voids the whole round. For example, a failed warm-up leaves a slow JVM, and the
    comparison would favour Squall.
    """


class ClusterFigures:
    """Holds every figure of one cluster, and counts how often each step was asked for and how often it failed."""

    def __init__(self, name: str) -> None:
        self.name, self.found = name, dict[str, list[float]]()
        self.asked, self.failed = Counter[str](), Counter[str]()

    def fill(self, steps: Sequence[MeasurementStep]) -> None:
        """Run one round and add its figures. A step that fails gives no figures; a needed step that fails ends and
        voids the round.
        """
        self.asked.update(step.name for step in steps)
        values: list[tuple[str, float]] = []
        failed: list[str] = []
        for step in steps:
            try:
                taken = step.take()
            except (RuntimeError, KafkaException) as error:
                if step.needed:
                    say(f"  {self.name:>7} {step.name}: failed, so there are no figures in this round, {error}")
                    self.failed.update(each.name for each in steps)
                    return
                say(f"  {self.name:>7} {step.name}: no figure in this round, {error}")
                failed.append(step.name)
                continue
            for figure, value in taken.items():
                say(f"  {self.name:>7} {figure:<50} {value:10.2f}")
            values += taken.items()
        self.failed.update(failed)
        for figure, value in values:
            self.found.setdefault(figure, []).append(value)

    def missing(self) -> list[str]:
        """Return a line for each step that gave no figure in some round."""
        return [
            f"{self.name}: {name}: no figure in {self.failed[name]} of {asked} round{'s' if asked > 1 else ''}"
            for name, asked in self.asked.items()
            if self.failed[name]
        ]


def table(results: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Return a table with a row for each figure: its median (min .. max) on each cluster, and, if there are two
    clusters, the first one's median divided by the second one's.
    """
    names = list(results)
    figures = dict.fromkeys(figure for found in results.values() for figure in found)
    width = max(map(len, figures), default=0) + 1
    rows = [f"{'figure':<{width}}" + "".join(f"{n:>28}" for n in names) + (f"{'ratio':>9}" if len(names) > 1 else "")]
    for figure in figures:
        values = [results[name].get(figure, ()) for name in names]
        rows.append(f"{figure:<{width}}" + "".join(f"{_cell(each):>28}" for each in values) + _ratio(values))
    return "\n".join(rows)


def _cell(values: Sequence[float]) -> str:
    return f"{statistics.median(values):9.2f} ({min(values):.2f} .. {max(values):.2f})" if values else "-"


def _ratio(values: Sequence[Sequence[float]]) -> str:
    if len(values) < 2 or not all(values):
        return ""
    ours, peer = map(statistics.median, values)
    return f"{ours / peer:9.2f}" if peer else ""
