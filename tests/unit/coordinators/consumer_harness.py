"""One consumer group of a shard, with members as KIP-848 has them: they say what has changed, and take what comes."""

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
    """A member, as itself sees it."""

    name: str
    instance_id: str | None = None
    topics: tuple[str, ...] = ("a",)
    epoch: int = 0
    owned: tuple[Place, ...] = ()
    unsure: bool = False
    """Its last answer got lost: the next heartbeat says everything, so that it is answered everything (KIP-848)."""


class ConsumerHarness(GroupHarness):
    """A shard with the topics "a" and "b"."""

    def __init__(self, settings: GroupCoordinatorSettings = PATIENT) -> None:
        super().__init__(settings)
        self.topics.table = {"a": (A, 4), "b": (B, 2)}

    def ask(self, member_id: str, epoch: int, **also: Any) -> HeartbeatResult:
        """Send one heartbeat, with nothing added."""
        found: HeartbeatResult = self.do("beat", ConsumerHeartbeat("g", member_id, epoch, **also))
        assert isinstance(found, HeartbeatResult)
        return found

    def enter(self, one: Consumer, **also: Any) -> HeartbeatResult:
        """A member joins, or joins again, and owns nothing."""
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
        """A member's heartbeat; `owned` where it says what it has."""
        if one.unsure:
            owned, also = one.owned, {"rebalance_ms": REBALANCE_MS, "topics": one.topics, **also}
        return self._take(one, self.ask(one.name, one.epoch, instance_id=one.instance_id, owned=owned, **also))

    def turn(self, one: Consumer) -> HeartbeatResult:
        """Send what a member owns; from now on it owns what is answered."""
        return self.alive(one, owned=one.owned)

    def _take(self, one: Consumer, answer: HeartbeatResult) -> HeartbeatResult:
        one.unsure = False
        if not answer.error:
            one.epoch = answer.epoch
            if answer.assigned is not None:
                one.owned = answer.assigned
        return answer

    def settle_down(self, *members: Consumer) -> None:
        """Heartbeats of all, until nothing changes any more."""
        for _ in range(20):
            before = [(one.epoch, one.owned) for one in members]
            for one in members:
                assert not self.turn(one).error
            if before == [(one.epoch, one.owned) for one in members]:
                return
        raise AssertionError("they never settle down")

    def together(self, *members: Consumer) -> None:
        """They join, and have what they are to have."""
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
        """An offset, with the member's epoch or an older one."""
        at = one.epoch if epoch is None else epoch
        asked = CommitOffsets("g", at, one.name, one.instance_id, ((where, OffsetAndMetadata(7)),), 9)
        error: ErrorCode = self.do("commit", asked).error
        return error

    def fetch_as(self, member_id: str, epoch: int) -> ErrorCode:
        """OffsetFetch of a member."""
        error: ErrorCode = self.do("fetch", FetchOffsets("g", (("a", 0),), True, member_id, epoch)).error
        return error
