"""Spark's rows and tables of a night agree with plain Python's, for each run and each row of the durability table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall.checkers.nightly import store
from squall.checkers.nightly.night import Night, read_night
from squall.checkers.nightly.statistics import percentile_of
from squall.spark_analysis.nightly.cells import cells, from_json, to_json
from squall.spark_analysis.nightly.collect import NightCollector
from tests.support.histories.anomaly_cases import PLANTS
from tests.support.histories.builder import MS, HistoryBuilder, generate, merged
from tests.support.histories.nemesis_lines import NEMESIS
from tests.support.histories.tangle import tangle
from tests.support.nightly import oracle
from tests.support.nightly.files import NightFiles

pytestmark = pytest.mark.night("starts Spark or plans every query anew; the gate has one session")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 7, 4, 6, tzinfo=UTC)


def planted(*seeds: int) -> list[bytes]:
    """Return one history that contains a history with every planted anomaly for each of these seeds."""
    histories = []
    for seed in seeds:
        for plant in PLANTS.values():
            history = generate(seed)
            plant(history)
            histories.append(history)
    return merged(histories)


def make_night(root: Path) -> Path:
    """Make a night with two configurations of several runs each, and runs that have no verdict."""
    files = NightFiles(root / "n1")
    files.add("all-1", lines=merged([generate(1), generate(2)]), nemesis=NEMESIS, judged={})
    files.add("all-2", "invalid", lines=planted(3), nemesis=NEMESIS, judged={})
    files.add("one-1", lines=planted(4, 5), acks=1, nemesis=NEMESIS, judged={})
    files.add("one-2", lines=merged([tangle(seed) for seed in range(6)]), acks=1, nemesis=NEMESIS, judged={})
    files.add("kafka-1", lines=merged([generate(7)]), target="kafka", judged={})
    files.add("all-3", "unknown", lines=planted(6), nemesis=NEMESIS, judged={})
    files.add("all-3", lines=merged([generate(8)]), nemesis=NEMESIS, judged={})
    files.add("torn-1", "no verdict", lines=[b"".join(planted(9))[:20_000]])
    files.add("empty-1", "no verdict")
    return files.write(end={})


def collected(spark: SparkSession, night: Night, place: Path, tag: str = "t") -> store.CollectedNight:
    """Let Spark add the night to the store."""
    collector = NightCollector(night)
    collector.measure(spark)
    folder = store.fresh(place, tag, NOW)
    collector.write(folder)
    store.write(folder, "findings", [])
    return store.commit(folder, night.name, night.began, store.digest_of(night), NOW)


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, store.CollectedNight]:
    root = tmp_path_factory.mktemp("nights")
    night = read_night(make_night(root))
    return night, collected(spark, night, root / "store")


def same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Assert that both are equal, up to rounding of numbers."""
    for name, value in expected.items():
        if isinstance(value, float):
            assert found[name] is not None and math.isclose(found[name], value), (name, found[name], value)
        else:
            assert found[name] == value, name


@pytest.mark.parametrize("item", ["all-1", "all-2", "one-1", "one-2", "kafka-1", "torn-1"])
def test_each_run_is_counted_as_plain_python_counts_it(made: tuple[Night, store.CollectedNight], item: str) -> None:
    night, collection = made
    (row,) = [each for each in store.rows([collection], "runs") if each["item"] == item]
    same(row, oracle.run_row(night.path / row["run"]))


def test_latencies_and_faults_are_those_of_the_histories(made: tuple[Night, store.CollectedNight]) -> None:
    night, collection = made
    stored: dict[str, dict[tuple[bool, int], int]] = {}
    for row in store.rows([collection], "latencies"):
        stored.setdefault(f"{row['item']}-{row['attempt']}", {})[row["faulty"], row["bucket"]] = row["n"]
    faults = store.rows([collection], "faults")
    for item in ("all-1", "all-2", "one-1"):
        run = night.path / "runs" / f"{item}-1"
        assert stored[f"{item}-1"] == oracle.histogram(run)
        found = {row["id"]: (row["recovery_ms"], row["gap_ms"]) for row in faults if row["item"] == item}
        for fault, (recovery, gap) in oracle.fault_rows(run).items():
            assert found[fault] == (pytest.approx(recovery), pytest.approx(gap))


@pytest.mark.parametrize(("acks", "items"), [("all", ("all-1-1", "all-2-1", "all-3-2")), ("1", ("one-1-1", "one-2-1"))])
def test_two_cells_of_the_table_are_recomputed_from_their_histories(
    spark: SparkSession, made: tuple[Night, store.CollectedNight], acks: str, items: tuple[str, ...]
) -> None:
    night, collection = made
    table = from_json(to_json(cells(spark, [collection], {})))
    (row,) = [each for each in table if each["configuration"].startswith(f"acks={acks}") and each["target"] == "squall"
              and each["runs"]]  # fmt: skip
    runs = [night.path / "runs" / item for item in items]
    same(row, oracle.cell([oracle.run_row(run) for run in runs]))
    assert row["lost"] > 0
    for flag, faulty in (("calm", False), ("faulty", True)):
        expected: dict[int, int] = {}
        for run in runs:
            for (hit, bucket), count in oracle.histogram(run).items():
                if hit is faulty:
                    expected[bucket] = expected.get(bucket, 0) + count
        assert row["latency"][flag] == expected
        assert percentile_of(row["latency"][flag], 0.99) == percentile_of(expected, 0.99)


