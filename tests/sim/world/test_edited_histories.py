"""A history that was edited together with its checksums contradicts run.json, the plan or nemesis.jsonl."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs.simulation import simulate
from squall.checkers import agreement
from squall.checkers.history import seal
from squall.checkers.history.parser import parse
from squall.checkers.in_memory import judge_bytes
from squall.checkers.verdict import UNKNOWN, VALID, Verdict
from tests.support.histories.edited import Line, edited, lines_of, sealed, without_processes, without_send

Info = dict[str, Any]
SEEDS = {"appends": 109, "steady": 1, "transactions": 105, "groups": 120, "pipeline": 205, "semantics": 129}
KILL = {"at_s": 3.0, "duration_s": 2.0, "action": "kill", "target": "node:1"}


@cache
def files() -> Mapping[str, bytes]:
    """Return the run directory of a short valid run."""
    workload = {"rate": 20, "topics": 1, "partitions": 2}
    values = {"seed": 3, "runtime": "sim", "time_s": 12.0, "warmup_s": 1.0, "workload": workload}
    return simulate(make_plan({**values, "faults": [KILL]})).files


def told_by(papers: Mapping[str, bytes]) -> Info:
    info: Info = json.loads(papers["run.json"])
    return info


def judged(history: bytes, info: Info | None = None, papers: Mapping[str, bytes] | None = None) -> Verdict:
    papers = papers or files()
    plan = tomllib.loads(papers["plan.toml"].decode())
    told = told_by(papers) if info is None else info
    return judge_bytes("r", history, papers["nemesis.jsonl"], plan, info=told).verdict


def processes(role: str, **settings: Any) -> list[int]:
    found = [each for each in lines_of(files()["history.jsonl"]) if each["e"] == "p" and each["role"] == role]
    return [each["p"] for each in found if settings.items() <= each["settings"].items()]


def last_send() -> Line:
    """Return the line of the load's last record to partition 0."""
    after = processes("producer", after_healing=True)
    sends = [each for each in lines_of(files()["history.jsonl"]) if each.get("f") == "send" and each["part"] == 0]
    return [each for each in sends if each["p"] not in after][-1]


def declared(**fields: Any) -> Callable[[bytes], bytes]:
    """Return an edit that changes fields of partition 0's declaration."""

    def change(line: Line) -> Line:
        return {**line, **fields} if line["e"] == "t" and line["part"] == 0 else line

    return lambda history: edited(history, change)


def in_force(**settings: str) -> Callable[[bytes], bytes]:
    """Return an edit that changes the topic settings which the brokers reported for partition 0; in names, `_` is a
    dot.
    """
    named = {name.replace("_", "."): value for name, value in settings.items()}

    def change(line: Line) -> Line:
        told = line.get("kind") == "topic_settings" and line["topic"] == "appends-0"
        return {**line, "settings": {**line["settings"], **named}} if told else line

    return lambda history: edited(history, change)


def of_last_send(line: Line) -> Line:
    return {**line, "st": 2, "off": -1} if line["e"] == "c" and line["op"] == last_send()["op"] else line


