"""Reads from the run directories of a night what JUnit and Allure show of each run: phases, faults, checks and
findings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from squall.chaos.nightly.evidence import BAD, GOOD, SKIPPED, UNSURE, EvidenceStep, RunEvidence
from squall.chaos.typed import shortened
from squall.checkers.anomalies.registry import LOSS
from squall.reports import checks, summary
from squall.reports.checks import CheckResult
from squall.reports.explained import FindingNotFound, explained
from squall.reports.fault_words import FaultRow, fault_rows
from squall.reports.figure import standalone
from squall.reports.run_files import RunFiles, mapping, number, read_run

STATUS = {checks.FAILED: BAD, checks.UNJUDGED: UNSURE, checks.LITTLE: SKIPPED, checks.NOT_RUN: SKIPPED}
STORIES = 5
"""Limits how many stories are attached for one run. A story explains one finding, step by step."""
LANDED = "landed"
LAST_LINE_BYTES = 4096


def evidence_of(run: Path, unexpected: Sequence[str] = ()) -> RunEvidence:
    """Return what JUnit and Allure show of a run. Files that its directory lacks are left out. unexpected: anomalies
    that the run's configuration permits, but the night forbids (--never).
    """
    files = read_run(run)
    every = checks.checks_of(files)
    broken = [each for each in every if each.state == checks.FAILED or (each.count and each.name in unexpected)]
    page = run / "report.html"
    if unexpected and page.exists():
        from squall.reports.page import render

        render(run)  # its process did not know what the night forbids
    return RunEvidence(
        steps=(*_phases(files), *_checks(every)),
        facts=_facts(files),
        sentence=" ".join([checks.sentence(files), *summary.broken(files)]),
        lost=any(each.name in LOSS for each in broken),
        stories=_stories(run, broken),
        picture=standalone(page.read_text(errors="replace")) if page.exists() else "",
        page=page if page.exists() else None,
        command=shortened(files.command),
        origin_s=_origin_s(files),
    )


def _phases(files: RunFiles) -> Iterable[EvidenceStep]:
    """Yield each phase of the run, with the faults that began in it. Faults that never began come last."""
    rows = fault_rows(files)
    listed: set[int] = set()
    for name, began, ended in files.phases:
        inside = [row for row in rows if row.began is not None and began is not None and row.began >= began]
        inside = [row for row in inside if (ended is None or (row.began or 0.0) < ended) and row.id not in listed]
        listed |= {row.id for row in inside}
        yield EvidenceStep(name, GOOD if ended is not None else UNSURE, began, ended, steps=tuple(map(_fault, inside)))
    yield from (_fault(row) for row in rows if row.id not in listed)


def _fault(row: FaultRow) -> EvidenceStep:
    ended = row.began + row.length if row.began is not None and row.length is not None else None
    details = {"asked": row.asked, "hit": row.hit, "evidence": row.evidence, "state": row.state}
    if row.recovery_s is not None:
        details["recovery"] = f"{row.recovery_s:.2f} s"
    title = f"{row.what} → {row.hit}" if row.hit else row.what
    return EvidenceStep(f"{title}: {row.evidence}", GOOD if row.state == LANDED else UNSURE, row.began, ended, details)


def _checks(every: Iterable[CheckResult]) -> Iterable[EvidenceStep]:
    """Yield a step for each check that found something, and one step for all other checks together."""
    quiet = []
    for check in every:
        if check.state in (checks.CLEAN, checks.LITTLE, checks.NOT_RUN):
            why = {"why": check.why} if check.why else {}
            quiet.append(EvidenceStep(check.title, STATUS.get(check.state, GOOD), details=why))
            continue
        details = {"found": str(check.count), "judged": check.state, "why": check.why, "definition": check.definition}
        yield EvidenceStep(
            f"{check.title}: {check.count} found, {check.state}", STATUS.get(check.state, GOOD), details=details
        )
    ran = sum(1 for each in quiet if each.status != SKIPPED)
    unseen = f"{len(quiet) - ran} did not run or saw little"
    yield EvidenceStep(f"{ran} checks found nothing, {unseen}", GOOD, steps=tuple(quiet))


def _facts(files: RunFiles) -> dict[str, str]:
    versions = mapping(files.run.get("versions"))
    target = mapping(files.run.get("target"))
    simulated = mapping(files.run.get("simulated"))
    figures = checks.figures_of(files)
    facts = {"squall": str(files.run.get("squall") or ""), **{name: str(each) for name, each in versions.items()}}
    facts |= {str(target["name"]): str(target.get("version") or "")} if target.get("name") else {}
    digest = simulated.get("digest") or _seal(files.path)
    facts |= {"digest": str(digest)} if digest else {}
    facts["faults landed"] = f"{files.landed()} of {files.planned_faults()}"
    for name, value in (("acknowledged", figures.acked), ("p99, ms", figures.p99_ms)):
        facts[name] = "" if value is None else f"{value:,}"
    facts["permitted loss"] = str(summary.loss(files, permitted=True) or "")
    to_all = figures.unavailable_s is not None and not figures.unavailable_to
    facts["longest unavailability, s"] = f"{figures.unavailable_s}" if to_all else ""
    return {name: value for name, value in facts.items() if value}


def _seal(run: Path) -> str:
    """Return the checksum in the last line of history.jsonl, such as "crc32 0a1b2c3d". It is empty if that line cannot
    be read.
    """
    try:
        with (run / "history.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_LINE_BYTES))
            last = json.loads(file.read().splitlines()[-1])
        return f"crc32 {int(last['crc32']):08x}"
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return ""


def _stories(run: Path, broken: Iterable[CheckResult]) -> dict[str, str]:
    found: dict[str, str] = {}
    for check in list(broken)[:STORIES]:
        try:
            found[check.title] = explained(run, check.title)
        except FindingNotFound:
            continue
    return found


def _origin_s(files: RunFiles) -> float | None:
    wall_ms, began = number(files.run.get("began_wall_ms")), files.seconds(files.run.get("began_ns"))
    # Virtual time has no place on the wall clock.
    if wall_ms is None or began is None or files.run.get("simulated"):
        return None
    return wall_ms / 1000 - began
