"""Makes the page's section about transactions: the picture of all, and each one that deserves a look. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from squall.reports.fault_words import fault_rows
from squall.reports.lanes import LaneSpan
from squall.reports.run_files import RunFiles
from squall.reports.transactions.lane import lane_svg
from squall.reports.transactions.moments import TxnMoment, moments_of
from squall.reports.transactions.observed import READ_COMMITTED, ObservedTxn, TransactionFacts
from squall.reports.transactions.outcomes import (
    NotableTransaction,
    cause_in_short,
    last_sign_of,
    length_of,
    looked_at,
    outcome_of,
    sentence_of,
    visible_at,
)
from squall.reports.transactions.overview import ROWS_AT_MOST, overview_svg

IDENT = "txn"
ORDER = ("committed", "aborted", "aborted unasked", "left open", "unknown")


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """Describes one transaction of the table, with its lanes."""

    number: int
    why: str
    grave: bool
    at: str
    id: str
    outcome: str
    length: str
    records: str
    visible: str
    svg: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TransactionsSection:
    """Holds the page's section on transactions: a sentence, the picture of all, and the listed ones."""

    sentence: str
    svg: str
    listed: tuple[TransactionRow, ...]
    ignorance: str
    """Says what cannot be known of the transactions; empty if everything is known."""


def section_of(files: RunFiles, found: TransactionFacts) -> TransactionsSection | None:
    """Return the section; None for a run without transactions."""
    if not found.txns or files.origin_ns is None:
        return None
    span = _span(found.txns)
    faults = fault_bands(files, span[1])
    chosen = looked_at(files, found)
    return TransactionsSection(
        _sentence(found),
        overview_svg(found.txns, chosen, faults, span, IDENT),
        tuple(_shown(each, found, faults) for each in chosen),
        found.ignorance(files.foreign),
    )


def _span(txns: Sequence[ObservedTxn]) -> tuple[float, float]:
    begin, end = min(txn.began for txn in txns), max(last_sign_of(txn) for txn in txns)
    room = max((end - begin) * 0.005, 0.001)
    return begin - room, end + room


def fault_bands(files: RunFiles, end: float) -> list[LaneSpan]:
    """Return a span for every fault that began, with the fault's description as `kind`. A fault that has not ended
    lasts until `end`.
    """
    bands = []
    for row in fault_rows(files):
        if row.began is not None:
            bands.append(LaneSpan(row.began, end if row.length is None else row.began + row.length, row.label))
    return bands


def _sentence(found: TransactionFacts) -> str:
    counts = Counter(outcome_of(txn) for txn in found.txns)
    words = {
        "committed": "committed",
        "aborted": "aborted by choice",
        "aborted unasked": "aborted by their coordinator",
        "left open": "left open",
        "unknown": "of unknown outcome",
    }
    told = [f"{counts[each]} {words[each]}" for each in ORDER if counts[each]]
    causes = Counter(cause_in_short(txn, found) for txn in found.txns if outcome_of(txn) == "aborted unasked")
    if causes:
        place = next(n for n, each in enumerate(told) if each.endswith("by their coordinator"))
        told[place] += f" ({', '.join(f'{count} {cause}' for cause, count in sorted(causes.items()))})"
    lengths = sorted(length_of(txn) for txn in found.txns if outcome_of(txn) == "committed")
    slow = ""
    if lengths:
        p50, p99 = lengths[len(lengths) // 2], lengths[min(int(len(lengths) * 0.99), len(lengths) - 1)]
        slow = f" Committed ones took {_length(p50)} (p50) and {_length(p99)} (p99), {_length(lengths[-1])} at most."
    ids = len({txn.id for txn in found.txns})
    left_out = f" {ids - ROWS_AT_MOST} of the ids have no row in the picture." if ids > ROWS_AT_MOST else ""
    return f"{len(found.txns)} transactions of {ids} transactional ids: {', '.join(told)}.{slow}{left_out}"


def _length(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _shown(each: NotableTransaction, found: TransactionFacts, faults: Sequence[LaneSpan]) -> TransactionRow:
    txn = each.txn
    moments = moments_of(txn, found)
    return TransactionRow(
        each.number,
        each.why,
        each.grave,
        f"{txn.began:.3f} s",
        txn.id,
        sentence_of(txn, found),
        _length(length_of(txn)),
        f"{_some(len(txn.parts), 'record')} in {_some(len(txn.partitions), 'partition')}",
        _visible(txn, found),
        lane_svg(txn, moments, faults, f"{IDENT}-lane-{each.number}"),
        tuple(_line(moment) for moment in moments),
    )


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _line(moment: TxnMoment) -> tuple[str, str]:
    return f"{moment.t:.4f} s", moment.text


def _visible(txn: ObservedTxn, found: TransactionFacts) -> str:
    """Say how visible the transaction became to read_committed readers: never, in some of its partitions, or in all of
    them after some time.
    """
    times = [visible_at(txn, found, partition, READ_COMMITTED) for partition in txn.partitions]
    seen = [at for at in times if at is not None]
    if not seen:
        return "never"
    if len(seen) < len(times):
        return f"in {len(seen)} of {len(times)} partitions"
    return f"after {_length(max(seen) - txn.began)}"
