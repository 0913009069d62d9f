"""Allocates producer ids from blocks that the controller hands out (mechanism P2 in docs/mechanisms.md, KIP-730). The
cluster never reuses a producer id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.control.port import RequestRefused
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.control.port import ProducerIdSource


class ProducerIdManager:
    """Holds the rest of this broker's block of producer ids."""

    def __init__(self, source: ProducerIdSource) -> None:
        self._source = source
        self._next = self._end = 0

    @property
    def spare(self) -> int:
        """Return the producer id that `take` would return, or -1 if the block is used up."""
        return self._next if self._next < self._end else -1

    def take(self) -> int:
        """Return the next producer id, which no other producer gets. Raises AssertionError if the block is used up."""
        assert self._next < self._end
        self._next += 1
        return self._next - 1

    async def refill(self) -> ErrorCode:
        """Get a block from the controller, and use it if the current block is used up by then. Return
        COORDINATOR_LOAD_IN_PROGRESS if no controller gives a block.
        """
        try:
            block = await self._source.allocate_producer_ids()
        except (OSError, RequestRefused):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # Another task may have got a block meanwhile. This block is then lost, which costs nothing but its ids.
        if self._next >= self._end:
            self._next, self._end = block.start, block.stop
        return ErrorCode.NONE
