"""Defines the special timestamps of ListOffsets, which ask for a place in the log instead of a time."""

from __future__ import annotations

from typing import Final

LATEST: Final = -1
"""Asks for the end: the high watermark for clients, the log end offset for replicas."""
EARLIEST: Final = -2
"""Asks for the log start."""
MAX_TIMESTAMP: Final = -3
"""Asks for the first record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL: Final = -4
"""Asks for the first offset that is on the broker's own disk, not only in tiered storage (KIP-405): here the log start.
"""
LATEST_TIERED: Final = -5
"""Asks for the last offset in tiered storage (KIP-1005): here there is none."""
EARLIEST_PENDING_UPLOAD: Final = -6
"""Asks for the first offset that is to be copied to tiered storage (KIP-1023): here there is none."""
