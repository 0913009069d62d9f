"""Decides on brokers: registration, heartbeats, controlled shutdown, fencing (mechanism R13 in docs/mechanisms.md,
KIP-500, KIP-631).

A broker registers an incarnation and starts fenced. It is unfenced once it has replayed its own registration. It is
fenced when its session expires, when it asks for it, or when it stops. Each of these changes moves leaderships and ISRs
in the same unit of records that changes the broker, so no image has a fenced broker in an ISR with other members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.replay import MetadataRecord, register_broker_version
from squall.broker.controller.decision import Decision, Refusal, check_broker_epoch
from squall.broker.controller.elections import PARTITION_CHANGE_VERSION, elr_enabled, partition_change
from squall.broker.controller.sessions import BrokerSessionChange
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from squall.broker.protocol.schema.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from squall.broker.protocol.schema.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from squall.broker.cluster.image import Broker, ClusterImage, PartitionImage
    from squall.broker.controller.decision import Command

REGISTRATION_CHANGE_VERSION = 1
FENCE, UNFENCE = 1, -1
"""Are the values of `BrokerRegistrationChangeRecord.fenced`."""
IN_CONTROLLED_SHUTDOWN = 1

Registration = Decision[BrokerRegistrationResponse]
Heartbeat = Decision[BrokerHeartbeatResponse]


def register(command: Command, request: BrokerRegistrationRequest) -> Registration:
    """Register an incarnation of a broker, or update its registration. The reply has the broker epoch.

    Errors: INCONSISTENT_CLUSTER_ID; DUPLICATE_BROKER_REGISTRATION while another incarnation's session lasts (the broker
    retries); UNSUPPORTED_VERSION if the broker lacks a finalized feature level.
    """
    try:
        existing = _check_registration(command, request)
    except Refusal as refused:
        return Decision(BrokerRegistrationResponse(error_code=refused.code))
    record = _registration_record(command, request)
    writes = [MetadataRecord(record, register_broker_version(command.image))]
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.cordoned_log_dirs = None if existing.cordoned_log_dirs is None else list(existing.cordoned_log_dirs)
    elif existing is not None:
        # The new epoch fences requests of the old incarnation, so it must be larger (KIP-903).
        assert record.broker_epoch > existing.epoch
        writes += _replace_incarnation(command, existing, request.previous_broker_epoch)
    assert existing is None or existing.epoch <= record.broker_epoch
    assert record.fenced or existing is not None
    return Decision(
        BrokerRegistrationResponse(broker_epoch=record.broker_epoch),
        tuple(writes),
        BrokerSessionChange(request.broker_id, metadata_offset=-1),
    )


def _check_registration(command: Command, request: BrokerRegistrationRequest) -> Broker | None:
    image, cluster_id = command.image, command.settings.cluster_id
    if request.broker_id < 0:  # -1 is NO_NODE
        raise Refusal(ErrorCode.INVALID_REQUEST, f"No broker has the id {request.broker_id}")
    if request.cluster_id != cluster_id:
        message = f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
        raise Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    existing = image.brokers.get(request.broker_id)
    if existing is not None and existing.incarnation_id != request.incarnation_id:
        alive = command.sessions.is_valid(image, request.broker_id, command.now_ms)
        if alive and not existing.in_controlled_shutdown:
            raise Refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id.")
    supported = {feature.name: feature for feature in request.features}
    for name, level in image.features.items():
        feature = supported.get(name)
        if feature is None or not feature.min_supported_version <= level <= feature.max_supported_version:
            message = f"Unable to register because the broker does not support version {level} of {name}."
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, message)
    assert existing is None or existing.id == request.broker_id
    return existing


def _registration_record(command: Command, request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    assert request.broker_id > NO_NODE
    assert command.next_offset > command.image.offset
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=command.next_offset,
        end_points=[
            BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=list(request.log_dirs),
    )


def _replace_incarnation(command: Command, existing: Broker, previous_broker_epoch: int) -> list[MetadataRecord]:
    """Return the records that remove the old incarnation of a broker from its ISRs and leaderships, and, if it did not
    stop cleanly, from the eligible leader replicas.
    """
    if elr_enabled(command.image) and not stopped_cleanly(existing, previous_broker_epoch):
        return leadership_changes(command, unclean=existing.id)
    return leadership_changes(command, remove=existing.id)


def stopped_cleanly(existing: Broker, previous_broker_epoch: int) -> bool:
    """Return whether the registered incarnation (`existing`) stopped cleanly. `previous_broker_epoch` is the epoch in
    the clean-shutdown file that the restarted broker found, or -1 (KIP-966).
    """
    return previous_broker_epoch == existing.epoch


def heartbeat(command: Command, request: BrokerHeartbeatRequest) -> Heartbeat:
    """Extend a broker's session. Fence the broker if it asks for that. Unfence it once it has replayed its own
    registration, unless it asks to stay fenced or to stop. Let it stop once every active broker has replayed the move
    of its leaderships. Error: STALE_BROKER_EPOCH.
    """
    image = command.image
    try:
        check_broker_epoch(image, request.broker_id, request.broker_epoch)
    except Refusal as refused:
        return Decision(BrokerHeartbeatResponse(error_code=refused.code))
    broker = image.brokers[request.broker_id]
    assert broker.epoch == request.broker_epoch
    contact = BrokerSessionChange(broker.id, request.current_metadata_offset)
    reply = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.registered_at,
        is_fenced=broker.fenced,
        should_shut_down=False,
    )
    if broker.fenced:
        return _heartbeat_of_fenced(command, request, broker, reply, contact)
    if request.want_fence:
        reply.is_fenced, reply.should_shut_down = True, request.want_shut_down
        return Decision(reply, tuple(fence(command, broker)), contact)
    if request.want_shut_down or broker.in_controlled_shutdown:
        return _heartbeat_of_stopping(command, broker, reply, contact)
    return Decision(reply, (), contact)


def _heartbeat_of_fenced(
    command: Command,
    request: BrokerHeartbeatRequest,
    broker: Broker,
    reply: BrokerHeartbeatResponse,
    contact: BrokerSessionChange,
) -> Heartbeat:
    assert broker.fenced
    if request.want_shut_down or broker.in_controlled_shutdown:
        # An incarnation that has begun to stop is never unfenced again: its session expired while it stopped.
        reply.should_shut_down = True
        return Decision(reply, (), contact)
    if request.want_fence or not reply.is_caught_up:
        return Decision(reply, (), contact)
    reply.is_fenced = False
    return Decision(reply, tuple(unfence(command, broker)), contact)


def _heartbeat_of_stopping(
    command: Command, broker: Broker, reply: BrokerHeartbeatResponse, contact: BrokerSessionChange
) -> Heartbeat:
    """Move the leaderships of a stopping broker away; once every active broker has replayed that, let it stop
    (KIP-841).
    """
    assert not broker.fenced
    image = command.image
    if any(partition.leader == broker.id for _, _, partition in image.partitions()):
        writes = leadership_changes(command, remove=broker.id)
        if not broker.in_controlled_shutdown:
            writes.insert(0, _change(broker, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN))
        change = BrokerSessionChange(broker.id, contact.metadata_offset, begins_shutdown=True)
        return Decision(reply, tuple(writes), change)
    if broker.in_controlled_shutdown and not command.sessions.may_stop(image, broker.id):
        return Decision(reply, (), contact)
    reply.is_fenced = reply.should_shut_down = True
    return Decision(reply, tuple(fence(command, broker)), contact)


def expire(command: Command) -> Decision[Broker | None]:
    """Fence the broker whose session expired first. The reply is that broker, or None if no session has expired.

    Only one broker is fenced at a time, because the choice of new leaders for the next one depends on this change.
    """
    broker_id = command.sessions.expired(command.image, command.now_ms)
    if broker_id is None:
        return Decision(None)
    broker = command.image.brokers[broker_id]
    assert not command.sessions.is_valid(command.image, broker_id, command.now_ms)
    return Decision(broker, tuple(fence(command, broker)))


def fence(command: Command, broker: Broker) -> list[MetadataRecord]:
    """Return the records that remove a broker from its ISRs and leaderships, and fence it."""
    assert not broker.fenced
    # Fence last: no image may have a fenced broker in an ISR with other members.
    return [*leadership_changes(command, remove=broker.id), _change(broker, fenced=FENCE)]


def unfence(command: Command, broker: Broker) -> list[MetadataRecord]:
    """Return the records that unfence a broker, and make it the leader of leaderless partitions that it may lead."""
    assert broker.fenced
    assert not broker.in_controlled_shutdown
    return [_change(broker, fenced=UNFENCE), *leadership_changes(command, add=broker.id)]


def _change(broker: Broker, *, fenced: int = 0, in_controlled_shutdown: int = 0) -> MetadataRecord:
    assert fenced in (0, FENCE, UNFENCE)
    assert fenced or in_controlled_shutdown, "the record would change nothing"
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )
    return MetadataRecord(record, REGISTRATION_CHANGE_VERSION)


def leadership_changes(
    command: Command, *, remove: int = NO_NODE, add: int = NO_NODE, unclean: int = NO_NODE
) -> list[MetadataRecord]:
    """Return the records for all partitions whose leader, ISR or ELR changes because of one broker. Exactly one of
    these must be given, as a broker id:

    - `remove` leaves the ISRs and may not lead.
    - `add` may lead, although it is still fenced in the image.
    - `unclean` may have lost records in an unclean shutdown: it leaves ISRs and ELRs and may not lead.
    """
    assert (remove, add, unclean).count(NO_NODE) == 2
    image = command.image

    def acceptable(broker_id: int) -> bool:
        return broker_id not in (remove, unclean) and (broker_id == add or image.is_active(broker_id))

    writes = []
    for topic_id, index, before in list(_affected(image, (remove, unclean), add)):
        change = partition_change(command, topic_id, index, before)
        change.acceptable = acceptable
        change.isr = tuple(replica for replica in before.isr if replica not in (remove, unclean))
        change.unclean_shutdown = () if unclean == NO_NODE else (unclean,)
        record = change.plan()
        if record is not None:
            assert record.leader == NO_NODE or record.leader not in (remove, unclean)
            writes.append(MetadataRecord(record, PARTITION_CHANGE_VERSION))
    return writes


def _affected(
    image: ClusterImage, leaving: tuple[int, int], coming: int
) -> Iterable[tuple[bytes, int, PartitionImage]]:
    for topic, index, partition in image.partitions():
        leaves = any(member in leaving for member in partition.isr + partition.elr)
        if leaves or (coming != NO_NODE and partition.leader == NO_NODE):
            yield topic.id, index, partition
