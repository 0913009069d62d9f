"""Runs confluent-kafka (librdkafka) as a member of a classic group or of a consumer group (KIP-848). librdkafka calls
its callbacks inside of polls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from struct import error as Malformed
from struct import unpack_from
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from squall.broker.overriding import override
from squall.chaos.drivers.library import FAIL, INFO, OK, DriverConfig, OffsetOutOfRange, Place, ReadRecord
from squall.chaos.drivers.members.contract import (
    CONSUMER,
    FETCH_S,
    CommitResult,
    FatalMemberError,
    MemberAdapter,
    MemberGeneration,
    RebalanceListener,
)
from squall.chaos.drivers.with_confluent import BATCH, BOUNDS_S, GONE, RECONNECT, read_record, version

__all__ = ["member", "version"]

UNSENT = frozenset({KafkaError._STATE, KafkaError._INVALID_ARG, KafkaError._NO_OFFSET, KafkaError._UNKNOWN_GROUP})
"""Lists errors with which librdkafka refuses a commit before it sends a request."""
METADATA = b"CGMDv2:"
"""Is the prefix of librdkafka's encoded group metadata; generation, group and member id follow."""
FATAL = (KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID, KafkaError.INVALID_SESSION_TIMEOUT)
"""Lists errors that end a membership. librdkafka names them only in the text of its message, where `_fatal` finds them.
"""


