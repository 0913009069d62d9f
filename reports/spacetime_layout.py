"""Lays out a space-time picture: lanes beside each other, time downwards, a row for each moment. Pure.

Time is compressed: a row is as high as its words need, and a long wait is a short gap with its length beside it.
"""

from __future__ import annotations

import math
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from squall.reports.story import PartitionStory
from squall.reports.story_logs import ReconstructedReplica
from squall.reports.story_moments import READERS, StoryMoment

GUTTER, CLIENT_W, BROKER_W, READERS_W = 96, 158, 236, 190
NARROW_BROKER_W = 188
"""Gives the width of a broker's column if there are more than three brokers, or if the log is not drawn."""
WIDE = 1180
"""Brokers have narrow columns if the picture would otherwise be wider than this number of px, so that a page shows it
at full size.
"""
LINE_H, CELLS_H, ROW_PAD = 15, 24, 13
LETTER_W, HEAD_LETTER_W = 6.7, 7.6
"""These are the approximate widths, in px, of a letter in a label and in the head of a lane."""
TEXT_DX = 18
CELLS_AT_MOST = 8
_WAIT_S = 0.5
"""The picture says how much time passed between two rows if it was at least this many seconds."""
_SHOW_LOG = ("leads", "follows", "truncates", "recovers", "appends", "copies", "broken", "fault", "leaderless", "told")


@dataclass
class DiagramRow:
    """Holds simultaneous moments in different lanes. `y` is the position of their dots."""

    t: float
    moments: list[StoryMoment] = field(default_factory=list)
    y: float = 0.0
    height: float = 0.0
    wait: float = 0.0
    """Gives the seconds since the row before; 0 if they are too few to be written in the picture (_WAIT_S)."""


@dataclass
class DiagramLayout:
    """Holds the positions of lanes and rows, in px."""

    lanes: dict[str, tuple[float, float]]
    """Maps a lane to the x of its line and the width of its column."""
    rows: list[DiagramRow]
    width: float
    top: float
    bottom: float
    window: tuple[int, int]
    """Gives the offsets [low, high) whose records are drawn as cells; empty if low equals high."""

    def y_of(self, t: float) -> float:
        """Return the y of a moment of time: between rows, in proportion."""
        times = [row.t for row in self.rows]
        place = bisect_right(times, t)
        if place == 0:
            return self.top - 10 if t < times[0] else self.rows[0].y
        before = self.rows[place - 1]
        if place == len(self.rows):
            return before.y if t == before.t else self.bottom
        after = self.rows[place]
        share = (t - before.t) / (after.t - before.t) if after.t > before.t else 0.0
        return before.y + share * (after.y - before.y)

    def row_of(self, moment: StoryMoment) -> DiagramRow | None:
        """Return the row of a moment; None if the moment is not in the picture."""
        return next((row for row in self.rows if any(each is moment for each in row.moments)), None)


def lay_out(story: PartitionStory, top: float) -> DiagramLayout:
    """Compute the positions of a story's lanes and moments, the first row below `top`."""
    window = window_of(story)
    lanes, width = _lanes(story, window)
    rows = _rows(story.moments)
    y = top
    for index, row in enumerate(rows):
        waited = row.t - rows[index - 1].t if index else 0.0
        if waited > 0:
            y += min(30.0, 6 * math.log10(1 + waited / 0.002))
        if waited >= _WAIT_S:
            row.wait = waited
            y += 12
        row.y, row.height = y, max(_height(moment, lanes, window) for moment in row.moments)
        y += ROW_PAD + row.height
    return DiagramLayout(lanes, rows, width, top, y + 6, window)


def _lanes(story: PartitionStory, window: tuple[int, int]) -> tuple[dict[str, tuple[float, float]], float]:
    brokers = sum(lane.isdigit() for lane in story.lanes)
    broker_w = BROKER_W if brokers <= 3 else NARROW_BROKER_W
    if GUTTER + sum(broker_w if lane.isdigit() else CLIENT_W for lane in story.lanes) > WIDE:
        broker_w = NARROW_BROKER_W
    lanes, x = {}, float(GUTTER)
    for lane in story.lanes:
        width = READERS_W if lane == READERS else max(CLIENT_W, 22 + HEAD_LETTER_W * len(lane))
        if lane.isdigit():
            has_log = any(moment.lane == lane and shows_log(moment, window) for moment in story.moments)
            width = broker_w if has_log else NARROW_BROKER_W
        lanes[lane] = x + 22, float(width)
        x += width
    return lanes, x + 8


def _rows(moments: Sequence[StoryMoment]) -> list[DiagramRow]:
    """Put moments into rows: simultaneous moments of different lanes share a row, and so do brokers that do the same in
    turn.
    """
    rows: list[DiagramRow] = []
    for moment in moments:
        last = rows[-1] if rows else None
        if last is not None and all(each.lane != moment.lane for each in last.moments):
            at_once = moment.t == last.t
            alike = bool(moment.group) and last.moments[-1].group == moment.group
            if at_once or alike:
                last.moments.append(moment)
                continue
        rows.append(DiagramRow(moment.t, [moment]))
    return rows


def lines_of(moment: StoryMoment, width: float) -> list[str]:
    """Break a moment's label into lines that fit its column."""
    letters = max(10, int((width - 22 - TEXT_DX - 6) / LETTER_W))
    return [piece for line in moment.label for piece in textwrap.wrap(line, letters) or [""]]


def _height(moment: StoryMoment, lanes: dict[str, tuple[float, float]], window: tuple[int, int]) -> float:
    lines = lines_of(moment, lanes[moment.lane][1])
    return LINE_H * len(lines) + (CELLS_H if shows_log(moment, window) else 0)


def shows_log(moment: StoryMoment, window: tuple[int, int]) -> bool:
    """Return whether a log is drawn beside a moment: only if the moment's kind concerns logs, such as a truncation, if
    the broker's log is known, and if `window` has offsets.
    """
    return moment.replica is not None and window[0] < window[1] and moment.kind in _SHOW_LOG


def window_of(story: PartitionStory) -> tuple[int, int]:
    """Return the offsets [low, high) that are drawn as cells: those around the records in question, at most
    CELLS_AT_MOST. Return (0, 0) if no offset is known, or if the story is about group members only.
    """
    offsets = [record.offset for record in story.records if record.offset >= 0]
    if not offsets or story.of_members:
        return 0, 0
    subjects = [record.offset for record in story.records if record.offset >= 0 and record.is_subject] or offsets
    low, high = max(0, min(offsets) - 1), max(offsets) + 1
    if high - low > CELLS_AT_MOST:
        low = max(low, min(subjects) - CELLS_AT_MOST // 2)
        high = min(high, low + CELLS_AT_MOST)
    return low, high


def cells_of(
    replica: ReconstructedReplica, story: PartitionStory, window: tuple[int, int]
) -> list[tuple[int, int, str]]:
    """Return (offset, epoch, letter) of the records that a log holds in the window. The letter is the record's name in
    the story, or "·" for none.
    """
    names = {(record.offset, record.epoch): record.name for record in story.records}
    found = []
    for offset in range(*window):
        epoch = replica.epoch_at(offset)
        if epoch is not None:
            found.append((offset, epoch, names.get((offset, epoch), "·")))
    return found
