"""Explains one witness of a finding by traces and history: which broker led, what was truncated, and when the record
was sent and read. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from squall.checkers.history.values import producer_of, sequence_of
from squall.reports.fault_words import whom
from squall.reports.lanes import LeaderEpochStart, event_s, partition_of
from squall.reports.run_files import Json, RunFiles, integer, mapping, number, objects

READS_TOLD = 4
LINES = 40
NOT_READ = "No final read"


class StoryLine(NamedTuple):
    """Describes one event at `t` on the page's time axis, in seconds. `grave` is True if it may be the cause."""

    t: float
    text: str
    grave: bool = False


def witness_text(witness: Json) -> str:
    """Describe a witness in one line: partition and offset, value, operation."""
    words = [str(witness.get("partition") or f"partition {witness.get('part')}")]
    for key, word in (("off", "offset"), ("op", "operation"), ("proc", "process")):
        if integer(witness.get(key)) >= 0:
            words.append(f"{word} {witness[key]}")
    value = integer(witness.get("val"))
    if value >= 0:
        words.insert(2, f"value {value} ({value_text(value)})")
    return ", ".join(words)


def value_text(value: int) -> str:
    """Name a record by its producer and sequence number, which make up the value."""
    return f"record {sequence_of(value)} of process {producer_of(value)}"


def story(
    files: RunFiles, witness: Json, partition_terms: Sequence[LeaderEpochStart], rows: Sequence[Json]
) -> list[StoryLine]:
    """Return the events around a witness, in order of time; `rows` are its value's sends and reads."""
    name = str(witness.get("partition") or files.part_names.get(integer(witness.get("part")), ""))
    offset = integer(witness.get("off"))
    if offset < 0:
        offset = next((row["off"] for row in rows if row["kind"] == 0 and row["off"] >= 0), -1)
    acked = [at for row in rows if row["kind"] == 0 and row["st"] == 0 and (at := files.seconds(row["t1"])) is not None]
    lines = [*_record_lines(files, rows), *_truncations(files, name, offset, min(acked, default=0.0))]
    lines += [*_recoveries(files, name), *_taken_for_sent(files, name, offset, rows)]
    around = _span_of(lines) if lines else None
    lines += _leaders(partition_terms, offset, around, missing=any(line.text.startswith(NOT_READ) for line in lines))
    lines += _late_ends(files, rows)
    if lines:
        lines += _faults(files, around or _span_of(lines))
    over = files.phase("final reads")[1]  # what follows is the harness taking the cluster down
    return sorted(dict.fromkeys(line for line in lines if over is None or line.t <= over))[:LINES]


_OF_ONE_OFFSET = re.compile(r", which covers \d+")


def causes_of(lines: Iterable[StoryLine]) -> list[str]:
    """Return the events that may be the cause (`StoryLine.grave`), as texts without record offsets: one event has the
    same text for all records that it affected. The line "No final read has returned it" is left out, because it is an
    effect.
    """
    return [in_common(line) for line in lines if line.grave and not line.text.startswith(NOT_READ)]


def in_common(line: StoryLine) -> str:
    """Return the time and the text of an event without the record's offset. This text is the same in the stories of all
    records that the event affected.
    """
    return f"{line.t:.3f} s: {_OF_ONE_OFFSET.sub('', line.text)}"


def _record_lines(files: RunFiles, rows: Sequence[Json]) -> Iterable[StoryLine]:
    reads = [row for row in rows if row["kind"] == 1]
    for row in rows:
        sent, done = files.seconds(row["t0"]), files.seconds(row["t1"])
        if row["kind"] == 0 and sent is not None:
            yield StoryLine(sent, f"Process {row['proc']} hands the record over (operation {row['op']}).")
            if done is not None:
                how = ("is acknowledged", "fails for certain", "ends with an unknown outcome")[row["st"]]
                at = f" at offset {row['off']}" if row["off"] >= 0 else ""
                yield StoryLine(done, f"The send {how}{at}, {done - sent:.3f} s later.")
    for row in reads[:READS_TOLD]:
        done = files.seconds(row["t1"])
        if done is not None:
            final = f" in final read {row['final']}" if row.get("final") else ""
            yield StoryLine(done, f"Process {row['proc']} reads it at offset {row['off']}{final}.")
    if len(reads) > READS_TOLD:
        last = files.seconds(reads[-1]["t1"]) or 0.0
        yield StoryLine(last, f"The last of {len(reads)} reads of it, at offset {reads[-1]['off']}.")
    if rows and not any(row.get("final") for row in reads):
        end = files.phase("final reads")[1]
        if end is not None:
            yield StoryLine(end, f"{NOT_READ} has returned it.", grave=True)


def _truncations(files: RunFiles, name: str, offset: int, acked: float) -> Iterable[StoryLine]:
    """Yield the truncations that cover the offset, or all if the offset is not known. A truncation is `grave` only if
    it covers the offset and came after the acknowledgement, whose time is `acked`.
    """
    for node, trace in files.traces.items():
        for event in trace:
            if event["e"] != "truncated" or partition_of(event) != name:
                continue
            low, high = integer(event.get("to_offset")), integer(event.get("from_offset"))
            if offset < 0 or low <= offset < high:
                covers = f", which covers {offset}" if offset >= 0 else ""
                told = f"Broker {node} truncates {name} from {high} to {low}{covers}: {event.get('reason')}."
                at = event_s(files, event)
                yield StoryLine(at, told, grave=offset >= 0 and at >= acked)


