"""A shard with consumer groups, and members that behave as KIP-848 says: they send changes, and adopt the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from squall.broker.coordinators.groups.consumer.answers import ConsumerDescribeResult, HeartbeatResult
from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
from squall.broker.coordinators.groups.consumer.members import ConsumerDescribe, ConsumerHeartbeat, Place
from squall.broker.coordinators.groups.values import (
    CommitOffsets,
    FetchOffsets,
    GroupCoordinatorSettings,
    OffsetAndMetadata,
)
from squall.broker.protocol.errors import ErrorCode
from tests.unit.coordinators.group_harness import GroupHarness

A, B = bytes(15) + b"a", bytes(15) + b"b"
"""Ids of the topics "a" (4 partitions) and "b" (2)."""
SESSION_MS, REBALANCE_MS = 45_000, 30_000
PATIENT = GroupCoordinatorSettings(initial_delay_ms=0)


def places(topic_id: bytes, *indexes: int) -> tuple[Place, ...]:
    return tuple((topic_id, index) for index in indexes)


@dataclass
class Consumer:
    """A member of a consumer group: its own view of its epoch and partitions."""

    name: str
    instance_id: str | None = None
    topics: tuple[str, ...] = ("a",)
    epoch: int = 0
    owned: tuple[Place, ...] = ()
    unsure: bool = False
    """Whether its last answer got lost: then its next heartbeat is a full one, and gets a full answer (KIP-848)."""


class ConsumerHarness(GroupHarness):
    """A shard with the topics "a" and "b"."""

    def __init__(self, settings: GroupCoordinatorSettings = PATIENT) -> None:
        super().__init__(settings)
        self.topics.table = {"a": (A, 4), "b": (B, 2)}

    def ask(self, member_id: str, epoch: int, **also: Any) -> HeartbeatResult:
        """Send one heartbeat with exactly these fields."""
        found: HeartbeatResult = self.do("beat", ConsumerHeartbeat("g", member_id, epoch, **also))
        assert isinstance(found, HeartbeatResult)
        return found

    def enter(self, one: Consumer, **also: Any) -> HeartbeatResult:
        """Let a member join, or join again, without partitions."""
        one.owned = ()
        given = {
            "instance_id": one.instance_id,
            "rebalance_ms": REBALANCE_MS,
            "topics": one.topics,
            "owned": (),
            **also,
        }
        return self._take(one, self.ask(one.name, 0, **given))

    def alive(self, one: Consumer, *, owned: tuple[Place, ...] | None = None, **also: Any) -> HeartbeatResult:
        """Send a member's heartbeat; with `owned` it lists the member's partitions."""
        if one.unsure:
            owned, also = one.owned, {"rebalance_ms": REBALANCE_MS, "topics": one.topics, **also}
        return self._take(one, self.ask(one.name, one.epoch, instance_id=one.instance_id, owned=owned, **also))

    def turn(self, one: Consumer) -> HeartbeatResult:
        """Send a heartbeat with the member's partitions, and let it adopt the assignment in the answer."""
        return self.alive(one, owned=one.owned)

    def _take(self, one: Consumer, answer: HeartbeatResult) -> HeartbeatResult:
        one.unsure = False
        if not answer.error:
            one.epoch = answer.epoch
            if answer.assigned is not None:
                one.owned = answer.assigned
        return answer

    def settle_down(self, *members: Consumer) -> None:
        """Send heartbeats of all members until nothing changes any more."""
        for _ in range(20):
            before = [(one.epoch, one.owned) for one in members]
            for one in members:
                assert not self.turn(one).error
            if before == [(one.epoch, one.owned) for one in members]:
                return
        raise AssertionError("they never settle down")

    def together(self, *members: Consumer) -> None:
        """Let these members join, and reach their target assignment."""
        for one in members:
            self.enter(one)
        self.settle_down(*members)

    @property
    def consumers(self) -> ConsumerGroup:
        return self.machine.ledger.consumers["g"]

    def described(self) -> ConsumerDescribeResult:
        found: ConsumerDescribeResult = self.do("describe", ConsumerDescribe("g"))
        return found

    def commit_as(self, one: Consumer, where: tuple[str, int] = ("a", 0), epoch: int | None = None) -> ErrorCode:
        """Commit an offset as this member, with its epoch or another one."""
        at = one.epoch if epoch is None else epoch
        asked = CommitOffsets("g", at, one.name, one.instance_id, ((where, OffsetAndMetadata(7)),), 9)
        error: ErrorCode = self.do("commit", asked).error
        return error

    def fetch_as(self, member_id: str, epoch: int) -> ErrorCode:
        """Send OffsetFetch as a member, and return the error."""
        error: ErrorCode = self.do("fetch", FetchOffsets("g", (("a", 0),), True, member_id, epoch)).error
        return error
