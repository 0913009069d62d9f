"""Defines the results of the log's calls."""

from __future__ import annotations

from typing import NamedTuple

from squall.broker.protocol.record_walk import RecordFault


class AppendResult(NamedTuple):
    """Holds the result of an append. `error` is an ErrorCode; 0 if the batch is in the log."""

    error: int
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic's timestamps are the broker's."""
    duplicate: bool
    """True where the batch was in the log before: the offsets are those of then."""
    message: str | None
    faults: tuple[RecordFault, ...] = ()
    """The records that are wrong, if the error is about some of them."""

    @classmethod
    def refused(cls, error: int, message: str, faults: tuple[RecordFault, ...] = ()) -> AppendResult:
        """Not appended, and why."""
        assert error != 0, "a refusal with this code would be taken for an append"
        return cls(int(error), -1, -1, -1, False, message, faults)


class FollowerAppendResult(NamedTuple):
    """Holds the result of a follower's append. `first_offset` is the log's end before, `log_end_offset` after."""

    first_offset: int
    log_end_offset: int
    bytes: int


class RecoveryResult(NamedTuple):
    """Holds what loading found and did."""

    clean: bool
    """True where nothing had to be checked."""
    scanned_segments: int
    scanned_bytes: int
    truncated_bytes: int
    """Bytes behind the first damage, with those of the segments that followed."""
    reason: str | None
    """What was damaged; None where nothing was."""
    log_end_offset: int
