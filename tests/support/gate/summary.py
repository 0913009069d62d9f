"""Makes the last lines of `squall test`: failures, skips, a table of costs, and the counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.support.gate import rules
from tests.support.gate.costs import Cost
from tests.support.gate.lanes import STAGES, folder_of
from tests.support.gate.playing import Played
from tests.support.gate.results import Result
from tests.support.lacks import told_of_skipped

COSTLIEST = 15
_PATIENCE = re.compile(r"^patience x.*$", re.MULTILINE)
_FAILURES = re.compile(r"^=+ (?:FAILURES|ERRORS) =+$.*?(?=^=+ short test summary|\Z)", re.MULTILINE | re.DOTALL)


def failures(played: Iterable[Played]) -> Iterator[str]:
    """Yield what pytest printed about each failure, lane by lane."""
    for lane in (lane for each in played for lane in each.lanes):
        log = lane.file("log").read_text(encoding="utf-8", errors="replace")
        yield from (found.group().rstrip() for found in _FAILURES.finditer(log))


def skipped(results: Iterable[Result]) -> list[str]:
    """Return a line for each reason of skipped tests: how many tests, what they need, how to get it."""
    return told_of_skipped(each.why for each in results if each.result == "skipped")


def of(
    results: Sequence[Result],
    played: Sequence[Played],
    costs: Mapping[str, Cost],
    troubles: Sequence[str],
    skips: Sequence[str] = (),
    *,
    table: bool,
) -> Iterator[str]:
    """Yield all lines except those of `failures`. The last one counts passed, failed and skipped tests; each problem
    that kept tests from running counts as a failure. `skips` says why skipped tests are not permitted, if they are not.
    """
    counted = Counter(each.result for each in results)
    yield from skipped(results)
    if table:
        yield from costs_of(results)
    lanes = [f"{lane.lane.name} {sum(each.wall_s for each in lane.results):.0f} s" for p in played for lane in p.lanes]
    wall_s = sum(each.wall_s for each in played)
    yield f"lanes: {', '.join(lanes)}; {sum(each.cpu_s for each in results):.0f} CPU s in {wall_s:.0f} s"
    yield from patience_of(played)
    yield from _unmeasured(results, costs)
    for each in results:
        if each.result == "failed":
            yield f"{'FLAKY' if each.flaky else 'FAILED'} {each.test}: {each.why}"
    yield from (f"squall: {trouble}" for trouble in (*troubles, *skips))
    failed = counted["failed"] + len(troubles)
    yield f"{counted['passed']} passed, {failed} failed, {counted['skipped']} skipped"


def patience_of(played: Iterable[Played]) -> Iterator[str]:
    """Yield the factors by which live tests lengthened their time limits, as `tests.support.patience` printed them."""
    logs = (lane.file("log") for each in played for lane in each.lanes)
    yield from sorted({found for log in logs for found in _PATIENCE.findall(log.read_text(errors="replace"))})


def _unmeasured(results: Iterable[Result], costs: Mapping[str, Cost]) -> Iterator[str]:
    new = sum(each.test not in costs for each in results if "::" in each.test)
    if new:
        yield (
            f"{new} tests have no row in tests/costs.json and count {rules.UNMEASURED_S:g} s each: "
            "./squall test --costs --stale measures them"
        )


def costs_of(results: Iterable[Result]) -> Iterator[str]:
    """Yield a table of the costs of each folder, and the costliest tests."""
    ran = list(results)
    yield f"{'folder':<14}{'tests':>7}{'failed':>8}{'skipped':>9}{'CPU s':>9}{'wall s':>9}"
    for folder in (*STAGES, *sorted({folder_of(each.test) for each in ran} - {*STAGES})):
        rows = [each for each in ran if folder_of(each.test) == folder]
        if rows:
            counted = Counter(each.result for each in rows)
            cpu_s, wall_s = sum(each.cpu_s for each in rows), sum(each.wall_s for each in rows)
            yield f"{folder:<14}{len(rows):>7}{counted['failed']:>8}{counted['skipped']:>9}{cpu_s:>9.0f}{wall_s:>9.0f}"
    yield "the costliest tests:"
    for each in sorted(ran, key=lambda each: -each.cpu_s)[:COSTLIEST]:
        yield f"{each.cpu_s:8.1f} CPU s {each.wall_s:8.1f} s  {each.test}"
