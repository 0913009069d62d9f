"""offset-regression: a high watermark, last stable offset or latest offset that goes back."""

from __future__ import annotations

from collections.abc import Iterator

from checkers.anomalies.anomaly import Anomaly, Check, Family, Need, Seen
from checkers.anomalies.answers import answers
from checkers.findings import Witness
from checkers.history.tables import LISTED

ANOMALIES = (
    Anomaly(
        "offset-regression",
        Family.READERS,
        "for one client in one leader epoch, the high watermark or the last stable offset goes back; or the latest "
        "offset, of either isolation level, goes back, in any epoch",
        source="KIP-207: Offsets returned by ListOffsetsResponse should be monotonically increasing",
        other="the offset reported before",
        needs=(Need.MARKS,),
        meaning="reported high watermarks or last stable offsets went back",
        meaning_of_one="reported high watermark or last stable offset went back",
    ),
)

HIGH_WATERMARK, LAST_STABLE_OFFSET = "high watermark", "last stable offset"
"""Evidence: which of them went back."""


def find(seen: Seen) -> Iterator[Witness]:
    """Each answer against those that came before it was asked for, of one client, partition and leader epoch.

    A new leader may know a lower high watermark than the old one, so an answer whose epoch is unknown proves nothing.
    Nor does the first fetch after a ListOffsets request: it may have been on its way since before that was asked. The
    second one was not, because a client has one fetch at a time under way to a leader. And a new leader tells no latest
    offset before it knows one at least as high as what its predecessors told (KIP-207). So with the last stable offset:
    whatever was decided below it was committed, and the new leader has it (Redpanda PR 7544).
    """
    before: dict[tuple[object, ...], int] = {}
    settled: dict[tuple[object, ...], int] = {}
    highest: dict[tuple[object, ...], dict[int, int]] = {}
    for each in seen.view(answers):
        epoch, listed = each.epoch, each.kind == LISTED
        if epoch < 0:
            continue
        for which, off in ((HIGH_WATERMARK, each.hw), (LAST_STABLE_OFFSET, each.lso)):
            if off < 0:
                continue
            told = which, each.proc, each.part
            by_epoch = highest.setdefault(told, {})
            earlier = max(before.get((listed, told, epoch), -1), before.get((False, told, epoch), -1))
            if not listed:
                earlier = max(earlier, settled.get((told, epoch), -1))
                settled[told, epoch] = before.get((True, told, epoch), -1)
            else:
                earlier = max(earlier, max((mark for past, mark in by_epoch.items() if past < epoch), default=-1))
            if off < earlier:
                yield Witness("offset-regression", which, each.part, off, -1, each.op, each.proc, earlier)
            before[listed, told, epoch] = off
            by_epoch[epoch] = max(by_epoch.get(epoch, -1), off)


CHECK = Check(__name__, ANOMALIES, find)
