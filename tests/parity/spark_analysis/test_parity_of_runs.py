"""The reference finders and Spark's queries agree on whole runs of transactions, not only on generated histories.

`recorded/` is `squall run --target kafka --workload transactions --client confluent --faults kill,partition --seed 4
--time 15`: Apache Kafka 4.3.1, librdkafka 2.16.1.
"""

from __future__ import annotations

import gzip
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs.simulation import simulate
from squall.checkers.history.conversion import read_lines
from squall.checkers.history.tables import LATE_END
from squall.checkers.measures import measure
from squall.checkers.metrics import COMMIT_LATENCY, TRANSACTIONS, UNCOMMITTED, context_of
from tests.parity.spark_analysis.test_parity import compared

pytestmark = pytest.mark.night("starts Spark or plans every query anew; the gate has one session")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDED = Path(__file__).with_name("recorded")
PLAN = Path(__file__).parents[3] / "plans/delayed-end-txn.toml"


def test_of_a_run_on_apache_kafka(spark: SparkSession, tmp_path: Path) -> None:
    lines = gzip.decompress((RECORDED / "history.jsonl.gz").read_bytes()).splitlines(keepends=True)
    assert compared(spark, tmp_path, lines, (RECORDED / "nemesis.jsonl").read_bytes()) == []
    kept, faults = read_lines(tmp_path)
    measured = {each.name for each in measure(kept, context_of(kept, faults))}
    assert {TRANSACTIONS, COMMIT_LATENCY, UNCOMMITTED} <= measured


@pytest.mark.parametrize(("generation", "late"), [(1, {"torn-txn", "G1a"}), (2, set[str]())])
def test_of_a_run_in_which_ends_come_late(spark: SparkSession, tmp_path: Path, generation: int, late: set[str]) -> None:
    values: dict[str, Any] = tomllib.loads(PLAN.read_text())
    workload = {**values["workload"], "generation": generation}
    papers = simulate(make_plan({**values, "runtime": "sim", "workload": workload}), stop_at_first=False).run_files()
    found = compared(spark, tmp_path, papers["history.jsonl"].splitlines(keepends=True), papers["nemesis.jsonl"])
    assert {(each.anomaly, each.evidence) for each in found} == {(name, LATE_END) for name in late}


def test_of_a_seed_of_transactions_as_it_is_and_without_some_of_its_reads(spark: SparkSession, tmp_path: Path) -> None:
    papers = simulate(swarm_plan(0, workload="transactions")).run_files()
    lines, nemesis = papers["history.jsonl"].splitlines(keepends=True), papers["nemesis.jsonl"]
    as_it_is = {each.anomaly for each in compared(spark, tmp_path, lines, nemesis)}
    assert not as_it_is & {"lost-write", "poll-skip"}
    assert {each.anomaly for each in compared(spark, tmp_path, robbed(lines), nemesis)} >= {"lost-write", "poll-skip"}


def test_of_a_seed_of_groups_as_it_is_and_with_positions_that_nobody_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    papers = simulate(swarm_plan(0, workload="groups")).run_files()
    lines, nemesis = papers["history.jsonl"].splitlines(keepends=True), papers["nemesis.jsonl"]
    assert "lost-position" not in {each.anomaly for each in compared(spark, tmp_path, lines, nemesis)}
    found = compared(spark, tmp_path, [*forged(lines)], nemesis)
    assert "lost-position" in {each.anomaly for each in found}


def forged(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the run's lines with one change: the last committed offset that a coordinator reported is far too high."""
    told = [json.loads(line) for line in lines]
    told = [line for line in told if line.get("kind") != "end"]
    told[0] = {name: value for name, value in told[0].items() if name not in ("ends", "seal", "seals")}
    asked = {line["op"] for line in told if line["e"] == "i" and line["f"] == "fetch_offsets"}
    reported = [line for line in told if line["e"] == "c" and line["op"] in asked and line.get("off")]
    reported[-1]["off"] = dict.fromkeys(reported[-1]["off"], 1_000_003)
    return (json.dumps(line).encode() + b"\n" for line in told)


def robbed(lines: list[bytes]) -> list[bytes]:
    """Return the run's lines with records removed: the first record of a reader's first poll, and in the second round
    of final reads at read_uncommitted the last record of each partition.
    """
    told = [json.loads(line) for line in lines]
    told = [line for line in told if line.get("kind") != "end"]
    told[0] = {name: value for name, value in told[0].items() if name not in ("ends", "seal", "seals")}
    invoked = {line["op"]: line for line in told if line["e"] == "i"}
    processes = {line["p"]: line for line in told if line["e"] == "p"}
    completed = [(invoked[line["op"]], line) for line in told if line["e"] == "c"]
    polls = [line["got"] for began, line in completed if _is_of(began, processes, "reader") and line.get("got")]
    first = next(entry for got in polls for entry in got if len(entry[5]) > 1)
    del first[5][0]
    for part in {entry[0] for _, line in completed for entry in line.get("got", ())}:
        _end_earlier([line for began, line in completed if _is_of(began, processes, "final")], part)
    return [json.dumps(line).encode() + b"\n" for line in told]


def _is_of(began: dict[str, Any], processes: dict[int, dict[str, Any]], role: str) -> bool:
    """Return whether a read is by a process with this role: a reader, or a final reader of the second round at
    read_uncommitted.
    """
    settings = processes[began["p"]]["settings"]
    last = role != "final" or (settings.get("round"), settings.get("isolation")) == (2, 0)
    return began["f"] in ("poll", "final_read") and processes[began["p"]]["role"] == role and last


def _end_earlier(reads: list[dict[str, Any]], part: int) -> None:
    answers = [entry for line in reads for entry in line.get("got", ()) if entry[0] == part]
    *_, last = (number for number, entry in enumerate(answers) if entry[5])
    end, _ = answers[last][5].pop()
    for entry in answers[last:]:
        entry[1] = end
    for line in reads:
        if str(part) in line.get("end", {}):
            line["end"][str(part)] = end
