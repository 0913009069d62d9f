"""Describes a transaction as moments: begun, sent, prepared, marked, visible; each has a lane and a sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from squall.broker.protocol.errors import ErrorCode
from squall.checkers.metrics import ISOLATIONS
from squall.reports.story_facts import ACKNOWLEDGED, FAILED
from squall.reports.transactions.observed import (
    ABORT,
    COMMIT,
    PREPARE_COMMIT,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ObservedTxn,
    ObservedTxnMarker,
    TransactionFacts,
    TxnRecord,
    ValueRead,
)
from squall.reports.transactions.outcomes import BY_CHOICE, COMMITTED, UNASKED, cause_of_abort, outcome_of, why_wrong

CLIENT, COORDINATOR, READERS, FAULTS = "client", "coordinator", "readers", "faults"
"""These are the names of the lanes that are no partition's. A partition's lane has the partition's name."""


@dataclass(frozen=True, slots=True)
class TxnMoment:
    """Describes one event, in the lane of the client, the coordinator or a partition."""

    t: float
    lane: str
    kind: str
    label: str
    text: str
    grave: bool = False
    partition: str = ""
    """Names the partition of a reader's moment; empty for other moments."""
    lso: int = -1
    hw: int = -1
    """Holds the high watermark in the response that the moment is about; `lso` holds the last stable offset in it. -1
    if unknown.
    """
    op: int = -1
    """Identifies the transaction by its operation."""
    about: tuple[str, ...] = ()
    """Names the records that the moment is about."""
    node: int = -1
    """Is the broker that acted; -1 if none, or not known."""


def length_text(seconds: float) -> str:
    """Return a duration as text, in ms if it is below a second."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.3f} s"


def letter_of(number: int) -> str:
    """Return a name for a transaction's record by its number: "A" for 0, "Z" for 25, "A1" for 26."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[number % 26] + (str(number // 26) if number >= 26 else "")


def names_of(txn: ObservedTxn) -> dict[int, str]:
    """Map each value to a letter, in order of sending."""
    return {part.sent.value: letter_of(number) for number, part in enumerate(txn.parts)}


def moments_of(
    txn: ObservedTxn, found: TransactionFacts, names: Mapping[int, str] | None = None, called: str = "the transaction"
) -> list[TxnMoment]:
    """Return all known moments of a transaction, in order of time, but only the first read of each partition and
    isolation level. `names` maps the values of records to names.
    """
    names = names_of(txn) if names is None else names
    told = [*_of_client(txn, called), *_of_coordinator(txn, found, called)]
    for part in txn.parts:
        told += _of_record(txn, part, names)
    told += (_of_marker(marker, txn) for marker in txn.markers)
    for partition in txn.partitions:
        told += _of_reads(txn, found, partition, names)
    return sorted((replace(moment, op=txn.op) for moment in told), key=lambda moment: moment.t)


def _of_client(txn: ObservedTxn, called: str) -> Iterable[TxnMoment]:
    who = f"Process {txn.process}"
    ids = f", producer id {txn.producer_id}, epoch {txn.epoch}" if txn.producer_id >= 0 else ""
    text = f"{who} begins {called} (transactional id {txn.id}{ids}, time-out {txn.timeout_s:g} s)."
    yield TxnMoment(txn.began, CLIENT, "begun", "begun", text)
    if txn.asked is not None:
        yield TxnMoment(txn.asked, CLIENT, "asked", f"asks to {txn.how}", f"{who} asks to {txn.how} {called} (EndTxn).")
    if txn.done is None:
        return
    if txn.state == ACKNOWLEDGED:
        word = {COMMIT: "committed", ABORT: "aborted"}.get(txn.how, "over")
        yield TxnMoment(txn.done, CLIENT, "told", f"told: {word}", f"{who} is told that {called} is {word}.")
    else:
        why = f": {txn.error}" if txn.error else ""
        fails = "cannot go on" if txn.state == FAILED else f"does not learn how {called} ended"
        label = txn.error or ("failed" if txn.state == FAILED else "unknown")
        yield TxnMoment(txn.done, CLIENT, "told", label, f"{who} {fails}{why}.")


def _of_coordinator(txn: ObservedTxn, found: TransactionFacts, called: str) -> Iterable[TxnMoment]:
    known: set[str] = set()
    for state in txn.states:
        new = [each for each in state.partitions if each not in known]
        known.update(new)
        who = f"Broker {state.node}, the coordinator, " if state.node >= 0 else "The coordinator "
        by = f"(producer id {state.producer_id}, epoch {state.epoch}; coordinator epoch {state.coordinator_epoch})"
        listed = listing(state.partitions) or "no partition"
        if state.state == "Ongoing":
            text = f"{who}adds {listing(new) or 'nothing new'} to {called}."
            yield TxnMoment(state.t, COORDINATOR, "added", f"+ {_short(new)}", text)
        elif state.state.startswith("Prepare"):
            text = f"{who}writes {state.state} of {called} for {listed} {by}"
            unasked = outcome_of(txn) == UNASKED and state is txn.decision
            against = unwanted(txn, state.t, state.state == PREPARE_COMMIT)
            text += f", {cause_of_abort(txn, found)}." if unasked else f"{against}."
            yield TxnMoment(state.t, COORDINATOR, "prepared", state.state, text, bool(against))
        else:
            yield TxnMoment(state.t, COORDINATOR, "complete", state.state, f"{who}writes {state.state} of {called}.")


