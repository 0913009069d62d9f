"""Checks lines of nemesis.jsonl against the kinds of faults: class, traits, parameters, and the proof. It does no I/O.

The nemesis records what follows from a fault's kind, so that checkers need not know the kinds. This module derives the
same from the kinds again. A line that its kind could not have written makes the verdict `unknown`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from squall.chaos.faults.kind import FaultError
from squall.chaos.faults.kinds import KINDS
from squall.checkers import fault_traits
from squall.checkers.history.tables import HistoryProblem
from squall.checkers.nemesis_log import FILE, SCHEMA


def audit(lines: Iterable[bytes]) -> list[str]:
    """Return what is wrong in the lines of nemesis.jsonl, with file and line number. Lines without a schema are from an
    old version and are not checked. At an unreadable line the audit ends without an error: the reader of the file
    reports it.
    """
    found: list[str] = []
    for number, raw in enumerate(lines, start=1):
        try:
            line = json.loads(raw)
            if line.get("schema") is not None:
                found += (str(HistoryProblem(FILE, number, why)) for why in _wrong(line))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            break
    return found


def _wrong(line: Mapping[str, Any]) -> Iterator[str]:
    here = f"fault {line['id']} ({line['action']})"
    kind = KINDS.get(line["action"])
    if kind is None:
        yield f"{here} is of no kind that this version of Squall knows"
        return
    params = line.get("params") or {}
    if line["fault_class"] != kind.fault_class:
        yield f"{here} is of class {kind.fault_class}, and here of {line['fault_class']}"
    traits = sorted({trait.value for trait in kind.traits | kind.more_traits(params)} & fault_traits.ALL)
    if line["traits"] != traits:
        yield f"{here} has the traits {', '.join(traits) or 'none'}, and here {', '.join(line['traits']) or 'none'}"
    if unlike := set(params) ^ set(kind.params):
        yield f"{here} has the parameters {', '.join(kind.params) or 'none'}: not {', '.join(sorted(unlike))}"
    for name in params.keys() & kind.params.keys():
        try:
            kind.params[name].check(name, params[name])
        except FaultError as wrong:
            yield f"{here}: {wrong}"
    # What proves a fault grows with the schema: the version that wrote an older line compared its evidence itself.
    if (seen := line.get("evidence")) and line["schema"] == SCHEMA:
        hit = (line.get("target") or {}).get("resolved") or ()
        if missing := kind.verify(seen, params, hit):
            yield f"{here}: its evidence does not prove it: {missing}"
