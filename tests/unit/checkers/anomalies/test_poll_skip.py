"""Readers who miss what is there, and the nearest who do not."""

from __future__ import annotations

from squall.checkers.history.tables import FAIL
from tests.support.histories.builder import MS, GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases
from tests.support.histories.late_ends import REQUEST_TIMEOUT_MS
from tests.support.histories.shapes import three
from tests.support.histories.spoilers import consecutive, long

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("a poll that leaves out a record is a skip", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0])])
    h.poll(reader, [(2, v[2])])
    return h


@CASES.case("one poll that leaves out a record is an inner skip", ("int-poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0]), (2, v[2])])
    return h


@CASES.case("offsets that nobody ever saw are no records, and not skipped")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, second = h.sent(p, 0), h.sent(p, 5)
    h.final([(0, first), (5, second)])
    reader = h.reader()
    h.poll(reader, [(0, first)])
    h.poll(reader, [(5, second)])
    return h


@CASES.case("after a seek a reader may go on anywhere")
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0])])
    h.operation(reader, "seek", at={"0": 2})
    h.poll(reader, [(2, v[2])])
    h.operation(reader, "seek", part=0)
    h.poll(reader, [(0, v[0])])
    return h


@CASES.case("after a failed poll a reader may go on anywhere")
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0])])
    h.poll(reader, [], st=FAIL)
    h.poll(reader, [(2, v[2])])
    return h


@CASES.case("after an empty poll a reader goes on where it was", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0])])
    h.poll(reader, [], at=1)
    h.poll(reader, [(2, v[2])])
    return h


@CASES.case("a poll that returns nothing and moves the reader over records is a skip", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [], at=0, position=3)
    return h


@CASES.case("a poll that returns nothing may move the reader over offsets that nobody ever saw")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, second = h.sent(p, 0), h.sent(p, 5)
    h.final([(0, first), (5, second)])
    reader = h.reader()
    h.poll(reader, [(0, first)])
    h.poll(reader, [], at=1, position=5)
    h.poll(reader, [(5, second)])
    return h


def nothing_at_read_committed(how: str) -> HistoryBuilder:
    """A reader at read_committed moves past the records of a transaction without getting them."""
    h = HistoryBuilder()
    p = h.producer()
    txn = h.begin(p)
    value = h.ok(h.send(p, txn=txn), 0).val
    h.end(txn, how)
    plain = h.sent(p, 2)
    committed = [(0, value)] if how == "commit" else []
    h.final([(0, value), (2, plain)])
    h.final([*committed, (2, plain)], isolation=1)
    h.poll(h.reader(isolation=1), [], at=0, position=2)
    return h


@CASES.case("a read_committed reader is not moved over a committed transaction", ("poll-skip", ""))
def _() -> HistoryBuilder:
    return nothing_at_read_committed("commit")


@CASES.case("a read_committed reader is moved over an aborted transaction")
def _() -> HistoryBuilder:
    return nothing_at_read_committed("abort")


@CASES.case("after a rebalance a reader may go on anywhere")
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0])])
    h.event("rebalance", p=reader)
    h.poll(reader, [(2, v[2])])
    return h


@CASES.case("after an assignment, or a crash, a reader may go on anywhere")
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0])])
    h.operation(reader, "assign", at={"0": 2})
    h.poll(reader, [(2, v[2])])
    h.operation(reader, "crash_client")
    h.poll(reader, [(0, v[0])])
    return h


@CASES.case("a partition that was not assigned in between may go on anywhere")
def _() -> HistoryBuilder:
    h = HistoryBuilder(2)
    p = h.producer()
    v = [h.sent(p, off) for off in range(3)]
    h.final(list(enumerate(v)))
    reader = h.reader()
    h.poll(reader, [(0, v[0])])
    h.poll(reader, [], part=1)
    h.poll(reader, [(2, v[2])])
    return h


@CASES.case("a note in the history moves no position", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0])])
    h.event("poll_errors", p=reader)
    h.poll(reader, [(2, v[2])])
    return h


@CASES.case("a reader whose place retention removed is moved on, and skips nothing")
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    v = [h.sent(p, off) for off in range(3)]
    reader = h.reader()
    h.poll(reader, [(0, v[0])])
    h.poll(reader, [(2, v[2])], log_start=2)
    h.final([(2, v[2])], at=2, log_start=2)
    return h


@CASES.case("in a compacted partition a reader may find holes that another one did not")
def _() -> HistoryBuilder:
    h = HistoryBuilder(cleanup="compact")
    p = h.producer()
    v = [h.sent(p, off, key="k") for off in range(3)]
    h.poll(h.reader(), list(enumerate(v)))
    h.final([(0, v[0]), (2, v[2])])
    return h


@CASES.case("a reader's first poll returns nothing of what stands before its first record", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(1, v[1]), (2, v[2])], at=0)
    return h


@CASES.case("a reader begins in the middle, and gets all that stands there")
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(1, v[1]), (2, v[2])], at=1)
    return h


@CASES.case("a reader goes back to the start, and the poll after that leaves out the first record", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, list(enumerate(v)))
    h.operation(reader, "seek", part=0, at={"0": 0})
    h.poll(reader, [(1, v[1])], at=0)
    return h


@CASES.case("a poll moves its reader behind a record that it did not return", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0]), (1, v[1])], position=3)
    return h


@CASES.case("a poll that returned some of the records leaves its reader before the others")
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0]), (1, v[1])], position=2)
    return h


