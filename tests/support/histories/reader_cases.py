"""What readers got and were told, in which order: and the nearest histories where nothing is wrong with it."""

from __future__ import annotations

from checkers.history.tables import FAIL
from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.case import case

# ---------------------------------------------------------------------------------------------------------- readers


def _three() -> tuple[HistoryBuilder, list[int], int]:
    """Three records that are all there, and a reader."""
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final(list(enumerate(values)))
    return h, values, h.reader()


@case("a poll that leaves out a record is a skip", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0])])
    h.poll(reader, [(2, v[2])])
    return h


@case("one poll that leaves out a record is an inner skip", ("int-poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0]), (2, v[2])])
    return h


@case("offsets that nobody ever saw are no records, and not skipped")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, second = h.sent(p, 0), h.sent(p, 5)
    h.final([(0, first), (5, second)])
    reader = h.reader()
    h.poll(reader, [(0, first)])
    h.poll(reader, [(5, second)])
    return h


@case("after a seek a reader may go on anywhere")
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0])])
    h.operation(reader, "seek", at={"0": 2})
    h.poll(reader, [(2, v[2])])
    h.operation(reader, "seek", part=0)
    h.poll(reader, [(0, v[0])])
    return h


@case("after a failed poll a reader may go on anywhere")
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0])])
    h.poll(reader, [], st=FAIL)
    h.poll(reader, [(2, v[2])])
    return h


@case("after an empty poll a reader goes on where it was", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0])])
    h.poll(reader, [], at=1)
    h.poll(reader, [(2, v[2])])
    return h


@case("after a rebalance a reader may go on anywhere")
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0])])
    h.event("rebalance", p=reader)
    h.poll(reader, [(2, v[2])])
    return h


@case("after an assignment, or a crash, a reader may go on anywhere")
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0])])
    h.operation(reader, "assign", at={"0": 2})
    h.poll(reader, [(2, v[2])])
    h.operation(reader, "crash_client")
    h.poll(reader, [(0, v[0])])
    return h


@case("a partition that was not assigned in between may go on anywhere")
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


@case("a note in the history moves no position", ("poll-skip", ""))
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0])])
    h.event("poll_errors", p=reader)
    h.poll(reader, [(2, v[2])])
    return h


@case("a reader whose place retention removed is moved on, and skips nothing")
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    v = [h.sent(p, off) for off in range(3)]
    reader = h.reader()
    h.poll(reader, [(0, v[0])])
    h.poll(reader, [(2, v[2])], log_start=2)
    h.final([(2, v[2])], at=2, log_start=2)
    return h


@case("in a compacted partition a reader may find holes that another one did not")
def _() -> HistoryBuilder:
    h = HistoryBuilder(cleanup="compact")
    p = h.producer()
    v = [h.sent(p, off, key="k") for off in range(3)]
    h.poll(h.reader(), list(enumerate(v)))
    h.final([(0, v[0]), (2, v[2])])
    return h


@case("a poll that begins before the end of the one before it goes back", ("nonmonotonic-poll", ""))
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0]), (1, v[1])])
    h.poll(reader, [(1, v[1]), (2, v[2])])
    return h


@case("a poll whose records are out of order goes back inside", ("int-nonmonotonic-poll", ""))
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(1, v[1]), (0, v[0])])
    return h


@case("two readers do not follow each other")
def _() -> HistoryBuilder:
    h, v, reader = _three()
    h.poll(reader, [(0, v[0])])
    h.poll(h.reader(), [(2, v[2])])
    h.poll(h.reader(), [(0, v[0])])
    return h


# ------------------------------------------------------------------------------------------------------------- told

HW, LSO = ("offset-regression", "high watermark"), ("offset-regression", "last stable offset")


@case("a high watermark that one leader epoch takes back is a regression", HW)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, lso=2)
    h.poll(reader, [], at=0, hw=4, lso=2)
    return h


@case("a last stable offset that one leader epoch takes back is a regression", LSO)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, lso=4)
    h.poll(reader, [], at=0, hw=5, lso=3)
    return h


@case("a new leader may know a lower high watermark")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, epoch=1)
    h.poll(reader, [], at=0, hw=4, epoch=2)
    return h


@case("of a leader of unknown epoch nothing is known")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, epoch=-1)
    h.poll(reader, [], at=0, hw=4, epoch=-1)
    return h


@case("another client may have been told more")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [], at=0, hw=5)
    h.poll(h.reader(), [], at=0, hw=4)
    return h


@case("a latest offset below a high watermark that was told before it was asked for is a regression", HW)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5)
    h.list_offsets(reader, 4)
    return h


@case("a latest offset below what an earlier leader told is a regression", HW)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, epoch=1)
    h.poll(reader, [], at=0, hw=4, epoch=2)
    h.list_offsets(reader, 4, epoch=2)
    return h


@case("a latest offset of an earlier leader, told late, may be lower")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, epoch=2)
    h.list_offsets(reader, 4, epoch=1)
    h.list_offsets(reader, 4, epoch=-1)
    h.list_offsets(reader, 5, epoch=2)
    return h


@case("a fetch may have been on its way since before the latest offset was asked for")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.list_offsets(reader, 5)
    h.poll(reader, [], at=0, hw=4)
    h.list_offsets(reader, 0, which="earliest")
    return h


@case("a latest offset of read_committed is a last stable offset", LSO)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader(isolation=1)
    h.list_offsets(reader, 5, which="lso")
    h.list_offsets(reader, 4, which="lso")
    return h


@case("a last stable offset above the high watermark cannot be", ("lso-violation", "above the high watermark"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [], at=0, hw=4, lso=5)
    return h


@case("a last stable offset may be the high watermark")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(isolation=1), [(3, h.info(h.send(h.producer())).val)], hw=4, lso=4)
    return h


@case("read_committed must not return what stands at the last stable offset", ("lso-violation", "read at or above it"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(isolation=1), [(3, h.info(h.send(h.producer())).val)], hw=4, lso=3)
    return h


@case("read_uncommitted may return what stands above the last stable offset")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(isolation=0), [(3, h.info(h.send(h.producer())).val)], hw=4, lso=3)
    return h
