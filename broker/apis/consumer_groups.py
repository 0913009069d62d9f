"""Handles the APIs of consumer groups (KIP-848): ConsumerGroupHeartbeat of members, ConsumerGroupDescribe of admins.

Each request is handed to the coordinator on arrival, so requests of one connection take effect in their order. The
response waits for the coordinator's log.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

from squall.broker.apis.coordinator_requests import answer_each, ask
from squall.broker.apis.describe import GROUP_OPERATIONS, NOT_ASKED
from squall.broker.cluster.image import GROUP_RESOURCE
from squall.broker.config.group import group_number
from squall.broker.coordinators.groups.consumer.answers import ConsumerDescribeResult, HeartbeatResult
from squall.broker.coordinators.groups.consumer.group import by_topic
from squall.broker.coordinators.groups.consumer.members import JOINS, ConsumerDescribe, ConsumerHeartbeat
from squall.broker.coordinators.groups.values import GroupResponse
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.errors import ErrorCode, cut_short
from squall.broker.protocol.schema import consumer_group_describe as describe_wire
from squall.broker.protocol.schema import consumer_group_heartbeat as beat_wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from squall.broker.apis.large_responses import LargeResponseLane, ResponseSteps
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.config import BrokerConfig
    from squall.broker.coordinators.groups.consumer.answers import DescribedMember
    from squall.broker.coordinators.groups.consumer.members import Place
    from squall.broker.env import Env
    from squall.broker.net.connection import PendingResponse
    from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator

FEATURE = "group.version"
"""Names the cluster feature whose level 1 turns consumer groups on."""
PROTOCOL = "consumer"
OWN_IDS_FROM = 1
"""Is the first version of ConsumerGroupHeartbeat whose members make their own ids (KIP-1082)."""
TYPES_FROM = 1
"""Is the first version of ConsumerGroupDescribe whose response has each member's type (classic or consumer, KIP-1099).
"""
OF_CLASSIC, OF_CONSUMER = 0, 1
TIMED_OUT = GroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
REPEATED = GroupResponse(ErrorCode.INVALID_REQUEST)
"""Is the response for a group that the request has already named."""


class ConsumerGroupApis:
    """Handles ConsumerGroupHeartbeat and ConsumerGroupDescribe. Each request takes effect before the next request of
    its connection; its response may come later.
    """

    def __init__(
        self,
        env: Env,
        image: ClusterImage,
        coordinator: GroupCoordinator,
        config: BrokerConfig,
        much: LargeResponseLane,
    ) -> None:
        self._env, self._image, self._coordinator, self._large = env, image, coordinator, much
        self._timeout_s = config.offsets_commit_timeout_ms / 1000
        self._config = config
        self._served = PROTOCOL in config.group_coordinator_rebalance_protocols

    def is_enabled(self) -> bool:
        """Return whether consumer groups are on: the cluster has finalized `group.version` 1, and this broker's
        settings permit the protocol.
        """
        return self._served and self._image.features.get(FEATURE, 0) >= 1

    def _ask(self, requests: Sequence[Any], respond: Any, *, has_large_answers: bool = False) -> Any:
        submit = self._coordinator.submit
        return ask(
            self._env, submit, requests, respond, TIMED_OUT, self._timeout_s, has_large_answers=has_large_answers
        )

    def heartbeat(self, request: beat_wire.ConsumerGroupHeartbeatRequest, slot: PendingResponse) -> Any:
        """Let a member join, stay or leave, and return the partitions that are assigned to the member."""
        if not self.is_enabled():
            return beat_wire.ConsumerGroupHeartbeatResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
        member_id = request.member_id
        if not member_id and slot.version < OWN_IDS_FROM and request.member_epoch == JOINS:
            drawn = self._env.rng.getrandbits(128).to_bytes(16, "big")
            member_id = urlsafe_b64encode(drawn).decode().rstrip("=")
        topics, owned = request.subscribed_topic_names, request.topic_partitions
        asked = ConsumerHeartbeat(
            request.group_id,
            member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            None if topics is None else tuple(topics),
            request.subscribed_topic_regex,
            request.server_assignor,
            None if owned is None else tuple((t.topic_id, index) for t in owned for index in t.partitions),
            slot.conn.client_id or "",
            # With the slash that Java's InetAddress puts before an address: Kafka's tools show it so.
            "/" + slot.conn.link.peer.rpartition(":")[0],
        )
        return self._ask([asked], lambda answers: self._heartbeat_response(request.group_id, answers[0]))

    def _interval_ms(self, group_id: str) -> int:
        """Return the ms between heartbeats of a group's members: the group's own setting, else the broker's."""
        given = self._image.configs.get((GROUP_RESOURCE, group_id), {})
        of_broker = self._config.group_consumer_heartbeat_interval_ms
        return group_number(self._config, "consumer.heartbeat.interval.ms", given, of_broker)

    def _heartbeat_response(self, group_id: str, answer: GroupResponse) -> beat_wire.ConsumerGroupHeartbeatResponse:
        if answer.error or not isinstance(answer, HeartbeatResult):
            message = cut_short(answer.message) if isinstance(answer, HeartbeatResult) and answer.message else None
            return beat_wire.ConsumerGroupHeartbeatResponse(error_code=int(answer.error), error_message=message)
        assignment = None
        if answer.assigned is not None:
            topics = [
                beat_wire.ConsumerGroupHeartbeatResponseTopicPartitions(topic_id, indexes)
                for topic_id, indexes in by_topic(answer.assigned).items()
            ]
            assignment = beat_wire.Assignment(topics)
        return beat_wire.ConsumerGroupHeartbeatResponse(
            member_id=answer.member_id,
            member_epoch=answer.epoch,
            # A member that leaves sends no more heartbeats.
            heartbeat_interval_ms=self._interval_ms(group_id) if answer.epoch >= 0 else 0,
            assignment=assignment,
        )

    def describe(self, request: describe_wire.ConsumerGroupDescribeRequest, slot: PendingResponse) -> Any:
        """Describe groups: their members, and the current and target assignment of each member."""
        names, version = list(request.group_ids), slot.version
        if not self.is_enabled():
            error = int(ErrorCode.UNSUPPORTED_VERSION)
            groups = [describe_wire.DescribedGroup(error, group_id=name) for name in names]
            return describe_wire.ConsumerGroupDescribeResponse(groups=groups)

        async def wait() -> bytes | list[Any]:
            asked = [ConsumerDescribe(name) for name in dict.fromkeys(names)]
            found = self._ask(asked, list, has_large_answers=True)
            answers = await found.wait() if isinstance(found, DeferredResponse) else found

            async def begin() -> ResponseSteps:
                operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
                return self._all_described(names, answer_each(names, answers, REPEATED), version, operations)

            return await self._large.build(begin, slot)

        return DeferredResponse(wait, holds=True)

    def _all_described(
        self, names: Sequence[str], answers: Sequence[GroupResponse], version: int, operations: int
    ) -> ResponseSteps:
        groups = []
        for name, answer in zip(names, answers, strict=True):
            groups.append(self._described(name, answer, version, operations))
            yield
        return describe_wire.ConsumerGroupDescribeResponse(groups=groups)

    def _described(
        self, name: str, answer: GroupResponse, version: int, operations: int
    ) -> describe_wire.DescribedGroup:
        if answer.error or not isinstance(answer, ConsumerDescribeResult):
            unknown = answer.error == ErrorCode.GROUP_ID_NOT_FOUND
            message = cut_short(f"Group {name} is not a consumer group.") if unknown else None
            return describe_wire.DescribedGroup(int(answer.error), message, name)
        return describe_wire.DescribedGroup(
            group_id=name,
            group_state=answer.state.value,
            group_epoch=answer.epoch,
            assignment_epoch=answer.target_epoch,
            assignor_name=answer.assignor,
            members=[self._member(member, version) for member in answer.members],
            authorized_operations=operations,
        )

    def _member(self, member: DescribedMember, version: int) -> describe_wire.Member:
        of = member.subscription
        kind = OF_CONSUMER if of.classic is None else OF_CLASSIC
        return describe_wire.Member(
            member.member_id,
            of.instance_id,
            of.rack_id,
            member.current.epoch,
            of.client_id,
            of.client_host,
            list(of.topics),
            of.regex or "",
            # Partitions that the member has yet to revoke are included, as with Kafka.
            self._assignment((*member.current.assigned, *member.current.revoking)),
            self._assignment(member.target),
            kind if version >= TYPES_FROM else -1,
        )

    def _assignment(self, places: Iterable[Place]) -> describe_wire.Assignment:
        """Return the assignment of these partitions, given as (topic id, partition), with topic names. Partitions of
        deleted topics have no name and are left out.
        """
        known = self._image.topics_by_id
        return describe_wire.Assignment(
            [
                describe_wire.TopicPartitions(topic_id, known[topic_id].name, indexes)
                for topic_id, indexes in by_topic(places).items()
                if topic_id in known
            ]
        )