@CASES.case("a poll moves its reader behind offsets at which nobody found a record")
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, list(enumerate(v)), position=5)
    return h


@CASES.case("where retention may remove records, polls follow each other as anywhere")
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    v = [h.sent(p, off) for off in range(3)]
    reader = h.reader()
    h.poll(reader, [(0, v[0]), (1, v[1])])
    h.poll(reader, [(2, v[2])])
    h.final(list(enumerate(v)))
    return h


@CASES.case("retention removed what stood before the first record of a poll")
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    v = [h.sent(p, off) for off in range(3)]
    h.poll(h.reader(), list(enumerate(v)))
    h.poll(h.reader(), [(2, v[2])], at=0, log_start=2)
    h.final([(2, v[2])], at=2, log_start=2)
    return h


def _deleted(to: int, *, asked_late: bool = False) -> HistoryBuilder:
    """A reader gets the first and the last of four records, and learns that the log begins at the last one. An admin
    deleted the records below `to`, before that or (`asked_late`) after it.
    """
    h = HistoryBuilder()
    p, admin = h.producer(), h.process("admin")
    v = [h.sent(p, off) for off in range(4)]
    if not asked_late:
        h.operation(admin, "admin", what="delete_records", part=0, to=to)
    reader = h.reader()
    h.poll(reader, [(0, v[0])], log_start=0)
    h.poll(reader, [(3, v[3])], at=1, log_start=3)
    if asked_late:
        h.operation(admin, "admin", what="delete_records", part=0, to=to)
    h.final(list(enumerate(v)))
    return h


@CASES.case("a reader is moved over what was deleted by request, and skips nothing")
def _() -> HistoryBuilder:
    return _deleted(3)


@CASES.case("a reader is moved beyond what was deleted by request", ("poll-skip", ""))
def _() -> HistoryBuilder:
    return _deleted(2)


@CASES.case("a reader is moved over records before anybody asks for their deletion", ("poll-skip", ""))
def _() -> HistoryBuilder:
    return _deleted(3, asked_late=True)


def _at_the_edges(how: str, at: int, position: int, isolation: int = 1) -> HistoryBuilder:
    """Three successive transactions, each with a record and a marker. The first and the last end as `how` says. A
    reader polls from `at`, gets the middle one's record, and is then at `position`.
    """
    h = HistoryBuilder()
    p = h.producer()
    h.initialised(p)
    v = []
    for number, end in enumerate((how, "commit", how)):
        txn = h.begin(p)
        v.append((2 * number, h.ok(h.send(p, txn=txn), 2 * number).val))
        h.end(txn, end)
    h.poll(h.reader(isolation=isolation), v[1:2], at=at, position=position)
    h.final(v, end=6)
    h.final(v if how == "commit" else v[1:2], end=6, position=6, isolation=1)
    return h


@CASES.case("a reader passes over aborted transactions before and behind what it gets, and over markers")
def _() -> HistoryBuilder:
    return _at_the_edges("abort", 0, 6)


@CASES.case("a reader passes over a committed transaction before what it gets", ("poll-skip", ""))
def _() -> HistoryBuilder:
    return _at_the_edges("commit", 0, 4)


@CASES.case("a reader passes over a committed transaction behind what it gets", ("poll-skip", ""))
def _() -> HistoryBuilder:
    return _at_the_edges("commit", 2, 6)


@CASES.case("a read_uncommitted reader is given aborted transactions, too", ("poll-skip", ""))
def _() -> HistoryBuilder:
    return _at_the_edges("abort", 2, 6, isolation=0)


def _one_vanished(waits_ms: int) -> HistoryBuilder:
    """Four successive transactions. The second one aborts after `waits_ms`; the third one commits, and its record is
    not found.
    """
    h = HistoryBuilder()
    p, reader = h.producer(request_timeout_ms=REQUEST_TIMEOUT_MS), h.reader(isolation=1)
    h.initialised(p)
    sent = []
    for number, how in enumerate(("commit", "abort", "commit", "commit")):
        txn = h.begin(p)
        sent.append((2 * number, h.ok(h.send(p, txn=txn), 2 * number).val))
        h.ask_end(txn, how)
        h.tick((waits_ms if how == "abort" else 1) * MS - MS)
        txn.t1, txn.completion = h.tick(), {"st": 0, "how": how, "pid": 4000, "pe": 0}
    h.poll(reader, sent[:1])
    h.poll(reader, sent[3:], at=1)
    h.final(sent, end=8)
    h.final([sent[0], sent[3]], end=8, position=8, isolation=1)
    return h


@CASES.case("what a late end of a transaction may have aborted need not be read", ("lost-txn", "late end"))
def _() -> HistoryBuilder:
    return _one_vanished(REQUEST_TIMEOUT_MS)


@CASES.case("a reader skips a committed transaction", ("lost-txn", ""), ("poll-skip", ""), ("int-poll-skip", ""))
def _() -> HistoryBuilder:
    return _one_vanished(REQUEST_TIMEOUT_MS - 1)


@CASES.plant("poll-skip")
def _(history: GeneratedHistory) -> None:
    _, after = consecutive(history)
    del after.pairs[0]


@CASES.plant("int-poll-skip")
def _(history: GeneratedHistory) -> None:
    entry = next(entry for entry in long(history)[0].entries if len(entry.pairs) > 2)
    del entry.pairs[1]
