"""Prints the durability report on a terminal: the answer, the findings, the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.reports.nightly.report import NightlyReport
from squall.reports.nightly.standing import FindingCard
from squall.reports.nightly.table import DurabilityCell, count, duration, share

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"valid": "bold green", "invalid": "bold red", "unknown": "bold yellow"}
LEFT = ("configuration", "faults", "where", "promised")
RIGHT = ("runs", "acknowledged", "lost", "rate, 95 %", "tail", "duplicated", "gap", "recovery", "p99", "p99, faults")


def show(report: NightlyReport, screen: Console) -> None:
    """Print the report of a night on a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    screen.print(Text(f"{report.headline} (night {report.night['night']})", STYLES[report.word]))
    for sentence in (*report.sentences, *report.problems):
        screen.print(Text(sentence))
    for card in report.cards:
        screen.print(Text(f"  {card.state}: {_of(card)}"))
        screen.print(Text(f"      {card.first['cause']}"))
    if not report.cells:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=report.scope, title_justify="left")
    for name in LEFT:
        table.add_column(name)
    for name in RIGHT:
        table.add_column(name, justify="right")
    for cell in report.cells:
        table.add_row(*_cells(cell), style="red" if cell.broken else "")
    screen.print(table)


def _of(card: FindingCard) -> str:
    runs = len(card.runs)
    return f"{', '.join(card.anomalies)} in {runs} run{'s'[: runs != 1]} of {'; '.join(card.where)}"


def _cells(cell: DurabilityCell) -> list[str]:
    low, high = cell.interval
    return [
        cell.configuration,
        cell.class_words,
        cell.where,
        cell.promised,
        f"{cell.runs}+{cell.unknown} unknown" if cell.unknown else str(cell.runs),
        count(cell.acknowledged) if cell.runs else "",
        count(cell.lost) if cell.runs else "",
        f"{share(cell.rate)} ({share(low)} to {share(high)})" if cell.runs else "",
        f"{count(cell.lost_tail_records)}, {duration(cell.lost_tail_ms)}" if cell.lost_tails else "",
        count(cell.duplicated) if cell.runs else "",
        duration(cell.unavailable_ms),
        duration(cell.recovery_ms),
        duration(cell.p99_ms),
        duration(cell.p99_faulty_ms),
    ]
