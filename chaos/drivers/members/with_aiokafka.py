"""Runs aiokafka as a member of a classic group. The callbacks run in aiokafka's event loop, beside polls and commits.

aiokafka has no callback for lost partitions: a member without a generation has lost them. aiokafka also calls no
callback before it closes, so `close` calls on_partitions_revoked itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    IllegalOperation,
    IllegalStateError,
    InvalidSessionTimeoutError,
    KafkaError,
    OffsetOutOfRangeError,
)

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
from squall.chaos.drivers.with_aiokafka import ASK_S, START_S, EventLoopThread, version

__all__ = ["member", "version"]

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
COMMIT_S = 3.0
PAUSE_S = 0.01
OVER = {InvalidSessionTimeoutError: "INVALID_SESSION_TIMEOUT"}
"""Maps errors that end a membership to Kafka's names. If another member takes over the instance id, no error ends the
membership: aiokafka joins again, and fences that member.
"""
LOCAL = (IllegalStateError, IllegalOperation)
"""Lists errors of commits for which aiokafka has sent no request."""


class _AiokafkaMember(ConsumerRebalanceListener, MemberAdapter):  # type: ignore[misc]
    stable = False

    def __init__(self, config: DriverConfig, listener: RebalanceListener) -> None:
        self._listener = listener
        self._io = EventLoopThread()
        self._io.run(self._start(config), START_S)

    async def _start(self, config: DriverConfig) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=config.bootstrap,
            group_id=config.group,
            group_instance_id=config.instance or None,
            partition_assignment_strategy=[ASSIGNORS[config.assignor]],
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            # As in the Java client, whose rebalance time-out is max.poll.interval.ms (KIP-62).
            rebalance_timeout_ms=config.max_poll_interval_ms,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level=("read_uncommitted", "read_committed")[config.isolation],
            fetch_max_wait_ms=100,
            request_timeout_ms=max(config.request_timeout_ms, 1000),
        )
        await self._consumer.start()
        self._consumer.subscribe(list(config.topics), listener=self)

    # ------------------------------------------------------------------------------------------------- callbacks

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Pause the assigned partitions until their positions are known, and report them."""
        if assigned:
            self._consumer.pause(*assigned)
        self._listener.on_assigned(_places(assigned), _places(assigned))

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Commit and give all partitions up. A member without a generation has lost its partitions already, and commits
        nothing.
        """
        places, kept = _places(revoked), None
        if self.member_generation().generation < 0:
            self._listener.on_lost(places)
            return
        # In a thread: this waits for the harness, and would stop aiokafka's event loop with its heartbeats.
        if offsets := await asyncio.get_running_loop().run_in_executor(None, self._listener.offsets_to_commit, places):
            kept = await self._commit(offsets)
        self._listener.on_revoked(places, kept)

    # ------------------------------------------------------------------------------------------------------- member

    @override
    def member_generation(self) -> MemberGeneration:
        """Return member id and generation from aiokafka's private coordinator, because no public method has them."""
        coordinator = self._consumer._coordinator
        return MemberGeneration(coordinator.member_id, coordinator.generation)

    @override
    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        """Report the records of one poll before another task of this event loop can run, and return nothing.

        During a rebalance, getmany would wait until the rebalance is over, however short its time-out is; so it is not
        called then. But aiokafka must know that its user is waiting for records: otherwise it does not rejoin after
        max.poll.interval.ms.
        """

        async def one() -> None:
            loop = asyncio.get_running_loop()
            until = loop.time() + within_s
            while loop.time() < until:
                if self._consumer._subscription.reassignment_in_progress:
                    with self._consumer._subscription.fetch_context():
                        await asyncio.sleep(PAUSE_S)
                    continue
                fetched = await self._consumer.getmany(timeout_ms=0, max_records=500)
                if fetched:
                    self._listener.report_records(_read(fetched))
                    return
                await asyncio.sleep(PAUSE_S)

        try:
            self._io.run(one(), within_s + 60)
        except OffsetOutOfRangeError as gone:
            raise OffsetOutOfRange(_places(self._consumer.assignment()), f"OffsetOutOfRange: {gone}") from None
        except tuple(OVER) as over:
            raise FatalMemberError(OVER[type(over)]) from None
        return []

    @override
    def committed_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:

        async def all_of_them() -> dict[Place, int]:
            found = {}
            for place in places:
                offset = await self._consumer.committed(TopicPartition(*place))
                found[place] = -1 if offset is None else offset
            return found

        return self._io.run(all_of_them(), FETCH_S)

    @override
    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        wanted = [TopicPartition(*place) for place in places]
        try:
            low = self._io.run(self._consumer.beginning_offsets(wanted), ASK_S)
            high = self._io.run(self._consumer.end_offsets(wanted), ASK_S)
        except (KafkaError, TimeoutError):
            return {}
        return {(each.topic, each.partition): (low[each], high[each]) for each in wanted}

    @override
    def start_reading(self, at: Mapping[Place, int]) -> Collection[Place]:

        async def all_of_them() -> list[Place]:
            own = self._consumer.assignment()
            begun = [place for place in at if TopicPartition(*place) in own]
            for place in begun:
                self._consumer.seek(TopicPartition(*place), at[place])
                self._consumer.resume(TopicPartition(*place))
            return begun

        return self._io.run(all_of_them(), ASK_S)

    @override
    def stop_reading(self, places: Collection[Place]) -> None:

        async def all_of_them() -> None:
            own = self._consumer.assignment()
            self._consumer.pause(*(TopicPartition(*place) for place in places if TopicPartition(*place) in own))

        self._io.run(all_of_them(), ASK_S)

    @override
    def commit(self, offsets: Mapping[Place, int]) -> CommitResult:
        return self._io.run(self._commit(offsets), COMMIT_S + ASK_S)

    async def _commit(self, offsets: Mapping[Place, int]) -> CommitResult:
        """Commit the offsets. aiokafka retries by itself, so if a broker returns an error, an earlier request may have
        succeeded.
        """
        wanted = {TopicPartition(*place): position for place, position in offsets.items()}
        try:
            await asyncio.wait_for(self._consumer.commit(wanted), COMMIT_S)
        except TimeoutError:
            return CommitResult(INFO, "TIMED_OUT")
        except KafkaError as error:
            return CommitResult(FAIL if isinstance(error, LOCAL) else INFO, type(error).__name__)
        return CommitResult(OK)

    @override
    def group_metadata(self) -> Any:
        """Return the group's name, because aiokafka's producer takes nothing else."""
        return self._consumer._group_id

    @override
    def close(self) -> None:

        async def all_of_it() -> None:
            await self.on_partitions_revoked(self._consumer.assignment())
            await self._consumer.stop()

        self._io.run(all_of_it(), START_S)


def _read(fetched: Mapping[TopicPartition, Sequence[Any]]) -> list[ReadRecord]:
    return [ReadRecord.of((each.topic, each.partition), got) for each, records in fetched.items() for got in records]


def _places(found: Collection[TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in found]


member = _AiokafkaMember
