"""Runs the group coordinator of this broker: a shard for each partition of __consumer_offsets that it leads (mechanism
P5 in docs/mechanisms.md).

Requests take effect at once, in the order in which they came. An exception is OffsetFetch with require_stable: it may
wait until followers prove that this broker still leads (`_confirm`), and reads the offsets then. A request's records
are appended and replayed in the same step; its response is sent once the records that it depends on are committed in
the leader epoch in which the shard was loaded. A shard is loaded from the log's start when this broker leads the
partition in a new epoch, serves once all records in the log are committed, and is unloaded with the leadership: waiting
clients get NOT_COORDINATOR.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from squall.broker.cluster.image import GROUP_RESOURCE
from squall.broker.config.group import group_number
from squall.broker.coordinators.groups import records
from squall.broker.coordinators.groups.consumer.matching import RegexMatchCache
from squall.broker.coordinators.groups.consumer.topics import ImageTopics
from squall.broker.coordinators.groups.memory_budget import MemoryBudget
from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.broker.coordinators.groups.values import (
    NOTHING_WRITTEN,
    AppendRecords,
    ClockReading,
    FetchOffsets,
    FetchOffsetsResult,
    GroupCoordinatorSettings,
    GroupResponse,
    SendResponse,
)
from squall.broker.coordinators.partitions import partition_of
from squall.broker.log.markers import read_marker
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.records import decode_batch
from squall.broker.replicas.coordinators.coordinator_log import CoordinatorLog, batches, needs_loading
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from squall.broker.cluster.image import ImageDelta
    from squall.broker.config import BrokerConfig
    from squall.broker.coordinators.groups.values import (
        Effect,
        GroupListing,
        OffsetAndMetadata,
        Request,
        TopicPartition,
    )
    from squall.broker.env import Env
    from squall.broker.log.producer_rules import VerificationStateEntry
    from squall.broker.protocol.records import BatchHeader
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager

    OnAnswer = Callable[[GroupResponse], None]
    UnconfirmedFetch = tuple[FetchOffsets, OnAnswer, float]
    """Holds an OffsetFetch that waits for proof of leadership, its callback, and its arrival (monotonic seconds)."""

TOPIC = "__consumer_offsets"
LOAD_BYTES = 1 << 20
"""Limits how many bytes of the log a load reads before other tasks run."""
EXPIRED_IN_A_TURN = 100
"""Limits how many groups are checked for expired offsets before other tasks run: some 10 ms."""
TOMBSTONE_COST = 10
"""Gives the cost of writing a group's tombstones, as a number of checks that EXPIRED_IN_A_TURN limits."""
MINUTE_MS = 60_000
CONFIRMED_AFTER_S, CONFIRMED_EVERY_S = 0.001, 0.05
"""Give the first and the longest pause between checks whether followers' fetches prove that this broker still leads."""
ANSWERED_IN_A_TURN = 500
"""Limits how many offsets and groups are answered before other tasks run. A request may ask for 50,000 of either."""
FETCH_TAKES_MS = 500
"""Gives the time, in ms, that OffsetFetch allows for followers' fetches beyond replica.fetch.wait.max.ms."""
POSITION_BYTES, REQUEST_BYTES = 110, 640
"""Give the memory, in bytes, of a waiting OffsetFetch: for each partition that it names, and for the request."""
CLOCK_STEP_S = 0.001
"""Gives the shortest sleep of the timer task: deadlines are whole milliseconds."""


class HostedGroupShard:
    """Holds the shard with the groups of one __consumer_offsets partition, and the partition's log in one leader epoch.
    """

    __slots__ = ("log", "machine", "replayed", "serves")

    def __init__(self, log: CoordinatorLog, machine: GroupCoordinatorShard) -> None:
        self.log, self.machine = log, machine
        self.replayed = False
        """Is True once the shard has replayed the log up to its end."""
        self.serves = False
        """Is True once the shard is loaded and all its records are committed."""


