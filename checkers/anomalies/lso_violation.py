"""lso-violation: an answer whose last stable offset contradicts the rest of it."""

from __future__ import annotations

from collections.abc import Iterator

from checkers.anomalies.anomaly import Anomaly, Check, Family, Need, Seen
from checkers.anomalies.answers import answers
from checkers.findings import Witness

ANOMALIES = (
    Anomaly(
        "lso-violation",
        Family.READERS,
        "last stable offset above the high watermark, or a read_committed read at or above the one it came with",
        source="KIP-98: Exactly Once Delivery (read_committed ends at the last stable offset)",
        other="the high watermark, or the offset that was read",
        needs=(Need.MARKS,),
        meaning="last stable offsets were beyond what may be read",
        meaning_of_one="last stable offset was beyond what may be read",
    ),
)

ABOVE_HIGH_WATERMARK, READ_ABOVE = "above the high watermark", "read at or above it"
"""Evidence."""


def find(seen: Seen) -> Iterator[Witness]:
    """What one answer says against itself."""
    for each in seen.view(answers):
        if each.lso < 0:
            continue
        where = (each.part, each.lso, -1, each.op, each.proc)
        if 0 <= each.hw < each.lso:
            yield Witness("lso-violation", ABOVE_HIGH_WATERMARK, *where, each.hw)
        if each.iso == 1 and each.last_off >= each.lso:
            yield Witness("lso-violation", READ_ABOVE, *where, each.last_off)


CHECK = Check(__name__, ANOMALIES, find)
