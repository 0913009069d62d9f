"""Producer ids, from blocks that the controller hands out (P2, KIP-730). The cluster never reuses one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.control.port import RequestRefused
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.control.port import ProducerIdSource


class ProducerIdManager:
    """The rest of this broker's block."""

    def __init__(self, source: ProducerIdSource) -> None:
        self._source = source
        self._next = self._end = 0

    @property
    def spare(self) -> int:
        """The producer id that `take` would give; -1 if the block is used up."""
        return self._next if self._next < self._end else -1

    def take(self) -> int:
        """The next producer id, which nobody else gets. There must be one."""
        assert self._next < self._end
        self._next += 1
        return self._next - 1

    async def refill(self) -> ErrorCode:
        """Get another block, unless there is one by then. COORDINATOR_LOAD_IN_PROGRESS if no controller gives any."""
        try:
            block = await self._source.allocate_producer_ids()
        except (OSError, RequestRefused):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self._next >= self._end:
            self._next, self._end = block.start, block.stop
        return ErrorCode.NONE
