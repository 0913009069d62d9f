"""Handles OffsetCommit, OffsetFetch and OffsetDelete: the offsets that groups have committed to their coordinator.

Each request is handed to the coordinator on arrival, so requests of one connection take effect in their order. The
response waits for the coordinator's log.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from squall.broker.apis.coordinator_requests import answer_each, ask
from squall.broker.apis.large_responses import CHARACTERS_OF_ONE, FEW, PIECE, run_to_end
from squall.broker.coordinators.groups.values import (
    NO_TIME,
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    FetchOffsetsResult,
    GroupResponse,
    OffsetAndMetadata,
    PartitionErrors,
)
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import offset_commit as commit_wire
from squall.broker.protocol.schema import offset_delete as delete_wire
from squall.broker.protocol.schema import offset_fetch as fetch_wire
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from squall.broker.apis.large_responses import LargeResponseLane, ResponseSteps
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.config import BrokerConfig
    from squall.broker.coordinators.groups.values import TopicPartition
    from squall.broker.env import Env
    from squall.broker.net.connection import PendingResponse
    from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator

    Found = tuple[TopicPartition, OffsetAndMetadata | None, ErrorCode]

BY_ID_FROM = 10
"""Is the first version of OffsetCommit and OffsetFetch that names topics by their ids."""
BATCHED_FROM = 8
"""Is the first version of OffsetFetch that asks for several groups (KIP-709)."""
GROUP_ERROR_FROM = 2
"""Is the first version of OffsetFetch whose response has a field for an error of the whole group."""
TIMED_OUT = GroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""Is the response if the coordinator's log does not commit in time. Kafka uses the same error."""
REPEATED = GroupResponse(ErrorCode.INVALID_REQUEST)
"""Is the response for a group that the request has already named."""
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_NOTHING = OffsetAndMetadata(-1)


LONGEST_MS = 2**63 - 1
"""Is the greatest expiry time, in ms since the epoch, that a record of a committed offset can hold."""


