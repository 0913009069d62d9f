"""Describes the outcome of each transaction, in a word and in a sentence, and selects those that a reader should look
at first. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from squall.reports.run_files import RunFiles, integer, objects
from squall.reports.story_facts import ACKNOWLEDGED, FAILED
from squall.reports.transactions.observed import (
    ABORT,
    COMMIT,
    NOT_ENDED,
    PREPARE_COMMIT,
    READ_COMMITTED,
    ObservedTxn,
    ProducerTakeover,
    TransactionFacts,
    ValueRead,
)

COMMITTED, BY_CHOICE, UNASKED, OPEN, UNCERTAIN = "committed", "aborted", "aborted unasked", "left open", "unknown"
WORDS = {
    COMMITTED: "committed",
    BY_CHOICE: "aborted by its client",
    UNASKED: "aborted by the coordinator",
    OPEN: "left open by its client",
    UNCERTAIN: "unknown to its client",
}
"""Maps an outcome to its words in a legend, in the order of a legend."""
SLOWEST, SLOWEST_ALWAYS = 8, 3
"""At most `SLOWEST` slow transactions are listed; those beyond the first `SLOWEST_ALWAYS` only if they took SLOW times
the median.
"""
SLOW = 2.0
LOOKED_AT = 24
"""Limits the rows of the table of notable transactions (`looked_at`)."""
_ABOUT_TXN = ("G1a", "G1c", "dirty-read", "torn-txn", "lost-txn", "zombie-write")
"""Lists the anomalies whose witnesses name a transaction by its operation."""


def outcome_of(txn: ObservedTxn) -> str:
    """Return the outcome, a key of WORDS: committed, aborted by client or coordinator, left open, or unknown."""
    decided = txn.decision
    if txn.state == ACKNOWLEDGED and txn.how in (COMMIT, ABORT):
        return COMMITTED if txn.how == COMMIT else BY_CHOICE
    if txn.how == NOT_ENDED or txn.state == FAILED:
        return UNASKED if decided is not None and decided.state != PREPARE_COMMIT else OPEN
    return UNCERTAIN


def sentence_of(txn: ObservedTxn, found: TransactionFacts) -> str:
    """Describe the outcome of the transaction, as its client and its coordinator report it."""
    outcome, decided = outcome_of(txn), txn.decision
    why = f" ({txn.error})" if txn.error else ""
    if outcome in (COMMITTED, BY_CHOICE):
        return WORDS[outcome]
    if outcome == UNASKED:
        assert decided is not None
        return f"{WORDS[outcome]}, {cause_of_abort(txn, found)}{why}"
    if outcome == OPEN and txn.asked is not None:
        return f"its {txn.how} was refused{why}"
    if outcome == OPEN:
        more = "" if found.known else "; no trace tells what the coordinator did with it"
        return f"{WORDS[outcome]}{why}{more}"
    if decided is None:
        return f"{WORDS[outcome]}{why}"
    end = COMMIT if decided.state == PREPARE_COMMIT else ABORT
    return f"{WORDS[outcome]}{why}; the coordinator decided to {end} it"


TIMED_OUT, TAKEN_OVER, NO_CAUSE = "by time-out", "for a successor", "for no known cause"


def cause_of_abort(txn: ObservedTxn, found: TransactionFacts) -> str:
    """Say why the coordinator aborted a transaction whose client did not ask for that."""
    cause = cause_in_short(txn, found)
    if cause == TAKEN_OVER:
        return f"because process {_successors(txn, found)[0].process} took over the transactional id"
    if cause == TIMED_OUT:
        return f"because its time-out of {txn.timeout_s:g} s was over"
    return "before its time-out, and no recorded process had taken over"


def cause_in_short(txn: ObservedTxn, found: TransactionFacts) -> str:
    """Return TIMED_OUT, TAKEN_OVER or NO_CAUSE for a transaction that its coordinator aborted unasked."""
    decided = txn.decision
    assert decided is not None
    if _successors(txn, found):
        return TAKEN_OVER
    # The time-out counts from the coordinator's first record, and not from the client's begin.
    begun = txn.states[0].t if txn.states else txn.began
    return TIMED_OUT if txn.timeout_s and decided.t - begun >= txn.timeout_s else NO_CAUSE


def _successors(txn: ObservedTxn, found: TransactionFacts) -> list[ProducerTakeover]:
    """Return the other processes' takeovers of the transactional id that were in progress when the coordinator decided.
    """
    decided = txn.decision
    return [
        each
        for each in found.taken_over
        if each.id == txn.id and each.process != txn.process
        and decided is not None and each.asked <= decided.t <= each.t
    ]  # fmt: skip


def why_wrong(txn: ObservedTxn, read: ValueRead, called: str) -> str:
    """Say why a read_committed reader must not have got this record of the transaction; empty if it may have. `called`
    is the transaction's name in the sentence, such as "T1".
    """
    if read.isolation != READ_COMMITTED:
        return ""
    outcome = outcome_of(txn)
    if outcome in (BY_CHOICE, UNASKED, OPEN):
        end = {BY_CHOICE: "is aborted by its client", UNASKED: "is aborted by its coordinator"}
        open_yet = "is still open, and " if read.t < (txn.asked or last_sign_of(txn)) else ""
        return f"{called} {open_yet}{end.get(outcome, 'is never committed')}: read_committed must not return it."
    if txn.asked is not None and read.t < txn.asked:
        return f"Nobody has asked to commit {called} yet."
    if 0 <= read.lso <= read.offset:
        return f"Offset {read.offset} does not lie before the last stable offset that the same answer tells."
    return ""


def ended_at(txn: ObservedTxn) -> float | None:
    """Return when the transaction was over: its client had the answer, or the coordinator had completed it. None if
    neither is known.
    """
    complete = txn.first("Complete")
    if outcome_of(txn) in (COMMITTED, BY_CHOICE):
        return txn.done
    return complete.t if complete is not None else txn.done


def last_sign_of(txn: ObservedTxn) -> float:
    """Return the latest time at which something of the transaction is known to have happened."""
    times = [txn.began, txn.asked, txn.done, *(state.t for state in txn.states), *(mark.t for mark in txn.markers)]
    times += [each for part in txn.parts for each in (part.sent.sent, part.sent.done)]
    return max(each for each in times if each is not None)


@dataclass(frozen=True, slots=True)
class NotableTransaction:
    """Describes a transaction that the table lists, and why."""

    number: int
    """Numbers the transaction in the picture and in the table, from 1."""
    txn: ObservedTxn
    why: str
    grave: bool


def findings_by_txn(files: RunFiles, found: TransactionFacts) -> dict[int, list[str]]:
    """Map the operation of a transaction to the anomalies found in it, such as "G1a" or "G1a (permitted)"."""
    by_op: dict[int, list[str]] = {}
    for entry in objects(files.verdict.get("anomalies")):
        name = str(entry.get("name"))
        for witness in objects(entry.get("witnesses")):
            txn = found.of_op(integer(witness.get("op"))) if name in _ABOUT_TXN else None
            if txn is not None:
                names = by_op.setdefault(txn.op, [])
                said = f"{name} (permitted)" if entry.get("permitted") is True else name
                names += [said] if said not in names else []
    return by_op


def looked_at(files: RunFiles, found: TransactionFacts) -> list[NotableTransaction]:
    """Return the transactions of findings, then those without a known end, then the slowest; each once."""
    by_op = findings_by_txn(files, found)
    chosen: dict[int, tuple[ObservedTxn, str, bool]] = {}
    for txn in found.txns:
        if txn.op in by_op:
            names = by_op[txn.op]
            chosen[txn.op] = txn, ", ".join(names), any("(permitted)" not in name for name in names)
    strange = [txn for txn in found.txns if outcome_of(txn) in (UNCERTAIN, OPEN) or not _is_marked(txn, found)]
    for txn in sorted(strange, key=lambda each: -length_of(each))[:SLOWEST]:
        why = "outcome unknown" if _is_marked(txn, found) else "without all its markers"
        # The first reason counts: a finding before a doubt, and both before slowness.
        chosen.setdefault(txn.op, (txn, why if outcome_of(txn) != OPEN else "left open", False))
    slow = sorted(found.txns, key=lambda txn: -length_of(txn))[:SLOWEST]
    usual = slow_from(found)
    for place, txn in enumerate(slow):
        if place >= SLOWEST_ALWAYS and length_of(txn) < usual:
            break
        chosen.setdefault(txn.op, (txn, "the slowest" if not place else "slow", False))
    return [NotableTransaction(number, *each) for number, each in enumerate(list(chosen.values())[:LOOKED_AT], start=1)]


def slow_from(found: TransactionFacts) -> float:
    """Return the length in seconds from which on a transaction is slow in this run."""
    lengths = sorted(length_of(txn) for txn in found.txns)
    return SLOW * lengths[len(lengths) // 2]


def length_of(txn: ObservedTxn) -> float:
    """Return the seconds from the transaction's begin to its end, or to the last sign of it."""
    end = ended_at(txn)
    return max((last_sign_of(txn) if end is None else end) - txn.began, 0.0)


def _is_marked(txn: ObservedTxn, found: TransactionFacts) -> bool:
    """Return whether every partition in the coordinator's decisions has a marker; True if no decision is known."""
    if not txn.decisions or not found.known:
        return True
    marked = {marker.partition for marker in txn.markers if not marker.error and not txn.contradicts(marker)}
    return all(marked >= set(decided.partitions) for decided in txn.decisions)


def visible_at(
    txn: ObservedTxn, found: TransactionFacts, partition: str, isolation: int = READ_COMMITTED
) -> float | None:
    """Return when a reader of this isolation level first got one of the transaction's records in `partition`; None if
    no reader did.
    """
    times = [
        read.t
        for part in txn.parts if part.partition == partition
        for read in found.reads.get(part.sent.value, ()) if read.isolation == isolation
    ]  # fmt: skip
    return min(times, default=None)
