"""Transactions that read each other's records in a circle, and the nearest that do not."""

from __future__ import annotations

from squall.checkers.anomalies.registry import find_all
from squall.checkers.history.tables import INFO
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases

CASES = Cases()
test_the_reference = CASES.test()

G1C, DIRTY, ABORTED = ("G1c", ""), ("dirty-read", ""), ("G1a", "reads")


class Circle:
    """Builds a history of transactions that each have a producer and a record of their own, in one partition."""

    def __init__(self, count: int, isolation: int = 1) -> None:
        self.h = h = HistoryBuilder()
        self.procs = [h.producer(isolation=isolation) for _ in range(count)]
        self.txns = [h.begin(proc, f"id-{proc}") for proc in self.procs]
        pairs = enumerate(zip(self.procs, self.txns, strict=True))
        self.sends = [h.ok(h.send(proc, txn=txn), off) for off, (proc, txn) in pairs]

    def read(self, reader: int, writer: int) -> None:
        """One transaction polls the record of another one."""
        self.h.poll(self.procs[reader], [(writer, self.sends[writer].val)], txn=self.txns[reader])

    def end(self, which: int, how: str = "commit") -> None:
        self.h.end(self.txns[which], how)

    def over(self, *gone: int) -> HistoryBuilder:
        """Add the final reads. Those at read_committed lack these transactions."""
        pairs = [(off, send.val) for off, send in enumerate(self.sends)]
        self.h.final(pairs, end=2 * len(pairs))
        self.h.final([pair for pair in pairs if pair[0] not in gone], end=2 * len(pairs), isolation=1)
        return self.h


def _both(first: str = "commit", second: str = "commit", isolation: int = 1) -> HistoryBuilder:
    """Two transactions read each other's record, then end."""
    circle = Circle(2, isolation)
    circle.read(0, 1)
    circle.read(1, 0)
    circle.end(0, first)
    circle.end(1, second)
    return circle.over(*(which for which, how in enumerate((first, second)) if how != "commit"))


@CASES.case("two transactions read each other's record and both commit", G1C, DIRTY)
def _() -> HistoryBuilder:
    return _both()


@CASES.case("two transactions read each other's record and one of them aborts", ABORTED, DIRTY)
def _() -> HistoryBuilder:
    return _both(second="abort")


@CASES.case("two transactions read each other's record at read_uncommitted")
def _() -> HistoryBuilder:
    return _both(isolation=0)


@CASES.case("three transactions in a ring, each of which reads of the one before it", G1C, DIRTY)
def _() -> HistoryBuilder:
    circle = Circle(3)
    for reader in range(3):
        circle.read(reader, (reader - 1) % 3)
    for which in range(3):
        circle.end(which)
    return circle.over()


@CASES.case("three transactions in a row, each of which reads of the one before it once that has committed")
def _() -> HistoryBuilder:
    circle = Circle(3)
    circle.end(0)
    circle.read(1, 0)
    circle.end(1)
    circle.read(2, 0)
    circle.read(2, 1)
    circle.end(2)
    return circle.over()


@CASES.case("a transaction read of another one too early, and that one did not read of it", DIRTY)
def _() -> HistoryBuilder:
    circle = Circle(3)
    circle.end(0)
    circle.read(1, 0)
    circle.read(2, 1)
    circle.end(1)
    circle.end(2)
    return circle.over()


@CASES.case("one of two polls that would close the circle is part of no transaction", DIRTY)
def _() -> HistoryBuilder:
    circle = Circle(2)
    circle.read(0, 1)
    circle.h.poll(circle.h.reader(isolation=1), [(0, circle.sends[0].val)])
    circle.end(0)
    circle.end(1)
    return circle.over()


@CASES.case("a transaction reads its own record, after another one has committed that read it", DIRTY)
def _() -> HistoryBuilder:
    circle = Circle(2)
    circle.read(0, 0)
    circle.end(0)
    circle.read(1, 0)
    circle.end(1)
    return circle.over()


@CASES.case("the commits of two transactions that read each other's record are never answered", G1C, DIRTY)
def _() -> HistoryBuilder:
    circle = Circle(2)
    circle.read(0, 1)
    circle.read(1, 0)
    for txn in circle.txns:
        circle.h.ask_end(txn, "commit")
        txn.t1, txn.completion = circle.h.tick(), {"st": INFO, "how": "commit", "pid": 1, "pe": 0}
    return circle.over()


@CASES.case("a poll that returns when the commit of its transaction was asked for is no part of it", DIRTY)
def _() -> HistoryBuilder:
    circle = Circle(2)
    circle.read(0, 1)
    circle.h.ask_end(circle.txns[1], "commit")
    circle.end(0)
    circle.read(1, 0)
    circle.txns[1].t1, circle.txns[1].completion = circle.h.tick(), {"st": 0, "how": "commit", "pid": 1, "pe": 0}
    return circle.over()


def test_each_transaction_of_a_cycle_is_a_witness_with_what_it_read_of_another_one() -> None:
    h = _both()
    found = [each for each in find_all(h.history()) if each.anomaly == "G1c"]
    read = [(each.off, each.val >> 40, each.proc) for each in found]
    assert read == [(0, 0, 1), (1, 1, 0)]
    assert [(each.op, each.other) for each in found] == [(each.other, each.op) for each in reversed(found)]


def test_two_cycles_that_share_no_transaction_are_told_apart() -> None:
    circle = Circle(4)
    for reader, writer in ((0, 1), (1, 0), (2, 3), (3, 2), (2, 0)):
        circle.read(reader, writer)
    for which in range(4):
        circle.end(which)
    found = [each for each in find_all(circle.over().history()) if each.anomaly == "G1c"]
    assert [(each.off, each.proc) for each in found] == [(0, 1), (1, 0), (2, 3), (3, 2)], "2 read of 0, not in a cycle"


@CASES.plant("G1c")
def _(history: GeneratedHistory) -> None:
    history.take_in(_both())
