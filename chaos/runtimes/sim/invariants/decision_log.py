"""Replays the metadata log's records, and nothing else, to rebuild what the control plane has decided.

It does not use the broker's replay code, on purpose: a mistake in it must not be repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from squall.broker.cluster.image import TOPIC_RESOURCE, Broker, PartitionImage, Topic
from squall.broker.protocol.schema import metadata_records as records
from squall.chaos.runtimes.sim.invariants.contents import NOT_KNOWN

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage

T = TypeVar("T")
LEADER_STAYS: Final = -2
RECOVERY_STAYS: Final = -1


class PartitionDecision(NamedTuple):
    """Represents one change of a partition, by one metadata record."""

    topic: Topic
    partition: int
    now: PartitionImage


class MetadataReplay:
    """Holds the state of the cluster after the batches of the metadata log that were replayed so far. Its attributes
    have the names that they have in `ClusterImage`.
    """

    __slots__ = (
        "_news",
        "brokers",
        "configs",
        "end",
        "epoch",
        "features",
        "features_offset",
        "kept",
        "next_producer_id",
        "offset",
        "topics_by_id",
    )

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.features_offset = NOT_KNOWN
        self.kept: dict[tuple[Any, ...], Any] = {}
        """Maps (kind, key) to the newest of those metadata records that brokers store but do not act on."""
        self.next_producer_id = 0
        self.offset, self.epoch = -1, -1
        self.end = 0
        """Is the base offset of the next batch to replay. Offsets of control batches, which the quorum writes for
        itself, are counted too.
        """
        self._news: list[PartitionDecision] = []

    def take(self, end: int, epoch: int, found: Iterable[tuple[int, Any]]) -> list[PartitionDecision]:
        """Replay one more batch, with `found` as its records: (offset, message). Returns its decisions on partitions,
        in order. `end`: the batch's exclusive end offset; `epoch`: its leader epoch.

        A controller writes each decision as a single batch, so that all of it takes effect or nothing.
        """
        self._news = []
        for offset, record in found:
            self.offset, self.epoch = offset, epoch
            apply = REPLAY.get(type(record))
            if apply is not None:
                apply(self, record)
        self.end = end
        return self._news

    def adopt(self, image: ClusterImage) -> list[PartitionDecision]:
        """Start again from a node's image, because the records up to the image's offset are deleted or cannot be
        replayed. Returns the image's partitions, as if each had just been decided.
        """
        other = image.clone()
        self.brokers = {each.id: replace(each, registered_at=NOT_KNOWN) for each in other.brokers.values()}
        self.topics_by_id, self.configs = other.topics_by_id, other.configs
        self.features, self.next_producer_id = other.features, other.next_producer_id
        self.features_offset, self.kept = NOT_KNOWN, {}
        for record in other.kept.values():
            REPLAY[type(record)](self, record)
        self.offset, self.epoch, self.end = other.offset, other.epoch, other.offset + 1
        return [PartitionDecision(topic, index, partition) for topic, index, partition in other.partitions()]

    @property
    def topic_ids(self) -> dict[str, bytes]:
        """Returns the topic ids by name, made from the topics."""
        return {topic.name: topic_id for topic_id, topic in self.topics_by_id.items()}

    # --------------------------------------------------------------------------------------------------- each record

    def _registered(self, record: records.RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = Broker(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            {point.name: (point.host, point.port) for point in record.end_points},
            record.fenced,
            record.in_controlled_shutdown,
            record.rack,
            self.offset,
            tuple(record.log_dirs),
            _named(record.cordoned_log_dirs, None),
            tuple((each.name, each.min_supported_version, each.max_supported_version) for each in record.features),
        )

    def _unregistered(self, record: records.UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _fenced(self, record: records.FenceBrokerRecord | records.UnfenceBrokerRecord) -> None:
        fenced = isinstance(record, records.FenceBrokerRecord)
        self.brokers[record.id] = replace(self.brokers[record.id], fenced=fenced)

    def _registration_changed(self, record: records.BrokerRegistrationChangeRecord) -> None:
        before = self.brokers[record.broker_id]
        # 0 changes nothing, 1 fences, -1 unfences. A shutdown that has begun is never taken back by such a record.
        fenced = before.fenced if not record.fenced else record.fenced == 1
        leaving = before.in_controlled_shutdown or record.in_controlled_shutdown == 1
        self.brokers[record.broker_id] = replace(
            before,
            fenced=fenced,
            in_controlled_shutdown=leaving,
            log_dirs=_named(record.log_dirs or None, before.log_dirs),
            cordoned_log_dirs=_named(record.cordoned_log_dirs, before.cordoned_log_dirs),
        )

    def _topic(self, record: records.TopicRecord) -> None:
        self.topics_by_id[record.topic_id] = Topic(record.name, record.topic_id)

    def _topic_gone(self, record: records.RemoveTopicRecord) -> None:
        gone = self.topics_by_id.pop(record.topic_id)
        self.configs.pop((TOPIC_RESOURCE, gone.name), None)

    def _partition(self, record: records.PartitionRecord) -> None:
        now = PartitionImage(
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.leader_recovery_state,
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            tuple(record.adding_replicas or ()),
            tuple(record.removing_replicas or ()),
        )
        self._decided(record.topic_id, record.partition_id, now)

    def _partition_changed(self, record: records.PartitionChangeRecord) -> None:
        before = self.topics_by_id[record.topic_id].partitions[record.partition_id]
        changes: dict[str, Any] = {"partition_epoch": before.partition_epoch + 1}
        for name, value in (
            ("replicas", record.replicas),
            ("isr", record.isr),
            ("elr", record.eligible_leader_replicas),
            ("last_known_elr", record.last_known_elr),
            ("adding", record.adding_replicas),
            ("removing", record.removing_replicas),
        ):
            if value is not None:
                changes[name] = tuple(value)
        if record.leader != LEADER_STAYS:
            changes["leader"], changes["leader_epoch"] = record.leader, before.leader_epoch + 1
        if record.leader_recovery_state != RECOVERY_STAYS:
            changes["leader_recovery_state"] = record.leader_recovery_state
        self._decided(record.topic_id, record.partition_id, replace(before, **changes))

    def _eligible_no_more(self, record: records.ClearElrRecord) -> None:
        for topic in list(self.topics_by_id.values()):
            if record.topic_name and record.topic_name != topic.name:
                continue
            for index, before in list(topic.partitions.items()):
                # Where the ISR is empty the eligible ones are all that is left: they stay.
                if before.isr and before.elr + before.last_known_elr:
                    epoch = before.partition_epoch + 1
                    self._decided(topic.id, index, replace(before, partition_epoch=epoch, elr=(), last_known_elr=()))

    def _decided(self, topic_id: bytes, index: int, now: PartitionImage) -> None:
        topic = self.topics_by_id[topic_id]
        topic.partitions[index] = now
        self._news.append(PartitionDecision(topic, index, now))

    def _configured(self, record: records.ConfigRecord) -> None:
        place = record.resource_type, record.resource_name
        values = {**self.configs.get(place, {}), record.name: record.value}
        kept = {name: value for name, value in values.items() if value is not None}
        if kept:
            self.configs[place] = kept
        else:
            self.configs.pop(place, None)

    def _feature(self, record: records.FeatureLevelRecord) -> None:
        levels = {**self.features, record.name: record.feature_level}
        self.features = {name: level for name, level in levels.items() if level}
        self.features_offset = self.offset

    def _producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    # ------------------------------------------------------------------------------- what no part of the broker serves

    def _entry(self, record: records.AccessControlEntryRecord) -> None:
        self.kept["ACL", record.id] = record

    def _entry_gone(self, record: records.RemoveAccessControlEntryRecord) -> None:
        self.kept.pop(("ACL", record.id), None)

    def _credential(self, record: records.UserScramCredentialRecord) -> None:
        self.kept["SCRAM", record.name, record.mechanism] = record

    def _credential_gone(self, record: records.RemoveUserScramCredentialRecord) -> None:
        self.kept.pop(("SCRAM", record.name, record.mechanism), None)

    def _token(self, record: records.DelegationTokenRecord) -> None:
        self.kept["token", record.token_id] = record

    def _token_gone(self, record: records.RemoveDelegationTokenRecord) -> None:
        self.kept.pop(("token", record.token_id), None)

    def _controller(self, record: records.RegisterControllerRecord) -> None:
        self.kept["controller", record.controller_id] = record

    def _controller_gone(self, record: records.UnregisterControllerRecord) -> None:
        self.kept.pop(("controller", record.controller_id), None)

    def _migration(self, record: records.ZkMigrationStateRecord) -> None:
        self.kept["migration",] = record

    def _quota(self, record: records.ClientQuotaRecord) -> None:
        of = sorted((part.entity_type, part.entity_name is not None, part.entity_name or "") for part in record.entity)
        if record.remove:
            self.kept.pop(("quota", *of, record.key), None)
        else:
            self.kept["quota", *of, record.key] = record


REPLAY: Final[dict[type[Any], Callable[[MetadataReplay, Any], None]]] = {
    records.RegisterBrokerRecord: MetadataReplay._registered,
    records.UnregisterBrokerRecord: MetadataReplay._unregistered,
    records.FenceBrokerRecord: MetadataReplay._fenced,
    records.UnfenceBrokerRecord: MetadataReplay._fenced,
    records.BrokerRegistrationChangeRecord: MetadataReplay._registration_changed,
    records.TopicRecord: MetadataReplay._topic,
    records.RemoveTopicRecord: MetadataReplay._topic_gone,
    records.PartitionRecord: MetadataReplay._partition,
    records.PartitionChangeRecord: MetadataReplay._partition_changed,
    records.ClearElrRecord: MetadataReplay._eligible_no_more,
    records.ConfigRecord: MetadataReplay._configured,
    records.FeatureLevelRecord: MetadataReplay._feature,
    records.ProducerIdsRecord: MetadataReplay._producer_ids,
    records.AccessControlEntryRecord: MetadataReplay._entry,
    records.RemoveAccessControlEntryRecord: MetadataReplay._entry_gone,
    records.UserScramCredentialRecord: MetadataReplay._credential,
    records.RemoveUserScramCredentialRecord: MetadataReplay._credential_gone,
    records.DelegationTokenRecord: MetadataReplay._token,
    records.RemoveDelegationTokenRecord: MetadataReplay._token_gone,
    records.RegisterControllerRecord: MetadataReplay._controller,
    records.UnregisterControllerRecord: MetadataReplay._controller_gone,
    records.ZkMigrationStateRecord: MetadataReplay._migration,
    records.ClientQuotaRecord: MetadataReplay._quota,
}
"""Maps each kind of record to the method that replays it."""


def _named(named: list[bytes] | None, before: T) -> tuple[bytes, ...] | T:
    """Return the log directories that a record names, or `before` if it names none."""
    return before if named is None else tuple(named)
