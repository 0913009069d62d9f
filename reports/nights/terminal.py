"""The durability report in a terminal: the answer, the findings, the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.nights.report import Report
from reports.nights.table import count, duration, share

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"valid": "bold green", "invalid": "bold red", "unknown": "bold yellow"}


def show(report: Report, screen: Console) -> None:
    """Print it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    screen.print(Text(f"{report.headline}  night {report.night['night']}", STYLES[report.word]))
    for sentence in (*report.sentences, *report.problems):
        screen.print(Text(sentence))
    for each in report.found:
        configurations = "; ".join(each.configurations)
        screen.print(
            Text(f"  {each.state}: {', '.join(each.anomalies)}, {each.count:,} in {each.runs} runs ({configurations})")
        )
        screen.print(Text(f"      {each.first['cause']}"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=report.scope, title_justify="left")
    for name in ("configuration", "faults", "where", "promised"):
        table.add_column(name)
    for name in (
        "runs",
        "acknowledged",
        "lost",
        "rate, 95 %",
        "tail",
        "duplicated",
        "gap",
        "recovery",
        "p99",
        "p99, faults",
    ):
        table.add_column(name, justify="right")
    for cell in report.cells:
        low, high = cell.interval
        rate = f"{share(cell.rate)} ({share(low)} to {share(high)})" if cell.runs else ""
        tail = f"{count(cell.lost_tail_records)}, {duration(cell.lost_tail_ms)}" if cell.lost_tails else ""
        runs = f"{cell.runs}+{cell.unknown} unknown" if cell.unknown else str(cell.runs)
        table.add_row(
            cell.configuration, cell.class_words, cell.where, cell.promised, runs, count(cell.acknowledged),
            count(cell.lost), rate, tail, count(cell.duplicated), duration(cell.unavailable_ms),
            duration(cell.recovery_ms), duration(cell.p99_ms), duration(cell.p99_faulty_ms),
            style="red" if cell.broken else "",
        )  # fmt: skip
    screen.print(table)
