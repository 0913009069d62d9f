"""Checks run.json that contradicts, lacks or misspells something: the verdict is unknown, and names it."""

from __future__ import annotations

import gzip
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from squall.checkers import run_facts
from squall.checkers.in_memory import judge_bytes
from squall.checkers.verdict import UNKNOWN, VALID

RECORDED = Path(__file__).with_name("recorded")
OLD: dict[str, Any] = json.loads((RECORDED / "run.json").read_text())
"""Of a version that did not write after healing."""
AFTER = {"ok": True, "limit_s": 15, "took_s": 0.1}
NOW: dict[str, Any] = {
    **OLD,
    "phases": [*OLD["phases"], {"name": "writes after healing"}, {"name": "reads after healing"}],
    "writes_after_healing": {**AFTER, "lacking": {}},
    "reads_after_healing": {**AFTER, "readers": 2, "partitions": 6, "behind": []},
    "harness": [],
}
BEHIND = {"process": 3, "client": "squall", "place": "appends-0-0", "position": 1, "goal": 2, "why": "", "idle_s": 1}


def sealed(history: bytes) -> bytes:
    """As versions wrote it that write after healing: the header promises a last line."""
    header, *rest = history.splitlines(keepends=True)
    end = {"e": "x", "t": OLD["ended_ns"], "kind": "end", "lines": len(rest) + 1}
    return b"".join(
        [json.dumps({**json.loads(header), "ends": True}).encode() + b"\n", *rest, json.dumps(end).encode() + b"\n"]
    )


def judged(info: Any) -> tuple[str, tuple[str, ...]]:
    """The verdict on the recorded run with another run.json, and why."""
    history = gzip.decompress((RECORDED / "history.jsonl.gz").read_bytes())
    if "writes_after_healing" in info:
        history = sealed(history)
    verdict = judge_bytes(
        "sim-seed7",
        history,
        (RECORDED / "nemesis.jsonl").read_bytes(),
        tomllib.loads((RECORDED / "plan.toml").read_text()),
        info=info,
    ).verdict
    return verdict.verdict, verdict.reasons


@pytest.mark.parametrize("info", [OLD, NOW], ids=["old", "now"])
def test_a_sound_one_is_no_trouble(info: Mapping[str, Any]) -> None:
    assert run_facts.facts_of(info) == run_facts.RunFacts(info, ())
    assert judged(info) == (VALID, ())


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("converged", {"ok": False, "took_s": 1, "lacking": {}}, "converged.ok is false, and converged.lacking names"),
        ("converged", {"ok": True, "lacking": {"appends-0-0": "no leader"}}, "converged.ok is true, and"),
        ("writes_after_healing", {**AFTER, "ok": False, "lacking": {}}, "writes_after_healing.ok is false, and"),
        ("reads_after_healing", {**AFTER, "ok": False, "behind": []}, "reads_after_healing.ok is false, and"),
        ("heal", {"failed": ["1->2", "2->1"]}, "heal.failed: no answer after healing from 1->2, 2->1"),
        ("faults", {"planned": 4, "landed": 0}, "of 4 planned faults 0 landed, and nemesis.jsonl says that all did"),
    ],
)
def test_what_went_wrong_without_a_place_is_told(name: str, value: Any, why: str) -> None:
    verdict, reasons = judged({**NOW, name: value})
    assert verdict == UNKNOWN
    assert any(reason.startswith(f"run.json: {why}") for reason in reasons), reasons


@pytest.mark.parametrize("name", ["converged", "writes_after_healing", "reads_after_healing", "final_reads", "heal"])
def test_a_run_that_ended_tells_what_came_of_each_of_its_phases(name: str) -> None:
    why = f"run.json: the run ended, and {name} is missing"
    verdict, reasons = judged({**NOW, name: None})
    assert (verdict, why in reasons) == (UNKNOWN, True)
    assert run_facts.facts_of({key: value for key, value in NOW.items() if key != name}).troubles == (why,)
    cut = {**NOW, name: None, "trouble": "the disk is full"}
    assert run_facts.facts_of(cut).troubles == (), "that it was cut short is told by whoever judges it"


def test_a_run_that_ended_says_what_it_did() -> None:
    why = "run.json: the run ended, and phases does not say what it did"
    assert judged({"ended_ns": OLD["ended_ns"]}) == (UNKNOWN, (why,))
    without = [each for each in NOW["phases"] if each["name"] != "converge"]
    assert judged({**NOW, "phases": without}) == (UNKNOWN, ("run.json: the run ended, and phases names no 'converge'",))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ended_ns", "now"),
        ("harness", 5),
        ("node_exits", None),
        ("node_exits", [{"node": 1}]),
        ("converged", {"ok": False, "lacking": "appends-0-0"}),
        ("converged", {"ok": 0, "lacking": {"appends-0-0": "no leader"}}),
        ("converged", {"ok": True, "took_s": "long", "lacking": {}}),
        ("writes_after_healing", {**AFTER, "took_s": "0.1", "lacking": {}}),
        ("writes_after_healing", {**AFTER, "took_s": float("nan"), "lacking": {}}),
        ("writes_after_healing", {**AFTER, "ok": False, "lacking": ["appends-0-0"]}),
        ("reads_after_healing", {**AFTER, "ok": False, "behind": [{**BEHIND, "idle_s": "20"}]}),
        ("reads_after_healing", 3),
        ("final_reads", [{"missing": {"appends-0-0": ""}, "waiting": ["appends-0-0"], "idle_s": 99}]),
        ("final_reads", [{"process": 1, "missing": {}, "waiting": ["appends-0-0"], "idle_s": 99}]),
        ("heal", {"failed": 3}),
        ("faults", {"planned": "4"}),
    ],
)
def test_what_has_no_form_that_a_run_gives_it_is_told_and_proves_nothing(name: str, value: Any) -> None:
    verdict, reasons = judged({**NOW, name: value})
    assert verdict == UNKNOWN
    assert f"run.json: {name} has not the form that a run gives it" in reasons


@pytest.mark.parametrize(
    "text", ["[]", "3", "{", '{"deep":' + "[" * 100_000 + "]" * 100_000 + "}", "\x00"], ids=range(5)
)
def test_a_file_that_is_no_object_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    facts = run_facts.read(tmp_path)
    assert facts.info == {}
    (trouble,) = facts.troubles
    assert trouble.startswith("run.json ")


def test_without_the_file_nothing_is_known_of_the_run(tmp_path: Path) -> None:
    assert run_facts.read(tmp_path) == run_facts.RunFacts()
