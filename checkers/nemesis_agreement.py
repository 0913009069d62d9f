"""Checks that nemesis.jsonl belongs to this run: its faults are those of the plan, their classes are known, and their
times are in order. A disagreement makes the verdict `unknown`, because then no fault's line can be trusted. The lines
that `nemesis_log` reads are not changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from squall.checkers import first_schema
from squall.checkers.history.tables import HistoryProblem
from squall.checkers.nemesis_log import FILE

TIMES = (("asked", "began"), ("began", "on"), ("began", "ended"))
"""Lists pairs of fields of a line in nemesis.jsonl. Both fields are times in ns on the run's clock, and the first is
never later than the second.
"""


def disagreements(
    lines: Iterable[bytes], planned: Sequence[Mapping[str, Any]] | None, info: Mapping[str, Any]
) -> tuple[list[HistoryProblem], str]:
    """Return the problems of these lines of nemesis.jsonl, in order, and a note on an unfinished last line; empty if
    there is none.

    `planned` holds the plan's `[[faults]]`, None if they are not known. `info` is run.json, as far as it could be read.
    A line that is no fault's line ends the check without a problem, because `parse_faults` reports it.
    """
    found: list[HistoryProblem] = []
    for number, raw in enumerate(lines, start=1):
        if not raw.endswith(b"\n"):
            return found, f"{FILE} ends in an unfinished line of {len(raw)} bytes, which was left out"
        try:
            line = json.loads(raw)
            found += (HistoryProblem(FILE, number, why) for why in _wrong(line, planned, info))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            break
    return found, ""


def read(
    run_dir: Path, planned: Sequence[Mapping[str, Any]] | None, info: Mapping[str, Any], notes: list[str]
) -> list[str]:
    """Return the problems of a run directory's nemesis.jsonl, in words. If its last line is unfinished, a sentence
    about that is appended to `notes`. `planned` holds the plan's `[[faults]]`, None if they are not known. `info` is
    run.json, as far as it could be read.
    """
    path = run_dir / FILE
    if not path.exists():
        return []
    with path.open("rb") as lines:
        found, note = disagreements(lines, planned, info)
    notes += [note] if note else []
    return [str(each) for each in found]


def _wrong(line: Mapping[str, Any], planned: Sequence[Mapping[str, Any]] | None, info: Mapping[str, Any]) -> list[str]:
    here = f"fault {line['id']} ({line['action']})"
    known, said = first_schema.class_of(str(line["action"])), line.get("fault_class")
    found = [f"{here} is of class {known}, and here of {said}"] if known and said and known != said else []
    if planned is not None:
        found += (f"{here}: {why}" for why in _not_as_planned(line, planned))
    return [*found, *(f"{here}: {why}" for why in _times(line, info))]


def _not_as_planned(line: Mapping[str, Any], planned: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not 0 <= line["id"] < len(planned):
        yield f"the plan has {len(planned)} faults, counted from 0"
        return
    plan, said = planned[line["id"]], line.get("planned") or {}
    pairs = [("action", plan.get("action"), line["action"])]
    pairs += [(name, plan.get(name), said.get(name)) for name in ("at_s", "duration_s")]
    pairs.append(("target", plan.get("target"), (line.get("target") or {}).get("asked")))
    for name, wanted, reported in pairs:
        # A hand-written plan may leave out values that have a default.
        if wanted is not None and reported is not None and wanted != reported:
            yield f"{name} is {reported!r}, and the plan has {wanted!r}"
    params = line.get("params") or {}
    for name, wanted in (plan.get("params") or {}).items():
        if params and params.get(name) != wanted:
            yield f"{name} is {params.get(name)!r}, and the plan has {wanted!r}"


def _times(line: Mapping[str, Any], info: Mapping[str, Any]) -> Iterator[str]:
    for first, second in TIMES:
        one, other = line.get(first), line.get(second)
        if one is not None and other is not None and other < one:
            yield f"{second} at {other} ns, before {first} at {one}"
    begin, end = info.get("began_ns"), info.get("ended_ns")
    for name in ("asked", "began", "on", "ended"):
        at = line.get(name)
        if at is None:
            continue
        if type(begin) is int and at < begin:
            yield f"{name} at {at} ns, before the run began at {begin}"
        if type(end) is int and at > end:
            yield f"{name} at {at} ns, after the run ended at {end}"
