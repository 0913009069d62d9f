"""Appends to a partition of a coordinator's log while this broker leads the partition in one leader epoch.

The leader epoch is the coordinator's epoch: the coordinator appends nothing and sends no response in another epoch.
Responses that wait for the high watermark are sent in the order of the offsets that they wait for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeVar

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import TRANSACTIONAL_BIT, BatchHeader, Record, encode_batch
from squall.broker.replicas.purgatory import DelayedProduce, ProduceResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from squall.broker.env import Env
    from squall.broker.log.producer_rules import VerificationStateEntry
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager

    OnCommitted = Callable[[ErrorCode], None]
    """Is called once: with NONE when the awaited record is committed, or else with the error for clients. The callback
    must neither wait nor append.
    """

_TO_CLIENTS = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    # Kafka's coordinators up to 3.x answered these three with INVALID_COMMIT_OFFSET_SIZE, for OffsetCommit only.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
}
"""Maps an error of the coordinator's log to the error for the coordinator's clients, as in Kafka 4's
CoordinatorOperationExceptionHelper (groups) and TransactionStateManager.
"""


OF_A_BATCH, OF_A_RECORD = 61, 30
"""Give the bytes that a batch and a record take, at most, besides keys and values."""


def batches(
    records: Sequence[tuple[bytes, bytes | None]], whole: int, most_bytes: int
) -> list[Sequence[tuple[bytes, bytes | None]]]:
    """Split (key, value) pairs into as few batches as possible, with at most `most_bytes` bytes each. Two kinds of
    batches may be larger: the first, because the first `whole` records stay together, and a batch of a single record.
    """
    found, first, size = [], 0, OF_A_BATCH
    for n, (key, value) in enumerate(records):
        more = OF_A_RECORD + len(key) + len(value or b"")
        if size + more > most_bytes and n > first and n >= whole:
            found.append(records[first:n])
            first, size = n, OF_A_BATCH
        size += more
    return [*found, records[first:]]


def error_for_clients(error: int) -> ErrorCode:
    """Return the error for a coordinator's clients, as Kafka translates it: clients of a coordinator do not expect
    errors about partition leaders.
    """
    code = ErrorCode(error)
    return code if code == ErrorCode.NONE else _TO_CLIENTS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


class LedCoordinatorShard(Protocol):
    """Lists what `needs_loading` uses of a shard of the group or transaction coordinator: its log."""

    @property
    def log(self) -> CoordinatorLog: ...


L = TypeVar("L", bound=LedCoordinatorShard)


def needs_loading(
    replicas: ReplicaManager, h: HostedPartition, shards: dict[int, L], unload: Callable[[int, L], None]
) -> bool:
    """Return whether a coordinator has to load its shard from partition `h`: this broker leads the partition, and
    `shards` (by partition index) has no shard of the current leader epoch. If `shards` has an older shard of the
    partition, it is first passed to `unload`, also if this broker no longer leads.
    """
    present = shards.get(h.state.index)
    if present is not None:
        if present.log.is_ours() and present.log.hosted is h:
            return False
        unload(h.state.index, present)
    return h.state.is_leader and replicas.is_hosted(h)


class _CommitWait:
    """Holds the callbacks that wait until one offset is committed."""

    __slots__ = ("calls", "end_offset", "result")

    def __init__(self, end_offset: int, result: ProduceResult) -> None:
        self.end_offset, self.result = end_offset, result
        self.calls: list[OnCommitted] = []

    def settled(self) -> None:
        """Call the callbacks with the result: the offset is committed, or never will be in this epoch."""
        # `close` may come first: the partition's purgatory then calls this a second time.
        calls, self.calls = self.calls, []
        for call in calls:
            call(error_for_clients(self.result.error))


class CoordinatorLog:
    """Appends to one partition and waits for commits, as long as this broker leads the partition in `epoch`."""

    __slots__ = ("_awaited", "_env", "_h", "_replicas", "closed", "epoch", "index")

    def __init__(self, env: Env, replicas: ReplicaManager, h: HostedPartition) -> None:
        assert h.state.is_leader
        self._env, self._replicas, self._h = env, replicas, h
        self.index, self.epoch = h.state.index, h.state.leader_epoch
        self.closed = False
        self._awaited: deque[_CommitWait] = deque()

    @property
    def hosted(self) -> HostedPartition:
        """Return the replica that holds the log."""
        return self._h

    def is_ours(self) -> bool:
        """Return whether this broker still leads the partition in this epoch."""
        state = self._h.state
        return not self.closed and state.is_leader and state.leader_epoch == self.epoch

    def is_followed(self, since_s: float) -> bool:
        """Return whether this broker was certainly the partition's only leader at `since_s` (monotonic seconds),
        because every replica that could be elected has fetched since then: see `PartitionRules.is_followed`.
        """
        return self._h.state.is_followed(since_s)

    def wake_followers(self) -> None:
        """Answer the fetches that are parked on this partition. Each follower then fetches again at once, which proves
        that it still follows this leader.
        """
        self._replicas.wake_round += 1
        self._replicas.woken.update(self._h.followers)

    def is_committed(self, offset: int) -> bool:
        """Return whether the record at `offset` is below the high watermark. A response that depends on the record must
        not be sent before.
        """
        return offset < self._h.state.high_watermark

    @property
    def most_bytes(self) -> int:
        """Return the size in bytes of the largest batch that the log accepts."""
        config = self._h.log.config
        return min(config.max_message_bytes, config.segment_bytes)

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None = None,
        *,
        spare: int = 0,
    ) -> tuple[ErrorCode, int]:
        """Append (key, value) pairs as one batch. Return the error for clients and the offset of the first record.

        `producer` is the (id, epoch) of the transaction that the records belong to. `spare` is the number of bytes by
        which the batch must be smaller than the largest batch that the log accepts. If an error is returned, nothing
        was appended. Raises OSError if the disk fails.
        """
        if not self.is_ours():
            return ErrorCode.NOT_COORDINATOR, -1
        h, wall_ms = self._h, self._env.wall_ms()
        # As for a Produce with acks=all, which this append is in Kafka's coordinators.
        if h.state.under_min_isr_before_append():
            return error_for_clients(ErrorCode.NOT_ENOUGH_REPLICAS), -1
        if producer is not None and not self.is_transaction_verified(*producer):
            return ErrorCode.INVALID_TXN_STATE, -1
        producer_id, epoch = producer or (-1, -1)
        batch = encode_batch(
            [Record(n, wall_ms, key, value) for n, (key, value) in enumerate(records)],
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer is not None,
        )
        if len(batch) + spare > self.most_bytes:
            return error_for_clients(ErrorCode.MESSAGE_TOO_LARGE), -1
        done = h.log.append_as_leader(memoryview(bytearray(batch)), self.epoch, wall_ms, client=False)
        if done.error:
            return error_for_clients(done.error), -1
        # With each append, so that waits are in the order of offsets: a response that asks for this offset later would
        # otherwise have to join the wait for a higher one, and leave later.
        self._wait_for(done.last_offset + 1)
        self._replicas.appended(h, int(self._env.mono() * 1000), wall_ms)
        return ErrorCode.NONE, done.base_offset

    def verification_needed(self, producer_id: int, epoch: int, *, raises_epoch: bool) -> VerificationStateEntry | None:
        """Return the verification to request from the transaction's coordinator before records of that transaction are
        appended, or None if no verification is needed. `raises_epoch` is true for transaction.version 2.
        """
        log = self._h.log
        if not raises_epoch and not log.config.transaction_partition_verification_enable:
            return None
        # There is no batch yet, so this header only names the producer.
        header = BatchHeader(0, 0, -1, 2, 0, TRANSACTIONAL_BIT, 0, 0, 0, producer_id, epoch, 0, 1)
        return log.producers.begin_verification(header, self._env.wall_ms(), raises_epoch=raises_epoch)

    def is_transaction_verified(self, producer_id: int, epoch: int) -> bool:
        """Return whether records of a transaction may be appended: the transaction is ongoing in this log, or its
        coordinator has verified it. Without the check a transaction could stay open for ever (KIP-890).
        """
        log = self._h.log
        producers = log.producers
        if producers.is_ongoing(producers.entries.get(producer_id), epoch):
            return True
        if not log.config.transaction_partition_verification_enable:
            return True
        return producers.is_verified(producers.verification(producer_id, epoch), epoch)

    def when_committed(self, offset: int, call: OnCommitted) -> None:
        """Call `call` as soon as the record at `offset` is committed, which may be at once."""
        if not self.is_ours():
            call(ErrorCode.NOT_COORDINATOR)
        elif self.is_committed(offset):
            call(ErrorCode.NONE)
        else:
            self._wait_for(offset + 1).calls.append(call)

    def _wait_for(self, end_offset: int) -> _CommitWait:
        """Return a wait that ends once `end_offset` is committed. Waits are kept in the order of their offsets, and a
        new wait is only added at the end. If waits for this or higher offsets exist, the lowest of them is returned
        instead: a transaction marker may be registered after waits for higher offsets.
        """
        awaited = self._awaited
        while awaited and self.is_committed(awaited[0].end_offset - 1):
            awaited.popleft()
        behind = None
        for found in reversed(awaited):
            if found.end_offset < end_offset:
                break
            behind = found
        if behind is not None:
            return behind
        result = ProduceResult(self.index, int(ErrorCode.NONE))
        made = _CommitWait(end_offset, result)
        awaited.append(made)
        queue = self._h.uncommitted
        queue.add(DelayedProduce(queue, end_offset, result), made)
        return made

    def close(self) -> None:
        """Answer all waiting callbacks with NOT_COORDINATOR, because this broker no longer leads in this epoch. A
        second call has no effect.
        """
        self.closed = True
        while self._awaited:
            awaited = self._awaited.popleft()
            awaited.result.error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            awaited.settled()
