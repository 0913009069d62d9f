"""What brokers told of a partition beside its records: high watermark, last stable offset, end."""

from __future__ import annotations

from collections.abc import Iterator

from checkers.findings import Witness
from checkers.history.tables import LISTED, History, Told

HIGH_WATERMARK, LAST_STABLE_OFFSET = "high watermark", "last stable offset"
"""Evidence of offset-regression: which of them went back."""
ABOVE_HIGH_WATERMARK, READ_ABOVE = "above the high watermark", "read at or above it"
"""Evidence of lso-violation."""


def find(history: History) -> Iterator[Witness]:
    """offset-regression and lso-violation."""
    told = sorted(history.told.rows(), key=lambda each: (each.op, each.idx))
    yield from regressions(told)
    yield from violations(told)


def regressions(told: list[Told]) -> Iterator[Witness]:
    """Each answer against those that came before it was asked for, of one client, partition and leader epoch.

    A new leader may know a lower high watermark than the old one, so an answer whose epoch is unknown proves nothing.
    Nor does a fetch after a ListOffsets request: it may have been on its way since before that was asked. But a new
    leader tells no latest offset before it knows one at least as high as what its predecessors told (KIP-207).
    """
    before: dict[tuple[object, ...], int] = {}
    highest: dict[tuple[int, int], dict[int, int]] = {}
    for each in told:
        epoch, hw, listed = each.epoch, each.hw, each.kind == LISTED
        if epoch < 0:
            continue
        place = each.proc, each.part
        by_epoch = highest.setdefault(place, {})
        for which, off in ((HIGH_WATERMARK, hw), (LAST_STABLE_OFFSET, each.lso)):
            if off < 0:
                continue
            client = which, place, epoch
            earlier = max(before.get((listed, client), -1), before.get((False, client), -1))
            if listed and which == HIGH_WATERMARK:
                earlier = max(earlier, max((mark for past, mark in by_epoch.items() if past < epoch), default=-1))
            if off < earlier:
                yield Witness("offset-regression", which, each.part, off, -1, each.op, each.proc, earlier)
            before[listed, client] = off
        by_epoch[epoch] = max(by_epoch.get(epoch, -1), hw)


def violations(told: list[Told]) -> Iterator[Witness]:
    """What one answer says against itself."""
    for each in told:
        if each.lso < 0:
            continue
        where = (each.part, each.lso, -1, each.op, each.proc)
        if 0 <= each.hw < each.lso:
            yield Witness("lso-violation", ABOVE_HIGH_WATERMARK, *where, each.hw)
        if each.iso == 1 and each.last_off >= each.lso:
            yield Witness("lso-violation", READ_ABOVE, *where, each.last_off)
