"""Makes the JSON object of a run for the commands that make, list or explain runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.chaos.commands.outputs import FindingRow, JudgedRun, RunRow
from squall.chaos.typed import shortened
from squall.reports import checks
from squall.reports.run_files import PAGE, read_run
from squall.reports.run_list import one

if TYPE_CHECKING:
    from squall.reports.run_list import RunListEntry


def row_of(run: RunListEntry) -> RunRow:
    """Return the JSON row of a run in a list of runs."""
    return RunRow(**_row(run))


def judged_run(path: Path) -> JudgedRun:
    """Return the run of a run directory with its verdict, its findings and the figures of the run's page."""
    files = read_run(path)
    figures = checks.figures_of(files)
    page = path / PAGE
    return JudgedRun(
        **_row(one(path)),
        reasons=tuple(checks.reasons_of(files)),
        found=tuple(FindingRow(**finding_of(each)) for each in checks.checks_of(files) if each.count),
        sent=figures.sent,
        failed=figures.failed,
        unknown=figures.unknown,
        read=figures.read,
        p50_ms=figures.p50_ms,
        report=str(page) if page.exists() else None,
        repeat=shortened(files.command),
    )


def finding_of(check: checks.CheckResult) -> dict[str, Any]:
    """Return the fields of a `FindingRow` that describe a check's result."""
    names = ("name", "evidence", "count", "state", "why", "definition", "blames")
    return {name: getattr(check, name) for name in names}


def _row(run: RunListEntry) -> dict[str, Any]:
    fields = {name: getattr(run, name) for name in RunRow.__struct_fields__}
    return {**fields, "path": str(run.path), "began": None if run.began is None else run.began.isoformat()}
