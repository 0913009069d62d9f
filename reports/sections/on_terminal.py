"""Prints a section on a terminal: its sentence, its timeline in letters, its tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from squall.workloads.section import TimelineLane, TimelineStrip, Tone, WorkloadSection

STYLES: dict[Tone, str] = {"good": "green", "bad": "bold red", "neutral": "yellow", "mark": "default"}
MARKS: dict[Tone, str] = {"good": "=", "bad": "!", "neutral": "#", "mark": "|"}
"""Maps tones to letters, so that a timeline is readable without colours."""
NAME, MOST_NAME, LEAST, MOST = 24, 48, 20, 100
GRAVITY: tuple[Tone, ...] = ("good", "mark", "neutral", "bad")


def drawn(section: WorkloadSection, width: int) -> Iterator[RenderableType]:
    """Yield the section's title, sentence, timeline and tables, in this order, for a terminal of `width` columns."""
    yield Text(section.title, style="bold")
    yield Text(section.sentence)
    if section.strip is not None:
        longest = max((len(lane.name) for lane in section.strip.lanes), default=0)
        name = min(max(NAME, longest + 2), MOST_NAME)
        cells = min(max(width - name - 2, LEAST), MOST)
        for lane in section.strip.lanes:
            yield _line(section.strip, lane, cells, name)
        begin, end = f"{section.strip.begin_s:.0f} s", f"{section.strip.end_s:.0f} s"
        yield Text(" " * name + begin + " " * max(cells - len(begin) - len(end), 1) + end, style="dim")
        if section.strip.legend:
            yield Text(", ".join(f"{MARKS[tone]} {said}" for tone, said in section.strip.legend), style="dim")
    for rows in section.tables:
        table = Table(title=rows.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in rows.columns:
            table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
        for row in rows.rows:
            table.add_row(*map(Text, row))
        yield table


def _line(strip: TimelineStrip, lane: TimelineLane, cells: int, name: int) -> Text:
    """Draw one lane: its name, padded to `name` letters, and a bar of `cells` letters. Each letter shows the gravest
    bar in its share of the time.
    """
    line = Text(f"{lane.name[: name - 2]:<{name}}", no_wrap=True)
    each_s = max(strip.end_s - strip.begin_s, 1e-9) / cells
    for cell in range(cells):
        begin_s = strip.begin_s + cell * each_s
        tones = [span.tone for span in lane.spans if span.begin_s < begin_s + each_s and begin_s < span.end_s]
        gravest = max(tones, key=GRAVITY.index, default=None)
        line.append(MARKS[gravest] if gravest else " ", style=STYLES[gravest] if gravest else "")
    return line
