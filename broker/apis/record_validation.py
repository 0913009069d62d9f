"""Reads and checks records before they are appended, for topics whose settings need it. Compressed and large batches
are read off the event loop. Small uncompressed batches are left to the log, which reads them as it appends.

While a batch is read, no further request is taken from the connection, so requests of one connection take effect in
their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.log.lookups import QUICK_BYTES
from squall.broker.log.results import AppendResult
from squall.broker.log.validation import check_batch, refusal
from squall.broker.protocol.records import CODEC_MASK, HEADER_SIZE, read_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.apis.decompression import DecompressionPool
    from squall.broker.env import Env
    from squall.broker.log.config import LogConfig
    from squall.broker.net.connection import PendingResponse
    from squall.broker.protocol.hot import ProduceIn
    from squall.broker.protocol.record_walk import CheckedBatch
    from squall.broker.replicas.replica_manager import ReplicaManager

SHORT_BYTES, SHORT_RECORDS = 64 << 10, 2_000
"""Limit the bytes (before decompression) and the records of a batch whose check counts as short work, which
`DecompressionPool` runs beside long work. Checking such a batch takes at most some 0.1 s, even if it decompresses to
squall.decompressed.batch.max.bytes.
"""
CheckedBatches = dict[tuple[bytes, int], "CheckedBatch | AppendResult"]
"""Maps (topic id or name as in the request, partition) to the largest timestamp and the invalid records of the batch,
or to the error that refuses the batch.
"""
Waiting = list[tuple[tuple[bytes, int], memoryview, "LogConfig"]]


class RecordValidator:
    """Reads the records of Produce requests before their batches are appended."""

    def __init__(
        self, env: Env, replicas: ReplicaManager, unpacking: DecompressionPool, start_soon: Callable[..., None]
    ) -> None:
        self._env, self._replicas, self._unpacking, self._start_soon = env, replicas, unpacking, start_soon

    def defer(
        self, slot: PendingResponse, request: ProduceIn, by_ids: bool, go_on: Callable[[CheckedBatches], None]
    ) -> bool:
        """Return whether a batch of the request must be read before it is appended. If so, `go_on` is called once, when
        all such batches are read. `by_ids` is true if the request names topics by id.
        """
        waiting = self._waiting(request, by_ids)
        if not waiting:
            return False
        slot.conn.hold()
        self._start_soon(self._read, slot, waiting, go_on)
        return True

    def _waiting(self, request: ProduceIn, by_ids: bool) -> Waiting:
        find = self._replicas.by_id.get if by_ids else self._replicas.by_name.get
        waiting: Waiting = []
        for key, parts in request.topics:
            hosted = find(key)
            for index, records in parts:
                h = hosted.get(index) if hosted else None
                if h is None or records is None or not h.log.config.checks_records or len(records) < HEADER_SIZE:
                    continue
                packed = read_header(records, 0).attributes & CODEC_MASK or len(records) > QUICK_BYTES
                # A batch whose header is invalid is not read: the log refuses it anyway.
                if packed and refusal(records, h.log.config, self._env.wall_ms(), client=True, zstd=True) is None:
                    waiting.append(((key, index), records, h.log.config))
        return waiting

    async def _read(self, slot: PendingResponse, waiting: Waiting, go_on: Callable[[CheckedBatches], None]) -> None:
        found: CheckedBatches = {}
        try:
            for place, records, config in waiting:
                is_short = len(records) <= SHORT_BYTES and read_header(records, 0).record_count <= SHORT_RECORDS
                now_ms = self._env.wall_ms()
                found[place] = await self._unpacking.run(check_batch, records, config, now_ms, short=is_short)
                if slot.conn.closed:
                    return
        finally:
            slot.conn.release()
        go_on(found)  # may hold the connection again: no other task has run since the release
        self._replicas.settle()