class CommittedOffsetApis:
    """Handles OffsetCommit, OffsetFetch and OffsetDelete. Each request takes effect before the next request of its
    connection; its response may come later.
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
        self._metadata_bytes = config.offset_metadata_max_bytes

    def _ask(self, requests: Sequence[Any], respond: Any, *, has_large_answers: bool = False) -> Any:
        submit = self._coordinator.submit
        return ask(
            self._env, submit, requests, respond, TIMED_OUT, self._timeout_s, has_large_answers=has_large_answers
        )

    def _named(self, name: str, topic_id: bytes, by_id: bool) -> tuple[str, ErrorCode]:
        """Return a topic's name ("" for an unknown id), and the error that forbids commits to it, or NONE."""
        if by_id:
            topic = self._image.topics_by_id.get(topic_id)
            return (topic.name, ErrorCode.NONE) if topic is not None else ("", ErrorCode.UNKNOWN_TOPIC_ID)
        return name, ErrorCode.NONE if self._image.topic(name) is not None else _UNKNOWN

    # ----------------------------------------------------------------------------------------------------------- commit

    def offset_commit(self, request: commit_wire.OffsetCommitRequest, slot: PendingResponse) -> Any:
        """Commit offsets of a group. An error that needs no group (an unknown topic, say) refuses only its own
        partition.
        """
        kept_ms = request.retention_time_ms
        expires_ms = NO_TIME if kept_ms < 0 else min(self._env.wall_ms() + kept_ms, LONGEST_MS)
        plan, offsets = self.plan(request.topics, expires_ms, by_id=slot.version >= BY_ID_FROM)

        def respond(answers: list[GroupResponse]) -> commit_wire.OffsetCommitResponse:
            failed = answers[0].error
            topics = [
                commit_wire.OffsetCommitResponseTopic(
                    topic.name,
                    topic.topic_id,
                    [commit_wire.OffsetCommitResponsePartition(index, int(error or failed)) for index, error in parts],
                )
                for topic, parts in plan
            ]
            return commit_wire.OffsetCommitResponse(topics=topics)

        generation = request.generation_id_or_member_epoch
        instance_id = request.group_instance_id
        asked = CommitOffsets(request.group_id, generation, request.member_id, instance_id, offsets, slot.version)
        return self._ask([asked], respond)

    def plan(
        self, topics: Sequence[Any], expires_ms: int, *, by_id: bool
    ) -> tuple[list[tuple[Any, list[tuple[int, ErrorCode]]]], tuple[tuple[TopicPartition, OffsetAndMetadata], ...]]:
        """Separate the valid partitions of an OffsetCommit or TxnOffsetCommit from the invalid ones. Return (plan,
        offsets). `plan` holds each topic of the request with (index, error) of its partitions; NONE means that the
        group decides. `offsets` are those of the partitions without error, for the group to commit.

        The offsets expire at `expires_ms` (wall clock). `by_id` is true if the request names topics by id.
        """
        wall_ms = self._env.wall_ms()
        offsets: list[tuple[TopicPartition, OffsetAndMetadata]] = []
        plan: list[tuple[Any, list[tuple[int, ErrorCode]]]] = []
        for topic in topics:
            name, wrong = self._named(topic.name, topic.topic_id if by_id else b"", by_id)
            known = self._image.topic(name)
            parts: list[tuple[int, ErrorCode]] = []
            for part in topic.partitions:
                text = part.committed_metadata or ""
                error = wrong
                if not error and (known is None or part.partition_index not in known.partitions):
                    error = _UNKNOWN
                # In characters, whatever the setting's name says: so does Kafka's OffsetMetadataManager.
                if not error and len(text) > self._metadata_bytes:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                parts.append((part.partition_index, error))
                if not error:
                    assert known is not None
                    epoch = part.committed_leader_epoch
                    committed = OffsetAndMetadata(part.committed_offset, epoch, text, wall_ms, expires_ms, known.id)
                    offsets.append(((name, part.partition_index), committed))
            plan.append((topic, parts))
        return plan, tuple(offsets)

    # ------------------------------------------------------------------------------------------------------------ fetch

    def offset_fetch(self, request: fetch_wire.OffsetFetchRequest, slot: PendingResponse) -> Any:
        """Return the committed offsets of the requested groups, for the named partitions or for all."""
        stable = request.require_stable
        if slot.version < BATCHED_FROM:
            return self._fetch_one(request, slot)
        by_id = slot.version >= BY_ID_FROM
        asked = {}
        for group in request.groups:
            if group.group_id in asked:
                continue
            partitions = None
            if group.topics is not None:
                named = [(*self._named(t.name, t.topic_id, by_id), t.partition_indexes) for t in group.topics]
                # The group is not asked about unknown ids: `_group` adds them to the response.
                known = [(name, indexes) for name, wrong, indexes in named if wrong != ErrorCode.UNKNOWN_TOPIC_ID]
                partitions = tuple((name, index) for name, indexes in known for index in indexes)
            asked[group.group_id] = FetchOffsets(
                group.group_id, partitions, stable, group.member_id, group.member_epoch
            )

        def making(answers: list[GroupResponse]) -> ResponseSteps:
            answers = answer_each([group.group_id for group in request.groups], answers, REPEATED)
            return self._groups(request, answers, by_id)

        return self._respond_to_fetch(list(asked.values()), making, slot)

    def _fetch_one(self, request: fetch_wire.OffsetFetchRequest, slot: PendingResponse) -> Any:
        partitions = None
        if request.topics is not None:
            partitions = tuple((topic.name, index) for topic in request.topics for index in topic.partition_indexes)

        def making(answers: list[GroupResponse]) -> ResponseSteps:
            return _response_of_one_group(answers[0], partitions or (), slot.version)

        asked = FetchOffsets(request.group_id, partitions, request.require_stable)
        return self._respond_to_fetch([asked], making, slot)

    def _respond_to_fetch(
        self, asked: list[FetchOffsets], making: Callable[[list[GroupResponse]], ResponseSteps], slot: PendingResponse
    ) -> Any:
        """Ask the coordinator for the committed offsets of the groups in `asked`, and return the response. Return a
        `DeferredResponse` instead if the response is large or must wait for the coordinator. `making` builds the
        response from the coordinator's answers, one per group.
        """
        if sum(map(self._weight_of, asked)) > FEW:
            return DeferredResponse(partial(self._offset_fetch_in_pieces, asked, making, slot), holds=True)
        return self._ask(asked, lambda answers: run_to_end(making(answers)), has_large_answers=True)

    def _weight_of(self, asked: FetchOffsets) -> int:
        """Return the size, in entries, that one group's part of the response would have now. A committed offset is one
        entry, and `CHARACTERS_OF_ONE` characters of metadata are one more. Metadata is ignored if there are more than
        FEW offsets, because the response is then large anyway.
        """
        known = self._coordinator.committed_offsets(asked.group_id)
        wanted = known if asked.partitions is None else asked.partitions
        if len(wanted) > FEW:
            return len(wanted)
        return len(wanted) + sum(len(known[where].metadata) for where in wanted if where in known) // CHARACTERS_OF_ONE

    async def _offset_fetch_in_pieces(
        self, asked: list[FetchOffsets], making: Callable[[list[GroupResponse]], ResponseSteps], slot: PendingResponse
    ) -> fetch_wire.OffsetFetchResponse | bytes | list[Any]:
        """Build a large response in pieces, because one small request may ask for the offsets that a hundred clients
        have committed. Return it encoded, or not encoded if every group has an error, or [] if the connection has
        ended. `making` builds the response from the coordinator's answers, one per group.
        """
        # Wait outside of the lane until the coordinator may answer: such waits take no memory. In the lane, a request
        # whose log does not commit would keep all later requests waiting.
        first = await self._answers([replace(each, partitions=()) for each in asked])
        if all(one.error for one in first):
            found: fetch_wire.OffsetFetchResponse = run_to_end(making(first))
            return found

        async def begin() -> ResponseSteps:
            going_on = [each for each, one in zip(asked, first, strict=True) if not one.error]
            answers = iter(await self._answers(going_on))
            return making([one if one.error else next(answers) for one in first])

        return await self._large.build(begin, slot)

    async def _answers(self, asked: list[FetchOffsets]) -> list[GroupResponse]:
        found = self._ask(asked, list, has_large_answers=True)
        answers: list[GroupResponse] = await found.wait() if isinstance(found, DeferredResponse) else found
        return answers

    def _groups(
        self, request: fetch_wire.OffsetFetchRequest, answers: Sequence[GroupResponse], by_id: bool
    ) -> ResponseSteps:
        groups = []
        for asked, answer in zip(request.groups, answers, strict=True):
            groups.append((yield from self._group(asked, answer, by_id)))
        return fetch_wire.OffsetFetchResponse(groups=groups)

    def _group(
        self, asked: fetch_wire.OffsetFetchRequestGroup, answer: GroupResponse, by_id: bool
    ) -> Generator[None, None, fetch_wire.OffsetFetchResponseGroup]:
        if not isinstance(answer, FetchOffsetsResult):
            return fetch_wire.OffsetFetchResponseGroup(asked.group_id, error_code=int(answer.error))
        topics: dict[str, fetch_wire.OffsetFetchResponseTopics] = {}
        for number, ((name, index), committed, error) in enumerate(answer.offsets, 1):
            if number % PIECE == 0:
                yield
            DONE.entries += 1
            topic = topics.get(name)
            if topic is None:
                topic_id = self._image.topic_ids.get(name, bytes(16)) if by_id else bytes(16)
                if by_id and topic_id == bytes(16):
                    continue  # an offset of a topic that is deleted has no name in this version
                topic = topics[name] = fetch_wire.OffsetFetchResponseTopics(name, topic_id, [])
            position = _or_no_commit(committed)
            topic.partitions.append(
                fetch_wire.OffsetFetchResponsePartitions(
                    index, position.offset, position.leader_epoch, position.metadata, int(error)
                )
            )
        found = list(topics.values())
        for asked_topic in asked.topics or ():
            if by_id and asked_topic.topic_id not in self._image.topics_by_id:
                unknown = int(ErrorCode.UNKNOWN_TOPIC_ID)
                parts = [
                    fetch_wire.OffsetFetchResponsePartitions(index, -1, -1, "", unknown)
                    for index in asked_topic.partition_indexes
                ]
                found.append(fetch_wire.OffsetFetchResponseTopics(asked_topic.name, asked_topic.topic_id, parts))
        yield
        return fetch_wire.OffsetFetchResponseGroup(asked.group_id, found)

    # ----------------------------------------------------------------------------------------------------------- delete

    def offset_delete(self, request: delete_wire.OffsetDeleteRequest, slot: PendingResponse) -> Any:
        """Delete committed offsets of a group."""
        known: list[TopicPartition] = []
        wrong: dict[TopicPartition, ErrorCode] = {}
        for topic in request.topics:
            found = self._image.topic(topic.name)
            for part in topic.partitions:
                where = (topic.name, part.partition_index)
                if found is not None and part.partition_index in found.partitions:
                    known.append(where)
                else:
                    wrong[where] = _UNKNOWN

        def respond(answers: list[GroupResponse]) -> delete_wire.OffsetDeleteResponse:
            (answer,) = answers
            if answer.error:
                return delete_wire.OffsetDeleteResponse(error_code=int(answer.error))
            errors = {**wrong, **dict(answer.errors if isinstance(answer, PartitionErrors) else ())}
            topics = [
                delete_wire.OffsetDeleteResponseTopic(
                    topic.name,
                    [
                        delete_wire.OffsetDeleteResponsePartition(
                            part.partition_index, int(errors.get((topic.name, part.partition_index), 0))
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            return delete_wire.OffsetDeleteResponse(topics=topics)

        return self._ask([DeleteOffsets(request.group_id, tuple(known))], respond)


def _or_no_commit(committed: OffsetAndMetadata | None) -> OffsetAndMetadata:
    return _NOTHING if committed is None else committed


def _response_of_one_group(answer: GroupResponse, partitions: Sequence[TopicPartition], version: int) -> ResponseSteps:
    """Build the OffsetFetch response of versions below 8, which ask for one group. `partitions` are those named in the
    request.
    """
    if answer.error and version >= GROUP_ERROR_FROM:
        return fetch_wire.OffsetFetchResponse(error_code=int(answer.error))
    found = answer.offsets if isinstance(answer, FetchOffsetsResult) else ()
    if answer.error:
        # These versions have no error of the group, so each partition that was asked for carries it.
        found = tuple((where, None, answer.error) for where in partitions)
    topics: dict[str, list[fetch_wire.OffsetFetchResponsePartition]] = {}
    for number, ((name, index), committed, error) in enumerate(found, 1):
        if number % PIECE == 0:
            yield
        DONE.entries += 1
        position = _or_no_commit(committed)
        part = fetch_wire.OffsetFetchResponsePartition(
            index, position.offset, position.leader_epoch, position.metadata, int(error)
        )
        topics.setdefault(name, []).append(part)
    return fetch_wire.OffsetFetchResponse(
        topics=[fetch_wire.OffsetFetchResponseTopic(name, parts) for name, parts in topics.items()]
    )
