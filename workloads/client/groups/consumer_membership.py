"""Decides as a member of a consumer group: what it knows, what its next heartbeat says, what answers mean (P6,
KIP-848). Pure.

`ConsumerMember` is its edge: it sends what this says, and brings back the answers. The coordinator assigns. A member
gives up what is no longer its own, says so in its next heartbeat, and gets what others have given up in an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.assignors import by_topic
from squall.workloads.client.groups.membership import (
    NO_GENERATION,
    START,
    AssignmentChange,
    MemberSettings,
    ResponseAction,
)

JOINS, LEAVES, LEAVES_FOR_NOW = 0, -1, -2
"""Member epochs of heartbeats that are none: a static member that leaves will be back."""

_GROUPLESS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)

NameOf = Callable[[bytes], str | None]
"""Topic id -> its name; None where that is not known."""


class HeartbeatInFlight(NamedTuple):
    """Records what a heartbeat that is under way said, for its answer."""

    life: int
    owned: tuple[Place, ...]
    told: bool
    """It said what the member owns."""


class ConsumerMembership:
    """Represents one member, from its process's first heartbeat to its last. `member_id`: its process made it
    (KIP-1082).
    """

    def __init__(self, settings: MemberSettings, member_id: str) -> None:
        self.settings, self.member_id = settings, member_id
        self.generation = NO_GENERATION
        """Its member epoch; NO_GENERATION while it is no member."""
        self.interval_ms = settings.heartbeat_interval_ms
        """Until the next heartbeat: the coordinator says how long, once it has answered."""
        self.owned: tuple[Place, ...] = ()
        """In order. After a reset: what it had, until it has been told that this is lost."""
        self.rejoin = START
        """Why it has to join; empty: it need not."""
        self.out = ""
        """The error that ended its membership for good."""
        self.life = 0
        """Goes up whenever its membership ends: answers to what it asked before say nothing any more."""
        self._target: tuple[tuple[bytes, int], ...] = ()
        """What it was told to own: topic ids and partitions."""
        self._names: dict[bytes, str] = {}
        self._said: tuple[Place, ...] | None = None
        """What the coordinator knows it to own. None: nobody knows; the next heartbeat says everything."""
        self._unsettled = self._acknowledges = False
        """It was told what to own, and has yet to make that true; it has, and has yet to say so."""

    @property
    def has_lost(self) -> bool:
        """Return whether its partitions are not its own any more: it has no valid member epoch."""
        return self.generation == NO_GENERATION and bool(self.owned)

    @property
    def unnamed(self) -> bool:
        """It is to own partitions of a topic whose name it does not know yet."""
        return any(topic_id not in self._names for topic_id, _ in self._target)

    def reset(self, why: str) -> None:
        """It is no member any more, and joins anew. It keeps its id, as Kafka's consumer does."""
        self.generation, self.rejoin = NO_GENERATION, why
        self.life += 1
        self._target, self._said = (), None
        self._unsettled = self._acknowledges = False

    # -------------------------------------------------------------------------------------------------- requests

    def asked(self) -> HeartbeatInFlight:
        """Return what is to be remembered beside `beat_request`."""
        return HeartbeatInFlight(self.life, self.owned, self._says_what_it_owns)

    def beat_request(self) -> ConsumerGroupHeartbeatRequest:
        """ConsumerGroupHeartbeat. What the coordinator knows is left out, so silence about partitions gives up none."""
        settings, joins = self.settings, self.generation == NO_GENERATION
        assert not (joins and self.owned), f"{self.owned} are lost, and nobody was told"
        full = joins or self._said is None
        return ConsumerGroupHeartbeatRequest(
            settings.group,
            self.member_id,
            JOINS if joins else self.generation,
            settings.instance or None,
            None,
            settings.max_poll_interval_ms if full else -1,
            list(settings.topics) if full else None,
            None,
            settings.server_assignor if full else None,
            self._told() if self._says_what_it_owns else None,
        )

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        """The last heartbeat. What a static member had stays its own until its session is over."""
        instance = self.settings.instance or None
        epoch = LEAVES_FOR_NOW if instance else LEAVES
        return ConsumerGroupHeartbeatRequest(
            self.settings.group, self.member_id, epoch, instance, topic_partitions=None
        )

    @property
    def _says_what_it_owns(self) -> bool:
        """In doubt, where that has changed, and after each assignment: the coordinator may wait for a word even from
        who never had what it is to give up.
        """
        return self._acknowledges or self._said is None or self.owned != self._said

    def _told(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(ids[topic], indexes)
            for topic, indexes in by_topic(self.owned).items()
        ]

    # --------------------------------------------------------------------------------------------------- answers

    def answered(self, answer: ConsumerGroupHeartbeatResponse, asked: HeartbeatInFlight) -> ResponseAction:
        """A heartbeat was answered. JOIN: it is no member any more, and joins once it has been told what it lost."""
        if asked.life != self.life:
            return ResponseAction.GO_ON
        code = answer.error_code
        if code == ErrorCode.NONE:
            self.generation, self.rejoin, self._said = answer.member_epoch, "", asked.owned
            self.interval_ms = answer.heartbeat_interval_ms or self.interval_ms
            if asked.told:
                self._acknowledges = False
            if answer.assignment is not None:
                told = answer.assignment.topic_partitions
                self._target = tuple((topic.topic_id, index) for topic in told for index in topic.partitions)
                self._unsettled = True
            return ResponseAction.GO_ON
        self._said = None
        if code in _GROUPLESS:
            return ResponseAction.ELSEWHERE
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ResponseAction.AGAIN
        if code in _FENCED:
            self.reset(name_of(code))
            return ResponseAction.JOIN
        # UNRELEASED_INSTANCE_ID among them: somebody else has its instance id, and keeps it.
        self.out, self.generation = name_of(code), NO_GENERATION
        self.life += 1
        return ResponseAction.OUT

    def unanswered(self, asked: HeartbeatInFlight) -> None:
        """Nobody knows what the coordinator has heard of it."""
        if asked.life == self.life:
            self._said = None

    # -------------------------------------------------------------------------------------------- reconciliation

    def assigned(self, name: NameOf) -> tuple[Place, ...]:
        """Return the partitions that it is to own, in order, as far as the topics' names are known."""
        for topic_id, _ in self._target:
            if topic_id not in self._names and (found := name(topic_id)) is not None:
                self._names[topic_id] = found
        return tuple(sorted((self._names[topic], index) for topic, index in self._target if topic in self._names))

    def change(self, name: NameOf) -> AssignmentChange:
        """Return what it has to give up first, and what it may read then."""
        wanted = self.assigned(name)
        added = tuple(place for place in wanted if place not in self.owned)
        return AssignmentChange(added, tuple(place for place in self.owned if place not in wanted))

    def gave_up(self, places: Collection[Place]) -> None:
        """It reads these no more. Its next heartbeat says so."""
        self.owned = tuple(place for place in self.owned if place not in places)

    def takes(self, places: Collection[Place]) -> None:
        """It may read these from now on."""
        self.owned = tuple(sorted({*self.owned, *places}))

    def settles(self) -> bool:
        """It owns what it was told to. Whether that has to be said, even if nothing has changed."""
        if self._unsettled and not self.unnamed:
            self._unsettled, self._acknowledges = False, True
        return self._acknowledges
