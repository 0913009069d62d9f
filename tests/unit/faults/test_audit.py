"""Checks that what no kind of fault would have written into nemesis.jsonl is reported, with file and line."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from squall.chaos.faults.audit import audit
from squall.chaos.faults.kind import FaultKind
from squall.chaos.faults.kinds import KINDS
from squall.checkers import fault_traits
from squall.checkers.nemesis_log import SCHEMA

Line = dict[str, Any]


def told(line: Line) -> list[str]:
    return audit([json.dumps(line).encode() + b"\n"])


def of(kind: FaultKind, **more: Any) -> Line:
    """A line of a fault with the parameters that it has by default."""
    params = kind.defaults
    traits = sorted({str(trait) for trait in kind.traits | kind.more_traits(params)} & fault_traits.ALL)
    line = {"schema": SCHEMA, "id": 0, "action": kind.name, "fault_class": kind.fault_class, "traits": traits}
    return {**line, "params": params, "target": {"asked": "node:1", "resolved": [1]}, "evidence": None, **more}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_line_of_a_kind_without_evidence_is_one_that_it_writes(kind: FaultKind) -> None:
    assert told(of(kind)) == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "evidence",
    [
        {"x": 1},
        {"links": ["1->2"], "proven": []},
        {"down": [], "up": [], "steps": [], "paused": [], "healed": [], "hits": [], "said": {}, "answers": {}},
        {"down": 1, "links": {}, "turns": "x", "hits": [True], "said": [], "lost": 3, "proven": {}, "damaged": "y"},
    ],
)
def test_evidence_that_is_not_of_its_kind_is_told_of(kind: FaultKind, evidence: Line) -> None:
    (why,) = told(of(kind, evidence=evidence))
    assert why.startswith(f"nemesis.jsonl: line 1: fault 0 ({kind.name}): its evidence does not prove it: ")


CHANGES: dict[str, tuple[Line, str]] = {
    "a class": ({"fault_class": "W1"}, "is of class P, and here of W1"),
    "no traits": ({"traits": []}, "has the traits out of sync, pauses, and here none"),
    "another trait": ({"traits": ["cuts links"]}, "and here cuts links"),
    "a parameter too many": ({"params": {"ms": 3}}, "has the parameters none: not ms"),
    "another kind": ({"action": "pausse"}, "of no kind that this version of Squall knows"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_line_that_its_kind_could_not_have_written_is_told_of(what: str) -> None:
    change, why = CHANGES[what]
    assert why in told(of(KINDS["pause"], **change))[0]


def test_a_parameter_beyond_its_bounds_is_told_of() -> None:
    (why,) = told(of(KINDS["latency"], params={"latency_ms": 0.5, "jitter_ms": 10, "side": "peers"}))
    assert why.endswith("latency_ms = 0.5: between 1 and 30000 are allowed")


def test_lines_of_before_there_were_schemas_and_damaged_ones_are_left_to_others() -> None:
    line = of(KINDS["kill"], evidence={"x": 1})
    del line["schema"]
    assert told(line) == []
    assert audit([b"[1]\n", b"{\n"]) == []


@cache
def landed() -> Line:
    """A cut of one link that was proven."""
    up, silent = {"ok": True, "round_trip_ms": 1.0, "error": ""}, {"ok": False, "round_trip_ms": 0.0, "error": "reset"}
    links = ["1->2", "2->1"]
    seen = {"links": links, "before": links, "during": [silent] * 2, "last": [], "after": [up] * 2, "proven": links}
    return of(KINDS["partition"], evidence=seen)


def test_evidence_of_its_kind_proves_it_and_each_part_of_it_is_needed() -> None:
    assert told(landed()) == []
    for name in ("links", "before", "during", "after", "proven"):
        assert told({**landed(), "evidence": {**landed()["evidence"], name: []}}), name
    answered = [{"ok": True}, *landed()["evidence"]["during"][1:]]
    assert told({**landed(), "evidence": {**landed()["evidence"], "during": answered}})
    assert told({**landed(), "evidence": {**landed()["evidence"], "proven": ["3->4"]}})


IN_BETWEEN: dict[str, tuple[str, Line, Line, str]] = {
    "a pause": (
        "pause",
        {"looks": [[{"node": 1, "state": "T", "cpu_s": used}] for used in (4.0, 4.01, 4.02)]},
        {"looks": [[{"node": 1, "state": "T", "cpu_s": used}] for used in (4.0, 4.01, 4.03)]},
        "a node did something while it should have been stopped",
    ),
    "a simulated pause": (
        "pause",
        {"looks": [[{"node": 1, "state": "T", "calls": 7}]] * 3},
        {"looks": [[{"node": 1, "state": state, "calls": 7}] for state in "TST"]},
        "a node was let go by somebody else in between",
    ),
    "a pause without a look in its middle": (
        "pause",
        {"looks": [[{"node": 1, "state": "T", "calls": 7}]] * 3},
        {"looks": [[{"node": 1, "state": "T", "calls": 7}]] * 2},
        "not every node was looked at when it was paused, in the middle, and before the end",
    ),
    "a kill": (
        "kill",
        {"middle": [{"node": 1, "state": "-"}]},
        {"middle": [{"node": 1, "state": "R"}]},
        "a node ran in the middle of the fault",
    ),
    "a clock": (
        "clock",
        {"said": {"1": {"off": True, "undone": 0}}},
        {"said": {"1": {"off": True, "undone": 1}}},
        "a node's trace shows another order in between",
    ),
}
ENDS: dict[str, Line] = {
    "pause": {"paused": [{"state": "T", "probe": {"ok": False}}], "resumed": [{"found": "T"}]},
    "kill": {"down": [{"gone": True}], "up": [{"ready_ns": 1}]},
    "clock": {},
}


@pytest.mark.parametrize("what", IN_BETWEEN)
def test_a_fault_that_was_undone_in_between_is_not_proven_by_its_begin_and_its_end(what: str) -> None:
    name, sound, undone, why = IN_BETWEEN[what]
    assert told(of(KINDS[name], evidence=ENDS[name] | sound)) == []
    (said,) = told(of(KINDS[name], evidence=ENDS[name] | undone))
    assert said.endswith(why)
    assert told(of(KINDS[name], evidence=ENDS[name] | undone, schema=2)) == [], "older evidence has no such look"
