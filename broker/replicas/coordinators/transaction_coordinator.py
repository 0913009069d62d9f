"""Runs the transaction coordinator of this broker: a shard for each partition of __transaction_state that it leads
(mechanism P3 in docs/mechanisms.md).

A request is decided, its records are appended, and the shard replays them, all in one step: so requests take effect in
the order in which they come. The response is sent once the records that it depends on are committed in the leader epoch
in which the shard was loaded. A shard is loaded from the log's start when this broker leads the partition in a new
epoch, serves once all records in the log are committed, and is unloaded with the leadership.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from squall.broker.coordinators.partitions import partition_of
from squall.broker.coordinators.transactions import records
from squall.broker.coordinators.transactions.shard import NOTHING_WRITTEN, TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    STATE_NAMES,
    V2,
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    TransactionSettings,
    TxnResponse,
    TxnState,
)
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.records import decode_batch
from squall.broker.replicas.coordinators.coordinator_log import CoordinatorLog, needs_loading
from squall.broker.replicas.coordinators.marker_sender import MarkerJob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from squall.broker.cluster.image import ImageDelta
    from squall.broker.config import BrokerConfig
    from squall.broker.coordinators.transactions.values import (
        Request,
        TransactionLogRecord,
        TransactionMetadata,
        TxnCoordinatorResult,
    )
    from squall.broker.env import Env
    from squall.broker.protocol.records import Record
    from squall.broker.replicas.coordinators.marker_sender import MarkerSender
    from squall.broker.replicas.coordinators.producer_ids import ProducerIdManager
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager

    OnAnswer = Callable[[TxnResponse], None]

TOPIC = "__transaction_state"
FEATURE = "transaction.version"
LOAD_BYTES = 1 << 20
"""Limits how many bytes of the log a load reads before other tasks run."""
BYTES_OF_THE_END = 64
"""Gives the bytes, at most, by which the record that ends a transaction is larger than the record before it. The larger
record also holds the client's transaction version and the next producer id.
"""
DUE_IN_A_TURN = 100
"""Limits how many transactions are aborted, or transactional ids are expired, before other tasks run: some 10 ms."""
REFUSED_PAUSE_S = 0.05
"""Gives the pause before the coordinator retries an append of its own that was refused."""


_IN_TURN = (InitProducer, AddPartitions, EndTransaction)
"""Lists the requests of producers. Such requests of one transactional id take effect in the order in which they come.
"""


def _spare_of(decision: TxnCoordinatorResult) -> int:
    """Return the number of bytes to leave free in the batch of a decision. It is BYTES_OF_THE_END if a transaction is
    open after the decision: the record that ends the transaction is larger, and must fit into a batch, too. Otherwise
    it is 0.
    """
    opens = any(w.transaction is not None and w.transaction.state == TxnState.ONGOING for w in decision.records)
    return BYTES_OF_THE_END if opens else 0


class TransactionalIdQueue:
    """Holds the waiting requests of a transactional id. The first request waits for a producer id, or for the previous
    transaction to complete; the other requests wait for the first.
    """

    __slots__ = ("ready", "waiting")

    def __init__(self, request: Request, answer: OnAnswer) -> None:
        self.waiting = deque([(request, answer)])
        self.ready = trio.Event()


class HostedTransactionShard:
    """Holds the shard with the transactions of one __transaction_state partition, the partition's log in one leader
    epoch, and the requests that wait for earlier requests.
    """

    __slots__ = ("log", "machine", "serves", "turns")

    def __init__(self, log: CoordinatorLog, settings: TransactionSettings) -> None:
        self.log, self.machine = log, TransactionCoordinatorShard(settings)
        self.serves = False
        """Is True once the shard is loaded and all its records are committed."""
        self.turns: dict[str, TransactionalIdQueue] = {}
        """Maps a transactional id to its waiting requests."""


class TransactionCoordinator:
    """Routes requests of transactional ids to the shards that this broker hosts, and carries out the shards' decisions.
    """

    def __init__(
        self, env: Env, config: BrokerConfig, replicas: ReplicaManager, producer_ids: ProducerIdManager
    ) -> None:
        self._env, self._config, self._replicas, self._ids = env, config, replicas, producer_ids
        self._image = replicas.image
        self._patience_s = config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        self.shards: dict[int, HostedTransactionShard] = {}
        """Maps a partition of __transaction_state to its shard."""
        self._start_soon: Callable[..., None] | None = None
        self._markers: MarkerSender | None = None
        replicas.role_watchers[TOPIC] = self.role_changed

    def bind(self, start_soon: Callable[..., None], markers: MarkerSender) -> None:
        """Set the function that starts tasks and the sender of markers, and start the periodic tasks. Call this before
        the broker hosts its first partition.
        """
        self._start_soon, self._markers = start_soon, markers
        start_soon(self._abort_timed_out)
        start_soon(self._expire_ids)

    def inspect(self) -> dict[int, HostedTransactionShard]:
        """Return the shards by partition, for checks that compare them with their logs."""
        return dict(self.shards)

    # -------------------------------------------------------------------------------------------- leading and following

    def role_changed(self, h: HostedPartition) -> None:
        """Load or unload a shard, because this broker's role for a partition or the leader epoch has changed."""
        if needs_loading(self._replicas, h, self.shards, self._unload):
            log = CoordinatorLog(self._env, self._replicas, h)
            made = self.shards[log.index] = HostedTransactionShard(log, self._settings())
            assert self._start_soon is not None
            self._start_soon(self._load, made)

    def _settings(self) -> TransactionSettings:
        config = self._config
        level = self._image.features.get(FEATURE, 0)
        return TransactionSettings(
            config.transaction_max_timeout_ms,
            config.transactional_id_expiration_ms,
            level,
            config.squall_transaction_first_producer_epoch,
        )

    def image_changed(self, delta: ImageDelta) -> None:
        """Apply a new transaction.version to all shards, and retry markers, because leaders may have changed."""
        if delta.features:
            for shard in self.shards.values():
                shard.machine.settings = self._settings()
        if delta.partitions or delta.deleted_topics:
            assert self._markers is not None
            self._markers.retry_all()

    def _unload(self, index: int, shard: HostedTransactionShard) -> None:
        del self.shards[index]
        shard.serves = False
        shard.log.close()
        # By this `_decide_waiting` finds that its requests have been answered.
        turns, shard.turns = shard.turns, {}
        for turn in turns.values():
            turn.ready.set()
            for _, answer in turn.waiting:
                answer(TxnResponse(ErrorCode.NOT_COORDINATOR))
        self._env.trace("coordinator_unloaded", topic=TOPIC, partition=index, epoch=shard.log.epoch,
                        ids=len(shard.machine.transactions))  # fmt: skip
        assert self._markers is not None
        # The sender drops the jobs of this shard: its log is no longer ours.
        self._markers.retry_all()

    async def _load(self, shard: HostedTransactionShard) -> None:
        """Replay the log from its start to its end, then serve as soon as all its records are committed."""
        log = shard.log.hosted.log
        end, read = log.log_end_offset, 0
        for header, batch in log.read_batches(log.log_start_offset, end):
            if not header.is_control:
                for record in decode_batch(header, memoryview(batch)):
                    self._replay(shard, record)
            read += len(batch)
            if read >= LOAD_BYTES:
                read = 0
                await self._env.sleep(0)
                if not shard.log.is_ours():
                    return
        if shard.log.is_ours():
            if end > log.log_start_offset:
                shard.log.when_committed(end - 1, lambda _: self._serve(shard))
            else:
                self._serve(shard)

    def _replay(self, shard: HostedTransactionShard, record: Record) -> None:
        try:
            written = None if record.key is None else records.decode(record.key, record.value)
        except MalformedFrame as wrong:
            self._env.trace("coordinator_record_skipped", topic=TOPIC, partition=shard.log.index,
                            offset=record.offset, why=str(wrong))  # fmt: skip
            return
        if written is not None:
            shard.machine.replay(written, record.offset)

    def _serve(self, shard: HostedTransactionShard) -> None:
        """Start to answer requests, because all records in the log are committed, and complete the transactions that
        the previous coordinator has decided.
        """
        if not shard.log.is_ours():
            return
        shard.serves = True
        owing = shard.machine.awaiting_markers()
        self._env.trace("coordinator_loaded", topic=TOPIC, partition=shard.log.index, epoch=shard.log.epoch,
                        ids=len(shard.machine.transactions), prepared=len(owing))  # fmt: skip
        for transaction in owing:
            self._write_markers(shard, transaction)

    # ------------------------------------------------------------------------------------------------------- requests

    def submit(self, request: Request, answer: OnAnswer) -> None:
        """Decide a request now. `answer` is called once: at once, or when the records that the response depends on are
        committed.
        """
        shard = self._shard_of(request.transactional_id)
        if shard is None:
            answer(TxnResponse(ErrorCode.NOT_COORDINATOR))
        elif not shard.serves:
            answer(TxnResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        elif request.transactional_id in shard.turns and isinstance(request, _IN_TURN):
            shard.turns[request.transactional_id].waiting.append((request, answer))
        else:
            self._decide(shard, request, answer)

    def partitions(self) -> int:
        """Return the number of partitions of __transaction_state, also before the topic is created."""
        topic = self._image.topic(TOPIC)
        return len(topic.partitions) if topic is not None else self._config.transaction_state_log_num_partitions

    def _shard_of(self, transactional_id: str) -> HostedTransactionShard | None:
        return self.shards.get(partition_of(transactional_id, self.partitions()))

    def _decide(self, shard: HostedTransactionShard, request: Request, answer: OnAnswer) -> None:
        machine, name = shard.machine, request.transactional_id
        decision = machine.decide(request, self._env.wall_ms(), self._ids.spare)
        if decision.needs_producer_id:
            self._queue_request(shard, request, answer, self._wait_for_producer_id)
            return
        if self._waits_for_markers(shard, request, decision):
            self._queue_request(shard, request, answer, self._wait_for_completion)
            return
        if decision.records:
            encoded = [records.encode(written, machine.settings.version) for written in decision.records]
            error, offset = shard.log.append(encoded, spare=_spare_of(decision))
            if error:
                answer(TxnResponse(error))
                return
            for n, written in enumerate(decision.records):
                machine.replay(written, offset + n)
                self._trace(shard, written, offset + n)
            if decision.used_producer_id:
                self._ids.take()  # not earlier: a refused append has used none
            turn = shard.turns.get(name)
            if turn is not None:
                turn.ready.set()  # perhaps complete: waiting requests are decided again
        # Also for a refusal: an error must not tell of a fence or an end that may still be lost.
        required_offset = machine.offset_of(name)
        said = decision.answer
        if required_offset == NOTHING_WRITTEN:
            answer(said)
        else:
            shard.log.when_committed(required_offset, lambda error: answer(TxnResponse(error) if error else said))
        for written in decision.records:
            transaction = written.transaction
            if transaction is not None and machine.awaits_markers(transaction):
                self._when_decided(shard, transaction, required_offset)

    def _trace(self, shard: HostedTransactionShard, written: TransactionLogRecord, offset: int) -> None:
        """Trace a transaction's change of state. Its record `written` is appended at `offset`, but not committed yet.
        """
        found = written.transaction
        if found is None:
            self._env.trace("transaction_state", transactional_id=written.transactional_id, state="Dead",
                            coordinator_epoch=shard.log.epoch, offset=offset)  # fmt: skip
        else:
            self._env.trace("transaction_state", transactional_id=found.transactional_id,
                            state=STATE_NAMES[found.state], producer_id=found.producer_id, epoch=found.epoch,
                            partitions=found.partitions, coordinator_epoch=shard.log.epoch,
                            offset=offset)  # fmt: skip

    def _when_decided(self, shard: HostedTransactionShard, transaction: TransactionMetadata, offset: int) -> None:
        def decided(error: ErrorCode) -> None:
            if shard.log.is_ours():  # also on NOT_ENOUGH_REPLICAS: the log has it
                self._write_markers(shard, transaction)

        shard.log.when_committed(offset, decided)

    # ------------------------------------------------------------------------------------------------- waiting in turn

    def _waits_for_markers(
        self, shard: HostedTransactionShard, request: Request, decision: TxnCoordinatorResult
    ) -> bool:
        """Return whether a request must wait, because its producer has begun the next transaction while markers of the
        previous transaction are still being written (`decision` is CONCURRENT_TRANSACTIONS). Markers seldom take more
        than a few ms, whereas a client that gets this error waits for 20 to 100 ms (KAFKA-5477).

        A request gets the error at once, as from Kafka 4.3.1, if its producer id or epoch is not that of the
        transaction: the request will be fenced when the markers are written. A request from a partition's leader waits
        for as long as Kafka's leaders would retry it (KAFKA-18654).
        """
        if decision.answer.error != ErrorCode.CONCURRENT_TRANSACTIONS or decision.records or not self._patience_s:
            return False
        if not isinstance(request, (InitProducer, AddPartitions)):
            return False
        if isinstance(request, AddPartitions) and request.client_version == V2:
            return True
        # It exists: only a transaction that awaits its markers is answered CONCURRENT_TRANSACTIONS without a record.
        found = shard.machine.transactions[request.transactional_id]
        claimed = (request.producer_id, request.epoch)
        return claimed in ((found.producer_id, found.epoch), (NO_PRODUCER_ID, NO_EPOCH))

    def _queue_request(
        self,
        shard: HostedTransactionShard,
        request: Request,
        answer: OnAnswer,
        until: Callable[[TransactionalIdQueue], Awaitable[ErrorCode]],
    ) -> None:
        turn = shard.turns[request.transactional_id] = TransactionalIdQueue(request, answer)
        assert self._start_soon is not None
        self._start_soon(self._decide_waiting, shard, request.transactional_id, turn, until)

    async def _wait_for_producer_id(self, turn: TransactionalIdQueue) -> ErrorCode:
        return await self._ids.refill()

    async def _wait_for_completion(self, turn: TransactionalIdQueue) -> ErrorCode:
        with self._env.timeout(self._patience_s):
            await turn.ready.wait()
            return ErrorCode.NONE
        return ErrorCode.CONCURRENT_TRANSACTIONS

    async def _decide_waiting(
        self,
        shard: HostedTransactionShard,
        name: str,
        turn: TransactionalIdQueue,
        until: Callable[[TransactionalIdQueue], Awaitable[ErrorCode]],
    ) -> None:
        """Wait for `until(turn)`, then decide the requests in the queue `turn` in the order in which they came. `until`
        waits for what the first request lacks (a producer id, for example). It returns NONE, or the error for the first
        request. `name` is the transactional id.
        """
        error = await until(turn)
        if shard.turns.get(name) is not turn:
            return  # the shard was unloaded and has answered the requests
        del shard.turns[name]
        if error:
            # Only the first request needed what did not come. The others are decided without it, or wait again.
            _, answer = turn.waiting.popleft()
            answer(TxnResponse(error))
        while turn.waiting and name not in shard.turns:
            request, answer = turn.waiting.popleft()
            self._decide(shard, request, answer)
        if turn.waiting:  # one request waits again: the others wait behind it
            shard.turns[name].waiting.extend(turn.waiting)
        self._replicas.settle()

    # --------------------------------------------------------------------------------------------------------- markers

    def _write_markers(self, shard: HostedTransactionShard, transaction: TransactionMetadata) -> None:
        assert self._markers is not None
        self._env.trace("transaction_decided", transactional_id=transaction.transactional_id,
                        producer_id=transaction.producer_id, epoch=transaction.epoch,
                        state=STATE_NAMES[transaction.state], coordinator_epoch=shard.log.epoch)  # fmt: skip
        self._markers.add(MarkerJob(shard.log, transaction))

    def markers_written(self, job: MarkerJob) -> None:
        """Complete a decided transaction, because every partition has its marker."""
        shard = self.shards.get(job.log.index)
        if shard is None or shard.log is not job.log:
            return  # the next coordinator finds the decision in its log
        transaction = job.transaction
        done = MarkersWritten(transaction.transactional_id, transaction.producer_id, transaction.epoch)

        def completed(answer: TxnResponse) -> None:
            # By identity: with version 1 the next transaction has the same producer id and epoch.
            still = shard.machine.transactions.get(transaction.transactional_id) is transaction
            if answer.error and still and job.log.is_ours():
                assert self._start_soon is not None
                self._start_soon(self._complete_later, job)

        self.submit(done, completed)

    async def _complete_later(self, job: MarkerJob) -> None:
        await self._env.sleep(REFUSED_PAUSE_S * (0.5 + self._env.rng.random()))
        self.markers_written(job)

    # ------------------------------------------------------------------------------------------------------------ time

    async def _abort_timed_out(self) -> None:
        interval_s = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
        while True:
            await self._env.sleep(interval_s)
            await self._submit_due(lambda machine, now_ms: machine.timed_out(now_ms), "transaction_timed_out")

    async def _expire_ids(self) -> None:
        interval_s = self._config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        while True:
            await self._env.sleep(interval_s)
            await self._submit_due(lambda machine, now_ms: machine.expired(now_ms), "transactional_id_expired")

    async def _submit_due(
        self, due: Callable[[TransactionCoordinatorShard, int], Sequence[Request]], event: str
    ) -> None:
        now_ms = self._env.wall_ms()
        for shard in list(self.shards.values()):
            for n, request in enumerate(due(shard.machine, now_ms) if shard.serves else (), 1):
                self._env.trace(event, transactional_id=request.transactional_id, coordinator_epoch=shard.log.epoch)
                self.submit(request, lambda answer: None)
                if n % DUE_IN_A_TURN == 0:
                    self._replicas.settle()
                    await self._env.sleep(0)
                    if not shard.serves:
                        break
        self._replicas.settle()

    # --------------------------------------------------------------------------------------------------------- listing

    def transactions(self, ready: Callable[[ErrorCode, list[TransactionMetadata]], None]) -> None:
        """Pass all transactions that this broker coordinates to `ready`, once the log records that hold them are
        committed. While a shard is loading, pass COORDINATOR_LOAD_IN_PROGRESS and no transactions. `ready` is called
        once, now or later.
        """
        shards = list(self.shards.values())
        if not all(shard.serves for shard in shards):
            ready(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
            return
        found = [transaction for shard in shards for transaction in shard.machine.transactions.values()]
        owed = len(shards)

        def one(error: ErrorCode) -> None:
            nonlocal owed
            owed -= 1
            if not owed:
                ready(ErrorCode.NONE, found)

        if not shards:
            ready(ErrorCode.NONE, [])
        for shard in shards:
            end = shard.log.hosted.log.log_end_offset
            if end > shard.log.hosted.log.log_start_offset:
                shard.log.when_committed(end - 1, one)
            else:
                one(ErrorCode.NONE)
