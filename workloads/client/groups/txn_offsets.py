"""Commits a group's offsets within a transaction (TxnOffsetCommit), with exact outcomes: ok, fail or info (KIP-98,
KIP-447).
"""

from __future__ import annotations

from collections.abc import Mapping

from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.groups.assignors import by_topic
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.offsets import (
    DOUBTFUL,
    ELSEWHERE,
    NOT_YET,
    CommitIdentity,
    CommitOutcome,
    decisive_error,
    metadata_of,
)
from squall.workloads.client.outcomes import TIMED_OUT, OperationStatus
from squall.workloads.client.transactions import ProducerIdAndEpoch

V1_COMMIT, V2_COMMIT = 4, 5
"""Are the versions of TxnOffsetCommit that are sent with transaction version 1 and transaction version 2."""


async def commit_in_transaction(
    coordination: GroupCoordinatorClient,
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    who: CommitIdentity,
    offsets: Mapping[Place, int],
    limit_s: float,
    *,
    v2: bool,
) -> CommitOutcome:
    """Send TxnOffsetCommit: the group's coordinator keeps these offsets pending until the transaction ends. OK means
    that it has stored them as pending.
    """
    client, failures, doubt, asking = coordination.client, 0, False, False
    metadata = metadata_of(offsets)
    topics = [
        TxnOffsetCommitRequestTopic(
            topic,
            [
                TxnOffsetCommitRequestPartition(index, offsets[topic, index], committed_metadata=metadata[topic, index])
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(list(offsets)).items()
    ]
    request = TxnOffsetCommitRequest(
        transactional_id, coordination.group, *identity, who.generation, who.member_id, who.instance or None, topics
    )
    error, code = TIMED_OUT, 0
    with client.env.timeout(limit_s):
        while True:
            try:
                # The time limit may end the wait for a request that was sent.
                asking = True
                answer = await coordination.ask(request, TxnOffsetCommitResponse, V2_COMMIT if v2 else V1_COMMIT)
                asking = False
            except RequestFailed as failure:
                asking, doubt, error = False, doubt or failure.sent, failure.why
            except UnsupportedApi as problem:
                return CommitOutcome(OperationStatus.INFO if doubt else OperationStatus.FAIL, str(problem))
            else:
                codes = [part.error_code for topic in answer.topics for part in topic.partitions if part.error_code]
                if not codes:
                    return CommitOutcome(OperationStatus.OK)
                code = decisive_error(codes)
                error = name_of(code)
                doubt |= any(each in DOUBTFUL for each in codes)
                if code not in (*NOT_YET, *DOUBTFUL, ErrorCode.CONCURRENT_TRANSACTIONS):
                    return CommitOutcome(OperationStatus.INFO if doubt else OperationStatus.FAIL, error, code=code)
                if code in ELSEWHERE:
                    coordination.forget()
            failures += 1
            await client.env.sleep(client.backoff(failures))
    return CommitOutcome(OperationStatus.INFO if doubt or asking else OperationStatus.FAIL, error)
