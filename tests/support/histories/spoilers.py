"""Functions that plant anomalies in generated histories: each draws a record or a poll, and changes it."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.tables import OK
from tests.support.histories.builder import Entry, GeneratedHistory, HistoryBuilder, Poll, Send


def acked(history: GeneratedHistory) -> Send:
    """Return an acknowledged send from the middle of the run whose record final reads found."""
    acked = [send for send in history.sends if send.st == OK]
    return history.rng.choice(acked[len(acked) // 4 : len(acked) // 2])


def drop(history: HistoryBuilder, val: int, *, polls: Sequence[str] = ("poll", "final_read")) -> None:
    for poll in history.polls:
        if poll.f in polls:
            for entry in poll.entries:
                entry.pairs = [pair for pair in entry.pairs if pair[1] != val]


def occurrences(history: HistoryBuilder, val: int, f: str) -> list[tuple[Poll, Entry, int]]:
    return [(poll, entry, i) for poll, entry, i in history.records() if entry.pairs[i][1] == val and poll.f == f]


def retire_doubled(history: GeneratedHistory) -> None:
    """Let retention delete the first half of partition 0, and add a copy of a deleted record behind the end. (Readers
    saw the deleted one: so the copy is a duplicate, and not a record at a wrong offset.)
    """
    history._partitions[0]["retention_ms"] = 1000
    log = history.logs[0]
    start = log[len(log) // 2][1]
    doubled = next(send for send in history.sends if send.part == 0 and send.st == OK and send.off < start)
    beyond = log[-1][1] + 5
    for poll in history.polls:
        if poll.f != "final_read":
            continue
        for entry in poll.entries:
            if entry.part == 0:
                entry.pairs = [pair for pair in entry.pairs if pair[0] >= start]
                entry.at, entry.position, entry.log_start = max(entry.at, start), max(entry.position, start), start
                entry.hw = entry.lso = beyond + 1
                if 0 in poll.end:
                    entry.pairs.append((beyond, doubled.val))


def same_stream(a: Send, b: Send) -> bool:
    return (a.proc, a.part) == (b.proc, b.part)


def swap(history: HistoryBuilder, one: int, two: int) -> None:
    swapped = {one: two, two: one}
    for _, entry, i in history.records():
        off, val = entry.pairs[i]
        entry.pairs[i] = (off, swapped.get(val, val))


def consecutive(history: GeneratedHistory) -> tuple[Entry, Entry]:
    """Return the results of two successive calls of one final read, of which the second returned more than one record.
    """
    reader = history.rng.choice([poll.proc for poll in history.polls if poll.f == "final_read"])
    entries = [entry for poll in history.polls if poll.proc == reader for entry in poll.entries]
    for before in entries:
        after = next((each for each in entries if each.part == before.part and each.at == before.position), None)
        if after is not None and after is not before and len(after.pairs) > 1:
            return before, after
    raise AssertionError("all final reads took one call: generate a longer history")


def long(history: GeneratedHistory) -> list[Poll]:
    polls = [poll for poll in history.polls if any(len(entry.pairs) > 2 for entry in poll.entries)]
    history.rng.shuffle(polls)
    return polls
