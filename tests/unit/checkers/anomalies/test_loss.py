"""Checks losses, and the nearest histories without one."""

from __future__ import annotations

from typing import Any

from squall.checkers.history.tables import OK
from tests.support.histories.builder import MS, GeneratedHistory, HistoryBuilder, transacted
from tests.support.histories.case import LOST, SKIPPED, UNSEEN, Cases
from tests.support.histories.spoilers import acked, drop

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("an acknowledged record that a final read passes without finding it is lost", LOST, SKIPPED)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final([(0, values[0]), (2, values[2])])
    return h


@CASES.case("what every final read finds is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final(list(enumerate(values)))
    return h


@CASES.case("what one of two final reads finds is not lost, though the other one skipped it", SKIPPED)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final(list(enumerate(values)))
    h.final([(0, values[0]), (2, values[2])], round_=2, isolation=1)
    return h


def _twice(second: int, isolations: tuple[int, int] = (0, 0), **more: Any) -> HistoryBuilder:
    """Three acknowledged records. The first round of final reads finds them all, the second one only `second` of them.
    """
    h = HistoryBuilder()
    p = h.producer()
    values = list(enumerate(h.sent(p, off) for off in range(3)))
    h.final(values, isolation=isolations[0])
    h.final(values[:second], round_=2, isolation=isolations[1], **more)
    return h


@CASES.case("the last record of the first round of final reads is gone in the second one", LOST)
def _() -> HistoryBuilder:
    return _twice(2)


@CASES.case("at read_committed the last record of the first round is gone in the second one", LOST)
def _() -> HistoryBuilder:
    return _twice(2, (1, 1))


@CASES.case("all records of the first round are gone in the second one", LOST)
def _() -> HistoryBuilder:
    return _twice(0, at=0, position=0)


@CASES.case("what the first round found, and the second one, too, is not lost")
def _() -> HistoryBuilder:
    return _twice(3)


@CASES.case("a second round of another isolation level says nothing of the first one")
def _() -> HistoryBuilder:
    return _twice(2, (0, 1))


@CASES.case("a second round that did not come to its end says nothing of what is behind it")
def _() -> HistoryBuilder:
    return _twice(2, end=3)


@CASES.case("the last record of a transaction that aborted is gone in the second round", LOST)
def _() -> HistoryBuilder:
    h, values = transacted(sends=3, end="abort")
    records = list(enumerate(values))
    h.final(records, end=4, position=4)
    h.final([], end=4, position=4, isolation=1)
    h.final(records[:2], end=2, round_=2)
    h.final([], end=2, position=2, isolation=1, round_=2)
    return h


@CASES.case("between two rounds retention removed the records that the second one lacks")
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    values = list(enumerate(h.sent(p, off) for off in range(3)))
    h.final(values)
    h.final(values[2:], at=2, log_start=2, round_=2)
    return h


@CASES.case("between two rounds compaction took a record whose key has a later one")
def _() -> HistoryBuilder:
    h = HistoryBuilder(cleanup="compact")
    p = h.producer()
    values = list(enumerate(h.sent(p, off, key="k") for off in range(3)))
    h.final(values)
    h.final(values[2:], round_=2, at=0)
    return h


@CASES.case("a record without an answer that nobody ever read is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first = h.sent(p, 0)
    h.info(h.send(p))
    h.final([(0, first), (2, h.sent(p, 2))])
    return h


@CASES.case("a record without an answer that a reader got was committed, and is lost when it is gone", LOST, SKIPPED)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, doubtful = h.sent(p, 0), h.info(h.send(p)).val
    h.poll(h.reader(), [(0, first), (1, doubtful)])
    h.final([(0, first), (2, h.sent(p, 2))])
    return h


@CASES.case("a record that definitely failed is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first = h.sent(p, 0)
    h.fail(h.send(p))
    h.final([(0, first)])
    return h


@CASES.case("without a final read nothing can be lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    h.poll(h.reader(), [(1, [h.sent(p, 0), h.sent(p, 1)][1])])
    return h


@CASES.case("a final read that was cut short proves a loss where it went past the record", LOST, SKIPPED)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(4)]
    h.partial_final([(0, values[0]), (2, values[2])])
    return h


@CASES.case("a final read that was cut short proves nothing of what it did not come to")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(4)]
    h.partial_final([(0, values[0])])
    return h


@CASES.case("a final reader that jumped over a part proves nothing of that part")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(4)]
    reader = h.final_reader()
    h.poll(reader, [(0, values[0])], f="final_read", at=0)
    h.operation(reader, "seek", at={"0": 2})
    h.poll(reader, [(2, values[2]), (3, values[3])], f="final_read", at=2).end = {0: 4}
    return h


@CASES.case("an acknowledged record missing at the end of the log is unseen", UNSEEN)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final([(0, values[0]), (1, values[1])])
    return h


@CASES.case("a record acknowledged after the final read began need not be in it")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, late = h.sent(p, 0), h.send(p)
    h.final([(0, first)])
    h.ok(late, 1)
    return h


@CASES.case("an acknowledged record of unknown offset that no final read finds is lost", LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer(acks=0)
    first, _ = h.sent(p, -1), h.sent(p, -1)
    h.final([(0, first)])
    return h


@CASES.case("what retention removed is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final([(2, values[2])], at=2, log_start=2)
    return h


@CASES.case("an acknowledged record of unknown offset may be among those that retention removed")
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    values = [h.sent(p, off) for off in (0, -1, 2)]
    h.final([(2, values[2])], at=2, log_start=2)
    return h


@CASES.case("an acknowledged record of unknown offset is lost where retention has removed nothing yet", LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    values = [h.sent(p, off) for off in (0, -1)]
    h.final([(0, values[0])])
    return h


LASTS_MS = 600_000
KAFKAS = {
    "cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1", "segment.bytes": "1073741824",
    "segment.ms": "604800000", "message.timestamp.type": "CreateTime", "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
}  # fmt: skip
"""Kafka's defaults of the topic settings about retention."""


def retired(
    later_ms: int, *, past_ms: int = 0, asked: int = 0, client: str = "squall", **settings: object
) -> HistoryBuilder:
    """Three records of 1,000 bytes. `later_ms` after the last one, the log begins at offset 2. `settings` are the
    topic's. `past_ms`: how long before the send each timestamp is. `asked`: the offset up to which an admin asked to
    delete.
    """
    h = HistoryBuilder()
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    h.event("topic_settings", topic="t", settings=KAFKAS | named)
    h.tick(LASTS_MS * MS)
    p = h.process("producer", client, acks=-1, idempotence=True)
    values = [h.sent(p, off) for off in range(3)]
    for send in h.sends:
        send.size, send.past_ms = 1000, past_ms
    if asked:
        h.operation(p, "admin", what="delete_records", part=0, to=asked)
    h.tick(later_ms * MS)
    h.final([(2, values[2])], at=2, log_start=2)
    return h


@CASES.case("ten minutes of retention let a record go after ten minutes")
def _() -> HistoryBuilder:
    return retired(LASTS_MS, retention_ms=LASTS_MS)


@CASES.case("ten minutes of retention let no record go after 600 ms", LOST)
def _() -> HistoryBuilder:
    return retired(600, retention_ms=LASTS_MS)


@CASES.case("a record may be younger than its retention by what clocks may differ: a second and a hundredth")
def _() -> HistoryBuilder:
    return retired(LASTS_MS - 6_500, retention_ms=LASTS_MS)


@CASES.case("a record that is younger than its retention by more than clocks may differ is lost", LOST)
def _() -> HistoryBuilder:
    return retired(LASTS_MS - 7_500, retention_ms=LASTS_MS)


@CASES.case("without a limit of time nothing gets too old", LOST)
def _() -> HistoryBuilder:
    return retired(LASTS_MS, retention_ms=-1)


@CASES.case("Kafka's default is a week: a record that is gone after a second is lost", LOST)
def _() -> HistoryBuilder:
    return retired(1_000)


@CASES.case("a record to which a program gave a timestamp of the past is old at once, with CreateTime")
def _() -> HistoryBuilder:
    return retired(1_000, past_ms=LASTS_MS, retention_ms=LASTS_MS, client="program")


@CASES.case("an acknowledgement that says a timestamp of the past makes no record of our own client old", LOST)
def _() -> HistoryBuilder:
    return retired(1_000, past_ms=LASTS_MS, retention_ms=LASTS_MS)


@CASES.case("a record with a timestamp of the future is kept for longer, and is lost where it is not", LOST)
def _() -> HistoryBuilder:
    return retired(LASTS_MS, past_ms=-LASTS_MS, retention_ms=LASTS_MS)


@CASES.case("a log lets records go as long as what is left may have the bytes that it keeps")
def _() -> HistoryBuilder:
    return retired(0, retention_bytes=1_256)


@CASES.case("a log that had more bytes than it keeps, and has fewer now, has lost records", LOST)
def _() -> HistoryBuilder:
    return retired(0, retention_bytes=1_257)


@CASES.case("a log that cannot have more bytes than it keeps lets no record go", LOST)
def _() -> HistoryBuilder:
    return retired(0, retention_bytes=4_000)


@CASES.case("a compacted log has no retention, and lets no last record of a key go by age", LOST)
def _() -> HistoryBuilder:
    return retired(LASTS_MS, retention_ms=1, cleanup_policy="compact")


@CASES.case("a log that is compacted and deleted has retention")
def _() -> HistoryBuilder:
    return retired(LASTS_MS, retention_ms=1, cleanup_policy="compact,delete")


@CASES.case("where nobody could ask for a topic's settings, nothing below the log start counts as lost")
def _() -> HistoryBuilder:
    h = retired(0)
    h.others[0].fields["settings"] = {}
    return h


@CASES.case("retention that is shorter at the end than at the beginning counts, whoever changed it")
def _() -> HistoryBuilder:
    h = retired(5_000, retention_ms=LASTS_MS)
    h.event("topic_settings", topic="t", settings=KAFKAS | {"retention.ms": "3000"})
    return h


@CASES.case("retention that is longer at the end than at the beginning changes nothing")
def _() -> HistoryBuilder:
    h = retired(5_000, retention_ms=3_000)
    h.event("topic_settings", topic="t", settings=KAFKAS)
    return h


@CASES.case("settings of another topic say nothing of this one", LOST)
def _() -> HistoryBuilder:
    h = retired(5_000)
    h.event("topic_settings", topic="u", settings=KAFKAS | {"retention.ms": "3000"})
    return h


def _shortened(later_ms: int) -> HistoryBuilder:
    """An administrator changes retention from ten minutes to 3 s."""
    h = HistoryBuilder(retention_ms=LASTS_MS)
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.operation(p, "admin", what="retention", part=0, retention_ms=3_000)
    h.tick(later_ms * MS)
    h.final([(2, values[2])], at=2, log_start=2)
    return h


@CASES.case("a lifetime that an administrator shortened is over")
def _() -> HistoryBuilder:
    return _shortened(3_000)


@CASES.case("a lifetime that an administrator shortened is not over yet", LOST)
def _() -> HistoryBuilder:
    return _shortened(1_000)


@CASES.case("records below what DeleteRecords was asked for are not lost, and the next one is", LOST)
def _() -> HistoryBuilder:
    return retired(1_000, asked=1)


@CASES.case("below a log start that no retention moved, records are lost", LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(2)]
    h.final([(1, values[1])], at=1, log_start=1)
    return h


@CASES.case("what a request deleted is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(2)]
    h.operation(p, "admin", what="delete_records", part=0)
    h.final([(1, values[1])], at=1, log_start=1)
    return h


@CASES.case("compaction may take a record whose key has a later one")
def _() -> HistoryBuilder:
    h = HistoryBuilder(cleanup="compact")
    p = h.producer()
    other, _, last = h.sent(p, 0, key="a"), h.sent(p, 1, key="b"), h.sent(p, 2, key="b")
    h.final([(0, other), (2, last)])
    return h


@CASES.case("compaction must leave the last record of each key", LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder(cleanup="compact")
    p = h.producer()
    other, _, last = h.sent(p, 0, key="a"), h.sent(p, 1, key="c"), h.sent(p, 2, key="b")
    h.final([(0, other), (2, last)])
    return h


@CASES.case("a damaged record in the place of the acknowledged one is corrupt, not lost", ("corrupt", ""))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, _ = h.sent(p, 0), h.sent(p, 1)
    h.final([(0, first), (1, -1)]).bad = [(0, 1, "checksum")]
    return h


@CASES.plant("lost-write")
def _(history: GeneratedHistory) -> None:
    drop(history, acked(history).val, polls=history.rng.choice((("final_read",), ("poll", "final_read"))))


@CASES.plant("unseen")
def _(history: GeneratedHistory) -> None:
    part = max(range(len(history.logs)), key=lambda part: len(history.logs[part]))
    tail = max((send for send in history.sends if send.st == OK and send.part == part), key=lambda send: send.off)
    for _, off, val in history.logs[part]:
        if off >= tail.off:
            drop(history, val)