class _LibrdkafkaMember(MemberAdapter):
    stable = True

    def __init__(self, config: DriverConfig, listener: RebalanceListener) -> None:
        self._listener = listener
        self._errors: deque[tuple[Place, Any]] = deque()
        self._polled: list[ReadRecord] = []
        self._owned: set[Place] = set()
        self._read: dict[Place, int] = {}
        """Maps the partitions that were assigned to librdkafka to their next offsets."""
        self._consumer = Consumer(configuration(config))
        self._cooperative = config.group_protocol == CONSUMER or config.assignor.startswith("cooperative")
        self._consumer.subscribe(
            list(config.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    # ------------------------------------------------------------------------------------------------- callbacks

    def _assigned(self, _: Any, added: list[TopicPartition]) -> None:
        """Report the assigned partitions. librdkafka gets a partition only when its position is known, so that it reads
        nothing before.
        """
        self._owned |= set(_places(added))
        # If the callback assigns nothing, not even an empty list, the binding assigns all partitions by itself.
        (self._consumer.incremental_assign if self._cooperative else self._consumer.assign)([])
        self._listener.on_assigned(_places(added), self._owned)

    def _revoked(self, _: Any, places: list[TopicPartition]) -> None:
        self._flush()
        offsets = self._listener.offsets_to_commit(_places(places))
        kept = self.commit(offsets) if offsets else None
        self._unassign(places)
        self._listener.on_revoked(_places(places), kept)

    def _lost(self, _: Any, places: list[TopicPartition]) -> None:
        self._flush()
        self._unassign(places)
        self._listener.on_lost(_places(places))

    def _unassign(self, places: list[TopicPartition]) -> None:
        gone = set(_places(places))
        if self._cooperative:
            self._consumer.incremental_unassign([TopicPartition(*place) for place in gone & self._read.keys()])
        else:
            self._consumer.unassign()
        self._owned -= gone
        self._read = {place: position for place, position in self._read.items() if place not in gone}

    def _flush(self) -> None:
        """Report the records that the poll in progress has read so far. Callbacks that take partitions away call this
        first.
        """
        if self._polled:
            polled, self._polled = self._polled, []
            self._listener.report_records(polled)

    # ------------------------------------------------------------------------------------------------------- member

    @override
    def member_generation(self) -> MemberGeneration:
        return member_generation_of(self.group_metadata())

    @override
    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        """Return a batch, which is read record by record. If librdkafka read the batch in one call, a callback inside
        that call could not report the records that were read before the callback.
        """
        if self._errors:
            place, error = self._errors.popleft()
            raise OffsetOutOfRange([place], error.str()) if error.code() in GONE else KafkaException(error)
        message = self._consumer.poll(within_s)
        while message is not None:
            place, error = (message.topic(), message.partition()), message.error()
            if error is None:
                self._read[place] = message.offset() + 1
                self._polled.append(read_record(place, message))
            elif error.fatal():
                raise FatalMemberError(self._fatal(error))
            else:
                self._errors.append((place, error))
            message = self._consumer.poll(0) if len(self._polled) < BATCH else None
        polled, self._polled = self._polled, []
        return polled

    def _fatal(self, error: Any) -> str:
        """Return the name of the error that ended the membership, which librdkafka gives only in the words of its
        message.
        """
        words = str(error.str())
        return next((KafkaError(code).name() for code in FATAL if KafkaError(code).str() in words), words)

    @override
    def committed_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        partitions = self._consumer.committed([TopicPartition(*place) for place in places], FETCH_S)
        for each in partitions:
            if each.error is not None:
                raise KafkaException(each.error)
        # librdkafka reports -1001 (OFFSET_INVALID) if nothing is committed.
        return {(each.topic, each.partition): max(each.offset, -1) for each in partitions}

    @override
    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        found = {}
        for place in places:
            try:
                found[place] = self._consumer.get_watermark_offsets(TopicPartition(*place), BOUNDS_S)
            except KafkaException:
                continue
        return found

    @override
    def start_reading(self, at: Mapping[Place, int]) -> Collection[Place]:
        fresh = {place: position for place, position in at.items() if place in self._owned - self._read.keys()}
        begun = set(fresh)
        for place, position in at.items():
            there = TopicPartition(*place, position)
            try:
                if place in self._read:
                    self._consumer.seek(there)
                    self._consumer.resume([there])
                    self._read[place] = position
                    begun.add(place)
            except KafkaException:
                continue
        self._read |= fresh
        if fresh and self._cooperative:
            self._consumer.incremental_assign([TopicPartition(*place, at_) for place, at_ in fresh.items()])
        elif fresh:
            # Replaces the whole assignment, so it names the partitions that are read already, too, at their next
            # offsets.
            self._consumer.assign([TopicPartition(*place, at_) for place, at_ in self._read.items()])
        return begun

    @override
    def stop_reading(self, places: Collection[Place]) -> None:
        self._consumer.pause([TopicPartition(*place) for place in places])

    @override
    def commit(self, offsets: Mapping[Place, int]) -> CommitResult:
        """Commit and wait for the result. If a broker returns an error, an earlier request may have succeeded, so the
        result is INFO.
        """
        wanted = [TopicPartition(*place, position) for place, position in offsets.items()]
        try:
            partitions = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as raised:
            error = raised.args[0]
            return CommitResult(FAIL if error.code() in UNSENT else INFO, error.name())
        errors = {(each.topic, each.partition): each.error.name() for each in partitions if each.error is not None}
        if not errors:
            return CommitResult(OK)
        # If some partitions were committed, the others are in doubt: an earlier request may have committed them.
        return CommitResult(INFO, next(iter(errors.values())))

    @override
    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    @override
    def close(self) -> None:
        self._consumer.close()


def configuration(config: DriverConfig) -> dict[str, Any]:
    """Return the consumer's configuration. In a consumer group (KIP-848) the brokers set session time-outs and
    heartbeats.
    """
    if config.group_protocol == CONSUMER:
        of_protocol: dict[str, Any] = {"group.protocol": CONSUMER, "group.remote.assignor": config.assignor}
    else:
        of_protocol = {
            "partition.assignment.strategy": config.assignor,
            "session.timeout.ms": config.session_timeout_ms,
            "heartbeat.interval.ms": config.heartbeat_interval_ms,
        }
    return {
        "bootstrap.servers": config.bootstrap,
        "group.id": config.group,
        "max.poll.interval.ms": config.max_poll_interval_ms,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": ("read_uncommitted", "read_committed")[config.isolation],
        "socket.timeout.ms": max(config.request_timeout_ms, 1000),
        "fetch.wait.max.ms": 100,
        **({"group.instance.id": config.instance} if config.instance else {}),
        **of_protocol,
        **RECONNECT,
    }


def member_generation_of(metadata: bytes) -> MemberGeneration:
    """Return member id and generation from librdkafka's group metadata. Raise ValueError if it has another format."""
    if not metadata.startswith(METADATA):
        raise ValueError(f"metadata of a member that begins with {metadata[:8]!r}")
    try:
        (generation,) = unpack_from("=i", metadata, len(METADATA))
    except Malformed:
        raise ValueError(f"metadata of a member that is {metadata!r}") from None
    _, member_id, *_ = metadata[len(METADATA) + 4 :].split(b"\0")
    return MemberGeneration(member_id.decode(), generation)


def _places(found: Collection[TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in found]


member = _LibrdkafkaMember
