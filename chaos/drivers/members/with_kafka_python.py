"""Runs kafka-python as a member of a classic group. kafka-python calls the callbacks inside of polls, on a thread of
its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import (
    FencedInstanceIdError,
    IllegalStateError,
    InvalidSessionTimeoutError,
    KafkaError,
    OffsetOutOfRangeError,
)
from kafka.structs import OffsetAndMetadata

from squall.broker.overriding import override
from squall.chaos.drivers.library import FAIL, INFO, OK, DriverConfig, OffsetOutOfRange, Place, ReadRecord
from squall.chaos.drivers.members.contract import (
    FETCH_S,
    CommitResult,
    FatalMemberError,
    MemberAdapter,
    MemberGeneration,
    RebalanceListener,
)
from squall.chaos.drivers.with_kafka_python import version

__all__ = ["member", "version"]

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
COMMIT_S = 3.0
OVER = {FencedInstanceIdError: "FENCED_INSTANCE_ID", InvalidSessionTimeoutError: "INVALID_SESSION_TIMEOUT"}
"""Maps errors that end a membership to Kafka's names."""


class _KafkaPythonMember(AsyncConsumerRebalanceListener, MemberAdapter):  # type: ignore[misc]
    stable = False

    def __init__(self, config: DriverConfig, listener: RebalanceListener) -> None:
        self._listener = listener
        self._consumer = KafkaConsumer(
            bootstrap_servers=config.bootstrap.split(","),
            group_id=config.group,
            group_instance_id=config.instance or None,
            partition_assignment_strategy=[ASSIGNORS[config.assignor]],
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level=("read_uncommitted", "read_committed")[config.isolation],
            fetch_max_wait_ms=100,
            max_poll_records=500,
            reconnect_backoff_max_ms=1000,
            request_timeout_ms=max(config.request_timeout_ms, 1000),
        )
        self._consumer.subscribe(list(config.topics), listener=self)

    # ------------------------------------------------------------------------------------------------- callbacks

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Pause the assigned partitions until their positions are known, and report them. An eager member gets all its
        partitions.
        """
        if assigned:
            self._consumer.pause(*assigned)
        self._listener.on_assigned(_places(assigned), _places(self._consumer.assignment()))

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Commit, and report the revoked partitions. The commit awaits a private method: a callback must not call the
        public commit, which blocks, and there is no public one to await.
        """
        kept = None
        if offsets := self._listener.offsets_to_commit(_places(revoked)):
            coordinator = self._consumer._coordinator
            try:
                await coordinator._commit_offsets_sync_async(_offsets(offsets), timeout_ms=COMMIT_S * 1000)
                kept = CommitResult(OK)
            except KafkaError as error:
                kept = _weighed(error)
        self._listener.on_revoked(_places(revoked), kept)

    @override
    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._listener.on_lost(_places(lost))

    # ------------------------------------------------------------------------------------------------------- member

    @override
    def member_generation(self) -> MemberGeneration:
        metadata = self._consumer.group_metadata()
        return MemberGeneration(metadata.member_id, metadata.generation_id)

    @override
    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        try:
            fetched = self._consumer.poll(timeout_ms=int(within_s * 1000))
        except OffsetOutOfRangeError as gone:
            raise OffsetOutOfRange(_places(self._consumer.assignment()), f"OffsetOutOfRange: {gone}") from None
        except tuple(OVER) as over:
            raise FatalMemberError(OVER[type(over)]) from None
        return [
            ReadRecord.of((each.topic, each.partition), record)
            for each, records in fetched.items()
            for record in records
        ]

    @override
    def committed_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        found = {}
        for place in places:
            offset = self._consumer.committed(TopicPartition(*place), timeout_ms=int(FETCH_S * 1000))
            found[place] = -1 if offset is None else offset
        return found

    @override
    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        wanted = [TopicPartition(*place) for place in places]
        try:
            low, high = self._consumer.beginning_offsets(wanted), self._consumer.end_offsets(wanted)
        except KafkaError:
            return {}
        return {(each.topic, each.partition): (low[each], high[each]) for each in wanted}

    @override
    def start_reading(self, at: Mapping[Place, int]) -> Collection[Place]:
        own = self._consumer.assignment()
        begun = [place for place in at if TopicPartition(*place) in own]
        for place in begun:
            self._consumer.seek(TopicPartition(*place), at[place])
            self._consumer.resume(TopicPartition(*place))
        return begun

    @override
    def stop_reading(self, places: Collection[Place]) -> None:
        self._consumer.pause(*(TopicPartition(*place) for place in places))

    @override
    def commit(self, offsets: Mapping[Place, int]) -> CommitResult:
        try:
            self._consumer.commit(_offsets(offsets), timeout_ms=int(COMMIT_S * 1000))
        except KafkaError as error:
            return _weighed(error)
        return CommitResult(OK)

    @override
    def group_metadata(self) -> Any:
        return self._consumer.group_metadata()

    @override
    def close(self) -> None:
        self._consumer.close()


def _weighed(error: KafkaError) -> CommitResult:
    """Return the result of a commit that ended with this error. kafka-python retries by itself, so an earlier request
    may have succeeded.
    """
    return CommitResult(FAIL if isinstance(error, IllegalStateError) else INFO, type(error).__name__)


def _offsets(offsets: Mapping[Place, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    # -1: without a leader epoch.
    return {TopicPartition(*place): OffsetAndMetadata(position, "", -1) for place, position in offsets.items()}


def _places(found: Collection[TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in found]


member = _KafkaPythonMember
