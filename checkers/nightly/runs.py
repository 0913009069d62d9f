"""Reads the facts about each run of a night: its configuration, fault classes, guarantees and verdict. The records of
the run's history are not needed for that.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from squall.checkers import fault_classes, simulated
from squall.checkers.guarantees import FaultClass, guarantee_for
from squall.checkers.history import seal
from squall.checkers.history.conversion import read_faults
from squall.checkers.history.tables import RecordedFault
from squall.checkers.nightly.matrix import forbidden
from squall.checkers.nightly.night import Night
from squall.checkers.nightly.results import INVALID, NO_VERDICT, UNKNOWN, VALID, VERDICTS, RunAttempt
from squall.checkers.plan_facts import BadPlan, facts_of

ASIDE = (
    "target",
    "runtime",
    "workload",
    "nodes",
    "isolation",
    "faults",
    "seed",
    "acks",
    "min-isr",
    "replication-factor",
)
"""Lists the axes that `configuration` does not write as "axis=value". The name of a configuration begins with acks, min
ISR and replication factor in a form of their own ("acks=all, min ISR 2 of 3"). It leaves out the other axes listed
here.
"""
USUAL = {
    "idempotence": ("on",),
    "client": ("squall",),
    "codec": ("none",),
    "unclean": ("off",),
    "flush": ("os",),
    "generation": ("2",),
    "group-protocol": ("classic",),
    "static-members": ("off",),
    "mutant": ("none", ""),
}
"""Maps axes to their usual values, which the name of a configuration leaves out."""
NO_CLASS = "none"
"""Is the class of a run without faults."""
GONE = "its run directory is gone"
NOT_KNOWN = "not known"
"""Is the class of a run whose faults are not known."""


@dataclass(frozen=True, slots=True)
class RunOfNight:
    """Holds the facts of one run of a night. None of them needs the records of the history."""

    attempt: RunAttempt
    counts: bool
    """Is True if no later attempt of the same item exists, so that this run counts."""
    path: Path | None
    """Is the run's directory; None if there is none."""
    verdict: str
    axes: Mapping[str, str]
    configuration: str
    """Names the configuration by the settings on which the durability of its records depends, for example "acks=all,
    min ISR 2 of 3, unclean=on".
    """
    classes: str
    """Names the classes of the faults that began (`FaultClass`), such as "P N" for processes and network; `NO_CLASS` if
    none began, `NOT_KNOWN` if they are not known.
    """
    promise: str
    """Names the row of the guarantee matrix that applies to the configuration, for example "acks=all, min ISR 1"; empty
    if it is not known.
    """
    permitted: tuple[str, ...]
    """Lists the anomalies that the configuration permits under the faults of the run."""
    faults: tuple[RecordedFault, ...]
    seed: int | None = None
    trouble: str = ""
    """Says why the run is not valid, or what contradicts the night's record of it, such as a changed verdict.json; else
    empty.
    """


def facts_of_night(night: Night) -> list[RunOfNight]:
    """Return facts about the run of every attempt, such as its configuration and fault classes, in the order in which
    the attempts ended.
    """
    last = night.last
    return [_facts(night, each, counts=each.attempt == last[each.item]) for each in night.attempts]


def with_unexpected(night: Night, attempt: RunAttempt, verdict: Mapping[str, Any]) -> tuple[RunAttempt, str]:
    """Return the attempt with all forbidden anomalies in `unexpected`, and a sentence if results.jsonl and verdict.json
    disagree about them; empty if they agree. Forbidden are found anomalies that the configuration permits, but the
    night does not.

    An anomaly that only one of the two files has counts, too, so that the graver result counts. `verdict` is the
    content of verdict.json, empty if there is none.
    """
    if not verdict or attempt.verdict == NO_VERDICT:
        return attempt, ""
    cell = _cell(night.items.get(attempt.item, {}))
    found = forbidden(night.expect, cell, verdict.get("anomalies"))
    if set(found) == set(attempt.unexpected):
        return attempt, ""
    noted, reported = ", ".join(attempt.unexpected) or "nothing", ", ".join(found) or "nothing"
    doubt = f"the night noted that it forbids {noted} of what was found; its matrix and verdict.json say {reported}"
    return replace(attempt, unexpected=tuple(dict.fromkeys((*attempt.unexpected, *found)))), doubt


def _facts(night: Night, attempt: RunAttempt, *, counts: bool) -> RunOfNight:
    path = night.path / attempt.run if attempt.run else None
    if path is not None and not path.is_dir():
        path = None
    plan = _toml(path / "plan.toml") if path else {}
    verdict = _json(path / "verdict.json") if path else {}
    faults = _faults(path)
    planned = night.items.get(attempt.item, {})
    axes = axes_of(plan, planned)
    classes, promise, permitted = _promise(plan, faults, verdict) if path else (NOT_KNOWN, "", ())
    seed = plan.get("seed", planned.get("seed"))
    counted, doubt = _verdict(attempt, verdict)
    other = (seal.not_judged(path, verdict) or simulated.overlooked(path, verdict)) if path else ""
    # A changed history takes the proof from `valid` alone: the graver verdicts count in any case.
    if other and counted == VALID:
        counted = UNKNOWN
    attempt, noted = with_unexpected(night, attempt, verdict)
    return RunOfNight(
        attempt=attempt,
        counts=counts,
        path=path,
        verdict=counted,
        axes=axes,
        configuration=configuration(axes),
        classes=classes,
        promise=promise,
        permitted=permitted,
        faults=faults,
        seed=seed if isinstance(seed, int) else None,
        trouble="; ".join(filter(None, (attempt.why or ("" if path else GONE), doubt, noted, other))),
    )


