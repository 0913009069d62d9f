"""Reads run.json, checks the form of its entries, and reports what is wrong with them.

A run that says that it ended must report the result of each phase that it names. Runs of older versions of Squall do
not have all phases, and name only those that they have. An entry with a wrong form is reported and left out, so that
nothing depends on it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = "run.json"
PHASES = {
    "heal": "heal",
    "converge": "converged",
    "writes after healing": "writes_after_healing",
    "reads after healing": "reads_after_healing",
    "final reads": "final_reads",
}
"""Maps each phase to the key of run.json that reports its result."""
ALWAYS = ("heal", "converge", "final reads")
"""Lists the phases that runs of every version of Squall have."""

ValueCheck = Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> bool:
    # `isinstance` would take `true` for a number.
    return type(value) is int


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _any(value: Any) -> bool:
    return True


def _list(each: ValueCheck) -> ValueCheck:
    return lambda value: isinstance(value, list | tuple) and all(map(each, value))


def _by_name(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_text, value))


def _entry(must: Mapping[str, ValueCheck], may: Mapping[str, ValueCheck] | None = None) -> ValueCheck:
    def fits(value: Any) -> bool:
        return (
            isinstance(value, Mapping)
            and all(name in value and form(value[name]) for name, form in must.items())
            and all(name not in value or form(value[name]) for name, form in (may or {}).items())
        )

    return fits


def _final_read(value: Any) -> bool:
    """Return whether `value` is a correct entry of `final_reads` in run.json. If the entry lists partitions in
    `waiting`, it must have the reader's process number in `process`, and `missing` must give a reason for each of these
    partitions.
    """
    may = {"process": _whole, "waiting": _list(_text), "idle_s": _number}
    if not _entry({"missing": _by_name}, may)(value):
        return False
    waiting = value.get("waiting", ())
    return not waiting or ("process" in value and set(waiting) <= set(value["missing"]))


def _outcomes(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_entry(dict.fromkeys(each, _whole))(each) for each in value.values())


_DECLARED = _entry(
    {"topic": _text, "index": _whole, "cleanup": _text, "retention_ms": _whole},
    {"retention_bytes": _whole, "added": _truth},
)
_BEHIND = {"process": _whole, "client": _any, "place": _text, "position": _any, "goal": _any, "why": _any}
FORMS: Mapping[str, ValueCheck] = {
    "ended_ns": _whole,
    "wall_drift_ms": _whole,
    "phases": _list(_entry({"name": _text})),
    "heal": _entry({}, {"failed": _list(_any)}),
    "faults": _entry({"planned": _whole, "landed": _whole}),
    "converged": _entry({"ok": _truth, "lacking": _by_name}, {"took_s": _number}),
    "writes_after_healing": _entry({"ok": _truth, "limit_s": _number, "took_s": _number, "lacking": _by_name}),
    "reads_after_healing": _entry(
        {"ok": _truth, "limit_s": _number, "took_s": _number, "behind": _list(_entry({**_BEHIND, "idle_s": _number}))}
    ),
    "final_reads": _list(_final_read),
    "history": _entry({"processes": _whole, "partitions": _list(_DECLARED), "outcomes": _outcomes, "declared": _whole}),
    "refused": _text,
    "harness": _list(_any),
    "standstills": _list(_entry({"began": _whole, "s": _number, "suspended_s": _number})),
    "node_exits": _list(_entry({"node": _any, "code": _any, "last_words": _text})),
}
"""Maps each key of run.json to a function that returns whether a value has the types which every version writes there.
"""
MAY_BE_NONE = ("heal", "faults", "converged", "writes_after_healing", "reads_after_healing", "final_reads")
"""Lists the keys whose value is null if the run did not come so far."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Holds the entries of run.json, without those whose values have a wrong type."""

    info: Mapping[str, Any] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()
    """Says in words what is wrong with the file; each text begins with the file's name."""


def read(run_dir: Path) -> RunFacts:
    """Return the entries of `run_dir`/run.json, and what is wrong with them. Both are empty if there is no such file:
    then its run did not come so far.
    """
    try:
        return facts_of(json.loads((run_dir / FILE).read_bytes()))
    except FileNotFoundError:
        return RunFacts()
    except (OSError, ValueError, RecursionError) as error:
        return RunFacts(troubles=(f"{FILE} cannot be read: {type(error).__name__}: {error}",))


def facts_of(info: Any) -> RunFacts:
    """Return the entries of run.json that have the right form, and all that is wrong with run.json. `info` is its
    parsed content.
    """
    if not isinstance(info, Mapping):
        return RunFacts(troubles=(f"{FILE} is no object",))
    odd = [
        name
        for name, form in FORMS.items()
        if name in info and not (info[name] is None and name in MAY_BE_NONE) and not form(info[name])
    ]
    sound = {name: value for name, value in info.items() if name not in odd}
    troubles = [f"{FILE}: {name} has not the form that a run gives it" for name in odd]
    return RunFacts(sound, (*troubles, *_missing_statements(info), *_contradictions(sound)))


def _missing_statements(info: Mapping[str, Any]) -> Iterable[str]:
    """Yield a sentence for each entry that run.json lacks, if the run ended in order."""
    if "ended_ns" not in info or info.get("trouble") or info.get("stopped"):
        return
    if not FORMS["phases"](info.get("phases")):
        yield f"{FILE}: the run ended, and phases does not say what it did"
        return
    names = {each["name"] for each in info["phases"]}
    for phase, name in PHASES.items():
        if phase in ALWAYS and phase not in names:
            yield f"{FILE}: the run ended, and phases names no {phase!r}"
        elif phase in names and info.get(name) is None:
            yield f"{FILE}: the run ended, and {name} is missing"


def _contradictions(info: Mapping[str, Any]) -> Iterable[str]:
    """Yield contradictions: run.json says that a phase failed but not where, or the other way round."""
    for name, where in (
        ("converged", "lacking"),
        ("writes_after_healing", "lacking"),
        ("reads_after_healing", "behind"),
    ):
        reported = info.get(name)
        if reported is not None and reported["ok"] == bool(reported[where]):
            names = "names something" if reported[where] else "names nothing"
            yield f"{FILE}: {name}.ok is {str(reported['ok']).lower()}, and {name}.{where} {names}"
    if failed := (info.get("heal") or {}).get("failed"):
        yield f"{FILE}: heal.failed: no answer after healing from {', '.join(map(str, failed))}"
