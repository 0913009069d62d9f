"""Records read as committed before their commit, and just after."""

from __future__ import annotations

from tests.support.histories.builder import MS, GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases
from tests.support.histories.late_ends import Second, in_a_row

CASES = Cases()
test_the_reference = CASES.test()


def _read(*, before: bool, apart: int = MS) -> HistoryBuilder:
    """Return a history with a read before or after a commit. `apart` is the time in ns between the poll's return and
    the request for the commit.
    """
    h = HistoryBuilder()
    p, reader = h.producer(), h.reader(isolation=1)
    h.initialised(p)
    txn = h.begin(p)
    send = h.ok(h.send(p, txn=txn), 0)
    if before:
        h.poll(reader, [(0, send.val)])
        h.tick(apart - MS)
    h.end(txn, "commit")
    if not before:
        h.poll(reader, [(0, send.val)])
    h.final([(0, send.val)], end=2)
    h.final([(0, send.val)], end=2, isolation=1)
    return h


@CASES.case("a read_committed poll returned a record before its commit was asked for", ("dirty-read", ""))
def _() -> HistoryBuilder:
    return _read(before=True)


@CASES.case("a poll returned a record at the instant at which its commit was asked for", ("dirty-read", ""))
def _() -> HistoryBuilder:
    return _read(before=True, apart=0)


@CASES.case("a poll returned a record a nanosecond after its commit was asked for")
def _() -> HistoryBuilder:
    return _read(before=True, apart=-1)


@CASES.case("a read_committed poll returned a record just after its commit")
def _() -> HistoryBuilder:
    return _read(before=False)


@CASES.case("a read_committed poll returned a record while its commit was under way")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p, reader = h.producer(), h.reader(isolation=1)
    txn = h.begin(p)
    send = h.ok(h.send(p, txn=txn), 0)
    h.ask_end(txn, "commit")
    h.poll(reader, [(0, send.val)])
    txn.t1, txn.completion = h.tick(), {"st": 0, "how": "commit", "pid": 1, "pe": 0}
    h.final([(0, send.val)], end=2)
    h.final([(0, send.val)], end=2, isolation=1)
    return h


@CASES.case("a read_uncommitted poll returned a record before its commit was asked for")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p, reader = h.producer(), h.reader()
    txn = h.begin(p)
    send = h.ok(h.send(p, txn=txn), 0)
    h.poll(reader, [(0, send.val)])
    h.end(txn, "commit")
    h.final([(0, send.val)], end=2)
    h.final([(0, send.val)], end=2, isolation=1)
    return h


EARLY = Second("commit", visible=(True, True), polled=True)


@CASES.case("a commit asked for twice may make the next transaction of its epoch visible", ("dirty-read", "late end"))
def _() -> HistoryBuilder:
    return in_a_row("commit", EARLY)


@CASES.case("a commit asked for twice makes nothing visible of the next epoch", ("dirty-read", ""))
def _() -> HistoryBuilder:
    return in_a_row("commit", EARLY, epoch=1)


@CASES.case("an abort asked for twice makes nothing visible of the next transaction", ("dirty-read", ""))
def _() -> HistoryBuilder:
    return in_a_row("abort", EARLY)


@CASES.plant("dirty-read")
def _(history: GeneratedHistory) -> None:
    history.take_in(_read(before=True))
