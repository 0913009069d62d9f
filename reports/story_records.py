"""Selects the records of a story: which ones have a name, and at which offset each was really put. Traces of appends
and reads are trusted more than the answer that a producer got. Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from squall.reports.stories import value_text
from squall.reports.story_client import standstill_of
from squall.reports.story_facts import ACKNOWLEDGED, FAILED, BrokerTraceLine, PartitionFacts, SentRecord
from squall.reports.story_moments import NAMED_AT_MOST, LabelledRecord


def named_records(facts: PartitionFacts) -> list[LabelledRecord]:
    """Return the records in question and those at their offsets, or all records if there are few, in order of sending.
    """
    still = standstill_of(facts)
    subjects = {*facts.problem.values, *facts.outputs, *(still.values if still is not None else ())}
    offsets = {*facts.problem.offsets, *(s.offset for s in facts.sends if s.value in subjects and s.offset >= 0)}
    seen_at = {(seen.value, seen.offset) for seen in facts.seen}
    offsets |= {offset for value, offset in seen_at if value in subjects}
    beside = {value for value, offset in seen_at if offset in offsets}
    few = len(facts.sends) <= NAMED_AT_MOST and not facts.outputs
    wanted = [s for s in facts.sends if few or s.value in subjects | beside or (s.offset >= 0 and s.offset in offsets)]
    wanted = sorted(wanted, key=lambda s: (s.sent, s.value))[: 2 * NAMED_AT_MOST]
    guessed = _appended_unheard(facts) if len(facts.sends) <= NAMED_AT_MOST else {}
    return [_placed(facts, sent, _name(number), subjects, guessed) for number, sent in enumerate(wanted)]


def _name(number: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[number % 26] + (str(number // 26) if number >= 26 else "")


def _placed(
    facts: PartitionFacts, sent: SentRecord, name: str, subjects: set[int], guessed: dict[int, tuple[int, int]]
) -> LabelledRecord:
    offset = _offset_of(facts, sent)
    epoch = _epoch_of(facts, sent, offset)
    if offset < 0:
        offset, epoch = guessed.get(sent.value, (-1, -1))
    asked = facts.problem.offsets
    is_subject = sent.value in subjects or (not subjects and (offset in asked or sent.offset in asked))
    return LabelledRecord(name, sent, offset, epoch, is_subject)


def _offset_of(facts: PartitionFacts, sent: SentRecord) -> int:
    """Return the offset of a record: as its producer learned, unless that cannot be; else as readers saw; else -1."""
    seen = [seen.offset for seen in facts.seen if seen.value == sent.value]
    if sent.offset >= 0 and (sent.offset in seen or not _is_contradicted(facts, sent, seen)):
        return sent.offset
    return seen[0] if seen else -1


def _is_contradicted(facts: PartitionFacts, sent: SentRecord, seen: Sequence[int]) -> bool:
    """Return whether traces or reads show that a record is not at the offset that its producer got. `seen` lists the
    offsets at which readers got the record.
    """
    offset, done = sent.offset, sent.done if sent.done is not None else float("inf")
    then = [event for event in facts.events if sent.sent <= event.t <= done]
    if any(e.name == "known_batch" and e.int_of("base_offset") <= offset <= e.int_of("last_offset") for e in then):
        return False  # who answered took it for the batch that is there
    # If appends are traced, the true offset is in one that a leader made while the send was under way.
    if any(event.name == "appended" for event in facts.events):
        return not any(_appends(event, offset) for event in then)
    if _epoch_without(facts, sent, offset) >= 0 and _epoch_of(facts, sent, offset) < 0:
        return True
    if any(_cuts(event, offset) for event in facts.events):
        return False  # it may have been there before
    others = {each.value for each in facts.seen if each.offset == offset} - {sent.value}
    return bool(seen and others) or _is_taken(facts, sent)


def _is_taken(facts: PartitionFacts, sent: SentRecord) -> bool:
    """Return whether another record had been acknowledged at this record's offset, in the same epoch, before this
    record was sent.
    """
    epoch = _epoch_of(facts, sent, sent.offset)
    return epoch >= 0 and any(
        each.offset == sent.offset and each.done is not None and each.done <= sent.sent
        and _epoch_of(facts, each, each.offset) == epoch
        for each in facts.sends if each.state == ACKNOWLEDGED and each is not sent
    )  # fmt: skip


def _appends(event: BrokerTraceLine, offset: int) -> bool:
    """Return whether this event is a leader's append of records that include `offset`."""
    is_leaders = event.name == "appended" and event.fields.get("role") == "leader"
    return is_leaders and event.int_of("from") <= offset < event.int_of("leo")


def _appended_unheard(facts: PartitionFacts) -> dict[int, tuple[int, int]]:
    """Map a record's value to (offset, epoch) if neither its producer nor a reader reports the offset. The offset is
    inferred from an append that a leader traced during the send. If no record is known at N offsets of the append, and
    exactly N such records may be in it, these offsets are given to them in order.
    """
    put = [(sent, _offset_of(facts, sent)) for sent in facts.sends]
    known = {(offset, _epoch_of(facts, sent, offset)) for sent, offset in put if offset >= 0}
    silent = [sent for sent, offset in put if offset < 0 and sent.state != FAILED]
    found: dict[int, tuple[int, int]] = {}
    for event in facts.events:
        if event.name != "appended" or event.fields.get("role") != "leader":
            continue
        epoch = event.int_of("epoch")
        free = [o for o in range(event.int_of("from"), event.int_of("leo")) if (o, epoch) not in known]
        meant = [s for s in silent if s.sent <= event.t <= _until(s) and s.value not in found]
        if free and len(free) == len(meant):
            found.update({s.value: (o, epoch) for s, o in zip(meant, free, strict=True)})
    return found


