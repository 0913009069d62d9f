"""A run that was recorded when lines of nemesis.jsonl said no schema, no traits and no words still verifies.

`recorded/` is `squall sim --seed 7` as it was then: a pause, a kill, slow links and a partition, in that order.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tomllib
from pathlib import Path

from squall.checkers.fault_classes import classes_of
from squall.checkers.guarantees import FaultClass
from squall.checkers.in_memory import judge_bytes
from squall.checkers.nemesis_log import parse_faults
from squall.reports.fault_words import fault_rows
from squall.reports.page import render
from squall.reports.run_files import read_run

RECORDED = Path(__file__).with_name("recorded")


def test_its_lines_say_no_schema_and_its_faults_have_class_and_traits_all_the_same() -> None:
    lines = (RECORDED / "nemesis.jsonl").read_bytes().splitlines(keepends=True)
    assert not any("schema" in json.loads(line) for line in lines)
    faults, problem = parse_faults(lines)
    assert problem is None
    assert [(fault.action, fault.fault_class) for fault in faults] == [
        ("pause", "P"),
        ("kill", "P"),
        ("latency", "N"),
        ("partition", "N"),
    ]
    assert all(fault.traits for fault in faults)
    assert set(classes_of(faults)) == {FaultClass.P, FaultClass.N}


def test_it_is_judged_as_it_was() -> None:
    judgement = judge_bytes(
        "sim-seed7",
        gzip.decompress((RECORDED / "history.jsonl.gz").read_bytes()),
        (RECORDED / "nemesis.jsonl").read_bytes(),
        tomllib.loads((RECORDED / "plan.toml").read_text()),
        info=json.loads((RECORDED / "run.json").read_text()),
    )
    assert judgement.verdict.verdict == "valid", judgement.verdict.reasons
    assert len(judgement.history.processes) > 0


def test_its_page_tells_its_faults(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(RECORDED, run)
    (run / "history.jsonl").write_bytes(gzip.decompress((run / "history.jsonl.gz").read_bytes()))
    rows = fault_rows(read_run(run))
    assert [row.state for row in rows] == ["landed"] * 4
    page = render(run).read_text()
    assert "broker 2" in page
