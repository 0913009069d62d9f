"""Defines a workload's own section of a report as data. The HTML page and the terminal draw it in different ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Tone = Literal["good", "bad", "neutral", "mark"]
"""Names the kind of a bar in a timeline, which decides its colour. `mark` is for a moment, such as the begin of a
group's generation, which is neither good nor bad.
"""


class TimelineBar(NamedTuple):
    """Represents the interval [begin_s, end_s] of the run's time as a bar in a timeline."""

    begin_s: float
    end_s: float
    tone: Tone
    title: str
    """Says what the bar shows, for example `2.10 to 3.40 s: acknowledged`."""


class TimelineLane(NamedTuple):
    """Holds the bars of one lane of a timeline."""

    name: str
    spans: Sequence[TimelineBar]


class TimelineStrip(NamedTuple):
    """Describes a timeline: a picture with several lanes, one above the other, over one time axis."""

    title: str
    begin_s: float
    end_s: float
    lanes: Sequence[TimelineLane]
    caption: str
    """Explains the picture in one or more sentences, below it: its axis, lanes and bars."""
    legend: Sequence[tuple[Tone, str]] = ()
    """Says in a few words what each tone means; empty if the caption explains the tones."""


class SectionTable(NamedTuple):
    """Describes a table. Columns whose name begins with ">" hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class WorkloadSection(NamedTuple):
    """Holds the section of a report that is specific to the workload: a sentence, a timeline and tables. The HTML page
    and the terminal both show it.
    """

    title: str
    sentence: str
    """Summarises the section in a sentence with its most telling figures."""
    strip: TimelineStrip | None
    tables: Sequence[SectionTable]