def _until(sent: SentRecord) -> float:
    """Return the latest time at which a record may have been appended: its acknowledgement, or infinity without one."""
    return sent.done if sent.done is not None and sent.state == ACKNOWLEDGED else float("inf")


def _epoch_of(facts: PartitionFacts, sent: SentRecord, offset: int) -> int:
    """Return the epoch in which a record was appended at `offset`; -1 if it cannot be known."""
    if offset < 0:
        return -1
    done = sent.done if sent.done is not None else float("inf")
    appended = [
        event.int_of("epoch") for event in facts.events if sent.sent <= event.t <= done and _appends(event, offset)
    ]
    if appended:
        return appended[-1]
    terms = [term for term in _terms(facts, offset) if term.t <= done]
    cuts = [event for event in facts.events if _cuts(event, offset) and event.t >= sent.sent]
    without = _epoch_without(facts, sent, offset)
    others = [each for each in terms if each.int_of("epoch") != without and not _is_over(facts, each, sent.sent)]
    if without >= 0 and (others or not cuts):
        terms = others
    for event in cuts:  # who acknowledged it and was cut later is the one that had it
        led = [term for term in terms if term.node == event.node]
        if led and sent.state == ACKNOWLEDGED and _is_missing(facts, sent):
            return led[-1].int_of("epoch")
    return max((term.int_of("epoch") for term in terms), default=-1)


def _cuts(event: BrokerTraceLine, offset: int) -> bool:
    """Return whether this event is a truncation that removes `offset` from a log."""
    return event.name == "truncated" and event.int_of("to_offset") <= offset < event.int_of("from_offset")


def _terms(facts: PartitionFacts, offset: int) -> list[BrokerTraceLine]:
    """Return the trace lines that begin leader epochs whose leaders may have put a record at `offset`."""
    return [
        e for e in facts.events
        if (e.name == "became_leader" or (e.name == "polled" and e.int_of("leader") >= 0))
        and e.int_of("leo", 0) <= offset
    ]  # fmt: skip


def _is_over(facts: PartitionFacts, term: BrokerTraceLine, t: float) -> bool:
    """Return whether the leader of the epoch that `term` begins no longer led at `t`, by its own trace."""
    ends = ("became_follower", "became_leader", "node_started")
    return any(e.node == term.node and e.name in ends and term.t < e.t <= t for e in facts.events)


def _epoch_without(facts: PartitionFacts, sent: SentRecord, offset: int) -> int:
    """Return a leader epoch in which `sent` was certainly not appended at `offset`: the highest epoch that may have
    written this offset, if final reads show that the record is not there. Return -1 if they do not show that.
    """
    found = {seen.value for seen in facts.seen if seen.final and seen.offset == offset}
    ends = [poll.hw for poll in facts.polled if poll.final and poll.hw >= 0]
    if sent.value in found or not (found or (ends and max(ends) <= offset)):
        return -1
    return max((term.int_of("epoch") for term in _terms(facts, offset)), default=-1)


def _is_missing(facts: PartitionFacts, sent: SentRecord) -> bool:
    return not any(seen.final and seen.value == sent.value for seen in facts.seen)


# -------------------------------------------------------------------------------------------------------------- names

_RAW = re.compile(r"""b'SQ1(?:\\.|[^'\\])*'|b"SQ1(?:\\.|[^"\\])*\"""")
"""Matches a record of Squall's that the message of a violated invariant quotes as Python bytes: "SQ1", then the value
in 8 bytes.
"""
_VALUE = slice(3, 11)


def with_names(text: str, records: Sequence[LabelledRecord]) -> str:
    """Return `text` with the names of the records that it quotes: "b'SQ1...'" becomes "A (b'SQ1...')"."""
    names = {record.sent.value: record.name for record in records}

    def named(quoted: re.Match[str]) -> str:
        value = int.from_bytes(ast.literal_eval(quoted[0])[_VALUE], "big")
        return f"{names.get(value) or value_text(value)} ({quoted[0]})"

    return _RAW.sub(named, text)


def is_misplaced(record: LabelledRecord) -> bool:
    """Return whether a record is at another offset than its producer got. False if one of the two offsets is not known.
    """
    return 0 <= record.offset != record.sent.offset >= 0


def final_words(
    facts: PartitionFacts, record: LabelledRecord, records: Sequence[LabelledRecord]
) -> tuple[str, list[str], bool]:
    """Say what the final reads found of a record. Return a sentence, the lines of a label, and whether the result is
    bad: the record is at two offsets, or it is missing although it was acknowledged.
    """
    finals = [seen for seen in facts.seen if seen.final]
    names = {each.sent.value: each.name for each in records}
    found = sorted({seen.offset for seen in finals if seen.value == record.sent.value})
    at = record.sent.offset if record.offset < 0 else record.offset
    there = {seen.value for seen in finals if seen.offset == at} - {record.sent.value}
    instead = " and ".join(sorted(names.get(value, f"value {value}") for value in there))
    if found:
        where = " and ".join(map(str, found))
        text, grave = f"The final reads find {record.name} at offset {where}.", len(found) > 1
    else:
        other = f" Offset {at} holds {instead}." if instead else ""
        text, grave = f"The final reads do not find {record.name}.{other}", record.sent.state == ACKNOWLEDGED
    label = [f"{record.name}: {'found' if found else 'nowhere'}"]
    return text, label + ([f"offset {at}: {instead}"] if instead else []), grave
