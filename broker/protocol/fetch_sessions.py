"""Defines the epochs of incremental fetch sessions (KIP-227), by which both ends count the requests of a session."""

from __future__ import annotations

from typing import Final

FINAL_EPOCH: Final = -1
"""Marks a full request that wants no session and ends the session that it names."""
INITIAL_EPOCH: Final = 0
"""Marks a full request that wants a new session."""
FIRST_EPOCH: Final = 1
"""Is the epoch of the first incremental request of a session."""
_MAX_EPOCH: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request of a session after one with `epoch`. After the greatest int32 comes 1."""
    return FIRST_EPOCH if epoch == _MAX_EPOCH else epoch + 1
