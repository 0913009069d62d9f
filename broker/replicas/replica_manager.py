"""Hosts every replica of this broker: passes data plane events to state machines, and carries out their effects.

The control plane gives orders (`obey`) and receives ISR proposals. It may be KRaft or another implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from squall.broker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE
from squall.broker.cluster.settings import altered_settings, with_altered
from squall.broker.config.topic import TopicConfig, topic_config
from squall.broker.control.port import BecomeFollower, BecomeLeader, BrokersChanged, SettingsChanged, StopReplica
from squall.broker.log.config import LogConfig, of_broker
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.flushes import FlushScheduler, UnflushedAppend
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replicas.order_queue import OrderQueue
from squall.broker.replication.partition import Partition
from squall.broker.replication.truncation import TRUNCATION_RULES
from squall.broker.replication.values import (
    AdvanceLogStart,
    BrokerStatuses,
    FetchRefused,
    HighWatermarkMoved,
    IsrChanged,
    LeadershipLost,
    ProposeIsr,
    ReplicationSettings,
    RetryIsrProposal,
    StartFetching,
    StopFetching,
    TruncateFullyAndStartAt,
    TruncateTo,
    WriteLeaderEpoch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.cluster.image import ClusterImage, PartitionImage
    from squall.broker.config import BrokerConfig
    from squall.broker.control.port import Order
    from squall.broker.env import Env
    from squall.broker.log.log import Log
    from squall.broker.log.manager import LogManager
    from squall.broker.net.wakeups import WakeableSet
    from squall.broker.replicas.ports import FollowerFetchPort, IsrProposalPort
    from squall.broker.replication.values import Effects

_NONE = int(ErrorCode.NONE)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NOT_ENOUGH_AFTER_APPEND = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class ReplicaManager:
    """Manages the replicas of one broker: appends, fetches, orders of the control plane, and periodic work."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        image: ClusterImage,
        logs: LogManager,
        fetchers: FollowerFetchPort,
        proposals: IsrProposalPort,
    ) -> None:
        self._env, self._config, self.image, self._logs = env, config, image, logs
        self.in_force = config
        """Holds the configuration together with the settings altered at run time."""
        self._fetchers, self._proposals = fetchers, proposals
        self._turns = OrderQueue(self._obey, lambda: self.settle(), env.mono)
        self._checkpointed = logs.high_watermarks.read()
        self._traced_offsets: dict[Log, tuple[int, int]] = {}
        """Maps each log to the log end offset and high watermark that were last traced."""
        self._brokers = BrokerStatuses()
        self.by_name: dict[bytes, dict[int, HostedPartition]] = {}
        self.by_id: dict[bytes, dict[int, HostedPartition]] = {}
        self.woken: WakeableSet = {}
        """Holds the parked fetches whose partitions have changed; the server's `settle` answers them."""
        self.wake_round = 0
        """Counts how often a coordinator woke followers: their next Fetch acknowledges unchanged partitions, too."""
        self.flushes = FlushScheduler(env, self.is_hosted, self.flushed)
        self.log_starts_adopted = False
        """Is True if a follower has adopted its leader's log start offset and no checkpoint file holds it yet."""
        self.role_watchers: dict[str, Callable[[HostedPartition], None]] = {}
        """Maps a topic to the function called after each order for its replicas, and when one is dropped."""
        self.marker_watchers: dict[str, Callable[[HostedPartition, int, bool, int], None]] = {}
        """Maps a topic to the function called when a transaction ends in it. Arguments: the replica, the producer id,
        True for a commit, the marker's offset.
        """
        self.settle: Callable[[], None] = lambda: None
        """Answers woken fetches and sends responses. Code that changes a partition outside of a request calls it."""

    def bind(self, start_soon: Callable[..., None]) -> None:
        """Set the function that starts tasks."""
        self._turns.start_soon = start_soon
        self.flushes.bind(start_soon)

    def hosted(self) -> list[HostedPartition]:
        """Return all replicas, in a deterministic order."""
        return [h for parts in self.by_id.values() for h in parts.values()]

    @property
    def log_dir(self) -> str:
        """Return the path of the folder that holds all logs."""
        return self._logs.log_dir

    def space(self) -> tuple[int, int]:
        """Return the total and the free bytes of the volume that holds the logs; -1 if unknown."""
        return self._logs.space()

    def find(self, topic_id: bytes, index: int) -> HostedPartition | None:
        """Return the replica of a partition, or None if this broker does not host it."""
        parts = self.by_id.get(topic_id)
        return parts.get(index) if parts else None

    def is_hosted(self, h: HostedPartition) -> bool:
        """Return whether this replica is hosted: False once it was dropped, even if its partition is hosted again."""
        return self.find(h.state.topic_id, h.state.index) is h

    # ------------------------------------------------------------------ what requests ask of the metadata

    def _partition(self, key: bytes, index: int) -> PartitionImage | None:
        topic_id = key if key in self.image.topics_by_id else self.image.topic_ids.get(str(key, "utf-8", "replace"))
        return None if topic_id is None else self.image.partition(topic_id, index)

    def knows(self, key: bytes, index: int) -> bool:
        """Return whether the partition exists, on this broker or elsewhere; `key` is a topic's name or id."""
        return self._partition(key, index) is not None

    def leader_of(self, key: bytes, index: int) -> tuple[int, int] | None:
        """Return (leader id, leader epoch) according to the metadata, or None if the partition is unknown."""
        found = self._partition(key, index)
        return None if found is None else (found.leader, found.leader_epoch)

    def absent(self, key: bytes, index: int, *, by_id: bool) -> tuple[ErrorCode, tuple[int, int] | None]:
        """Return the error for a partition not hosted here, and its (leader id, leader epoch), or None if it exists
        nowhere. key: the topic's id if `by_id`, else its name.
        """
        leader = self.leader_of(key, index)
        if leader is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, leader
        unknown_id = by_id and key not in self.image.topics_by_id
        return (ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None

    def endpoints(self, ids: list[int], listener: str) -> list[tuple[int, str, int, str | None]]:
        """Return the addresses of brokers for clients of `listener`, as (id, host, port, rack)."""
        brokers = [self.image.brokers[each] for each in ids if each in self.image.brokers]
        return [(each.id, *each.endpoints[listener], each.rack) for each in brokers if listener in each.endpoints]

    # ------------------------------------------------------------------ the data plane's events

    def appended(self, h: HostedPartition, now_ms: int, wall_ms: int) -> None:
        """Handle an append by the leader: wake the followers' fetches. If the topic requires a flush, the batch stays
        invisible until it is durable, as log.flush.interval.messages promises.
        """
        log = h.log
        if (h.holding or (log.flushes and log.flush_due(wall_ms))) and self.flushes.begin(h):
            return
        effects = h.state.appended(log.log_end_offset, now_ms)
        if h.followers:
            self.woken.update(h.followers)
        if effects:
            self.apply_effects(h, effects)

    def flushed(self, h: HostedPartition, end_offset: int) -> None:
        """Make records below `end_offset` visible and acknowledge them: they are as durable as required."""
        state = h.state
        if state.is_leader and end_offset > state.log_end_offset:
            effects = state.appended(end_offset, int(self._env.mono() * 1000))
            self.woken.update(h.followers)
            self.apply_effects(h, effects)
        h.unflushed.answer_up_to(state.log_end_offset, _NONE)
        self.settle()

    def flush_by_time(self) -> None:
        """Flush the logs whose flush.ms has passed, including logs without further appends."""
        wall_ms = self._env.wall_ms()
        for h in self.hosted():
            if h.log.flushes and h.log.flush_due(wall_ms):
                self.flushes.begin(h)

    def followed(self, h: HostedPartition, leader_high_watermark: int, leader_log_start: int) -> UnflushedAppend | None:
        """Handle a fetch response on a follower: apply the leader's offsets, once its records (if any) are appended.

        If the records must be flushed first, nothing is applied yet: pass the returned value to `flush_followed` before
        the next fetch, because that fetch acknowledges the records.
        """
        log, state = h.log, h.state
        if log.flushes and log.flush_due(self._env.wall_ms()) and self.flushes.begin(h):
            end = log.log_end_offset
            return UnflushedAppend(h, state.leader_epoch, log.generation, end, leader_high_watermark, leader_log_start)
        effects = state.apply_leader_offsets(leader_high_watermark, leader_log_start, log.log_end_offset)
        if effects:
            self.apply_effects(h, effects)
        return None

    async def flush_followed(self, held: list[UnflushedAppend]) -> None:
        """Wait until the appends in `held` are on disk, then apply the leader's offsets that came with them."""
        await self.flushes.until_durable(held)
        for item in held:
            h, state = item.hosted, item.hosted.state
            still = state.is_follower and state.leader_epoch == item.leader_epoch
            if still and h.log.generation == item.generation:
                high_watermark, log_start = item.leader_high_watermark, item.leader_log_start
                self.apply_effects(h, state.apply_leader_offsets(high_watermark, log_start, h.log.log_end_offset))

    def delete_records(self, h: HostedPartition, offset: int) -> None:
        """Move the log start offset of a log led here to `offset`, as a client asked. Call `log_starts_moved` next."""
        if h.log.increment_log_start(offset):
            self._log_start_moved(h, "DeleteRecords")
            # Wake the followers' parked fetches, whose responses carry the new log start offset. Otherwise followers
            # would learn of it only when their max wait has passed.
            self.woken.update(h.followers)

    def log_starts_moved(self) -> None:
        """Make the new log start offsets durable before DeleteRecords is answered."""
        self._logs.checkpoint_log_starts()
        self.settle()

    def checkpoint_adopted_log_starts(self) -> None:
        """Make the log start offsets adopted from leaders durable before the next fetch reports them."""
        if self.log_starts_adopted:
            self.log_starts_adopted = False
            self._logs.checkpoint_log_starts()

    def low_watermark_moved(self, h: HostedPartition) -> None:
        """Check the waiting DeleteRecords again: a replica has reported its log start or is no longer waited for."""
        for deletion in list(h.deletions):
            deletion.try_complete()

    def _log_start_moved(self, h: HostedPartition, reason: str) -> None:
        h.state.log_start_moved(h.log.log_start_offset)
        self._trace(h, "log_start_moved", log_start=h.log.log_start_offset, hw=h.state.high_watermark,
                    leo=h.log.log_end_offset, reason=reason)  # fmt: skip

    def apply_effects(self, h: HostedPartition, effects: Effects) -> ErrorCode:
        """Carry out the effects of a state machine, in order. Return the error if a fetch was refused, else NONE."""
        refused = ErrorCode.NONE
        for effect in effects:
            if type(effect) is HighWatermarkMoved:
                self._high_watermark_moved(h)
            elif type(effect) is FetchRefused:
                refused = effect.error
            else:
                self._EFFECTS[type(effect)](self, h, effect)
        return refused

    def _high_watermark_moved(self, h: HostedPartition) -> None:
        high_watermark = h.state.high_watermark
        if h.uncommitted.is_due(high_watermark):
            error = _NOT_ENOUGH_AFTER_APPEND if h.state.under_min_isr_after() else _NONE
            h.uncommitted.answer_up_to(high_watermark, error)
        if h.consumers:
            self.woken.update(h.consumers)

    def _propose_isr(self, h: HostedPartition, effect: ProposeIsr) -> None:
        committed = h.state.isr
        self._trace(h, "isr_proposed", isr=effect.members, epoch=effect.leader_epoch, leo=h.log.log_end_offset,
                    out=[b for b in committed if b not in effect.members],
                    joining=[b for b in effect.members if b not in committed], reason=effect.reason)  # fmt: skip
        self._proposals.propose(h, effect)

    def _retry_isr(self, h: HostedPartition, effect: RetryIsrProposal) -> None:
        self._proposals.retry(h, effect.proposal)

    def _isr_changed(self, h: HostedPartition, effect: IsrChanged) -> None:
        self._trace(h, "isr_changed", isr=effect.isr, maximal=effect.maximal_isr, epoch=effect.leader_epoch,
                    partition_epoch=effect.partition_epoch, leo=h.log.log_end_offset,
                    hw=h.state.high_watermark)  # fmt: skip
        self._proposals.changed(h, effect)

    def _assign_epoch(self, h: HostedPartition, effect: WriteLeaderEpoch) -> None:
        h.log.epochs.assign(effect.epoch, effect.start_offset)

    def _leadership_lost(self, h: HostedPartition, effect: LeadershipLost) -> None:
        """Answer all requests that wait on this partition. Producers get NOT_LEADER, but their records may survive."""
        leader = h.state.leader_id, h.state.leader_epoch
        h.uncommitted.answer_all(_NOT_LEADER, leader)
        h.unflushed.answer_all(_NOT_LEADER, leader)
        self.low_watermark_moved(h)

    def _start_fetching(self, h: HostedPartition, effect: StartFetching) -> None:
        self.apply_effects(h, h.state.prepare_to_fetch(h.log.epochs.latest))
        self._fetchers.follow(h)

    def _stop_fetching(self, h: HostedPartition, effect: StopFetching) -> None:
        self._fetchers.unfollow(h)

    def _truncate_to(self, h: HostedPartition, effect: TruncateTo) -> None:
        before = h.log.log_end_offset
        if effect.offset < before:
            h.cut_readers()
        h.log.truncate_to(effect.offset)
        self._trace(h, "truncated", from_offset=before, to_offset=effect.offset, reason=effect.reason,
                    hw=h.state.high_watermark, epoch=h.state.leader_epoch)  # fmt: skip
        h.state.truncated(h.log.log_end_offset)

    def _restart_at(self, h: HostedPartition, effect: TruncateFullyAndStartAt) -> None:
        before = h.log.log_end_offset
        h.cut_readers()
        h.log.truncate_fully_and_start_at(effect.offset)
        self._trace(h, "truncated", from_offset=before, to_offset=effect.offset, reason=effect.reason,
                    hw=h.state.high_watermark, epoch=h.state.leader_epoch, restarted=True)  # fmt: skip
        h.state.restarted(effect.offset)

    def _advance_log_start(self, h: HostedPartition, effect: AdvanceLogStart) -> None:
        h.log.increment_log_start(effect.offset)
        self._log_start_moved(h, "the leader's")
        self.log_starts_adopted = True

    _EFFECTS: dict[type[Any], Callable[[ReplicaManager, HostedPartition, Any], None]] = {
        ProposeIsr: _propose_isr,
        RetryIsrProposal: _retry_isr,
        IsrChanged: _isr_changed,
        WriteLeaderEpoch: _assign_epoch,
        LeadershipLost: _leadership_lost,
        StartFetching: _start_fetching,
        StopFetching: _stop_fetching,
        TruncateTo: _truncate_to,
        TruncateFullyAndStartAt: _restart_at,
        AdvanceLogStart: _advance_log_start,
    }

    # ------------------------------------------------------------------ the control plane

    def obey(self, orders: Sequence[Order]) -> None:
        """Carry out the control plane's orders in sequence: create, change or drop replicas. Requests for a replica
        that is not created yet get NOT_LEADER_OR_FOLLOWER, like requests for an unknown replica.
        """
        self._turns.take(orders)

    def _obey(self, order: Order) -> bool:
        before, now_ms = len(self._logs.logs), int(self._env.mono() * 1000)
        match order:
            case BecomeLeader() | BecomeFollower():
                self._apply_role(order, now_ms)
            case StopReplica():
                self._stop(order)
            case BrokersChanged():
                self._brokers_changed(order.brokers, now_ms)
            case SettingsChanged():
                self._settings_changed(order.kind, order.name, now_ms)
        return len(self._logs.logs) != before

    def _apply_role(self, order: BecomeLeader | BecomeFollower, now_ms: int) -> None:
        said = order.state
        h = self.find(order.topic_id, order.index)
        if h is None:
            h = self._create(order.topic, order.topic_id, order.index)
        state = h.state
        before = state.leader_epoch
        if state.log_end_offset != h.log.log_end_offset and said.leader_epoch != before:
            self.flushes.flush_now(h)
        # Within an epoch, a flush that runs still hides the newest records.
        end = state.log_end_offset if h.holding and said.leader_epoch == before else h.log.log_end_offset
        leads = type(order) is BecomeLeader
        if leads:
            state.expect(self._settings_of(order.topic)[1])
        change = state.become_leader if leads else state.become_follower
        self.apply_effects(h, change(said, end, now_ms))
        if state.leader_epoch != before:
            # Coordinators gave their verifications to the leader of the earlier epoch.
            h.log.producers.verifications.clear()
            self.woken.update(h.followers)
            self.woken.update(h.consumers)
            event, more = ("became_leader", {"epochs": h.log.epochs.newest()}) if leads else ("became_follower", {})
            self._trace(h, event, leader=said.leader, epoch=state.leader_epoch, isr=state.isr,
                        partition_epoch=state.partition_epoch, leo=h.log.log_end_offset, hw=state.high_watermark,
                        recovering=order.recovering, **more)  # fmt: skip
        self._notify_role_watcher(h)

    def _notify_role_watcher(self, h: HostedPartition) -> None:
        watcher = self.role_watchers.get(h.log.topic)
        if watcher is not None:
            watcher(h)

    def _stop(self, order: StopReplica) -> None:
        h = self.find(order.topic_id, order.index)
        if h is not None and not h.state.is_stale_stop(order.leader_epoch):
            self._drop(order.topic_id, order.topic, order.index)

    def _create(self, name: str, topic_id: bytes, index: int) -> HostedPartition:
        log = self._logs.get_or_create(name, index, topic_id, self._env.wall_ms())
        # A log from the start of the broker was opened before its topic's settings were known.
        log_config, settings = self._settings_of(name)
        self.flushes.opened(log, log_config)
        state = Partition(name, index, topic_id, self._config.node_id, settings, self._brokers)
        state.opened(log.log_start_offset, log.log_end_offset, self._checkpointed.get((name, index), 0))
        log.recall_undecided(state.high_watermark)
        h = HostedPartition(state, log)
        self.by_id.setdefault(topic_id, {})[index] = h
        self.by_name.setdefault(h.name, {})[index] = h
        return h

    def _drop(self, topic_id: bytes, name: str, index: int) -> None:
        h = self.by_id[topic_id].pop(index)
        if not self.by_id[topic_id]:
            del self.by_id[topic_id]
        named = self.by_name.get(h.name)
        if named is not None and named.get(index) is h:  # a new topic of this name may be there already
            del named[index]
            if not named:
                del self.by_name[h.name]
        self.apply_effects(h, h.state.stop())
        self.woken.update(h.followers)
        self.woken.update(h.consumers)
        self._checkpointed.pop((name, index), None)
        self._traced_offsets.pop(h.log, None)
        self._logs.delete(name, index, self._env.wall_ms())
        self._trace(h, "stopped_replica")
        self._notify_role_watcher(h)

    def _brokers_changed(self, brokers: BrokerStatuses, now_ms: int) -> None:
        self._brokers = brokers
        for h in self.hosted():
            self.apply_effects(h, h.state.brokers_changed(self._brokers, now_ms))
            self.low_watermark_moved(h)

    # ------------------------------------------------------------------ settings

    def topic_config(self, name: str) -> TopicConfig:
        """Return a topic's settings: its own, else those of the broker (altered at run time, or from its file)."""
        return topic_config(self.in_force, self.image.configs.get((TOPIC_RESOURCE, name), {}))

    def _settings_of(self, name: str) -> tuple[LogConfig, ReplicationSettings]:
        """Return a topic's settings in two parts: for its logs, and for the state machines."""
        topic, config = self.topic_config(name), self._config
        return LogConfig.of(topic, **of_broker(self.in_force)), ReplicationSettings(
            replica_lag_time_max_ms=config.replica_lag_time_max_ms,
            min_insync_replicas=topic.min_insync_replicas,
            replica_lag_max_messages=config.replica_lag_max_messages,
            truncation=TRUNCATION_RULES[config.squall_replication_truncation],
        )

    def _settings_changed(self, kind: int, name: str, now_ms: int) -> None:
        if kind not in (TOPIC_RESOURCE, BROKER_RESOURCE):
            return
        if kind == BROKER_RESOURCE:
            self.in_force = with_altered(self._config, altered_settings(self.image, self._config.node_id))
        of_topics: dict[str, tuple[LogConfig, ReplicationSettings]] = {}
        for h in self.hosted():
            topic = h.log.topic
            if kind == TOPIC_RESOURCE and topic != name:
                continue
            if topic not in of_topics:
                of_topics[topic] = self._settings_of(topic)
            log_config, settings = of_topics[topic]
            h.log.configure(log_config)
            self.apply_effects(h, h.state.settings_changed(settings, now_ms))

    # ------------------------------------------------------------------ periodic work

    def check_isr(self) -> None:
        """Remove lagging followers from the ISRs (mechanism R2). Call this twice per replica.lag.time.max.ms."""
        now_ms = int(self._env.mono() * 1000)
        for h in self.hosted():
            if h.state.is_leader:
                effects = h.state.tick(now_ms)
                if effects:
                    self.apply_effects(h, effects)
            else:
                h.first_unstable_offset()  # Drops ended transactions, as no fetch does it on a follower.
        self._trace_offsets()
        self.settle()

    def _trace_offsets(self) -> None:
        """Trace the log end offset and high watermark of each partition, if one of them has changed since the last
        call. A run's report derives from these lines which records a killed broker had.
        """
        for h in self.hosted():
            offsets = h.log.log_end_offset, h.state.high_watermark
            if self._traced_offsets.get(h.log) != offsets:
                self._traced_offsets[h.log] = offsets
                self._trace(h, "offsets", leo=offsets[0], hw=offsets[1], epoch=h.state.leader_epoch)

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """Return the high watermarks to checkpoint. Replicas not hosted yet keep the values of the old checkpoint."""
        for h in self.hosted():
            self._checkpointed[h.log.topic, h.log.partition] = h.state.high_watermark
        return dict(self._checkpointed)

    def retain(self, wall_ms: int) -> Iterator[bool]:
        """Delete the segments that retention permits to delete, one log at each step. Yield whether a log lost any."""
        for log, lost in self._logs.tick(wall_ms, self.high_watermark):
            h = self.by_name.get(log.topic.encode(), {}).get(log.partition)
            if lost and h is not None and h.log is log:
                self._log_start_moved(h, "retention")
            yield bool(lost)

    def high_watermark(self, log: Log) -> int:
        """Return the high watermark, below which retention may delete records; 0 if the replica is not hosted."""
        parts = self.by_name.get(log.topic.encode())
        h = parts.get(log.partition) if parts else None
        return h.state.high_watermark if h and h.log is log else 0

    def _trace(self, h: HostedPartition, event: str, **fields: object) -> None:
        self._env.trace(event, topic=h.log.topic, partition=h.log.partition, **fields)
