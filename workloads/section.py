"""A workload's own section of a report, as data: a page and a terminal draw the same thing each in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Tone = Literal["good", "bad", "neutral", "mark"]
"""mark: a moment, which is neither good nor bad."""


class TimelineBar(NamedTuple):
    """[begin_s, end_s] of the run's time."""

    begin_s: float
    end_s: float
    tone: Tone
    title: str
    """What it is, in words."""


class TimelineLane(NamedTuple):
    """Describes one line of a strip."""

    name: str
    spans: Sequence[TimelineBar]


class TimelineStrip(NamedTuple):
    """A picture: lanes above each other over one axis of time."""

    title: str
    begin_s: float
    end_s: float
    lanes: Sequence[TimelineLane]
    caption: str
    """What its bars mean: of what is good, bad, or neither."""
    legend: Sequence[tuple[Tone, str]] = ()
    """What each tone means, in a few words."""


class SectionTable(NamedTuple):
    """A table. Columns whose name begins with ">" hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class WorkloadSection(NamedTuple):
    """Holds the section of a scenario on the page and the terminal."""

    title: str
    sentence: str
    """The section in a sentence, with its most telling figures."""
    strip: TimelineStrip | None
    tables: Sequence[SectionTable]
