"""Defines the waiters on a replica that this broker hosts.

| waiter | waits until | is held by `HostedPartition`'s |
|---|---|---|
| `DelayedProduce` of a Produce with acks=all | the high watermark reaches its end offset | `uncommitted` |
| `DelayedProduce` of a Produce with acks=1 | the flush that the topic's settings promise has ended | `unflushed` |
| `DelayedDeleteRecords` of a DeleteRecords | the low watermark reaches its offset | `deletions` |
| a parked Fetch (`net.wakeups.Wakeable`) | anything changes on a partition | `followers`, `consumers` |

The `UnflushedAppend` of a follower (in `flushes`) waits in the fetcher for its own flush: the follower's next Fetch
acknowledges the records. A request is answered when all its waiters are done. It drops its waiters when its time-out
passes or its connection ends.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from squall.broker.protocol.schema.delete_records import DeleteRecordsPartitionResult
    from squall.broker.replication.partition import Partition


class ProduceResult:
    """Holds one partition's part of a Produce response."""

    __slots__ = ("append_time_ms", "base_offset", "error", "faults", "index", "leader", "log_start_offset", "message")

    def __init__(
        self,
        index: int,
        error: int,
        base_offset: int = -1,
        append_time_ms: int = -1,
        log_start_offset: int = -1,
        message: str | None = None,
        leader: tuple[int, int] | None = None,
    ) -> None:
        self.index, self.error, self.base_offset = index, error, base_offset
        self.append_time_ms, self.log_start_offset = append_time_ms, log_start_offset
        self.message = message
        self.leader = leader
        """Holds the (id, epoch) of the leader that the client should ask instead; None if unknown."""
        self.faults: Sequence[tuple[int, str]] = ()
        """Lists (index in the batch, error message) for each invalid record."""

    def refuse(self, error: int) -> None:
        """Turn the result into an error. The records may be in the log all the same."""
        self.error, self.base_offset = error, -1


class PendingRequest(Protocol):
    """Describes a request that waits for the results of several partitions before it is answered."""

    def settled(self) -> None:
        """Note that one of the request's partitions has its result."""


class DelayedProduce:
    """Holds an append to one partition that is not acknowledged yet."""

    __slots__ = ("end_offset", "is_owed", "queue", "request", "result")

    def __init__(self, queue: ProducePurgatory, end_offset: int, result: ProduceResult) -> None:
        self.queue, self.end_offset, self.result = queue, end_offset, result
        self.is_owed = True
        """Is True while the client is owed an answer. It becomes False once the append is answered, or once its request
        no longer waits.
        """
        self.request: PendingRequest | None = None
        """Holds the request that waits for this append. It is None until the append is put into a purgatory, or if the
        request need not wait.
        """

    def answer(self, error: int) -> None:
        """Finish the wait: the awaited offset has been reached, or never will be (`error`). This has no effect once the
        append was given up.
        """
        if self.is_owed:
            self.is_owed = False
            if error:
                self.result.refuse(error)
            assert self.request is not None
            self.request.settled()


class ProducePurgatory:
    """Holds the appends of one partition that wait for an offset, in the order of their end offsets."""

    __slots__ = ("_given_up", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[DelayedProduce] = deque()
        self._given_up = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, append: DelayedProduce, request: PendingRequest) -> None:
        """Add an append of `request`. Its end offset must not be below the end offsets already in the queue."""
        append.request = request
        self._waiting.append(append)

    def is_due(self, offset: int) -> bool:
        """Return whether some append ends at `offset` or before."""
        waiting = self._waiting
        return waiting[0].end_offset <= offset if waiting else False

    def answer_up_to(self, offset: int, error: int) -> None:
        """Answer all appends that end at `offset` or before."""
        waiting = self._waiting
        while waiting and waiting[0].end_offset <= offset:
            waiting.popleft().answer(error)

    def answer_all(self, error: int, leader: tuple[int, int]) -> None:
        """Answer all appends with an error, because this broker no longer leads. `leader` is the (id, epoch) of the new
        leader.
        """
        waiting = self._waiting
        while waiting:
            append = waiting.popleft()
            append.result.leader = leader
            append.answer(error)

    def count_given_up(self) -> None:
        """Count an append whose request no longer waits (`give_up`). Until the awaited offset moves, nothing else
        removes such appends. They are removed once they are more than half of the queue, so that the cost of a removal
        is shared by many appends.
        """
        self._given_up += 1
        if 2 * self._given_up > len(self._waiting):
            still = [append for append in self._waiting if append.is_owed]
            self._waiting.clear()
            self._waiting.extend(still)
            self._given_up = 0


def give_up(appends: Iterable[DelayedProduce]) -> list[DelayedProduce]:
    """Give up these appends, because their request no longer waits. Return the appends that were not answered yet."""
    owed = [append for append in appends if append.is_owed]
    for append in owed:
        append.is_owed = False
    # Only now: a queue that is rebuilt then drops all of them at once.
    for append in owed:
        append.queue.count_given_up()
    return owed


class PendingDeleteRecords(Protocol):
    """Describes a DeleteRecords request that waits for several partitions."""

    def settled(self, deletion: DelayedDeleteRecords) -> None:
        """Note that one of the request's deletions has its result."""


class DelayedDeleteRecords:
    """Holds one partition's DeleteRecords until every replica has deleted the records."""

    __slots__ = ("_offset", "_request", "_state", "_watchers", "result")

    def __init__(
        self,
        request: PendingDeleteRecords,
        state: Partition,
        watchers: dict[DelayedDeleteRecords, None],
        offset: int,
        result: DeleteRecordsPartitionResult,
    ) -> None:
        """Set up a deletion that waits until the low watermark reaches `offset`. Until then its result is
        REQUEST_TIMED_OUT. `watchers` holds all such deletions of the replica.
        """
        self._request, self._state, self._watchers, self._offset = request, state, watchers, offset
        self.result = result
        result.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
        watchers[self] = None

    def try_complete(self) -> None:
        """Complete the deletion if the low watermark has reached its offset, or fail it if this broker no longer leads.
        """
        state, result = self._state, self.result
        if not state.is_leader:
            result.error_code, result.low_watermark = int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1
            self._request.settled(self)
            return
        result.low_watermark = state.low_watermark()
        if result.low_watermark >= self._offset:
            result.error_code = int(ErrorCode.NONE)
            self._request.settled(self)

    def forget(self) -> None:
        """Remove the deletion from the replica's watchers, because its request no longer waits. A second call has no
        effect.
        """
        self._watchers.pop(self, None)
