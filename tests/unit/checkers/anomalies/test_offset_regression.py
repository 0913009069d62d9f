"""Offsets that brokers take back, and the nearest that they do not."""

from __future__ import annotations

from squall.checkers.history.tables import INFO, OK
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases

HW, LSO = ("offset-regression", "high watermark"), ("offset-regression", "last stable offset")
START = ("offset-regression", "log start")

CASES = Cases()
test_the_reference = CASES.test()


def delete_records(h: HistoryBuilder, to: int, st: int = OK) -> None:
    """An administrator deletes a partition's records before an offset; just before, its leader was of epoch 0."""
    other = h.operation(h.process("admin"), "admin", what="delete_records", part=0, to=to)
    other.completion.update(st=st, led=0)


@CASES.case("a high watermark that one leader epoch takes back is a regression", HW)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, lso=2)
    h.poll(reader, [], at=0, hw=4, lso=2)
    return h


@CASES.case("a last stable offset that one leader epoch takes back is a regression", LSO)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, lso=4)
    h.poll(reader, [], at=0, hw=5, lso=3)
    return h


@CASES.case("a new leader may know a lower high watermark")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, epoch=1)
    h.poll(reader, [], at=0, hw=4, epoch=2)
    return h


@CASES.case("of a leader of unknown epoch nothing is known")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, epoch=-1)
    h.poll(reader, [], at=0, hw=4, epoch=-1)
    return h


@CASES.case("another client may have been told more")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [], at=0, hw=5)
    h.poll(h.reader(), [], at=0, hw=4)
    return h


@CASES.case("a latest offset below a high watermark that was told before it was asked for is a regression", HW)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5)
    h.list_offsets(reader, 4)
    return h


@CASES.case("a latest offset below what an earlier leader told is a regression", HW)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, epoch=1)
    h.poll(reader, [], at=0, hw=4, epoch=2)
    h.list_offsets(reader, 4, epoch=2)
    return h


@CASES.case("a latest offset of an earlier leader, told late, may be lower")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.poll(reader, [], at=0, hw=5, epoch=2)
    h.list_offsets(reader, 4, epoch=1)
    h.list_offsets(reader, 4, epoch=-1)
    h.list_offsets(reader, 5, epoch=2)
    return h


@CASES.case("a fetch may have been on its way since before the latest offset was asked for")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.list_offsets(reader, 5)
    h.poll(reader, [], at=0, hw=4)
    h.list_offsets(reader, 0, which="earliest")
    return h


@CASES.case("a latest offset of read_committed is a last stable offset", LSO)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader(isolation=1)
    h.list_offsets(reader, 5, which="lso")
    h.list_offsets(reader, 4, which="lso")
    return h


@CASES.case("a last stable offset below what an earlier leader told is a regression, if it was asked for", LSO)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader(isolation=1)
    h.poll(reader, [], at=0, hw=6, lso=5, epoch=1)
    h.list_offsets(reader, 4, which="lso", epoch=2)
    return h


@CASES.case("a new leader may know a lower last stable offset, and an earlier one may tell its own late")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader(isolation=1)
    h.poll(reader, [], at=0, hw=6, lso=5, epoch=1)
    h.poll(reader, [], at=0, hw=6, lso=4, epoch=2)
    h.list_offsets(reader, 5, which="lso", epoch=2)
    h.list_offsets(reader, 5, which="lso", epoch=1)
    return h


@CASES.case("the second fetch after the latest offset was told was sent after that", HW)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    h.list_offsets(reader, 5)
    h.poll(reader, [], at=0, hw=4)
    h.poll(reader, [], at=0, hw=4)
    return h


@CASES.case("a latest offset of read_committed that was none: fetches go on to tell a lower one", LSO)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader(isolation=1)
    h.poll(reader, [], at=0, hw=5, lso=3)
    h.list_offsets(reader, 5, which="lso")
    h.poll(reader, [], at=0, hw=5, lso=3)
    h.poll(reader, [], at=0, hw=5, lso=3)
    return h


@CASES.case("a reader at read_committed may ask for the high watermark: transactions are open below it")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader(isolation=1)
    h.list_offsets(reader, 3, which="lso")
    h.list_offsets(reader, 5)
    h.poll(reader, [], at=0, hw=5, lso=3)
    h.poll(reader, [], at=0, hw=5, lso=3)
    return h


@CASES.case("fetches of another leader need not go on where the latest offset was told")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader(isolation=1)
    h.list_offsets(reader, 5, which="lso", epoch=1)
    for epoch in (1, 2, 2):
        h.poll(reader, [], at=0, hw=5, lso=5 if epoch == 1 else 3, epoch=epoch)
    return h


@CASES.case("an earliest offset below a log start that the same leader told another client is a regression", START)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [], at=5, log_start=5)
    h.list_offsets(h.reader(), 4, which="earliest", led=0)
    return h


@CASES.case("an earliest offset below one that the same leader listed is a regression", START)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    reader = h.reader()
    for off in (5, 5, 4):
        h.list_offsets(reader, off, which="earliest", led=2)
    return h


@CASES.case("a log that begins before records that its leader has deleted is a regression", START)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    delete_records(h, 5)
    h.list_offsets(h.reader(), 4, which="earliest", led=0)
    return h


@CASES.case("a log that begins where its records were deleted, or behind that, has not gone back")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    delete_records(h, 5)
    h.list_offsets(h.reader(), 5, which="earliest", led=0)
    h.list_offsets(h.reader(), 7, which="earliest", led=0)
    delete_records(h, 6)  # of which nothing is left
    h.list_offsets(h.reader(), 7, which="earliest", led=0)
    return h


@CASES.case("a deletion that nobody answered may not have been done")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    delete_records(h, 5, st=INFO)
    h.list_offsets(h.reader(), 4, which="earliest", led=0)
    return h


@CASES.case("a later leader may have an older log start, and an older history does not say who led")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [], at=5, log_start=5, epoch=0)
    delete_records(h, 5)
    h.list_offsets(h.reader(), 4, which="earliest", epoch=0, led=1)
    h.list_offsets(h.reader(), 3, which="earliest", epoch=1)
    return h


@CASES.case("an earliest offset that was asked for before another answer came may be the older one")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    listed = h.list_offsets(h.reader(), 4, which="earliest", led=0)
    told = h.poll(h.reader(), [], at=5, log_start=5)
    told.t0, told.t1 = listed.t0 - 1, listed.t0
    listed.t1 = told.t1 + 1
    return h


@CASES.plant("offset-regression")
def _(history: GeneratedHistory) -> None:
    reader = next(poll.proc for poll in history.polls if poll.entries)
    told = [entry for poll in history.polls if poll.proc == reader for entry in poll.entries if entry.part == 0]
    told[len(told) // 2].hw += 1000