SETTINGS = "the settings of topics and partitions in it are not those of run.json"
EDITS: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "a partition is compacted": (
        in_force(cleanup_policy="compact"),
        SETTINGS,
        "history.jsonl: cleanup of appends-0-0 is 'compact', and 'delete' by plan.toml",
    ),
    "a partition was added": (
        declared(added=True),
        "added of appends-0-0 is True in it, and False in run.json",
        "history.jsonl: appends-0-0 came while the load ran, and nemesis.jsonl has 0 faults that add one",
    ),
    "a partition keeps its records for a moment": (
        in_force(retention_ms="1"),
        SETTINGS,
        "",
    ),
    "a partition keeps few bytes": (in_force(retention_bytes="1"), SETTINGS, ""),
    "a partition is declared to keep few bytes": (declared(retention_bytes=1), SETTINGS, ""),
    "a send and its acknowledgement are gone": (
        lambda history: without_send(history, last_send()["v"]),
        "operations 'send' that ended ok, and run.json counts",
        "",
    ),
    "an acknowledgement is none": (
        lambda history: edited(history, of_last_send),
        "it has 1 operations 'send' that ended info, and run.json counts 0",
        "",
    ),
    "nothing was written after healing": (
        lambda history: without_processes(history, processes("producer", after_healing=True)),
        "operations 'send' that ended ok, and run.json counts",
        "run.json: final reads at read_uncommitted returned ",
    ),
    "live readers are gone": (
        lambda history: without_processes(history, processes("reader")),
        "operations 'poll' that ended ok, and run.json counts",
        "run.json: reads_after_healing waited for 3 readers, and history.jsonl has 0",
    ),
    "the last round of final reads is gone": (
        lambda history: without_processes(history, processes("final", round=2)),
        "operations 'final_read' that ended ok, and run.json counts",
        "run.json names 4 final reads, and history.jsonl has 2 of them",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_history_is_unknown(name: str) -> None:
    edit, counted, _ = EDITS[name]
    history = edit(files()["history.jsonl"])
    assert parse(history.splitlines(keepends=True)).problem is None, "its own lines and digest fit"
    verdict = judged(history)
    assert verdict.verdict == UNKNOWN
    assert any(each.startswith(agreement.CHANGED) and counted in each for each in verdict.reasons), verdict.reasons


@pytest.mark.parametrize("name", [name for name, (_, _, told) in EDITS.items() if told])
def test_what_else_the_files_say_contradicts_it_where_nobody_counted(name: str) -> None:
    """A run.json of an early version, or an edited one, may have no counts and a checksum that fits."""
    edit, _, told = EDITS[name]
    info = told_by(files())
    del info["history"]
    lines = lines_of(edit(files()["history.jsonl"]))
    lines[-1]["seals"][seal.RUN] = seal.info_seal(info)
    verdict = judged(sealed(lines), info)
    assert verdict.verdict == UNKNOWN
    assert any(each.startswith(told) for each in verdict.reasons), verdict.reasons


def contradictions(verdict: Verdict) -> list[str]:
    """Return the contradictions that `squall.checkers.agreement` found."""
    return [each for each in (*verdict.reasons, *verdict.notes) if each.startswith(("history.jsonl", "run.json"))]


def test_a_run_that_nobody_edited_is_valid_also_where_its_lines_were_written_anew() -> None:
    verdict = judged(sealed(lines_of(files()["history.jsonl"])))
    assert verdict.verdict == VALID, verdict.reasons


@pytest.mark.parametrize("workload", SEEDS)
def test_the_files_of_a_run_agree(workload: str) -> None:
    papers = simulate(swarm_plan(SEEDS[workload], time_s=15.0, workload=workload)).files
    told = told_by(papers)["history"]
    assert told["outcomes"]["final_read"]["ok"] > 0
    assert sum(told["outcomes"]["send"].values()) > 0
    assert contradictions(judged(papers["history.jsonl"], papers=papers)) == []


@pytest.mark.parametrize("closed", [True, False], ids=["Ctrl-C", "killed"])
def test_the_files_of_a_run_that_was_cut_short_agree(closed: bool) -> None:
    """When a run is stopped during its load, the recorder closes the history, and run.json has its counts at that
    moment.
    """
    first, *lines, last = lines_of(files()["history.jsonl"])
    kept = [first, *lines[: len(lines) // 2]]
    info = {name: value for name, value in told_by(files()).items() if name not in (*seal.SEALED_KEYS, "counters")}
    info["trouble"] = "interrupted"
    if closed:
        history = parse(sealed([*kept, last]).splitlines(keepends=True))
        counts = {f: {st: each.get(st, 0) for st in ("ok", "fail", "info")} for f, each in history.outcomes.items()}
        partitions = [
            {"topic": each.topic, "index": each.index, "cleanup": each.cleanup, "retention_ms": each.retention_ms}
            for each in history.partitions
        ]
        info["history"] = {"outcomes": counts, "processes": len(history.processes), "partitions": partitions}
        info["history"]["declared"] = history.declared
    text = sealed([*kept, {**last, "seals": {**last["seals"], seal.RUN: seal.info_seal(info)}}])
    cut = [] if closed else ["history.jsonl: line"]
    said = contradictions(judged(text if closed else text.rpartition(b'{"e"')[0], info))
    assert [each[: len("history.jsonl: line")] for each in said] == cut
