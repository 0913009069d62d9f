"""Prints the end of a run on its terminal: sent and acknowledged, faults, checks, the verdict and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from squall.reports import checks
from squall.reports.checks import CheckResult
from squall.reports.fault_words import FaultRow, fault_rows
from squall.reports.run_files import PAGE, RunFiles, number, read_run
from squall.reports.sections.of_run import section_of
from squall.reports.sections.of_transactions import in_figures
from squall.reports.sections.on_terminal import drawn

_WORD_STYLES = {checks.VALID: "bold green", checks.INVALID: "bold red", checks.UNKNOWN: "bold yellow"}
_STATE_STYLES = {checks.FAILED: "bold red", checks.PERMITTED: "yellow", checks.CLEAN: "green", "landed": "green"}
_UNSURE, _LOSS_STYLE = "yellow", "bold yellow"


def summary(run_dir: Path, console: Console, here: Callable[[str], str] = str) -> None:
    """Print the end-of-run tables of `run_dir`, in whatever state it is. `valid` is printed only if verdict.json says
    so.

    `here` rewrites the command that repeats the run, so that it works in the user's current folder.
    """
    files = read_run(run_dir)
    if console.is_terminal:  # below what told of the run
        console.print()
    _put(console, _load(files))
    console.print()
    rows = fault_rows(files)
    if rows:
        _put(console, _faults(rows, console))
    elif not files.planned_faults():
        console.print("No faults were planned.")
    if rows and not console.is_terminal:
        console.print()
    own, _ = section_of(files)
    for section in (own, in_figures(files)):
        for part in drawn(section, console.width) if section is not None else ():
            console.print(part)
    for part in _checks(files, console):
        _put(console, part)
    console.print()
    _verdict(files, console, here)


def _put(console: Console, part: Table | Text) -> None:
    """Print a part of the summary. In a pipe each line ends with its text, because a table would pad its lines with
    blanks.
    """
    if console.is_terminal:
        console.print(part)
        return
    with console.capture() as held:
        console.print(part)
    text = "\n".join(line.rstrip() for line in held.get().rstrip("\n").split("\n"))
    console.print(Text(text), soft_wrap=True)


def _table(console: Console, title: str, *columns: str) -> Table:
    """Return an empty table with these columns; a column whose name begins with ">" is aligned to the right. The rule
    below the head is drawn only on a terminal. In a pipe, lines have no limit, and the rule would be as long as the
    longest of them.
    """
    lines = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(title=title, title_justify="left", title_style="bold", box=lines, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", no_wrap=right)
    return table


def _count(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _sent(figures: checks.KeyFigures) -> str:
    """Return the label of the number of sent records, which says how many of them were sent after healing."""
    return f"sent ({figures.sent_after:,} of them after healing)" if figures.sent_after else "sent"


def _load(files: RunFiles) -> Table:
    """Return the table of the load: counts of sends and reads, latencies, and the longest unavailability. It has one
    label and one value in a line, so that it fits a narrow terminal.
    """
    figures = checks.figures_of(files)
    table = Table(title="Load", title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, count in (
        (_sent(figures), figures.sent),
        ("acknowledged", figures.acked),
        ("failed", figures.failed),
        ("unknown outcome", figures.unknown),
        ("read under load", figures.read),
    ):
        table.add_row(name, _count(count))
    to = f" to {figures.unavailable_to}" if figures.unavailable_to else ""
    for name, value, unit in (
        ("p50 latency", figures.p50_ms, "ms"),
        ("p99 latency", figures.p99_ms, "ms"),
        (f"longest unavailability{to}", figures.unavailable_s, "s"),
    ):
        table.add_row(name, f"{value:,.1f} {unit}" if value is not None else "not known")
    return table


def _faults(rows: list[FaultRow], console: Console) -> Table:
    table = _table(console, "Faults", ">at", "fault", "hit", "evidence", ">recovery")
    for fault in rows:
        at = f"{fault.began:.1f} s" if fault.began is not None else "-"
        recovery = f"{fault.recovery_s:.2f} s" if fault.recovery_s is not None else "none" if fault.no_recovery else "-"
        evidence = Text(fault.evidence)
        if fault.state != "landed":
            evidence = Text(f"{fault.state}: ", style=_UNSURE) + evidence
        table.add_row(at, Text(fault.what), Text(fault.hit or "-"), evidence, recovery)
    return table


def _checks(files: RunFiles, console: Console) -> Iterator[Table | Text]:
    """Yield a row for each check that found something, and a line each for those that found nothing and those that did
    not run.
    """
    found = checks.checks_of(files)
    table = _table(console, "Checks", "check", ">found", "judged", "why")
    for check in found:
        if check.state not in (checks.CLEAN, checks.NOT_RUN, checks.LITTLE):
            why = check.why.removeprefix(f"{check.state}: ")  # which the column before says
            cell = Text(f"\n{check.cell}", style="dim") if check.cell else Text()
            table.add_row(Text(check.title), _count(check.count), _state(check), Text(why) + cell)
    yield table if table.row_count else Text("Checks", style="bold")
    clean = [check.name for check in found if check.state == checks.CLEAN]
    if clean:
        yield _so_many(clean, "found nothing", _STATE_STYLES[checks.CLEAN]) + Text(f": {', '.join(clean)}", "default")
    for state, said in ((checks.LITTLE, "found nothing and saw little"), (checks.NOT_RUN, "did not run")):
        those = [check for check in found if check.state == state]
        if those:
            by_why: dict[str, list[str]] = {}
            for check in those:
                by_why.setdefault(check.why, []).append(check.name)
            if len(those) == len(found) and len(by_why) == 1:
                yield Text("No check ran.", style=_UNSURE)
                continue
            lines = (f"\n  {why}: {', '.join(names)}" for why, names in by_why.items())
            yield _so_many(those, said, _UNSURE) + Text(":" + "".join(lines), "default")


def _so_many(found: Sequence[object], said: str, style: str) -> Text:
    return Text(f"{'1 check' if len(found) == 1 else f'{len(found)} checks'} {said}", style=style)


def _state(check: CheckResult) -> Text:
    return Text(check.state, style=_STATE_STYLES.get(check.state, _UNSURE))


def _not_in_the_table(files: RunFiles, reasons: list[str]) -> list[str]:
    """Return the verdict's reasons that the table of checks does not show."""
    rows = {f"{check.title}: {check.count}, {check.why}" for check in checks.checks_of(files)}
    return [reason for reason in reasons if reason not in rows]


def _verdict(files: RunFiles, console: Console, here: Callable[[str], str]) -> None:
    word, reasons = checks.word_of(files), checks.reasons_of(files)
    planted = f", with mutant {files.planted} planted" if files.planted else ""
    style = _LOSS_STYLE if checks.is_lossy(files) else _WORD_STYLES[word]
    console.print(Text(checks.banner_of(files), style=style) + Text(f"  {files.name}{planted}", style="default"))
    console.print(Text(checks.sentence(files)))
    listed = reasons if word == checks.UNKNOWN else _not_in_the_table(files, reasons)
    for reason in listed if len(reasons) > 1 else ():
        console.print(Text(f"  - {reason}"))
    for note in checks.notes_of(files):
        console.print(Text(f"  note: {note}", style="dim"))
    if engine := checks.judged_by(files):
        console.print(Text(engine, style="dim"))
    page = files.path / PAGE
    if page.exists():
        console.print(Text(f"report: {page}"), soft_wrap=True)
    command = files.command
    if word != checks.VALID and command:
        console.print(Text(f"repeat: {here(command)}"), soft_wrap=True)
    if number(files.run.get("ended_ns")) is None:
        console.print(Text("The run did not come to its end.", style=_UNSURE))
