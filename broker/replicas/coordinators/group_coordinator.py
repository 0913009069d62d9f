"""The group coordinator of this broker: a shard for each partition of __consumer_offsets that it leads (P5).

A request takes effect at once, and in the order in which it came; but stable positions that wait for followers
(`GroupCoordinator._confirm`) are those of the moment in which they are told. A request's records are appended and
replayed in the same step; its answer leaves once what it rests on is committed in the leader epoch in which the shard
was loaded. A shard is loaded from the log's start when its partition is led in a new epoch, serves once everything in
the log is committed, and is dropped with the leadership: whoever waits is told to look for the next coordinator.
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
from squall.broker.replicas.coordinators.coordinator_log import CoordinatorLog, batches, is_led_anew
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from squall.broker.cluster.image import ImageDelta
    from squall.broker.config import BrokerConfig
    from squall.broker.coordinators.groups.classic import ClassicGroup
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
    Unconfirmed = tuple[FetchOffsets, OnAnswer, float]
    """The last is the monotonic moment, in seconds, in which the question came."""

TOPIC = "__consumer_offsets"
LOAD_BYTES = 1 << 20
"""A load lets others run after that much of the log."""
EXPIRED_IN_A_TURN = 100
"""Groups whose offsets are looked at before others have their turn: some 10 ms of them."""
WRITTEN_AS = 10
"""A request that writes tombstones takes as long as that many looks."""
MINUTE_MS = 60_000
CONFIRMED_AFTER_S, CONFIRMED_EVERY_S = 0.001, 0.05
"""When positions that cannot be told yet are looked at again: soon, then in twice the time, and at last so often."""
TOLD_IN_A_TURN = 500
"""Positions and groups. A request may ask for 50,000 of either."""
FETCH_TAKES_MS = 500
"""A follower fetches again within that time, beside the time for which its fetch may wait."""
POSITION_BYTES, REQUEST_BYTES = 110, 640
"""What positions take that wait to be told, and the request that asks for them."""
CLOCK_STEP_S = 0.001
"""Deadlines are whole milliseconds: there is nothing to do sooner than this."""


class HostedGroupShard:
    """A shard, and the partition's log in one leader epoch."""

    __slots__ = ("log", "machine", "replayed", "serves")

    def __init__(self, log: CoordinatorLog, machine: GroupCoordinatorShard) -> None:
        self.log, self.machine = log, machine
        self.replayed = False
        """The machine is at the log's end."""
        self.serves = False
        """Loaded, and all of it committed."""


