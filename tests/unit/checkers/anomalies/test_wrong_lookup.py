"""Look-ups by time that pass over records, and the nearest that do not."""

from __future__ import annotations

from squall.checkers.anomalies.registry import EvidenceCounts, find_all
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases

CASES = Cases()
test_the_reference = CASES.test()

WRONG = ("wrong-lookup", "")


def look_up(h: HistoryBuilder, reader: int, answered: int, known: int = -1) -> None:
    """Add a look-up by time. known: the offset of the first record so late that the reader had got; -1 if there is
    none.
    """
    done = h.list_offsets(reader, answered, which="timestamp").completion
    done.update({"known": known} if known >= 0 else {})


def got(
    known: int, answered: int, *, log_start: int = 0, deletable: bool = False, finally_: bool = True
) -> HistoryBuilder:
    """A reader that had got four records looks up the time of one of them."""
    h = HistoryBuilder(retention_ms=1000 if deletable else -1)
    p, reader = h.producer(), h.reader()
    pairs = [(off, h.sent(p, off)) for off in range(4)]
    h.poll(reader, pairs)
    look_up(h, reader, answered, known)
    if finally_:
        h.final(pairs[log_start:], at=log_start, log_start=log_start)
    return h


@CASES.case("a look-up that answers the end passes over a record that its reader had got", WRONG)
def _() -> HistoryBuilder:
    return got(1, 4)


@CASES.case("a look-up that finds nothing passes over it as well", WRONG)
def _() -> HistoryBuilder:
    return got(0, -1)


@CASES.case("a look-up that answers the next record passes over one", WRONG)
def _() -> HistoryBuilder:
    return got(2, 3)


@CASES.case("a look-up may answer the record itself, or an earlier one that is as late")
def _() -> HistoryBuilder:
    h = got(2, 2)
    look_up(h, 1, 1, 2)
    return h


@CASES.case("a look-up that finds nothing where its reader had got nothing so late")
def _() -> HistoryBuilder:
    return got(-1, -1)


@CASES.case("a look-up passes over a record that retention has removed")
def _() -> HistoryBuilder:
    return got(1, 3, log_start=2, deletable=True)


@CASES.case("a look-up passes over a record that retention has left", WRONG)
def _() -> HistoryBuilder:
    return got(2, 3, log_start=2, deletable=True)


@CASES.case("nobody says what retention had removed by a look-up that no final read follows")
def _() -> HistoryBuilder:
    return got(2, 3, deletable=True, finally_=False)


@CASES.case("a look-up passes over a record that was compacted away")
def _() -> HistoryBuilder:
    h = HistoryBuilder(cleanup="compact")
    p, reader = h.producer(), h.reader()
    old, new = h.sent(p, 0, key="k"), h.sent(p, 1, key="k")
    h.poll(reader, [(0, old), (1, new)])
    look_up(h, reader, 1, 0)
    h.final([(1, new)])
    return h


@CASES.case("a look-up in a topic that was deleted meanwhile may be answered by the next one of its name")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p, reader = h.producer(), h.reader()
    h.poll(reader, [(0, h.sent(p, 0))])
    h.operation(h.process("admin"), "admin", what="delete_topic", part=0)
    look_up(h, reader, -1, 0)
    return h


@CASES.plant("wrong-lookup")
def _(history: GeneratedHistory) -> None:
    poll, entry, i = history.rng.choice([each for each in history.records() if each[0].f == "poll"])
    history.now = max(history.now, history.finished)
    history.list_offsets(poll.proc, -1, part=entry.part, which="timestamp").completion["known"] = entry.pairs[i][0]


def test_a_look_up_says_which_record_was_passed_over() -> None:
    (witness,) = find_all(got(1, 4).history())
    assert (witness.off, witness.other, witness.proc) == (1, 4, 1)


def test_only_look_ups_of_records_that_a_reader_had_got_are_counted() -> None:
    assert EvidenceCounts.of(got(1, 1).history()).lookups == 1
    assert EvidenceCounts.of(got(-1, -1).history()).lookups == 0
