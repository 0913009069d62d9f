"""Measures each producer and each transactional id by itself, for the reference engine; `squall.checkers.metrics`
defines the measures.

The measures of a partition do not show that one producer is refused, or that one transactional id gets no producer id,
while other clients can still write. A process that replaces an ended process of a producer counts as the same producer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from squall.checkers.gaps import OperationAttempt, longest, unanswered, waited_until, within
from squall.checkers.history.tables import ABORT, COMMIT, FAIL, INFO, NOT_ENDED, OK, History, RecordRow
from squall.checkers.history.values import producer_of
from squall.checkers.metrics import (
    PRODUCER_GAP,
    PRODUCER_SENDS,
    TRANSACTION_GAP,
    TRIED,
    MeasurementContext,
    MeasurementRow,
)
from squall.checkers.nemesis_log import FOREVER, windows


class TransactionAttempt(NamedTuple):
    """Describes one attempt with a transactional id: a transaction whose end was requested or that failed, or an
    InitProducerId that failed. Two kinds of transactions do not count: those whose end the client never requested
    although nothing failed, and those that failed after they had been open for longer than their time-out.
    """

    id: int
    proc: int
    how: int
    """Is the end that the client requested: COMMIT, ABORT, or NOT_ENDED if it requested none."""
    st: int
    t0: int
    """Is when the end was requested, in ns; if it never was, when the transaction began. Time before the request is the
    client's own, and does not count as waiting.
    """
    t1: int


def measure(history: History, sends: Iterable[RecordRow], context: MeasurementContext) -> Iterator[MeasurementRow]:
    """Yield the measures of producers and transactional ids. `sends` holds the sends of the load."""
    of_producers: dict[int, list[RecordRow]] = {}
    for send in sends:
        proc = producer_of(send.val)
        of_producers.setdefault(context.producers.get(proc, proc), []).append(send)
    faulty = windows(context.faults)
    for first, sent in of_producers.items():
        yield from _gap(PRODUCER_GAP, first, sent, context)
        ended = Counter(each.st for each in sent if each.t1 >= 0 and not _hit(each, faulty))
        yield from (MeasurementRow(PRODUCER_SENDS, first, st, (count,)) for st, count in ended.items())
    of_ids: dict[int, list[TransactionAttempt]] = {}
    for attempt in _attempts(history):
        of_ids.setdefault(attempt.id, []).append(attempt)
    for attempts in of_ids.values():
        first = min(each.proc for each in attempts)
        yield from _gap(TRANSACTION_GAP, first, attempts, context)
        committed = sum(each.st == OK and each.how == COMMIT for each in attempts)
        lost = sum(not (each.st == OK and each.how in (COMMIT, ABORT)) and not _hit(each, faulty) for each in attempts)
        yield from (MeasurementRow(TRIED, first, so, (count,)) for so, count in enumerate((committed, lost)) if count)


def _attempts(history: History) -> Iterator[TransactionAttempt]:
    for txn in history.txns.rows():
        asked = txn.te if txn.te >= 0 else txn.t1
        outlived = txn.st == FAIL and asked - txn.t0 >= txn.timeout_ms * 1_000_000
        if not (outlived or (txn.how == NOT_ENDED and txn.st == INFO)):
            yield TransactionAttempt(txn.id, txn.proc, txn.how, txn.st, txn.te if txn.te >= 0 else txn.t0, txn.t1)
    for init in history.inits.rows():
        if init.producer_id < 0:
            yield TransactionAttempt(init.id, init.proc, NOT_ENDED, FAIL, init.t0, init.t)


def _gap(
    name: str, first: int, tries: Sequence[OperationAttempt], context: MeasurementContext
) -> Iterator[MeasurementRow]:
    gaps = unanswered(tries)
    calm = [gap for begin, end in context.between for gap in within(gaps, begin, end)]
    calm += within(gaps, context.healed_ns, FOREVER) if context.healed_ns >= 0 else []
    if calm:
        yield MeasurementRow(name, first, 0, longest(calm))


def _hit(one: OperationAttempt, faulty: Iterable[tuple[int, int]]) -> bool:
    """Return whether a fault was on while the operation waited for its result."""
    return any(one.t0 <= ended and waited_until(one) >= began for began, ended in faulty)