def _recoveries(files: RunFiles, name: str) -> Iterable[StoryLine]:
    for node, trace in files.traces.items():
        for event in trace:
            if event["e"] == "recovered" and partition_of(event) == name:
                cut = integer(event.get("truncated_bytes"), 0)
                lost = f", {cut} bytes cut off: {event.get('reason')}" if cut else ""
                told = f"Broker {node} recovers its log up to {event.get('leo')}{lost}."
                yield StoryLine(event_s(files, event), told, grave=cut > 0)


def _taken_for_sent(files: RunFiles, name: str, offset: int, rows: Sequence[Json]) -> Iterable[StoryLine]:
    """Yield each time a broker took the record for a duplicate of an earlier batch of its producer, and appended
    nothing. If no reader got the record, this was its loss: the earlier batch had other records, or is gone.
    """
    unread = not any(row["kind"] == 1 for row in rows)
    sends = [(row["t0"], row["t1"]) for row in rows if row["kind"] == 0 and row["t0"] is not None]
    spans = [(files.seconds(t0) or 0.0, inf if t1 is None else files.seconds(t1) or inf) for t0, t1 in sends]
    for node, trace in files.traces.items():
        for event in trace:
            if event["e"] != "known_batch" or partition_of(event) != name:
                continue
            at, first = event_s(files, event), integer(event.get("base_offset"))
            if first <= offset <= integer(event.get("last_offset")) and any(t0 <= at <= t1 for t0, t1 in spans):
                producer_id = event.get("producer_id")
                told = f"Broker {node} takes it for a batch at offset {first} that producer {producer_id} sent before"
                yield StoryLine(at, f"{told}, and appends nothing.", grave=unread)


def _leaders(
    found: Sequence[LeaderEpochStart], offset: int, around: tuple[float, float] | None, *, missing: bool
) -> Iterable[StoryLine]:
    """Yield the leader epochs that matter for the record at `offset`: the epoch to which the offset belongs in the end,
    epochs that began at or below the offset, those of unclean elections, and those that began around the time of the
    record. `around` is the time of the record's first and last event. `missing` is True if no final read returned the
    record.
    """
    for index, term in enumerate(found):
        following = next((each.leo for each in found[index + 1 :] if each.leo is not None), None)
        # An epoch holds the offsets from its leader's log end up to that of the next epoch.
        holds = term.leo is not None and term.leo <= offset and (following is None or offset < following)
        below = term.leo is not None and index > 0 and 0 <= offset and term.leo <= offset and not holds
        near = around is not None and around[0] - 1 <= term.t <= around[1] + 5
        if holds or below or near or term.unclean:
            text = _leader_text(term, offset if holds else -1)
            text = f"{text[:-1]}, and the record is not there." if holds and missing else text
            yield StoryLine(term.t, text, term.unclean)


def _leader_text(term: LeaderEpochStart, offset: int) -> str:
    isr = ",".join(map(str, term.isr))
    if term.leader < 0:
        return f"Epoch {term.epoch}: no leader (in sync: {isr or 'none'})."
    start = f", from offset {term.leo}" if term.leo is not None else ", which never took over"
    unclean = " By an unclean election." if term.unclean else ""
    mine = f" In the end offset {offset} is of this epoch." if offset >= 0 else ""
    return f"Epoch {term.epoch}: broker {term.leader} leads{start} (in sync: {isr}).{unclean}{mine}"


def _faults(files: RunFiles, around: tuple[float, float]) -> Iterable[StoryLine]:
    for fault in files.faults:
        began = files.seconds(fault.get("began"))
        ended = files.seconds(fault.get("ended"))
        if began is not None and began <= around[1] + 1 and (ended is None or ended >= around[0] - 1):
            hit = whom(mapping(fault.get("target")).get("resolved"))
            yield StoryLine(
                began, f"Fault {fault.get('id')} begins: {fault.get('action')}{f' of {hit}' if hit else ''}."
            )


def _late_ends(files: RunFiles, rows: Sequence[Json]) -> Iterable[StoryLine]:
    """Yield the EndTxn requests that a fault was holding on a link when the record was sent: they may end the record's
    transaction. `rows` are the record's sends and reads.
    """
    sends = [at for row in rows if row["kind"] == 0 and (at := files.seconds(row["t0"])) is not None]
    for fault in files.faults:
        for frame in objects(mapping(fault.get("evidence")).get("struck")):
            came, done = files.seconds(frame.get("came_ns")), files.seconds(frame.get("answered_ns"))
            if came is None or done is None or not any(came <= at <= done for at in sends):
                continue
            said, held_s = f"EndTxn ({frame.get('said')})", integer(frame.get("held_ms"), 0) / 1000
            link, target = str(frame.get("link")).replace("->", "→"), str(frame.get("link")).rpartition(">")[2]
            yield StoryLine(came, f"Fault {fault.get('id')} holds {said} on link {link} for {held_s:g} s.")
            answer, taken = frame.get("answer"), frame.get("answer") == "NONE"
            what = "it ends the transaction that is open by now" if taken else "it ends nothing"
            yield StoryLine(
                done, f"The held {said} has reached broker {target}, which answers {answer}: {what}.", taken
            )


def _span_of(lines: Sequence[StoryLine]) -> tuple[float, float]:
    times = [line.t for line in lines if number(line.t) is not None and not line.text.startswith(NOT_READ)]
    return min(times, default=0.0), max(times, default=0.0)
