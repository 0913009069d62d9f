"""Collects the run directories of one night (of one `squall nightly`) into the tables `runs`, `faults`, `latencies` and
`nights`. These tables are Parquet files that keep the results of all nights (`squall.checkers.nightly.store`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.checkers import fault_classes
from squall.checkers.history import seal
from squall.checkers.metrics import LATENCY_UNIT_NS
from squall.checkers.nightly import store
from squall.checkers.nightly.night import Night
from squall.checkers.nightly.results import UNKNOWN, VALID
from squall.checkers.nightly.runs import RunOfNight, facts_of_night
from squall.spark_analysis.nightly import measures, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
UNIT_MS = LATENCY_UNIT_NS / 1e6


class NightCollector:
    """Computes the rows of one night for the tables of all nights, and writes them as Parquet files. The rows describe
    the night, its runs, their faults and their latencies.
    """

    def __init__(self, night: Night) -> None:
        self.night = night
        self.facts = facts_of_night(night)
        self.kept: dict[int, tables.ConvertedRun] = {}
        """Maps the index of a run in `facts`, the runs of the night, to its converted history. Runs without a readable
        history are left out.
        """
        self.troubles: dict[int, str] = {}
        for number, each in enumerate(self.facts):
            if each.path is not None:
                try:
                    self.kept[number] = tables.converted_run(each.path)
                except (OSError, ValueError, KeyError, TypeError) as error:
                    self.troubles[number] = f"its history cannot be read: {error}"
                else:
                    damage = self.kept[number].converted.problems
                    if damage and each.verdict == VALID:  # it was damaged after the verdict
                        self.troubles[number] = f"{seal.NOT_JUDGED}: {damage[0]}"
                        self.facts[number] = replace(each, verdict=UNKNOWN)
                    elif damage:
                        self.troubles[number] = f"its history is damaged: {damage[0]}"
        self.by_run: dict[int, Row] = {}
        self.faults: list[Row] = []
        self.latencies: list[Row] = []

    @property
    def records(self) -> int:
        """Return the number of records in all histories together."""
        return sum(each.converted.records for each in self.kept.values())

    def measure(self, spark: SparkSession) -> None:
        """Take the measures of all runs that have a history."""
        numbers = list(self.kept)
        for first in range(0, len(numbers), tables.AT_ONCE):
            self._measure(spark, numbers[first : first + tables.AT_ONCE])

    def write(self, folder: Path) -> None:
        """Write all tables except the findings into `folder`."""
        store.write(folder, "nights", [_night_row(self.night)])
        store.write(folder, "runs", [self._run_row(number, each) for number, each in enumerate(self.facts)])
        store.write(folder, "faults", self.faults)
        store.write(folder, "latencies", self.latencies)

    def _measure(self, spark: SparkSession, numbers: Sequence[int]) -> None:
        runs = [self.kept[number] for number in numbers]
        with tempfile.TemporaryDirectory(prefix="squall-night-") as folder:
            tables.stage(runs, Path(folder))
            cached = tables.register(spark, runs, Path(folder))
            try:
                found = measures.measured(spark, tables.together(runs))
            finally:
                for table in reversed(cached):
                    table.unpersist()
        for run, number in enumerate(numbers):
            mine = {name: [row for row in rows if row["run"] == run] for name, rows in found.items()}
            self.by_run[number] = _measured(mine)
            key = self._key(number)
            self.faults += [{**key, **row} for row in _faults(self.facts[number], runs[run], mine)]
            self.latencies += [
                {**key, "faulty": row["faulty"], "bucket": row["bucket"], "n": row["n"]} for row in mine["latencies"]
            ]

    def _key(self, number: int) -> Row:
        attempt = self.facts[number].attempt
        return {"night": self.night.name, "item": attempt.item, "attempt": attempt.attempt}

    def _run_row(self, number: int, facts: RunOfNight) -> Row:
        attempt, axes = facts.attempt, facts.axes
        began = [each for each in facts.faults if each.began >= 0]
        return {
            **self._key(number),
            "counts": facts.counts,
            "run": attempt.run if facts.path else "",
            "verdict": facts.verdict,
            "began": attempt.began,
            "seconds": attempt.seconds,
            "why": "; ".join(filter(None, (facts.trouble, self.troubles.get(number, "")))),
            "seed": facts.seed,
            "configuration": facts.configuration,
            **{name: axes.get(name, "") for name in ("target", "runtime", "workload")},
            "axes": {**axes, "classes": facts.classes},
            "classes": facts.classes,
            "faults": list(dict.fromkeys(each.action for each in began)),
            "planned": len(facts.faults),
            "landed": sum(fault_classes.not_landed(each) is None for each in facts.faults),
            "promise": facts.promise,
            "permitted": list(facts.permitted),
            "unexpected": list(attempt.unexpected),
            "measured": number in self.by_run,
            **self.by_run.get(number, {}),
        }


def _measured(found: Mapping[str, list[Row]]) -> Row:
    """Return the measured columns of one run in the table `runs` (`store.MEASURED`). `found` maps a name in
    `measures.STATEMENTS` to the rows of this run.
    """
    # A run without such records has no row in the statements: its counts are 0, and its times are not known.
    row: Row = dict.fromkeys(("acknowledged", "lost", "lost_unacknowledged", "duplicated"), 0)
    row |= {"lost_tails": 0, "lost_tail_records": 0, "lost_tail_ms": 0.0}
    for name in ("counts", "tails", "leaders", "unavailable"):
        for each in found[name]:
            row |= each
    for each in found["percentiles"]:
        suffix = "_faulty_ms" if each["faulty"] else "_ms"
        row |= {f"{name}{suffix}": took * UNIT_MS for name, took in zip(("p50", "p99"), each["took"], strict=True)}
    recoveries = [each["recovery_ms"] for each in found["recovery"] if each["recovery_ms"] is not None]
    row["recovery_ms"] = max(recoveries, default=None)
    row["unrecovered"] = sum(bool(each["unrecovered"]) for each in found["recovery"])
    return {name: row.get(name) for name in store.MEASURED}


def _faults(facts: RunOfNight, kept: tables.ConvertedRun, found: Mapping[str, list[Row]]) -> Iterable[Row]:
    recoveries = {each["id"]: each for each in found["recovery"]}
    gaps = {each["id"]: each["gap_ms"] for each in found["fault gaps"]}
    origin = kept.context.origin_ns
    for fault in facts.faults:
        reported = recoveries.get(fault.id, {})
        yield {
            "id": fault.id,
            "action": fault.action,
            "fault_class": fault.fault_class,
            "landed": fault_classes.not_landed(fault) is None,
            "began_s": None if fault.began < 0 else (fault.began - origin) / 1e9,
            "ended_s": None if fault.ended < 0 else (fault.ended - origin) / 1e9,
            "recovery_ms": None if reported.get("unrecovered") else reported.get("recovery_ms"),
            "gap_ms": gaps.get(fault.id),
        }


def _night_row(night: Night) -> Row:
    return {
        "night": night.name,
        "began": night.began,
        "ended": night.ended,
        "commit": night.commit,
        "budget_s": night.budget_s,
        "planned": len(night.items),
        "left_out": list(night.left_out),
        "not_run": list(night.not_run),
        "exit": night.exit,
        "interrupted": night.interrupted,
        "problems": list(night.problems),
    }
