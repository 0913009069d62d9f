"""Decides for a member of a consumer group what its next heartbeat contains and what responses mean (KIP-848). A
partition has one owner at a time (mechanism P6 in docs/mechanisms.md). The code is pure.

`ConsumerMember` does the I/O: it sends the requests and passes in the responses. The coordinator assigns partitions.
When an assignment takes partitions away, the member gives them up and says so in its next heartbeat. A partition of
another member is assigned in a later response, once that member has given it up.
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
"""Are the special member epochs of heartbeats that join and leave; a static member that leaves for now will return."""

_GROUPLESS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)

NameOf = Callable[[bytes], str | None]
"""Maps a topic id to its name, or to None if it is unknown."""


class HeartbeatInFlight(NamedTuple):
    """Holds what must be remembered of a heartbeat until it is answered."""

    life: int
    owned: tuple[Place, ...]
    listed_owned: bool
    """Is True if the heartbeat listed the member's owned partitions."""


class ConsumerMembership:
    """Holds the state of one member of a consumer group, from its client's first heartbeat to its last. The client
    generates `member_id` (KIP-1082).
    """

    def __init__(self, settings: MemberSettings, member_id: str) -> None:
        self.settings, self.member_id = settings, member_id
        self.generation = NO_GENERATION
        """Holds the member epoch; NO_GENERATION while the client is not a member."""
        self.interval_ms = settings.heartbeat_interval_ms
        """Gives the interval between heartbeats in ms: the setting, until the coordinator gives another."""
        self.owned: tuple[Place, ...] = ()
        """Holds the owned partitions, sorted. After a reset it holds the lost partitions until they were reported as
        lost.
        """
        self.rejoin = START
        """Says why the member has to join; empty if it need not."""
        self.out = ""
        """Names the error that ended the membership for good; empty if there was none."""
        self.life = 0
        """Counts the ended memberships: responses to requests of an earlier membership are ignored."""
        self._target: tuple[tuple[bytes, int], ...] = ()
        """Holds the assignment from the coordinator: topic ids and partitions."""
        self._names: dict[bytes, str] = {}
        self._said: tuple[Place, ...] | None = None
        """Holds the owned partitions that the coordinator has learned from heartbeats; None if it is unknown what it
        has learned, so that the next heartbeat must have all fields.
        """
        self._unsettled = self._acknowledges = False
        """`_unsettled` is True from an assignment until the member owns exactly the assigned partitions.
        `_acknowledges` is True from then on until the coordinator has answered a heartbeat that lists the owned
        partitions.
        """

    @property
    def has_lost(self) -> bool:
        """Return whether the member has lost its partitions, because it has no valid member epoch."""
        return self.generation == NO_GENERATION and bool(self.owned)

    @property
    def unnamed(self) -> bool:
        """Return whether the assignment has partitions of a topic whose name is not known yet."""
        return any(topic_id not in self._names for topic_id, _ in self._target)

    def reset(self, why: str) -> None:
        """End the membership, so that the member joins again. The member keeps its id, as in Kafka's consumer."""
        self.generation, self.rejoin = NO_GENERATION, why
        self.life += 1
        self._target, self._said = (), None
        self._unsettled = self._acknowledges = False

    # -------------------------------------------------------------------------------------------------- requests

    def asked(self) -> HeartbeatInFlight:
        """Return what has to be remembered of `heartbeat_request` until its response."""
        return HeartbeatInFlight(self.life, self.owned, self._says_what_it_owns)

    def heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat. It omits what the coordinator knows; omitted partitions are not given up."""
        settings, joins = self.settings, self.generation == NO_GENERATION
        assert not (joins and self.owned), f"{self.owned} are lost, and the loss was not reported"
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
            self._encode_owned() if self._says_what_it_owns else None,
        )

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that leaves the group. A static member says that it will return, and keeps its
        partitions until its session ends.
        """
        instance = self.settings.instance or None
        epoch = LEAVES_FOR_NOW if instance else LEAVES
        return ConsumerGroupHeartbeatRequest(
            self.settings.group, self.member_id, epoch, instance, topic_partitions=None
        )

    @property
    def _says_what_it_owns(self) -> bool:
        """Return whether the next heartbeat lists the owned partitions. It does so if they have changed, or if it is
        unknown which ones the coordinator knows. It also does so after each assignment, because the coordinator may
        wait for an acknowledgement even if nothing has to be revoked.
        """
        return self._acknowledges or self._said is None or self.owned != self._said

    def _encode_owned(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(ids[topic], indexes)
            for topic, indexes in by_topic(self.owned).items()
        ]

    # --------------------------------------------------------------------------------------------------- answers

    def answered(self, answer: ConsumerGroupHeartbeatResponse, asked: HeartbeatInFlight) -> ResponseAction:
        """Handle the response to a heartbeat. JOIN means that the membership has ended, and that the member joins again
        once its partitions were reported as lost.
        """
        if asked.life != self.life:
            return ResponseAction.GO_ON
        code = answer.error_code
        if code == ErrorCode.NONE:
            # The coordinator knows what the heartbeat said, not what the member has given up since.
            self.generation, self.rejoin, self._said = answer.member_epoch, "", asked.owned
            self.interval_ms = answer.heartbeat_interval_ms or self.interval_ms
            if asked.listed_owned:
                self._acknowledges = False
            if answer.assignment is not None:
                partitions = answer.assignment.topic_partitions
                self._target = tuple((topic.topic_id, index) for topic in partitions for index in topic.partitions)
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
        # Among these errors is UNRELEASED_INSTANCE_ID: another member has the instance id and keeps it.
        self.out, self.generation = name_of(code), NO_GENERATION
        self.life += 1
        return ResponseAction.OUT

    def unanswered(self, asked: HeartbeatInFlight) -> None:
        """Make the next heartbeat contain all fields, because the heartbeat `asked` got no response: it is unknown
        whether the coordinator received it.
        """
        if asked.life == self.life:
            self._said = None

    # -------------------------------------------------------------------------------------------- reconciliation

    def assigned(self, name: NameOf) -> tuple[Place, ...]:
        """Return the assigned partitions, sorted, as far as the topics' names are known."""
        # A name is kept for good: `_encode_owned` needs the id of a topic that metadata may no longer have.
        for topic_id, _ in self._target:
            if topic_id not in self._names and (found := name(topic_id)) is not None:
                self._names[topic_id] = found
        return tuple(sorted((self._names[topic], index) for topic, index in self._target if topic in self._names))

    def change(self, name: NameOf) -> AssignmentChange:
        """Return the partitions to give up first, and the partitions that the member may read after that."""
        wanted = self.assigned(name)
        added = tuple(place for place in wanted if place not in self.owned)
        return AssignmentChange(added, tuple(place for place in self.owned if place not in wanted))

    def remove_owned(self, places: Collection[Place]) -> None:
        """Remove partitions that the member no longer reads. Its next heartbeat says so."""
        self.owned = tuple(place for place in self.owned if place not in places)

    def add_owned(self, places: Collection[Place]) -> None:
        """Add partitions that the member may read from now on."""
        self.owned = tuple(sorted({*self.owned, *places}))

    def acknowledges(self) -> bool:
        """Record that the member now owns exactly the assigned partitions, unless a topic's name is not known yet.
        Return whether the next heartbeat must list them as an acknowledgement, even if none has changed.
        """
        if self._unsettled and not self.unnamed:
            self._unsettled, self._acknowledges = False, True
        return self._acknowledges
