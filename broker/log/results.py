"""Defines the results of a log's appends and of its recovery."""

from __future__ import annotations

from typing import NamedTuple

from squall.broker.protocol.record_walk import InvalidRecord


class AppendResult(NamedTuple):
    """Holds the result of an append. `error` is an ErrorCode, or 0 if the batch is in the log."""

    error: int
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """Gives the broker's timestamp if the topic uses LogAppendTime, else -1."""
    duplicate: bool
    """Is True if the log had the batch already: the offsets are those of the first append."""
    message: str | None
    faults: tuple[InvalidRecord, ...] = ()
    """Lists the invalid records, if the error concerns single records."""

    @classmethod
    def refused(cls, error: int, message: str, faults: tuple[InvalidRecord, ...] = ()) -> AppendResult:
        """Return the result of a batch that is not appended, with the reason."""
        assert error != 0, "a refusal with this code would be taken for an append"
        return cls(int(error), -1, -1, -1, False, message, faults)


class FollowerAppendResult(NamedTuple):
    """Holds the log's end before a follower's append (`first_offset`) and after it (`log_end_offset`)."""

    first_offset: int
    log_end_offset: int
    bytes: int


class RecoveryResult(NamedTuple):
    """Holds what loading a log found and did."""

    clean: bool
    """Is True if no segment had to be scanned."""
    scanned_segments: int
    scanned_bytes: int
    truncated_bytes: int
    """Counts the bytes removed after the first damage, later segments included."""
    reason: str | None
    """Describes the damage; None if there was none."""
    log_end_offset: int
