"""Epochs of incremental fetch sessions (KIP-227): both ends count the requests of a session by them."""

from __future__ import annotations

from typing import Final

FINAL_EPOCH: Final = -1
"""A full request that wants no session, and ends the one that it names."""
INITIAL_EPOCH: Final = 0
"""A full request that wants a session."""
FIRST_EPOCH: Final = 1
"""Of the first incremental request."""
_MAX_EPOCH: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one of `epoch`."""
    return FIRST_EPOCH if epoch == _MAX_EPOCH else epoch + 1
