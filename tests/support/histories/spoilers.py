"""Spoils clean generated histories: each anomaly of the catalogue that a history can show, planted on purpose."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.history.tables import OK
from tests.support.histories.builder import Entry, GeneratedHistory, HistoryBuilder, Poll, Send


def plant(name: str, history: GeneratedHistory) -> None:
    """Spoil a clean history so that the anomaly `name` is in it; others may follow from it."""
    PLANTS[name](history)


def _acked(history: GeneratedHistory) -> Send:
    """An acknowledged send from the middle of the run, that final reads found."""
    acked = [send for send in history.sends if send.st == OK]
    return history.rng.choice(acked[len(acked) // 4 : len(acked) // 2])


def _drop(history: HistoryBuilder, val: int, *, polls: Sequence[str] = ("poll", "final_read")) -> None:
    for poll in history.polls:
        if poll.f in polls:
            for entry in poll.entries:
                entry.pairs = [pair for pair in entry.pairs if pair[1] != val]


def _occurrences(history: HistoryBuilder, val: int, f: str) -> list[tuple[Poll, Entry, int]]:
    return [(poll, entry, i) for poll, entry, i in history.records() if entry.pairs[i][1] == val and poll.f == f]


def _plant_lost_write(history: GeneratedHistory) -> None:
    _drop(history, _acked(history).val, polls=history.rng.choice((("final_read",), ("poll", "final_read"))))


def _plant_unseen(history: GeneratedHistory) -> None:
    part = max(range(len(history.logs)), key=lambda part: len(history.logs[part]))
    tail = max((send for send in history.sends if send.st == OK and send.part == part), key=lambda send: send.off)
    for _, off, val in history.logs[part]:
        if off >= tail.off:
            _drop(history, val)


def _plant_duplicate(history: GeneratedHistory) -> None:
    send = _acked(history)
    beyond = history.logs[send.part][-1][1] + 5
    for poll in history.polls:
        if poll.f == "final_read" and send.part in poll.end:
            entry = next(entry for entry in poll.entries if entry.part == send.part)
            entry.pairs = [*entry.pairs, (beyond, send.val)]


def retire_doubled(history: GeneratedHistory) -> None:
    """Retention takes the first half of partition 0, the acknowledged place of a doubled record with it; its copy
    stays. (Readers saw the first one: it is a duplicate, and stands at no wrong offset.)
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


def _plant_inconsistent_offset(history: GeneratedHistory) -> None:
    send, other = _acked(history), history.send(0)
    _, entry, i = history.rng.choice(_occurrences(history, send.val, "final_read"))
    other.part = send.part
    entry.pairs[i] = (entry.pairs[i][0], other.val)


def _plant_phantom(history: GeneratedHistory) -> None:
    for _, entry, i in _occurrences(history, _acked(history).val, "final_read"):
        entry.pairs[i] = (entry.pairs[i][0], (1 << 40) - 7)


def _plant_corrupt(history: GeneratedHistory) -> None:
    poll, entry, i = history.rng.choice(_occurrences(history, _acked(history).val, "final_read"))
    poll.bad.append((entry.part, entry.pairs[i][0], "checksum"))
    entry.pairs[i] = (entry.pairs[i][0], -1)


def _plant_wrong_offset(history: GeneratedHistory) -> None:
    _acked(history).off += 1


def _plant_send_reorder(history: GeneratedHistory) -> None:
    send = _acked(history)
    later = next(each for each in history.sends if each.t0 > send.t0 and _same_stream(each, send) and each.st == OK)
    send.off, later.off = later.off, send.off
    _swap(history, send.val, later.val)


def _same_stream(a: Send, b: Send) -> bool:
    return (a.proc, a.part) == (b.proc, b.part)


def _swap(history: HistoryBuilder, one: int, two: int) -> None:
    swapped = {one: two, two: one}
    for _, entry, i in history.records():
        off, val = entry.pairs[i]
        entry.pairs[i] = (off, swapped.get(val, val))


def _plant_stale_ack(history: GeneratedHistory) -> None:
    send = _acked(history)
    later = next(each for each in history.sends if each.t0 > send.t1 and each.part == send.part and each.st == OK)
    send.off, later.off = later.off, send.off
    _swap(history, send.val, later.val)


def _plant_poll_skip(history: GeneratedHistory) -> None:
    _, after = _consecutive(history)
    del after.pairs[0]


def _plant_nonmonotonic_poll(history: GeneratedHistory) -> None:
    before, after = _consecutive(history)
    after.pairs.insert(0, before.pairs[-1])


def _consecutive(history: GeneratedHistory) -> tuple[Entry, Entry]:
    """Two calls of one final read of one partition, the second one of more than one record."""
    reader = history.rng.choice([poll.proc for poll in history.polls if poll.f == "final_read"])
    entries = [entry for poll in history.polls if poll.proc == reader for entry in poll.entries]
    for before in entries:
        after = next((each for each in entries if each.part == before.part and each.at == before.position), None)
        if after is not None and after is not before and len(after.pairs) > 1:
            return before, after
    raise AssertionError("all final reads took one call: generate a longer history")


def _plant_int_poll_skip(history: GeneratedHistory) -> None:
    entry = next(entry for entry in _long(history)[0].entries if len(entry.pairs) > 2)
    del entry.pairs[1]


def _plant_int_nonmonotonic_poll(history: GeneratedHistory) -> None:
    entry = next(entry for entry in _long(history)[0].entries if len(entry.pairs) > 2)
    entry.pairs[0], entry.pairs[1] = entry.pairs[1], entry.pairs[0]


def _long(history: GeneratedHistory) -> list[Poll]:
    polls = [poll for poll in history.polls if any(len(entry.pairs) > 2 for entry in poll.entries)]
    history.rng.shuffle(polls)
    return polls


def _plant_offset_regression(history: GeneratedHistory) -> None:
    reader = next(poll.proc for poll in history.polls if poll.entries)
    told = [entry for poll in history.polls if poll.proc == reader for entry in poll.entries if entry.part == 0]
    told[len(told) // 2].hw += 1000


def _plant_lso_violation(history: GeneratedHistory) -> None:
    entries = [entry for poll in history.polls for entry in poll.entries]
    entry = history.rng.choice(entries)
    entry.lso = entry.hw + 1


PLANTS = {
    "lost-write": _plant_lost_write,
    "unseen": _plant_unseen,
    "duplicate": _plant_duplicate,
    "inconsistent-offset": _plant_inconsistent_offset,
    "phantom": _plant_phantom,
    "corrupt": _plant_corrupt,
    "wrong-offset": _plant_wrong_offset,
    "send-reorder": _plant_send_reorder,
    "stale-ack": _plant_stale_ack,
    "poll-skip": _plant_poll_skip,
    "nonmonotonic-poll": _plant_nonmonotonic_poll,
    "int-poll-skip": _plant_int_poll_skip,
    "int-nonmonotonic-poll": _plant_int_nonmonotonic_poll,
    "offset-regression": _plant_offset_regression,
    "lso-violation": _plant_lso_violation,
}
"""How to plant each anomaly."""