def test_what_has_no_verdict_is_counted_as_a_run_and_not_measured(
    spark: SparkSession, made: tuple[Night, store.CollectedNight]
) -> None:
    rows = store.rows([made[1]], "runs")
    first, second = [row for row in rows if row["item"] == "all-3"]
    assert (first["counts"], second["counts"]) == (False, True)
    (empty,) = [row for row in rows if row["item"] == "empty-1"]
    assert (empty["measured"], empty["lost"], empty["why"]) == (
        False,
        None,
        "its history cannot be read: there is no history",
    )
    quiet = [row for row in cells(spark, [made[1]], {}) if row["classes"] == "none" and row["target"] == "squall"]
    assert [(row["tried"], row["runs"], row["unknown"], row["acknowledged"]) for row in quiet] == [(2, 0, 2, 0)]


def test_where_chooses_runs_and_several_nights_are_added_up(
    spark: SparkSession, made: tuple[Night, store.CollectedNight], tmp_path: Path
) -> None:
    night, collection = made
    (kafka,) = cells(spark, [collection], {"target": "kafka"})
    assert (kafka["target"], kafka["runs"]) == ("kafka", 1)
    assert cells(spark, [collection], {"acks": "it's \\ none"}) == []
    again = NightFiles(tmp_path / "n2")
    again.add("kafka-1", lines=merged([generate(7)]), target="kafka", judged={})
    other = collected(spark, read_night(again.write(end={})), tmp_path / "store")
    (both,) = cells(spark, [collection, other], {"target": "kafka"})
    assert both["runs"] == 2
    assert both["acknowledged"] == 2 * kafka["acknowledged"]
    assert {each["night"] for each in both["behind"]} == {"n1", "n2"}
    assert sum(both["latency"]["calm"].values()) == 2 * sum(kafka["latency"]["calm"].values())


def test_a_night_in_which_nothing_ran_has_a_row_and_no_cells(spark: SparkSession, tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n3")
    files.plan_item("one", acks="all")
    collection = collected(spark, read_night(files.write()), tmp_path / "store")
    (row,) = store.rows([collection], "nights")
    assert (row["planned"], row["not_run"], row["ended"]) == (1, ["one"], "")
    assert cells(spark, [collection], {}) == []


def losing_twice() -> list[bytes]:
    """Return a history with two lost tails in one partition. Its leader is cut off and loses 10 to 12 while the next
    one writes there; a second leader fails later and loses 15 and 16. Another partition loses one record.
    """
    history = HistoryBuilder(2)
    cut_off, other = history.producer(), history.producer()
    kept = [(off, history.sent(cut_off, off)) for off in range(10)]
    history.sent(cut_off, 10)
    kept.append((10, history.sent(other, 10)))
    history.tick(5 * MS)
    history.sent(cut_off, 11)
    kept.append((11, history.sent(other, 11)))
    history.sent(cut_off, 12)
    kept += [(off, history.sent(other, off)) for off in (12, 13, 14)]
    history.sent(other, 15)
    history.sent(other, 16)
    kept += [(off, history.sent(other, off)) for off in (15, 16, 17)]
    history.sent(other, 0, part=1)
    last = history.sent(other, 1, part=1)
    history.final(kept)
    history.final([(1, last)], part=1)
    return history.lines()


def test_a_tail_is_what_one_failure_lost_however_acknowledgements_interleave(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = NightFiles(tmp_path / "n4")
    files.add("one", acks=1, lines=losing_twice(), judged={})
    night = read_night(files.write(end={}))
    (row,) = store.rows([collected(spark, night, tmp_path / "store")], "runs")
    same(row, oracle.run_row(night.path / row["run"]))
    assert (row["lost"], row["lost_tails"], row["lost_tail_records"]) == (6, 3, 3)
    assert row["lost_tail_ms"] > 5


def test_a_history_that_was_changed_says_so_in_its_row(tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n5")
    sound = planted(1)
    changed = [line.replace(b'"f":"poll"', b'"f":"pool"') for line in sound]
    assert changed != sound
    files.add("sound", lines=sound)
    files.add("changed", lines=changed)
    files.add("judged so", "unknown", lines=changed)
    collector = NightCollector(read_night(files.write()))
    assert list(collector.troubles) == [1, 2], collector.troubles
    assert collector.troubles[1].startswith("history.jsonl is not the one that was judged: history.jsonl: ")
    assert collector.troubles[2].startswith("its history is damaged: history.jsonl: ")
    assert [each.verdict for each in collector.facts] == ["valid", "unknown", "unknown"], "it is valid no more"
