"""Turns the findings of a night's runs into rows of the store, each with a fingerprint that identifies it in later
nights.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from squall.checkers import simulated
from squall.checkers.anomalies.registry import LOSS
from squall.checkers.nightly.results import INVALID
from squall.checkers.nightly.runs import RunOfNight
from squall.reports import checks
from squall.reports.causes import WitnessGroup, groups_of
from squall.reports.nightly.standing import BROKEN, NO_CAUSE
from squall.reports.problems import problems_named
from squall.reports.run_files import RunFiles, mapping, objects, read_run, texts
from squall.reports.stories import NOT_READ, StoryLine
from squall.reports.story_index import rendered_stories_about

Row = dict[str, Any]
STORY = 20
"""Limits the lines of a story that a row of the nightly store keeps."""
NO_PHASE = "a phase that nobody knows"
_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:,\d+)*")
_COVERS = re.compile(r", which covers \d+")


def findings_of(night: str, facts: Iterable[RunOfNight]) -> list[Row]:
    """Return a row for each cause of each anomaly in each run. Runs that cannot be read are left out."""
    return [row for each in facts if each.path is not None and _shows(each.path) for row in _of(night, each, each.path)]


def _shows(run_dir: Path) -> bool:
    """Return whether the run found an anomaly or a broken invariant. Only violations.json and verdict.json are looked
    at, because reading a whole run takes a while.
    """
    if (run_dir / "violations.json").exists():
        return True
    try:
        verdict = json.loads((run_dir / "verdict.json").read_text())
        return bool(verdict.get("anomalies")) or verdict.get("verdict") == INVALID
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _of(night: str, facts: RunOfNight, run_dir: Path) -> Iterator[Row]:
    files = read_run(run_dir)
    found = [check for check in checks.checks_of(files) if check.count]
    groups = groups_of(files, found)
    # The first broken invariant ends a simulation: what else is seen and has no cause of its own came of it.
    broken = next((check for check in found if check.invariant), None)
    attempt = facts.attempt
    head = {
        "night": night,
        "item": attempt.item,
        "attempt": attempt.attempt,
        "run": attempt.run,
        "configuration": facts.configuration,
        **{name: facts.axes.get(name, "") for name in ("target", "runtime", "workload")},
        "classes": facts.classes,
        "promise": facts.promise,
    }
    yield from _ended(files, found, head)
    for check in found:
        permitted = {checks.PERMITTED: True, checks.FAILED: False}.get(check.state)
        same: dict[str, Row] = {}
        for group in groups[check.key] or [WitnessGroup("", [])]:
            row = {
                **head,
                "anomaly": check.name,
                "evidence": check.evidence,
                "permitted": permitted,
                "unexpected": permitted is True and check.name in attempt.unexpected,
                "why": check.why,
                "count": check.count,
                **(
                    _of_invariant(files, check)
                    if check.invariant
                    else _witness_fields(files, check, group, facts.classes)
                ),
            }
            if broken is not None and row["cause"] in (NO_CAUSE, ""):
                row["cause"] = f"{BROKEN}{broken.definition}"
                row["fingerprint"] = fingerprint(check.name, check.evidence, check.invariant or broken.invariant, "")
            known = same.setdefault(row["fingerprint"], row)
            if known is not row:
                known["witnesses"] += row["witnesses"]
                known["first_s"], known["last_s"] = _earliest(known, row), _latest(known, row)
        # The witnesses that are kept say which cause they have; of the others only the number is known.
        yield from ({**row, "count": row["witnesses"]} if len(same) > 1 else row for row in same.values())


def _ended(files: RunFiles, found: Sequence[checks.CheckResult], head: Row) -> Iterator[Row]:
    """Yield a row for a failed simulation in which no check found anything: a broker ended by itself, no event was left
    to simulate, or the run did not come to its end. `head` holds the fields that all rows of the run have in common.
    """
    told = mapping(files.run.get(simulated.KEY))
    failure = mapping(told.get("failure"))
    kind, name = str(failure.get("kind")), str(failure.get("name"))
    if not failure or any(name in (check.name, check.invariant) for check in found):
        return
    yield {
        **head,
        "promise": "",
        "anomaly": kind,
        "evidence": "",
        "permitted": False,
        "unexpected": False,
        "why": "no configuration permits it",
        "count": 1,
        "witnesses": 0,
        "fingerprint": fingerprint(kind, "", name, ""),
        "cause": name,
        "place": "",
        "first_s": None,
        "last_s": None,
        "story": list(texts(told.get("told"))[:STORY]),
    }


def _witness_fields(files: RunFiles, check: checks.CheckResult, group: WitnessGroup, classes: str) -> Row:
    """Return the fields of a finding's row that follow from `group`, the witnesses that have one cause. The fingerprint
    is one of them. `classes` names the classes of the run's faults.
    """
    stories = [lines for _, lines, _ in group.witnesses]
    first = stories[0] if stories else []
    cause, (phase, fault) = cause_of(files, first), _moment(files, first)
    times = [line.t for lines in stories for line in lines if not line.text.startswith(NOT_READ)]
    return {
        "witnesses": len(group.witnesses),
        "fingerprint": fingerprint(check.name, check.evidence, cause, _fingerprint_place(cause, phase, fault, classes)),
        "cause": cause,
        "place": f"{phase}, {f'after {fault}' if fault else 'before any fault'}" if phase else "",
        "first_s": min(times, default=None),
        "last_s": max(times, default=None),
        "story": [f"{line.t:.3f} s  {line.text}" for line in first[:STORY]] or list(check.moments[:STORY]),
    }


def _of_invariant(files: RunFiles, check: checks.CheckResult) -> Row:
    """Return the fields of a row for a broken invariant, which has no witnesses: its name says what went wrong."""
    problems = problems_named(files, {check.invariant})
    told = [telling.lines for telling in rendered_stories_about(files, problems)[:1]]
    upto = [_upto(lines, check.invariant) for lines in told]
    return {
        "witnesses": 0,
        "fingerprint": "",
        "cause": "",
        "place": "",
        "first_s": None,
        "last_s": None,
        "story": upto[0] if upto else list(check.moments[:STORY]),
    }


def _upto(lines: Sequence[tuple[str, str]], invariant: str) -> list[str]:
    """Return lines of a story, at most STORY, that end with the one that says that `invariant` is broken. Later lines
    cannot be the cause. `lines` holds (time, text).
    """
    at = next((n for n, (_, text) in enumerate(lines) if f"{invariant} is broken" in text), len(lines) - 1)
    return [f"{t}  {text}" for t, text in lines[max(0, at + 1 - STORY) : at + 1]]


def fingerprint(anomaly: str, evidence: str, cause: str, place: str) -> str:
    """Return the fingerprint, 12 hex digits, by which a finding is recognised in another night. `evidence` is the kind
    of evidence of the anomaly, and `place` is what `_fingerprint_place` returns; both may be empty.

    lost-write and unseen have the same fingerprint: which of them is found depends on the positions of readers by
    chance.
    """
    what = "loss" if anomaly in LOSS else f"{anomaly}/{evidence}"
    return hashlib.sha256("\0".join((what, cause, place)).encode()).hexdigest()[:12]


def cause_of(files: RunFiles, story: Iterable[StoryLine]) -> str:
    """Describe what happened to the witness's record: the lines of its story that are marked as a possible cause
    (`grave`), without the names and numbers of the run. Runs in which the same happens have the same text. If no line
    is marked, the text is NO_CAUSE.
    """
    grave = [line.text for line in story if line.grave and not line.text.startswith(NOT_READ)]
    return " ".join(sorted({general(text, files.part_names.values()) for text in grave})) or NO_CAUSE


def general(text: str, partitions: Iterable[str]) -> str:
    """Return the sentence without its broker ids, offsets and other numbers, and with "the partition" for each name in
    `partitions`.
    """
    # The longest first: a name may be the beginning of another one, as orders-1 of orders-10.
    for name in sorted(partitions, key=len, reverse=True):
        text = text.replace(name, "the partition")
    return _NUMBERS.sub("\u2026", _COVERS.sub("", text)).replace("Broker \u2026", "A broker")


def _fingerprint_place(cause: str, phase: str, fault: str, classes: str) -> str:
    """Return the part of a finding's fingerprint that says when the finding happened: "before any fault" or "after a
    fault".

    The fault's kind and the phase of the run are left out: both depend on the seed, and the same bug shows after any
    fault. If the cause is not known, the text is the phase and the faults of the run (`classes`), because nothing else
    can distinguish two bugs.
    """
    if cause == NO_CAUSE:
        return f"{phase}, {classes}"
    return "after a fault" if fault else "before any fault"


def _moment(files: RunFiles, story: Iterable[StoryLine]) -> tuple[str, str]:
    """Return the phase of the run in which the finding's cause happened, and the kind of the fault that had begun last;
    an empty text for each that is not known.
    """
    lines = [line for line in story if not line.text.startswith(NOT_READ)]
    if not lines:
        return "", ""
    at = min((line.t for line in lines if line.grave), default=min(line.t for line in lines))
    phase = next((name for name, begin, end in reversed(files.phases) if begin is not None and begin <= at), NO_PHASE)
    begun = [(files.seconds(each.get("began")), str(each.get("action"))) for each in objects(files.faults)]
    before = [(began, action) for began, action in begun if began is not None and began <= at]
    return phase, max(before)[1] if before else ""


def _earliest(one: Row, other: Row) -> float | None:
    return min((row["first_s"] for row in (one, other) if row["first_s"] is not None), default=None)


def _latest(one: Row, other: Row) -> float | None:
    return max((row["last_s"] for row in (one, other) if row["last_s"] is not None), default=None)
