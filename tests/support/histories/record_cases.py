"""Where records stand, were lost, or are in the wrong place or order: and the nearest histories where they are not."""

from __future__ import annotations

from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.case import case

LOST, UNSEEN = ("lost-write", ""), ("unseen", "")
SKIPPED = ("int-poll-skip", "")
"""Readers who pass the place of an acknowledged record that is gone skip it: they cannot know why."""


# ------------------------------------------------------------------------------------------------------------- loss


@case("an acknowledged record that a final read passes without finding it is lost", LOST, SKIPPED)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final([(0, values[0]), (2, values[2])])
    return h


@case("what every final read finds is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final(list(enumerate(values)))
    return h


@case("what one of two final reads finds is not lost, though the other one skipped it", SKIPPED)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final(list(enumerate(values)))
    h.final([(0, values[0]), (2, values[2])], round_=2, isolation=1)
    return h


@case("a record without an answer that nobody ever read is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first = h.sent(p, 0)
    h.info(h.send(p))
    h.final([(0, first), (2, h.sent(p, 2))])
    return h


@case("a record without an answer that a reader got was committed, and is lost when it is gone", LOST, SKIPPED)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, doubtful = h.sent(p, 0), h.info(h.send(p)).val
    h.poll(h.reader(), [(0, first), (1, doubtful)])
    h.final([(0, first), (2, h.sent(p, 2))])
    return h


@case("a record that definitely failed is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first = h.sent(p, 0)
    h.fail(h.send(p))
    h.final([(0, first)])
    return h


@case("without a final read nothing can be lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    h.poll(h.reader(), [(1, [h.sent(p, 0), h.sent(p, 1)][1])])
    return h


@case("a final read that was cut short proves a loss where it went past the record", LOST, SKIPPED)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(4)]
    h.partial_final([(0, values[0]), (2, values[2])])
    return h


@case("a final read that was cut short proves nothing of what it did not come to")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(4)]
    h.partial_final([(0, values[0])])
    return h


@case("a final reader that jumped over a part proves nothing of that part")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(4)]
    reader = h.final_reader()
    h.poll(reader, [(0, values[0])], f="final_read", at=0)
    h.operation(reader, "seek", at={"0": 2})
    h.poll(reader, [(2, values[2]), (3, values[3])], f="final_read", at=2).end = {0: 4}
    return h


@case("an acknowledged record missing at the end of the log is unseen", UNSEEN)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final([(0, values[0]), (1, values[1])])
    return h


@case("a record acknowledged after the final read began need not be in it")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, late = h.sent(p, 0), h.send(p)
    h.final([(0, first)])
    h.ok(late, 1)
    return h


@case("an acknowledged record of unknown offset that no final read finds is lost", LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer(acks=0)
    first, _ = h.sent(p, -1), h.sent(p, -1)
    h.final([(0, first)])
    return h


@case("what retention removed is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final([(2, values[2])], at=2, log_start=2)
    return h


@case("below a log start that no retention moved, records are lost", LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(2)]
    h.final([(1, values[1])], at=1, log_start=1)
    return h


@case("what a request deleted is not lost")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(2)]
    h.operation(p, "admin", what="delete_records", part=0)
    h.final([(1, values[1])], at=1, log_start=1)
    return h


@case("compaction may take a record whose key has a later one")
def _() -> HistoryBuilder:
    h = HistoryBuilder(cleanup="compact")
    p = h.producer()
    other, _, last = h.sent(p, 0, key="a"), h.sent(p, 1, key="b"), h.sent(p, 2, key="b")
    h.final([(0, other), (2, last)])
    return h


@case("compaction must leave the last record of each key", LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder(cleanup="compact")
    p = h.producer()
    other, _, last = h.sent(p, 0, key="a"), h.sent(p, 1, key="c"), h.sent(p, 2, key="b")
    h.final([(0, other), (2, last)])
    return h


@case("a damaged record in the place of the acknowledged one is corrupt, not lost", ("corrupt", ""))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, _ = h.sent(p, 0), h.sent(p, 1)
    h.final([(0, first), (1, -1)]).bad = [(0, 1, "checksum")]
    return h


# ------------------------------------------------------------------------------------------------------ wrong places


@case("a value that stands at two offsets is a duplicate", ("duplicate", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    value = h.sent(h.producer(), 0)
    h.final([(0, value), (1, value)])
    return h


@case("a value that stood elsewhere earlier is a duplicate by reads", ("duplicate", "reads"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    value = h.info(h.send(h.producer())).val
    h.poll(h.reader(), [(0, value)])
    h.final([(1, value)])
    return h


@case("a value that two readers find at one offset is no duplicate")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    value = h.sent(h.producer(), 0)
    h.poll(h.reader(), [(0, value)])
    h.final([(0, value)])
    return h


@case("two final reads that differ at an offset are inconsistent", ("inconsistent-offset", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    one, other = h.info(h.send(h.producer())).val, h.info(h.send(h.producer())).val
    h.final([(0, one)])
    h.final([(0, other)], round_=2)
    return h


@case("a reader and a final read that differ are inconsistent by reads", ("inconsistent-offset", "reads"), LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    one, other = h.info(h.send(h.producer())).val, h.info(h.send(h.producer())).val
    h.poll(h.reader(), [(0, one)])
    h.final([(0, other)])
    return h


@case(
    "an offset acknowledged for one value and read with another is inconsistent", ("inconsistent-offset", "acks"), LOST
)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.sent(h.producer(), 0)
    h.final([(0, h.info(h.send(h.producer())).val)])
    return h


@case("a send without an answer claims no offset")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.info(h.send(h.producer()))
    h.final([(0, h.sent(h.producer(), 0))])
    return h


@case("a value that nobody sent is a phantom", ("phantom", ""))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0)), (1, 99)])
    return h


@case("a value in a partition that it was not sent to is a phantom there", ("phantom", ""))
def _() -> HistoryBuilder:
    h = HistoryBuilder(2)
    value = h.sent(h.producer(), 0)
    h.final([(0, value)])
    h.final([(0, value)], part=1)
    return h


@case("a value whose send had no answer is no phantom")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.final([(0, h.info(h.send(h.producer())).val)])
    return h


@case("a record that does not verify is corrupt, wherever it was read", ("corrupt", ""))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [(0, h.info(h.send(h.producer())).val), (1, -1)])
    return h


@case("a value found elsewhere than acknowledged is at a wrong offset", ("wrong-offset", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 1))])
    return h


def retired_but_for_a_copy() -> tuple[HistoryBuilder, int, int]:
    """Acknowledged at 0, and doubled at 5 behind another record at 3; retention has taken what is below 3."""
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer(idempotence=False)
    return h, h.sent(p, 0), h.sent(p, 3)


@case("where the acknowledged place was retired, a copy elsewhere proves nothing")
def _() -> HistoryBuilder:
    h, doubled, other = retired_but_for_a_copy()
    h.final([(3, other), (5, doubled)], at=3, log_start=3)
    return h


@case("what stands elsewhere than acknowledged, above what was retired, is misplaced", ("wrong-offset", "final"))
def _() -> HistoryBuilder:
    h, _, other = retired_but_for_a_copy()
    h.final([(4, other)], at=3, log_start=3)
    return h


@case("a doubled record of which readers saw both is a duplicate, whatever was retired", ("duplicate", "reads"))
def _() -> HistoryBuilder:
    h, doubled, other = retired_but_for_a_copy()
    h.poll(h.reader(), [(0, doubled), (3, other), (5, doubled)])
    h.final([(3, other), (5, doubled)], at=3, log_start=3)
    return h


@case("what only an earlier reader found elsewhere is at a wrong offset by reads", ("wrong-offset", "reads"), UNSEEN)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [(0, h.sent(h.producer(), 1))])
    h.final([], end=0)
    return h


# ------------------------------------------------------------------------------------------------------------ order


@case("one producer's records in the wrong order are reordered", ("send-reorder", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, second = h.send(p), h.send(p)
    h.ok(second, 0)
    h.ok(first, 1)
    h.final([(0, second.val), (1, first.val)])
    return h


@case("two producers' records have no order between them")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    first, second = h.send(h.producer()), h.send(h.producer())
    h.ok(second, 0)
    h.ok(first, 1)
    h.final([(0, second.val), (1, first.val)])
    return h


@case("acknowledged offsets in the wrong order are reordered by acknowledgements", ("send-reorder", "acks"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, second = h.send(p), h.send(p)
    h.ok(second, 0)
    h.ok(first, 1)
    return h


@case("a record in two places is in order if the first one is")
def _() -> HistoryBuilder:
    h = HistoryBuilder(2)
    p = h.producer()
    # Other partitions do not count either.
    first, second = h.sent(p, 5), h.sent(p, 0, part=1)
    h.final([(5, first)])
    h.final([(0, second)], part=1)
    return h


@case("an acknowledgement below an earlier one is stale", ("stale-ack", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    first, second = h.sent(h.producer(), 1), h.sent(h.producer(), 0)
    h.final([(0, second), (1, first)])
    return h


@case("an acknowledgement below one that came after its send began is not stale")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    second = h.send(h.producer())
    first = h.sent(h.producer(), 1)
    h.ok(second, 0)
    h.final([(0, second.val), (1, first)])
    return h


@case("an acknowledgement below that of a lost record is stale by acknowledgements", ("stale-ack", "acks"), UNSEEN)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.sent(h.producer(), 1)
    h.final([(0, h.sent(h.producer(), 0))])
    return h
