"""Implements `squall sim --coverage`: prints which branches of the broker's code a batch of simulations took, and
writes a page about them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from squall.chaos.commands.outputs import BatchCoverage, UnreachedBranchRow
from squall.chaos.runs.branch_coverage import (
    IMPOSSIBLE,
    RARE,
    REASONS,
    UNDRAWN,
    ArcsByFile,
    ReachReport,
    UnreachedBranch,
    read_path_reasons,
    read_reasons,
    report_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

PAGE = "coverage.html"
MOST_LISTED = 40
"""Limits the branches without a reason that are printed: a small batch leaves hundreds, of which the page has all."""
RARE_BELOW = 1 / 1000
"""Gives the share of seeds below which a rare code path of the broker counts as taken too rarely."""


def measured_coverage(
    arcs: ArcsByFile, seeds_of: Mapping[str, int], seeds: range, done: int, root: Path
) -> BatchCoverage:
    """Compare the branches that a batch took (`arcs`) with all branches in the broker's source, and write the page into
    `root`. seeds_of: how many seeds took each rare code path. done: how many seeds have ended.
    """
    report = report_of(arcs, read_reasons())
    path = _write_page(report, seeds_of, seeds, done, root)
    return BatchCoverage(
        branches=report.branches,
        reached=report.reached,
        functions=report.functions,
        called=report.called,
        unreached=tuple(
            UnreachedBranchRow(
                file=each.file,
                line=each.line,
                function=each.function,
                branch=each.branch(),
                kind=each.reason.kind if each.reason else "unexplained",
                reason=each.reason.reason if each.reason else "",
            )
            for each in report.unreached
        ),
        refuted=report.refuted,
        page=str(path),
    )


def say_coverage(coverage: BatchCoverage, out: Console) -> None:
    """Print how many branches were reached, which unreached branches have no reason in unreached.toml, and the page."""
    kinds = Counter(each.kind for each in coverage.unreached)
    out.print(
        f"broker/: {coverage.called:,} of {coverage.functions:,} functions called, {coverage.reached:,} of "
        f"{coverage.branches:,} branches taken. Never taken: {kinds['unexplained']:,} without a reason, "
        f"{kinds[UNDRAWN]:,} not drawn yet, {kinds[RARE]:,} drawn but rare, {kinds[IMPOSSIBLE]:,} impossible "
        f"({REASONS.name})",
        soft_wrap=True,
    )
    unexplained = [each for each in coverage.unreached if each.kind == "unexplained"]
    for each in unexplained[:MOST_LISTED]:
        line = f"  {each.file}:{each.line} {each.function}: {each.branch}"
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if len(unexplained) > MOST_LISTED:
        out.print(f"  and {len(unexplained) - MOST_LISTED:,} more, which the page lists", soft_wrap=True)
    if coverage.refuted:
        wrong = f"{REASONS.name} calls impossible what these seeds reached"
        out.print(f"{wrong}: {', '.join(coverage.refuted)}", soft_wrap=True, markup=False)
    out.print(f"page: {coverage.page}", soft_wrap=True)


def too_rare(seeds_of: Mapping[str, int], done: int) -> list[str]:
    """Return the rare code paths of the broker that at least one seed took, but fewer than one seed in a thousand."""
    return sorted(name for name, count in seeds_of.items() if 0 < count < done * RARE_BELOW)


def _write_page(report: ReachReport, seeds_of: Mapping[str, int], seeds: range, done: int, root: Path) -> Path:
    from squall.reports.coverage_page import CoverageSection, render

    reasons = read_path_reasons()
    rare = too_rare(seeds_of, done)
    paths = tuple(
        (name, f"{count:,}", reasons.get(name, ""))
        for name, count in sorted(seeds_of.items(), key=lambda each: (each[1], each[0]))
        if not count or name in rare
    )
    unexplained = report.unexplained()
    head = ("function", "branch", "reason")
    sections = (
        CoverageSection("Branches without a reason", head, _rows(unexplained), is_open=True),
        CoverageSection("Branches that are not drawn yet", head, _rows(report.explained(UNDRAWN)), is_open=True),
        CoverageSection("Branches that are drawn, but rare", head, _rows(report.explained(RARE)), is_open=True),
        CoverageSection(
            "Rare paths that no seed took, or less than one in a thousand",
            ("path", "seeds", "reason"),
            paths,
            is_open=True,
        ),
        CoverageSection(
            "Called impossible, and reached", ("function",), tuple((each,) for each in report.refuted), is_open=True
        ),
        CoverageSection("Impossible in a simulation", head, _rows(report.explained(IMPOSSIBLE)), is_open=False),
    )
    share = report.reached / report.branches if report.branches else 0.0
    return render(
        root / PAGE,
        batch=f"seeds {seeds.start}..{seeds.stop}, {done:,} of them simulated",
        headline=f"{len(unexplained):,} branches without a reason" if unexplained else "Every branch is explained",
        sentence=(
            f"These seeds took {report.reached:,} of {report.branches:,} branches of the brokers ({share:.1%}) and "
            f"called {report.called:,} of {report.functions:,} functions."
        ),
        sections=sections,
    )


def _rows(branches: Sequence[UnreachedBranch]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (f"{each.file}:{each.line} {each.function}", each.branch(), each.reason.reason if each.reason else "")
        for each in branches
    )