def unwanted(txn: ObservedTxn, t: float, commit: bool) -> str:
    """Return a clause such as ", though process 3 asked to abort it" if the coordinator's outcome is not the one that
    the client requested; empty if it is, or if that is not known. `commit` is True if the coordinator committed. `t` is
    when its decision or marker was written; if the client's request came later, the clause says so.
    """
    if outcome_of(txn) not in (COMMITTED, BY_CHOICE) or commit is (txn.how == COMMIT):
        return ""
    asked = "asked" if txn.asked is not None and txn.asked <= t else "has asked for no end yet, and will ask"
    return f", though process {txn.process} {asked} to {txn.how} it"


def listing(names: Sequence[str]) -> str:
    """Join names as in "one, two and three"."""
    *most, last = names or ("",)
    return f"{', '.join(most)} and {last}" if most else last


def _short(partitions: Sequence[str]) -> str:
    """Return the partitions' numbers only: the lanes name the topic."""
    return ", ".join(name.rpartition("-")[2] for name in partitions) or "-"


def _of_record(txn: ObservedTxn, part: TxnRecord, names: Mapping[int, str]) -> Iterable[TxnMoment]:
    sent, name = part.sent, names[part.sent.value]
    text = f"Process {txn.process} sends {name} to {part.partition}."
    yield TxnMoment(sent.sent, part.partition, "sent", name, text, about=(name,))
    if sent.done is None:
        return
    if sent.state == ACKNOWLEDGED:
        at = f" at offset {sent.offset}" if sent.offset >= 0 else ""
        yield TxnMoment(
            sent.done, part.partition, "acked", f"{name} acked", f"{name} is acknowledged{at}.", about=(name,)
        )
    else:
        why = f": {sent.error}" if sent.error else ""
        what = "fails for certain" if sent.state == FAILED else "has an unknown outcome"
        yield TxnMoment(sent.done, part.partition, "failed", f"{name} {sent.state}", f"The send of {name} {what}{why}.")


def _of_marker(marker: ObservedTxnMarker, txn: ObservedTxn) -> TxnMoment:
    by = f"(producer id {marker.producer_id}, epoch {marker.epoch}; coordinator epoch {marker.coordinator_epoch})"
    who = f"Broker {marker.node}" if marker.node >= 0 else f"The leader of {marker.partition}"
    if marker.error:
        error = error_name(marker.error)
        text = f"{who} refuses the {marker.word} marker for {marker.partition}: {error} {by}."
        return TxnMoment(marker.t, marker.partition, "refused", f"marker: {error}", text)
    if marker.offset < 0:
        text = f"{who} has the {marker.word} marker in {marker.partition} already {by}."
        return TxnMoment(marker.t, marker.partition, "again", f"{marker.word} marker again", text)
    against = unwanted(txn, marker.t, marker.commit)
    if txn.contradicts(marker):
        against = ", though its coordinator decided otherwise"
    text = f"{who} writes the {marker.word} marker to {marker.partition} at offset {marker.offset} {by}{against}."
    label = f"{marker.word} marker"
    return TxnMoment(marker.t, marker.partition, "marked", label, text, bool(against), node=marker.node)


def error_name(code: int) -> str:
    """Return Kafka's name of an error code."""
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"


def _of_reads(
    txn: ObservedTxn, found: TransactionFacts, partition: str, names: Mapping[int, str]
) -> Iterable[TxnMoment]:
    """Yield, for each isolation level, the first read that returned one of the transaction's records in `partition`."""
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        reads = [
            read
            for part in txn.parts if part.partition == partition
            for read in found.reads.get(part.sent.value, ()) if read.isolation == isolation
        ]  # fmt: skip
        if reads:
            first = min(reads, key=lambda read: read.t)
            kind = "visible" if isolation == READ_COMMITTED else "seen"
            got = [names[read.value] for read in reads if (read.t, read.process) == (first.t, first.process)]
            text, why = read_text(first, got, partition), why_wrong(txn, first, "the transaction")
            told = f"{text} {why}" if why else text
            yield TxnMoment(first.t, partition, kind, ISOLATIONS[isolation], told, bool(why))


def read_text(first: ValueRead, got: Sequence[str], partition: str) -> str:
    """Describe a read of records, with the watermarks in its answer."""
    marks = [f"last stable offset {first.lso}"] if first.lso >= 0 else []
    marks += [f"high watermark {first.hw}"] if first.hw >= 0 else []
    told = f" ({', '.join(marks)})" if marks else ""
    what = "The final reader" if first.final else "Reader"
    named = listing(list(dict.fromkeys(got)))
    where = (
        f"from {partition}, the first at offset {first.offset}"
        if len(got) > 1
        else f"at offset {first.offset} of {partition}"
    )
    return f"{what} {first.process} ({ISOLATIONS[first.isolation]}) gets {named} {where}{told}."