def _verdict(attempt: RunAttempt, reported: Mapping[str, Any]) -> tuple[str, str]:
    """Return the verdict that counts, and why it is not the one in results.jsonl; empty if it is. A run may be judged
    again after the night. Then the graver of the two verdicts counts, because it is not known which file was changed,
    and why.
    """
    judged = reported.get("verdict")
    if judged == attempt.verdict or judged not in (VALID, INVALID, UNKNOWN) or attempt.verdict == NO_VERDICT:
        return attempt.verdict, ""
    graver = min(judged, attempt.verdict, key=VERDICTS.index)
    return graver, f"the night noted {attempt.verdict}, and verdict.json says {judged}: judged again, or changed"


def axes_of(plan: Mapping[str, Any], planned: Mapping[str, Any]) -> dict[str, str]:
    """Return the value of each axis (such as acks or faults) of a run in words: from the item's entry in night.json
    (`planned`), and from the run's plan for axes that the entry lacks.
    """
    reported = _cell(planned)
    for name in ("target", "runtime", "workload", "faults"):
        if planned.get(name):
            reported.setdefault(name, _word(planned[name]))
    return {**_of_plan(plan), **reported}


def _cell(planned: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the axes of an item in words, as its entry in night.json has them."""
    cell = planned.get("cell")
    return {str(name): _word(value) for name, value in cell.items()} if isinstance(cell, dict) else {}


def _of_plan(plan: Mapping[str, Any]) -> dict[str, str]:
    load, cluster = _table(plan, "workload"), _table(plan, "cluster")
    settings = {**_table(cluster, "settings"), **_table(load, "topic_settings")}
    found = {
        "target": plan.get("target"),
        "runtime": plan.get("runtime"),
        "workload": load.get("name"),
        "acks": "all" if load.get("acks") == -1 else load.get("acks"),
        "min-isr": load.get("min_isr"),
        "replication-factor": load.get("replication_factor"),
        **{name: load.get(name) for name in ("idempotence", "isolation", "generation", "codec", "client")},
        "group-protocol": load.get("group_protocol"),
        "static-members": load.get("static_members"),
        "unclean": str(settings["unclean.leader.election.enable"]).lower() == "true"
        if "unclean.leader.election.enable" in settings
        else None,
        "flush": settings.get("flush.messages"),
        "mutant": plan.get("mutant"),
    }
    return {name: _word(value) for name, value in found.items() if value not in (None, "")}


def _word(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def configuration(axes: Mapping[str, str]) -> str:
    """Return the name of a configuration: acks and min ISR, then each unusual value as "axis=value"."""
    # Workloads without that setting write with acks=all.
    reported = [f"acks={axes['acks']}"] if "acks" in axes else ["acks=all"] if axes.get("workload") else []
    if "min-isr" in axes:
        of = f" of {axes['replication-factor']}" if "replication-factor" in axes else ""
        reported.append(f"min ISR {axes['min-isr']}{of}")
    for name, value in axes.items():
        # Without acks=all a producer cannot be idempotent, so the name need not say it.
        implied = name == "idempotence" and axes.get("acks", "all") != "all" and value == "off"
        if name not in ASIDE and value not in USUAL.get(name, ()) and not implied:
            reported.append(f"{name}={value}")
    return ", ".join(reported) or "not known"


def _promise(
    plan: Mapping[str, Any], faults: tuple[RecordedFault, ...], verdict: Mapping[str, Any]
) -> tuple[str, str, tuple[str, ...]]:
    """Return (fault classes, row of the guarantee matrix, permitted anomalies), for example ("P N W1", "acks=all, min
    ISR 1", ("lost-write", "unseen")). Row and anomalies are those of verdict.json if it says valid or invalid.
    Otherwise they follow from the plan.
    """
    judged = verdict.get("guarantee")
    try:
        classes = fault_classes.classes_of(faults)
    except fault_classes.UnknownFault:
        return NOT_KNOWN, "", ()
    words = " ".join(each.value for each in FaultClass if each in classes) or NO_CLASS
    if isinstance(judged, dict) and verdict.get("verdict") in (VALID, INVALID):
        permitted = judged.get("permitted")
        return words, str(judged.get("row") or ""), tuple(permitted) if isinstance(permitted, dict) else ()
    try:
        facts = facts_of(plan)
    except BadPlan:
        return words, "", ()
    found = guarantee_for(facts.configuration, classes, facts.expect)
    return words, found.row, tuple(found.permitted)


def _faults(path: Path | None) -> tuple[RecordedFault, ...]:
    if path is None:
        return ()
    try:
        return tuple(read_faults(path)[0])
    except OSError:
        return ()


def _table(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