class GroupCoordinator:
    """Routes requests of groups to the shards that this broker hosts, and carries out the shards' effects."""

    def __init__(self, env: Env, config: BrokerConfig, replicas: ReplicaManager) -> None:
        self._env, self._config, self._replicas = env, config, replicas
        self._image = replicas.image
        self._settings = GroupCoordinatorSettings(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_initial_rebalance_delay_ms,
            config.group_max_size,
            config.offsets_retention_minutes * MINUTE_MS,
            config.group_consumer_session_timeout_ms,
            config.group_consumer_max_size,
            config.group_consumer_assignors,
            config.group_consumer_migration_policy,
            config.squall_groups_max_bytes,
            self._most_bytes,
            self._own_session_ms,
        )
        self.topics = ImageTopics(replicas.image)
        self.shards: dict[int, HostedGroupShard] = {}
        """Maps a partition of __consumer_offsets to its shard."""
        self._held = MemoryBudget(config.squall_groups_max_bytes, self._groups_bytes)
        self._matching = RegexMatchCache(self.topics)
        self._matches = False
        """Is True while the task `_match` runs, which matches topic names with members' regular expressions."""
        # Stay below offsets.commit.timeout.ms: after it clients get another error, after which Kafka's clients do not
        # look for another coordinator.
        followed_ms = config.replica_fetch_wait_max_ms + FETCH_TAKES_MS
        self._patience_s = min(followed_ms, config.offsets_commit_timeout_ms / 2) / 1000
        """Limits how long, in seconds, an OffsetFetch waits for proof that this broker is still the coordinator."""
        self._unconfirmed: dict[HostedGroupShard, deque[UnconfirmedFetch]] = {}
        """Maps a shard to its waiting OffsetFetch requests (require_stable), oldest first: see `_confirm_later`."""
        self._unconfirmed_bytes = 0
        self._start_soon: Callable[..., None] | None = None
        self._runs = False
        self._sooner = env.signal()
        self._orphans = env.signal()
        """Is set when committed offsets may be orphans: their topic may have been deleted."""
        self._wakes_at_ms: int | None = None
        """Gives the monotonic time at which the timer task next runs; None while no deadline is set."""
        replicas.role_watchers[TOPIC] = self.role_changed
        replicas.marker_watchers[TOPIC] = self.transaction_ended

    def _most_bytes(self) -> int:
        return min((shard.log.most_bytes for shard in self.shards.values()), default=1 << 20)

    def _own_session_ms(self, group_id: str) -> int | None:
        given = self._image.configs.get((GROUP_RESOURCE, group_id))
        if given is None:
            return None
        of_broker = self._config.group_consumer_session_timeout_ms
        return group_number(self._config, "consumer.session.timeout.ms", given, of_broker)

    def bind(self, start_soon: Callable[..., None]) -> None:
        """Set the function that starts tasks. Call this before the broker hosts its first partition."""
        self._start_soon = start_soon

    def inspect(self) -> dict[int, HostedGroupShard]:
        """Return the shards by partition, for checks that compare them with their logs."""
        return dict(self.shards)

    def _groups_bytes(self) -> Iterator[int]:
        for shard in self.shards.values():
            yield from (each.memory_bytes() for each in shard.machine.groups.values())

    def _now(self) -> ClockReading:
        return ClockReading(int(self._env.mono() * 1000), self._env.wall_ms())

    # -------------------------------------------------------------------------------------------- leading and following

    def role_changed(self, h: HostedPartition) -> None:
        """Load or unload a shard, because this broker's role for a partition or the leader epoch has changed."""
        if needs_loading(self._replicas, h, self.shards, self._unload):
            log = CoordinatorLog(self._env, self._replicas, h)
            machine = GroupCoordinatorShard(self._settings, self.topics, held=self._held, matching=self._matching)
            made = self.shards[log.index] = HostedGroupShard(log, machine)
            assert self._start_soon is not None
            if not self._runs:  # a broker without groups has nothing to time out
                self._runs = True
                self._start_soon(self._watch_clock)
                self._start_soon(self._expire_offsets)
            self._start_soon(self._load, made)

    def image_changed(self, delta: ImageDelta) -> None:
        """Trigger the removal of committed offsets whose topic was deleted."""
        if delta.deleted_topics:
            self._orphans.set()

    def _unload(self, index: int, shard: HostedGroupShard) -> None:
        del self.shards[index]
        shard.serves = False
        shard.log.close()
        for effect in shard.machine.fail_waiting_requests(ErrorCode.NOT_COORDINATOR):
            assert isinstance(effect, SendResponse)
            effect.token(effect.answer)
        self._env.trace("coordinator_unloaded", topic=TOPIC, partition=index, epoch=shard.log.epoch,
                        ids=len(shard.machine.listed()))  # fmt: skip

    async def _load(self, shard: HostedGroupShard) -> None:
        """Replay the log from its start to its end, then serve as soon as all its records are committed."""
        log = shard.log.hosted.log
        end, read = log.log_start_offset, 0
        while end < log.log_end_offset:  # markers of transactions may be appended meanwhile
            start, end = end, log.log_end_offset
            for header, batch in log.read_batches(start, end):
                self._replay(shard, header, memoryview(batch))
                read += len(batch)
                if read >= LOAD_BYTES:
                    read = 0
                    await self._env.sleep(0)
                    if not shard.log.is_ours():
                        return
        if shard.log.is_ours():
            shard.replayed = True
            if end > log.log_start_offset:
                shard.log.when_committed(end - 1, lambda _: self._serve(shard))
            else:
                self._serve(shard)

    def _replay(self, shard: HostedGroupShard, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            marker = read_marker(header, batch)
            if marker is not None:
                shard.machine.ledger.end_transaction(header.producer_id, marker.commit, header.last_offset)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in decode_batch(header, batch):
            try:
                written = None if record.key is None else records.decode(record.key, record.value)
            except MalformedFrame as wrong:
                # Otherwise one damaged record would leave all groups of the partition without a coordinator.
                self._env.trace("coordinator_record_skipped", topic=TOPIC, partition=shard.log.index,
                                offset=record.offset, why=str(wrong))  # fmt: skip
                continue
            if written is not None:
                shard.machine.replay(written, record.offset, producer_id)

    def _serve(self, shard: HostedGroupShard) -> None:
        """Answer requests from now on: all records are committed. Every member gets a whole session time-out."""
        if not shard.log.is_ours():
            return
        shard.machine.begin(self._now())
        shard.serves = True
        self._orphans.set()  # topics may have been deleted before this shard served
        self._env.trace("coordinator_loaded", topic=TOPIC, partition=shard.log.index, epoch=shard.log.epoch,
                        ids=len(shard.machine.listed()), prepared=len(shard.machine.ledger.pending))  # fmt: skip
        self._wake_at(shard.machine.next_deadline_ms())

    def transaction_ended(self, h: HostedPartition, producer_id: int, commit: bool, at: int) -> None:
        """Apply or drop a transaction's pending offsets, because its marker was appended to the log at offset `at`.

        This happens before the marker request is answered, so a client that learns of the commit finds the offsets
        (KAFKA-5600).
        """
        shard = self.shards.get(h.state.index)
        if shard is not None and shard.replayed and shard.log.hosted is h:  # before, the load reads the marker
            ended = shard.machine.ledger.end_transaction(producer_id, commit, at)
            self._env.trace("offsets_decided", partition=shard.log.index, producer_id=producer_id, commit=commit,
                            groups=ended, offset=at)  # fmt: skip

    # ------------------------------------------------------------------------------------------------------- requests

    def partitions(self) -> int:
        """Return the number of partitions of __consumer_offsets, also before the topic is created."""
        topic = self._image.topic(TOPIC)
        return len(topic.partitions) if topic is not None else self._config.offsets_topic_num_partitions

    def partition_of(self, group_id: str) -> int:
        """Return the partition of __consumer_offsets that a group belongs to."""
        return partition_of(group_id, self.partitions())

    def verification_needed(
        self, group_id: str, producer_id: int, epoch: int, *, raises_epoch: bool
    ) -> VerificationStateEntry | None:
        """Return the verification to request from the transaction's coordinator before offsets of a group are committed
        in the transaction; None if no verification is needed, or if this broker does not serve the group.
        `raises_epoch` is true for transaction.version 2.
        """
        shard = self.shards.get(self.partition_of(group_id))
        if shard is None or not shard.serves:
            return None
        return shard.log.verification_needed(producer_id, epoch, raises_epoch=raises_epoch)

    def committed_offsets(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets as far as this broker knows them. Later commits change this mapping."""
        shard = self.shards.get(self.partition_of(group_id))
        return shard.machine.ledger.offsets.get(group_id, {}) if shard is not None else {}

    def submit(self, request: Request, answer: OnAnswer) -> None:
        """Apply a request now. `answer` is called once: at once, when the records that the response depends on are
        committed, or when the group's rebalance permits it.
        """
        shard = self.shards.get(self.partition_of(request.group_id))
        if shard is None:
            answer(GroupResponse(ErrorCode.NOT_COORDINATOR))
        elif not shard.serves:
            answer(GroupResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        elif isinstance(request, FetchOffsets) and request.stable and not self._is_confirmed(shard, self._env.mono()):
            self._confirm(shard, request, answer)
        else:
            self._carry_out(shard, shard.machine.submit(request, answer, self._now()))
            self._wake_at(shard.machine.deadline_of(request.group_id))
            if self._matching.waiting and not self._matches:
                self._matches = True
                assert self._start_soon is not None
                self._start_soon(self._match)

    def _is_confirmed(self, shard: HostedGroupShard, since_s: float) -> bool:
        """Return whether a shard's state includes everything that was committed before `since_s` (monotonic seconds). A
        coordinator that is cut off from the other brokers may have been replaced without knowing it. Its offsets then
        become old: a client that reads them processes inputs again whose outputs are already committed.

        Raft leaders make the same check before they serve reads (Ongaro 2014, 6.4): since the request came, all
        replicas that could be elected have fetched from this leader.
        """
        return not self._config.squall_group_confirmed_positions or shard.log.is_followed(since_s)

    def _confirm(self, shard: HostedGroupShard, request: FetchOffsets, answer: OnAnswer) -> None:
        size = _size(request)
        if self._unconfirmed_bytes + size > self._config.squall_groups_max_bytes:
            answer(GroupResponse(ErrorCode.NOT_COORDINATOR))  # the client looks for the coordinator, and retries
            return
        self._unconfirmed_bytes += size
        waiting = self._unconfirmed.get(shard)
        if waiting is None:
            waiting = self._unconfirmed[shard] = deque()
            assert self._start_soon is not None
            self._start_soon(self._confirm_later, shard, waiting)
            shard.log.wake_followers()
        waiting.append((request, answer, self._env.mono()))

    async def _confirm_later(self, shard: HostedGroupShard, waiting: deque[UnconfirmedFetch]) -> None:
        """Answer waiting requests for stable offsets once the followers have fetched again, which proves that this
        broker still leads. A request that has waited for too long gets NOT_COORDINATOR.
        """
        pause_s = CONFIRMED_AFTER_S
        while waiting:
            await self._env.sleep(pause_s)
            pause_s = min(2 * pause_s, CONFIRMED_EVERY_S)
            answered = 0
            while waiting:
                request, answer, since_s = waiting[0]
                is_ours = shard.log.is_ours()
                is_confirmed = is_ours and self._is_confirmed(shard, since_s)
                if is_ours and not is_confirmed and self._env.mono() < since_s + self._patience_s:
                    break
                waiting.popleft()
                self._unconfirmed_bytes -= _size(request)
                if is_confirmed:
                    effects = shard.machine.submit(request, answer, self._now())
                    cost = max(1, _positions(effects))
                    answered += cost
                    DONE.entries += cost
                    self._carry_out(shard, effects)
                else:
                    answered += 1
                    self._env.trace("positions_unconfirmed", partition=shard.log.index, epoch=shard.log.epoch)
                    answer(GroupResponse(ErrorCode.NOT_COORDINATOR))
                if answered >= ANSWERED_IN_A_TURN:
                    answered = 0
                    await self._env.sleep(0)
            if waiting and shard.log.is_ours():
                shard.log.wake_followers()
            self._replicas.settle()
        del self._unconfirmed[shard]

    async def _match(self) -> None:
        """Match topic names with members' regular expressions, in pieces: other tasks run between the pieces."""
        while self._matching.waiting:
            await self._env.sleep(0)
            self._matching.advance()
        self._matches = False

    def _carry_out(self, shard: HostedGroupShard, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AppendRecords):
                self._append(shard, effect)
            elif effect.required_offset == NOTHING_WRITTEN:
                effect.token(effect.answer)
            else:
                self._answer_when_committed(shard, effect)

    def _answer_when_committed(self, shard: HostedGroupShard, effect: SendResponse) -> None:
        send, offset = effect.token, effect.required_offset
        shard.log.when_committed(offset, lambda error: send(GroupResponse(error) if error else effect.answer))

    def _append(self, shard: HostedGroupShard, effect: AppendRecords) -> None:
        error, last = self._appended(shard, effect)
        if error:
            self._settle(shard, effect, error)
        else:
            shard.log.when_committed(last, lambda error: self._settle(shard, effect, error))

    def _appended(self, shard: HostedGroupShard, effect: AppendRecords) -> tuple[ErrorCode, int]:
        """Append and replay the records. Return the error, or NONE and the offset of the last record."""
        try:
            encoded = [records.encode(written) for written in effect.records]
        except ValueError as wrong:
            # The record cannot be encoded: a member id is 37 characters longer than an instance id that did fit.
            self._env.trace("group_not_written", partition=shard.log.index, why=str(wrong))
            return ErrorCode.UNKNOWN_SERVER_ERROR, -1
        left, group_id, offset = iter(effect.records), effect.records[0].group_id, -1
        producer_id = effect.producer[0] if effect.producer is not None else -1
        whole = len(encoded) if effect.whole is None else effect.whole
        for batch in batches(encoded, whole, shard.log.most_bytes):
            error, offset = shard.log.append(batch, effect.producer)
            if error:
                if error != ErrorCode.NOT_COORDINATOR:
                    self._env.trace("group_not_written", partition=shard.log.index, why=error.name,
                                    group=group_id, records=len(batch))  # fmt: skip
                return error, -1
            for n, written in enumerate(islice(left, len(batch))):
                shard.machine.replay(written, offset + n, producer_id)
            self._env.trace("group_written", partition=shard.log.index, group=group_id, offset=offset,
                            records=len(batch), coordinator_epoch=shard.log.epoch)  # fmt: skip
            offset += len(batch) - 1
        return ErrorCode.NONE, offset

    def _settle(self, shard: HostedGroupShard, effect: AppendRecords, error: ErrorCode) -> None:
        if shard.log.is_ours():
            self._carry_out(shard, shard.machine.settle(effect.completion, error, self._now()))
            self._wake_at(shard.machine.deadline_of(effect.records[0].group_id))
        elif effect.completion.token is not None:
            effect.completion.token(GroupResponse(ErrorCode.NOT_COORDINATOR))

    # ------------------------------------------------------------------------------------------------------------ time

    def _wake_at(self, at_ms: int | None) -> None:
        if at_ms is not None and (self._wakes_at_ms is None or at_ms < self._wakes_at_ms):
            self._wakes_at_ms = at_ms
            self._sooner.set()

    async def _watch_clock(self) -> None:
        """Let sessions, rebalances and unused member ids end when their deadline passes."""
        env = self._env
        while True:
            if self._wakes_at_ms is None:
                await self._sooner.wait()
            else:
                # The rest of the time may be too short for the clock to advance, so sleep at least CLOCK_STEP_S.
                await self._sooner.wait(max(CLOCK_STEP_S, self._wakes_at_ms / 1000 - env.mono()))
            now = self._now()
            if self._wakes_at_ms is None or self._wakes_at_ms > now.mono_ms:
                continue
            self._wakes_at_ms = None
            for shard in list(self.shards.values()):
                if shard.serves:
                    self._carry_out(shard, shard.machine.tick(now))
                    self._wake_at(shard.machine.next_deadline_ms())
            self._replicas.settle()

    async def _expire_offsets(self) -> None:
        interval_s = self._config.offsets_retention_check_interval_ms / 1000
        due_s = self._env.mono() + interval_s
        while True:
            in_time = await self._orphans.wait(max(CLOCK_STEP_S, due_s - self._env.mono()))
            wall_ms, is_due = self._env.wall_ms(), not in_time or self._env.mono() >= due_s
            if is_due:
                due_s = self._env.mono() + interval_s
            for shard in list(self.shards.values()):
                cost = 0
                for request in shard.machine.expiring(wall_ms, retention=is_due) if shard.serves else ():
                    cost += 1
                    if request is not None:
                        cost += TOMBSTONE_COST
                        self._env.trace("offsets_expired", group=request.group_id, coordinator_epoch=shard.log.epoch)
                        self.submit(request, lambda answer: None)
                    if cost >= EXPIRED_IN_A_TURN:
                        cost = 0
                        self._replicas.settle()
                        await self._env.sleep(0)
                        if not shard.serves:
                            break
            self._replicas.settle()

    # --------------------------------------------------------------------------------------------------------- listing

    def count_groups(self) -> int:
        """Return an upper bound of the number of groups that this broker coordinates."""
        machines = [shard.machine for shard in self.shards.values()]
        return sum(len(m.groups) + len(m.ledger.consumers) + len(m.ledger.offsets) for m in machines)

    def groups(self) -> tuple[ErrorCode, Iterable[GroupListing]]:
        """Return every group that this broker coordinates, or COORDINATOR_LOAD_IN_PROGRESS while a shard is loading.
        The listings are built lazily, shard by shard.
        """
        shards = list(self.shards.values())
        if not all(shard.serves for shard in shards):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ()
        return ErrorCode.NONE, (group for shard in shards for group in shard.machine.listed())


def _positions(effects: Sequence[Effect]) -> int:
    """Return the number of offsets in the responses, because a request for all offsets does not give their number."""
    answers = (effect.answer for effect in effects if isinstance(effect, SendResponse))
    return sum(len(answer.offsets) for answer in answers if isinstance(answer, FetchOffsetsResult))


def _size(request: FetchOffsets) -> int:
    return REQUEST_BYTES + POSITION_BYTES * len(request.partitions or ())
