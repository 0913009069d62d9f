"""Checks what a power loss took out of each log, by comparing its files."""

from __future__ import annotations

from squall.chaos.runtimes.lost_records import LostOffsetRanges
from tests.support.disks.batches import batch


def segment(*bases: int) -> bytes:
    """Batches of two records each."""
    return b"".join(bytes(batch(2, base=base)) for base in bases)


def named(base: int, topic: str = "t-0") -> str:
    return f"data/{topic}/{base:020}.log"


def lost(changed: dict[int, tuple[bytes, bytes]], left: dict[int, bytes]) -> list[int] | None:
    """The evidence about one log: segments that changed, as they were and are, and those that are left."""
    records = LostOffsetRanges()
    for base, (before, after) in changed.items():
        records.add_changed(named(base), before, after)
    for base, content in left.items():
        records.add_remaining(named(base), content)
    return records.evidence().get("t-0")


def test_a_log_loses_all_from_the_first_batch_that_changed_on() -> None:
    whole, torn = segment(4, 6, 8), bytearray(segment(4, 6, 8))
    torn[len(segment(4)) + 90] ^= 1
    assert lost({4: (whole, bytes(torn))}, {4: bytes(torn)}) == [6, 10], "what follows a torn batch is cut off with it"
    assert lost({4: (whole, segment(4, 6))}, {4: segment(4, 6)}) == [8, 10]
    assert lost({4: (whole, whole)}, {4: whole}) is None
    assert lost({4: (whole, whole + segment(10))}, {4: whole + segment(10)}) is None, "a truncation that was lost"


def test_a_log_loses_what_other_records_had_replaced() -> None:
    """A truncation and the appends after it were not synced: what was truncated is there again."""
    assert lost({4: (segment(4) + bytes(batch(3, base=6)), segment(4, 6))}, {4: segment(4, 6)}) == [6, 9]


def test_a_log_loses_the_segments_behind_a_lost_one() -> None:
    assert lost({4: (segment(4, 6), b"")}, {0: segment(0, 2), 8: segment(8, 10)}) == [4, 12]
    assert lost({4: (segment(4, 6), segment(4))}, {4: segment(4), 8: b""}) == [6, 8], "an empty one says where it ended"


def test_a_log_loses_what_a_segment_that_returned_does_not_lead_up_to() -> None:
    """Deleted segments return if their removal was not synced, and some of them may not."""
    assert lost({0: (b"", b"")}, {0: segment(0, 2), 8: segment(8)}) == [8, 10]
    assert lost({0: (b"", b"")}, {0: segment(0, 2), 4: segment(4)}) is None, "nothing is missing between them"
    assert lost({0: (b"", b"")}, {0: segment(0, 2)}) is None


def test_other_files_and_logs_that_kept_everything_are_left_out() -> None:
    records = LostOffsetRanges()
    for path in ("data/t-0/00000000000000000000.index", "data/meta.properties", "data/t-0.0f-delete/0.log"):
        records.add_changed(path, segment(0), b"")
    records.add_changed(named(0, "u-1"), segment(0), b"")
    records.add_remaining(named(2), segment(2))
    assert records.partitions == ["u-1"]
    assert records.evidence() == {"u-1": [0, 2]}


def test_a_file_that_was_damaged_before_is_read_as_far_as_it_makes_sense() -> None:
    before = segment(0, 2) + bytes(100) + segment(4)
    assert lost({0: (before, segment(0))}, {0: segment(0)}) == [2, 4]
