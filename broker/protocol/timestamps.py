"""Timestamps of ListOffsets that ask for a place in the log instead of a time."""

from __future__ import annotations

from typing import Final

LATEST: Final = -1
"""The end: the high watermark for clients, the log's end for replicas."""
EARLIEST: Final = -2
"""Where the log starts."""
MAX_TIMESTAMP: Final = -3
"""The first record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL: Final = -4
"""The first offset that is not in tiered storage alone (KIP-405): here the log's start."""
LATEST_TIERED: Final = -5
"""The last offset in tiered storage (KIP-1005): here there is none."""
EARLIEST_PENDING_UPLOAD: Final = -6
"""The first offset that is to be copied to tiered storage (KIP-1023): here there is none."""