class GroupCoordinator:
    """Every shard that is hosted here."""

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
        """By partition."""
        self._held = MemoryBudget(config.squall_groups_max_bytes, self._classic_groups)
        self._matching = RegexMatchCache(self.topics)
        self._matches = False
        """A task does what matching is left."""
        # After offsets.commit.timeout.ms a client is told another error, which Kafka's own do not take for a reason to
        # look for another coordinator.
        followed_ms = config.replica_fetch_wait_max_ms + FETCH_TAKES_MS
        self._patience_s = min(followed_ms, config.offsets_commit_timeout_ms / 2) / 1000
        """A coordinator that one of its followers has left for so long may have a successor."""
        self._unconfirmed: dict[HostedGroupShard, deque[Unconfirmed]] = {}
        """Who wants positions of a shard that may have a successor, in the order in which they came."""
        self._unconfirmed_bytes = 0
        self._start_soon: Callable[..., None] | None = None
        self._runs = False
        self._sooner = env.signal()
        self._orphans = env.signal()
        """Set when offsets may have lost their topic."""
        self._wakes_at_ms: int | None = None
        """When the clock's task looks next; None: not before it is told to."""
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
        """Set where tasks run. Before the first order of the control plane."""
        self._start_soon = start_soon

    def inspect(self) -> dict[int, HostedGroupShard]:
        """The shards by partition, for whoever compares them with their logs."""
        return dict(self.shards)

    def _classic_groups(self) -> Iterator[ClassicGroup]:
        for shard in self.shards.values():
            yield from shard.machine.groups.values()

    def _now(self) -> ClockReading:
        return ClockReading(int(self._env.mono() * 1000), self._env.wall_ms())

    # -------------------------------------------------------------------------------------------- leading and following

    def role_changed(self, h: HostedPartition) -> None:
        """This broker leads, follows or has dropped a partition of the log, perhaps in another epoch than before."""
        if is_led_anew(self._replicas, h, self.shards, self._unload):
            log = CoordinatorLog(self._env, self._replicas, h)
            machine = GroupCoordinatorShard(self._settings, self.topics, held=self._held, matching=self._matching)
            made = self.shards[log.index] = HostedGroupShard(log, machine)
            assert self._start_soon is not None
            if not self._runs:
                self._runs = True
                self._start_soon(self._watch_clock)
                self._start_soon(self._expire_offsets)
            self._start_soon(self._load, made)

    def image_changed(self, delta: ImageDelta) -> None:
        """Committed offsets go with their topic."""
        if delta.deleted_topics:
            self._orphans.set()

    def _unload(self, index: int, shard: HostedGroupShard) -> None:
        del self.shards[index]
        shard.serves = False
        shard.log.close()
        for effect in shard.machine.dissolve(ErrorCode.NOT_COORDINATOR):
            assert isinstance(effect, SendResponse)
            effect.token(effect.answer)
        self._env.trace("coordinator_unloaded", topic=TOPIC, partition=index, epoch=shard.log.epoch,
                        ids=len(shard.machine.listed()))  # fmt: skip

    async def _load(self, shard: HostedGroupShard) -> None:
        """Replay the log from its start to its end, then serve as soon as all of that is committed."""
        log = shard.log.hosted.log
        end, read = log.log_start_offset, 0
        while end < log.log_end_offset:  # markers of transactions may come meanwhile
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
                self._env.trace("coordinator_record_skipped", topic=TOPIC, partition=shard.log.index,
                                offset=record.offset, why=str(wrong))  # fmt: skip
                continue
            if written is not None:
                shard.machine.replay(written, record.offset, producer_id)

    def _serve(self, shard: HostedGroupShard) -> None:
        """Everything in the log is committed: answer requests. Members get a whole session to be heard of."""
        if not shard.log.is_ours():
            return
        shard.machine.begin(self._now())
        shard.serves = True
        self._orphans.set()  # topics may have gone while no coordinator served this shard
        self._env.trace("coordinator_loaded", topic=TOPIC, partition=shard.log.index, epoch=shard.log.epoch,
                        ids=len(shard.machine.listed()), prepared=len(shard.machine.ledger.pending))  # fmt: skip
        self._wake_at(shard.machine.next_deadline_ms())

    def transaction_ended(self, h: HostedPartition, producer_id: int, commit: bool, at: int) -> None:
        """The marker of a transaction is in the log: what was pending counts from here on, or never did.

        This comes before the marker is answered, so whoever hears of the commit finds the offsets (KAFKA-5600).
        """
        shard = self.shards.get(h.state.index)
        if shard is not None and shard.replayed and shard.log.hosted is h:
            ended = shard.machine.ledger.end_transaction(producer_id, commit, at)
            self._env.trace("offsets_decided", partition=shard.log.index, producer_id=producer_id, commit=commit,
                            groups=ended, offset=at)  # fmt: skip

    # ------------------------------------------------------------------------------------------------------- requests

    def partitions(self) -> int:
        """Return how many partitions the log has, or will have once it is created."""
        topic = self._image.topic(TOPIC)
        return len(topic.partitions) if topic is not None else self._config.offsets_topic_num_partitions

    def partition_of(self, group_id: str) -> int:
        """The partition of the log that a group belongs to."""
        return partition_of(group_id, self.partitions())

    def question(
        self, group_id: str, producer_id: int, epoch: int, *, raises_epoch: bool
    ) -> VerificationStateEntry | None:
        """Return what to ask the coordinator of a transaction before offsets of a group are committed in it; None:
        nothing, or nothing here. `raises_epoch`: of generation V2.
        """
        shard = self.shards.get(self.partition_of(group_id))
        if shard is None or not shard.serves:
            return None
        return shard.log.question(producer_id, epoch, raises_epoch=raises_epoch)

    def positions(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, as far as they are known here. Not to be kept: it changes."""
        shard = self.shards.get(self.partition_of(group_id))
        return shard.machine.ledger.offsets.get(group_id, {}) if shard is not None else {}

    def submit(self, request: Request, answer: OnAnswer) -> None:
        """Have a request take effect now. `answer` is called once: now, when what it rests on is committed, or when the
        group is ready for it.
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
        """Return whether a shard's present state has all that was committed before that time. A coordinator that only
        its members still reach soon has a successor, without knowing. Once that commits a transaction, the positions
        here are old, and a client that trusts them writes the outputs of the same inputs again.

        As Raft's leaders do before they let clients read (Ongaro 2014, 6.4): after the question came, all that may be
        the successor have been heard of.
        """
        return not self._config.squall_group_confirmed_positions or shard.log.is_followed(since_s)

    def _confirm(self, shard: HostedGroupShard, request: FetchOffsets, answer: OnAnswer) -> None:
        size = _size(request)
        if self._unconfirmed_bytes + size > self._config.squall_groups_max_bytes:
            answer(GroupResponse(ErrorCode.NOT_COORDINATOR))
            return
        self._unconfirmed_bytes += size
        waiting = self._unconfirmed.get(shard)
        if waiting is None:
            waiting = self._unconfirmed[shard] = deque()
            assert self._start_soon is not None
            self._start_soon(self._confirm_later, shard, waiting)
            shard.log.call_followers()
        waiting.append((request, answer, self._env.mono()))

    async def _confirm_later(self, shard: HostedGroupShard, waiting: deque[Unconfirmed]) -> None:
        """Tell positions once the followers have fetched again. Who has waited for long enough is to look for another
        coordinator.
        """
        pause_s = CONFIRMED_AFTER_S
        while waiting:
            await self._env.sleep(pause_s)
            pause_s = min(2 * pause_s, CONFIRMED_EVERY_S)
            told = 0
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
                    told += cost
                    DONE.entries += cost
                    self._carry_out(shard, effects)
                else:
                    told += 1
                    self._env.trace("positions_unconfirmed", partition=shard.log.index, epoch=shard.log.epoch)
                    answer(GroupResponse(ErrorCode.NOT_COORDINATOR))
                if told >= TOLD_IN_A_TURN:
                    told = 0
                    await self._env.sleep(0)
            if waiting and shard.log.is_ours():
                shard.log.call_followers()
            self._replicas.settle()
        del self._unconfirmed[shard]

    async def _match(self) -> None:
        """Match the expressions that cost much. Others are served between the turns."""
        while self._matching.waiting:
            await self._env.sleep(0)
            self._matching.go_on()
        self._matches = False

    def _carry_out(self, shard: HostedGroupShard, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AppendRecords):
                self._append(shard, effect)
            elif effect.rests_on == NOTHING_WRITTEN:
                effect.token(effect.answer)
            else:
                self._answer_when_committed(shard, effect)

    def _answer_when_committed(self, shard: HostedGroupShard, reply: SendResponse) -> None:
        said = reply.answer
        shard.log.when_committed(reply.rests_on, lambda error: reply.token(GroupResponse(error) if error else said))

    def _append(self, shard: HostedGroupShard, effect: AppendRecords) -> None:
        error, last = self._appended(shard, effect)
        if error:
            self._settle(shard, effect, error)
        else:
            shard.log.when_committed(last, lambda error: self._settle(shard, effect, error))

    def _appended(self, shard: HostedGroupShard, effect: AppendRecords) -> tuple[ErrorCode, int]:
        """The error, or the offset of the last record."""
        try:
            encoded = [records.encode(written) for written in effect.records]
        except ValueError as wrong:
            # The log has no place for it: a member's id is an instance id that fitted, and 37 characters more.
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
            self._carry_out(shard, shard.machine.settle(effect.settles, error, self._now()))
            self._wake_at(shard.machine.deadline_of(effect.records[0].group_id))
        elif effect.settles.token is not None:
            effect.settles.token(GroupResponse(ErrorCode.NOT_COORDINATOR))

    # ------------------------------------------------------------------------------------------------------------ time

    def _wake_at(self, at_ms: int | None) -> None:
        if at_ms is not None and (self._wakes_at_ms is None or at_ms < self._wakes_at_ms):
            self._wakes_at_ms = at_ms
            self._sooner.set()

    async def _watch_clock(self) -> None:
        """Sessions, rebalances and ids that nobody has joined with end in time."""
        env = self._env
        while True:
            if self._wakes_at_ms is None:
                await self._sooner.wait()
            else:
                # A clock can stand so short of a moment that the rest of the time is too little to move it.
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
                        cost += WRITTEN_AS
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
        """At least as many groups as are coordinated here."""
        machines = [shard.machine for shard in self.shards.values()]
        return sum(len(m.groups) + len(m.ledger.consumers) + len(m.ledger.offsets) for m in machines)

    def groups(self) -> tuple[ErrorCode, Iterable[GroupListing]]:
        """Every group that is coordinated here; COORDINATOR_LOAD_IN_PROGRESS while a shard is being loaded. They are
        made shard by shard, as they are asked for.
        """
        shards = list(self.shards.values())
        if not all(shard.serves for shard in shards):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ()
        return ErrorCode.NONE, (group for shard in shards for group in shard.machine.listed())


def _positions(effects: Sequence[Effect]) -> int:
    """Return how many positions the answers have. A request for all of a group's does not say how many that are."""
    answers = (effect.answer for effect in effects if isinstance(effect, SendResponse))
    return sum(len(answer.offsets) for answer in answers if isinstance(answer, FetchOffsetsResult))


def _size(request: FetchOffsets) -> int:
    return REQUEST_BYTES + POSITION_BYTES * len(request.partitions or ())
