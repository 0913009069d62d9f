"""Elects leaders on request (ElectLeaders) and periodically (preferred leaders, unclean elections; mechanisms C1 and
R11 in docs/mechanisms.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.replay import MetadataRecord
from squall.broker.controller.decision import Decision, Refusal
from squall.broker.controller.elections import PARTITION_CHANGE_VERSION, ElectionType, election_for, partition_change
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from squall.broker.cluster.image import ClusterImage, PartitionImage
    from squall.broker.controller.decision import Command
    from squall.broker.protocol.schema import elect_leaders as wire

ELECTION_TYPES = {0: ElectionType.PREFERRED, 1: ElectionType.UNCLEAN}
"""Maps each value of `ElectLeadersRequest.election_type` to the kind of election."""


def elect_leaders(command: Command, request: wire.ElectLeadersRequest) -> Decision[wire.ElectLeadersResponse]:
    """Elect leaders of the named partitions or, if none are named, of all that need an election. A refusal for one
    partition affects no other.
    """
    from squall.broker.protocol.schema import elect_leaders as wire  # elections by the clock do not need it

    election = ELECTION_TYPES.get(request.election_type)
    if election is None:
        return Decision(wire.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    writes: list[MetadataRecord] = []
    results: dict[str, wire.ReplicaElectionResult] = {}
    everything = request.topic_partitions is None
    for name, index in _asked(command.image, request):
        result = wire.PartitionResult(partition_id=index, error_message=None)
        try:
            writes.append(_elect(command, name, index, election))
        except Refusal as refused:
            if everything and refused.code == ErrorCode.ELECTION_NOT_NEEDED:
                continue
            result.error_code, result.error_message = refused.code, refused.message
        results.setdefault(name, wire.ReplicaElectionResult(topic=name)).partition_result.append(result)
    return Decision(wire.ElectLeadersResponse(replica_election_results=list(results.values())), tuple(writes))


def _asked(image: ClusterImage, request: wire.ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        for topic, index, _ in image.partitions():
            yield topic.name, index
    else:
        seen: dict[tuple[str, int], None] = {}
        for asked in request.topic_partitions:
            seen.update(dict.fromkeys((asked.topic, index) for index in asked.partitions))
        yield from seen


def _elect(command: Command, name: str, index: int, election: ElectionType) -> MetadataRecord:
    topic = command.image.topic(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    preferred = election is ElectionType.PREFERRED
    if partition.leader == partition.preferred_leader if preferred else partition.leader != NO_NODE:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    write = _election(command, topic.id, index, partition, election)
    if write is None and preferred:
        raise Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    if write is None:
        raise Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    return write


def _election(
    command: Command, topic_id: bytes, index: int, partition: PartitionImage, election: ElectionType
) -> MetadataRecord | None:
    assert election is not ElectionType.ONLINE, "a leader fails over with the change that removes it"
    change = partition_change(command, topic_id, index, partition)
    change.election = election
    record = change.plan()
    return None if record is None else MetadataRecord(record, PARTITION_CHANGE_VERSION)


def elect_unclean(command: Command) -> Decision[None]:
    """Elect leaders of leaderless partitions that allow unclean elections. The caller repeats this from time to time,
    because the setting may have been altered after a partition lost its leader.
    """
    writes = []
    for topic, index, partition in command.image.partitions():
        if partition.leader == NO_NODE and election_for(command, topic.name) is ElectionType.UNCLEAN:
            write = _election(command, topic.id, index, partition, ElectionType.UNCLEAN)
            writes += [] if write is None else [write]
    return Decision(None, tuple(writes))


def balance(command: Command) -> Decision[None]:
    """Elect the preferred leaders that are in the ISR and do not lead, so that leaders stay evenly spread."""
    writes = []
    for topic, index, partition in command.image.partitions():
        if partition.leader != partition.preferred_leader and partition.preferred_leader in partition.isr:
            write = _election(command, topic.id, index, partition, ElectionType.PREFERRED)
            writes += [] if write is None else [write]
    return Decision(None, tuple(writes))
