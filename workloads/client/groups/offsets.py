"""Commits and fetches a group's offsets (OffsetCommit, OffsetFetch). An outcome says whether a failure is certain or
the result is unknown.

Coordinators keep the offsets in a replicated log. docs/mechanisms.md describes this as mechanism P5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from squall.broker.protocol.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.groups.assignors import by_topic
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.outcomes import TIMED_OUT, OperationStatus

BY_NAME = 9
"""Is the last version of OffsetCommit and OffsetFetch that identifies topics by name."""

NOT_YET = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Lists errors after which nothing was committed, and a retry may succeed."""
DOUBTFUL = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Lists errors after which the offsets may have been committed: a coordinator may return such an error although the
offsets are in its log. A retry is safe.
"""
ELSEWHERE = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class CommitIdentity(NamedTuple):
    """Identifies the member that commits. A client that is not a member has no id, and generation -1."""

    member_id: str = ""
    generation: int = -1
    instance: str = ""


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """Holds the outcome of a commit. OK: all offsets are committed. FAIL: the offsets of the partitions in `errors`, or
    all offsets if `errors` is empty, are certainly not committed. INFO: unknown.
    """

    status: OperationStatus
    error: str = ""
    errors: Mapping[Place, str] = field(default_factory=dict)
    """Maps the refused partitions to error names, if the coordinator refused only some of them; otherwise empty."""
    code: int = 0
    """Holds the coordinator's error code; 0 if there is none. The member learns from the code, for example, that its
    generation is over (`heed` of the member).
    """
    unanswered: int = 0
    """Counts the requests that got no response: such a request may arrive after the response to a later commit."""


@dataclass(frozen=True, slots=True)
class OffsetFetchResult:
    """Holds the committed offsets of a group, or the error why they are unknown."""

    offsets: Mapping[Place, int] = field(default_factory=dict)
    """Maps partitions to committed offsets; -1 if there is none."""
    metadata: Mapping[Place, str] = field(default_factory=dict)
    error: str = ""
    code: int = 0


def metadata_of(offsets: Mapping[Place, int]) -> dict[Place, str]:
    """Return the metadata that this client commits with these offsets. It differs for each offset, so that checks can
    verify that a coordinator returns the metadata of the same commit.
    """
    return {place: f"squall {offset}" for place, offset in offsets.items()}


def commit_request(group: str, who: CommitIdentity, offsets: Mapping[Place, int]) -> OffsetCommitRequest:
    """Return the OffsetCommit request for these offsets."""
    metadata = metadata_of(offsets)
    topics = [
        OffsetCommitRequestTopic(
            topic,
            partitions=[
                OffsetCommitRequestPartition(index, offsets[topic, index], committed_metadata=metadata[topic, index])
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(list(offsets)).items()
    ]
    # -1: the offsets are kept for as long as the broker's setting says.
    return OffsetCommitRequest(group, who.generation, who.member_id, -1, who.instance or None, topics)


def errors_of(answer: OffsetCommitResponse) -> dict[Place, int]:
    """Return the error codes of the partitions that were refused."""
    return {
        (topic.name, part.partition_index): part.error_code
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code != ErrorCode.NONE
    }


def decisive_error(codes: Sequence[int]) -> int:
    """Return the error that decides about a request with several errors. An error that forbids a retry goes first, then
    one of `DOUBTFUL`, then one of `NOT_YET`. 0 if there is no error.
    """
    return min(codes, key=lambda code: (code in NOT_YET, code in DOUBTFUL, code), default=int(ErrorCode.NONE))


async def commit(
    coordination: GroupCoordinatorClient,
    who: CommitIdentity,
    offsets: Mapping[Place, int],
    limit_s: float,
    *,
    gone: Callable[[], bool] = lambda: False,
) -> CommitOutcome:
    """Commit these offsets, with retries for `limit_s` seconds. `gone` returns whether the commit is of no use any
    more, for example because the member has another generation; this ends the retries.
    """
    client, failures, doubt, asking, unanswered = coordination.client, 0, False, False, 0
    request = commit_request(coordination.group, who, offsets)
    error, code = TIMED_OUT, 0
    with client.env.timeout(limit_s):
        while True:
            try:
                # The time limit may end the wait for a request that was sent.
                asking = True
                answer = await coordination.ask(request, OffsetCommitResponse, BY_NAME)
                asking = False
            except RequestFailed as failure:
                asking, doubt = False, doubt or failure.sent
                unanswered += failure.sent
                error, code = failure.why, 0
            except UnsupportedApi as problem:
                return CommitOutcome(OperationStatus.INFO if doubt else OperationStatus.FAIL, str(problem))
            else:
                refused = errors_of(answer)
                if not refused:
                    return CommitOutcome(OperationStatus.OK, unanswered=unanswered)
                code = decisive_error(list(refused.values()))
                error = name_of(code)
                doubt |= any(each in DOUBTFUL for each in refused.values())
                if code not in NOT_YET and code not in DOUBTFUL:
                    return _ended(offsets, refused, code, unanswered, doubt=doubt)
                if code in ELSEWHERE:
                    coordination.forget()
            if gone():
                break
            failures += 1
            await client.env.sleep(client.backoff(failures))
    return CommitOutcome(OperationStatus.INFO if doubt or asking else OperationStatus.FAIL, error, code=code)


def _ended(
    offsets: Mapping[Place, int], refused: Mapping[Place, int], code: int, unanswered: int, *, doubt: bool
) -> CommitOutcome:
    """Return the outcome of a commit that was refused for good, at least in part. `doubt` says that an earlier attempt
    may have committed the offsets: the outcome is then INFO.
    """
    # An earlier attempt may have committed all of them.
    if doubt:
        return CommitOutcome(OperationStatus.INFO, name_of(code), code=code)
    errors = {place: name_of(each) for place, each in refused.items()} if len(refused) < len(offsets) else {}
    return CommitOutcome(OperationStatus.FAIL, name_of(code), errors, code, unanswered)


async def fetch(
    coordination: GroupCoordinatorClient,
    places: Sequence[Place],
    limit_s: float,
    *,
    stable: bool,
    who: CommitIdentity | None = None,
    gone: Callable[[], bool] = lambda: False,
) -> OffsetFetchResult:
    """Fetch the group's committed offsets of these partitions, with retries for `limit_s` seconds. With `stable`, wait
    while a transaction may change the offsets.

    `who` is the member of a consumer group (KIP-848), whose epoch the coordinator checks; None for all other clients.
    `gone` returns whether the offsets are of no use any more, which ends the retries.
    """
    client, failures, error = coordination.client, 0, TIMED_OUT
    topics = [OffsetFetchRequestTopics(topic, partition_indexes=indexes) for topic, indexes in by_topic(places).items()]
    group = OffsetFetchRequestGroup(coordination.group, topics=topics)
    if who is not None:
        group.member_id, group.member_epoch = who.member_id, who.generation
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    with client.env.timeout(limit_s):
        while not gone():
            try:
                answer = await coordination.ask(request, OffsetFetchResponse, BY_NAME)
            except RequestFailed as failure:
                error = failure.why
            except UnsupportedApi as problem:
                return OffsetFetchResult(error=str(problem))
            else:
                found, code = _decode(answer)
                if code == ErrorCode.NONE:
                    return found
                error = name_of(code)
                if code in ELSEWHERE:
                    coordination.forget()
                # UNSTABLE_OFFSET_COMMIT: an open transaction may replace the offsets (KIP-447).
                elif code not in NOT_YET and code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    return OffsetFetchResult(error=error, code=code)
            failures += 1
            await client.env.sleep(client.backoff(failures))
    return OffsetFetchResult(error=error)


def _decode(answer: OffsetFetchResponse) -> tuple[OffsetFetchResult, int]:
    """Return the offsets of the single group in a response, and an error code: the group's own, or else the one that
    `decisive_error` chooses from its partitions' errors. The code is 0 if there is no error.
    """
    (group,) = answer.groups
    parts = {(topic.name, part.partition_index): part for topic in group.topics for part in topic.partitions}
    codes = [part.error_code for part in parts.values() if part.error_code != ErrorCode.NONE]
    offsets = {place: part.committed_offset for place, part in parts.items()}
    metadata = {place: part.metadata or "" for place, part in parts.items()}
    return OffsetFetchResult(offsets, metadata), group.error_code or decisive_error(codes)
