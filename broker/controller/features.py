"""Defines the supported features and their levels, the levels of a new cluster, and UpdateFeatures.

(KIP-584, KIP-778; eligible leader replicas: KIP-966.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from squall.broker.cluster.feed import UnsupportedFeature
from squall.broker.cluster.image import BROKER_RESOURCE, CLUSTER_DEFAULT, ELR_FEATURE, METADATA_VERSION
from squall.broker.cluster.replay import MetadataRecord
from squall.broker.controller.decision import Decision, Refusal
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.metadata_records import ClearElrRecord, ConfigRecord, FeatureLevelRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from squall.broker.controller.decision import Command
    from squall.broker.protocol.schema import update_features as wire


class Feature(NamedTuple):
    """Describes a feature by its lowest and highest supported level, and the level of a new cluster."""

    name: str
    low: int
    high: int
    initial: int


TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
FEATURES = (
    Feature(METADATA_VERSION, 7, 30, 29),
    Feature(ELR_FEATURE, 0, 1, 1),
    Feature(TRANSACTION_VERSION, 0, 2, 2),
    Feature(GROUP_VERSION, 0, 1, 1),
    Feature("share.version", 0, 1, 0),
    Feature("streams.version", 0, 1, 0),
)
"""Lists the supported features, in the order in which a new cluster's first records set them. Level 30 of
metadata.version is Kafka's 4.3-IV0, 7 its 3.3-IV3. Level 2 of transaction.version raises a producer's epoch with each
transaction, 1 only changes the coordinator's records (KIP-890). Level 1 of group.version enables consumer groups
(KIP-848).

share.version and streams.version enable kinds of groups that this broker does not serve. They are listed so that a
cluster for which Kafka has set them keeps its levels. ApiVersions does not list the requests of such groups, and their
records are skipped.
"""
KAFKA_RELEASES = {28: "4.2-IV0", 29: "4.2-IV1", 30: "4.3-IV0", 31: "4.4-IV0"}
"""Maps the newest levels of metadata.version to Kafka's names."""
MIN_INSYNC_REPLICAS = "min.insync.replicas"
EVERY_TOPIC = ""
"""Is the value of `ClearElrRecord.topic_name` that means all topics."""
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Are the values of `FeatureUpdateKey.upgrade_type`."""


def check_supported(features: Mapping[str, int], where: str) -> None:
    """Raise UnsupportedFeature for the first finalized feature level that this version does not support. `where` begins
    the message and names the source of the levels: "the cluster", or the path of a file.
    """
    for name, level in features.items():
        own = next((feature for feature in FEATURES if feature.name == name), None)
        release = KAFKA_RELEASES.get(level) if name == METADATA_VERSION else None
        said = f"{where} has {name} at level {level}" + (f" (Kafka {release})" if release else "")
        if own is None and level > 0:
            raise UnsupportedFeature(f"{said}, a feature that this broker does not have")
        if own is not None and not own.low <= level <= own.high:
            raise UnsupportedFeature(f"{said}, and this broker supports levels {own.low} to {own.high}")


def supported() -> str:
    """Return the supported features with their levels as text, for messages."""
    return ", ".join(f"{feature.name} {feature.low} to {feature.high}" for feature in FEATURES)


def bootstrap(command: Command, formatted: Sequence[Any] = ()) -> Decision[None]:
    """Return the first records of a new cluster; none if they have been written.

    `formatted`: the records that Kafka's own tool left for the cluster. If they set levels, no defaults are added.
    """
    if METADATA_VERSION in command.image.features:
        return Decision(None)
    levels = levels_in(formatted)
    if not levels:
        chosen = dict(command.settings.config.squall_bootstrap_features)
        levels = {feature.name: chosen.get(feature.name, feature.initial) for feature in FEATURES}
    writes = [MetadataRecord(record, 0) for record in formatted if not isinstance(record, FeatureLevelRecord)]
    for name, level in levels.items():
        if level > 0:  # 0 is what a feature without a record has
            writes += _level_records(command, name, level)
    return Decision(None, tuple(writes))


def levels_in(records: Sequence[Any]) -> dict[str, int]:
    """Return the feature levels that these metadata records set."""
    return {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}


def update_features(command: Command, request: wire.UpdateFeaturesRequest) -> Decision[wire.UpdateFeaturesResponse]:
    """Finalize features at other levels: all of them or, with a top-level error, none.

    Errors: INVALID_REQUEST for a feature named twice; INVALID_UPDATE_VERSION for an unknown feature, a level that this
    node or a registered broker does not support, or a lower level without an explicit downgrade.
    """
    from squall.broker.protocol.schema import update_features as wire  # rarely needed

    writes: list[MetadataRecord] = []
    code, message = ErrorCode.NONE, None
    try:
        names = [update.feature for update in request.feature_updates]
        if len(set(names)) < len(names):
            raise Refusal(ErrorCode.INVALID_REQUEST, "A feature is named more than once.")
        for update in request.feature_updates:
            writes += _update(command, update)
    except Refusal as refused:
        writes, code, message = [], refused.code, refused.message
    # With a top-level error there are no results per feature: clients apply that error to each (KIP-1022).
    results = [] if code else [wire.UpdatableFeatureResult(update.feature) for update in request.feature_updates]
    assert not (code and writes)
    reply = wire.UpdateFeaturesResponse(error_code=code, error_message=message, results=results)
    return Decision(reply, () if request.validate_only else tuple(writes))


def _update(command: Command, update: wire.FeatureUpdateKey) -> list[MetadataRecord]:
    name, level = update.feature, update.max_version_level
    now = command.image.features.get(name, 0)
    # Version 0 of the request has only the flag, and later versions have only the type.
    kind = SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refuse(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _refuse(name, level, "A feature version cannot be less than 0.")
    _check_supported(command, name, level)
    if level < now and kind == UPGRADE:
        raise _refuse(name, level, "Can't downgrade the version of this feature without saying that it is meant.")
    if level > now and kind != UPGRADE:
        raise _refuse(name, level, "Can't downgrade to a newer version.")
    if level < now and name == METADATA_VERSION:
        raise _refuse(name, level, "Refusing a downgrade that might delete metadata information.")
    if level < now and any(not partition.isr for _, _, partition in command.image.partitions()):
        # Only eligible replicas hold its committed records: without ELR the partition would never have a leader.
        raise _refuse(name, level, "A partition has nobody left but its eligible leader replicas.")
    return [] if level == now else _level_records(command, name, level)


def _check_supported(command: Command, name: str, level: int) -> None:
    own = next((feature for feature in FEATURES if feature.name == name), None)
    if own is None or not (own.low <= level <= own.high):
        raise _refuse(name, level, f"Local controller {command.settings.config.node_id} does not support this.")
    for broker in command.image.brokers.values():
        supported = {feature: (low, high) for feature, low, high in broker.features}
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            raise _refuse(name, level, f"Broker {broker.id} does not support this feature at this level.")


def _refuse(name: str, level: int, why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {why}")


def _level_records(command: Command, name: str, level: int) -> list[MetadataRecord]:
    """Return the record that sets the feature's level, and the records that a change of eligible leader replicas needs
    besides. Enabling them sets min.insync.replicas for all nodes, unless it is set, and removes the values altered for
    single nodes. Disabling them clears the ELRs (ClearElrRecord).
    """
    assert level >= 0
    writes = [MetadataRecord(FeatureLevelRecord(name=name, feature_level=level), 0)]
    if name == ELR_FEATURE:
        # Eligibility needs a min ISR that all nodes agree on: the cluster's setting, not the one in each node's file.
        return writes + (
            _one_min_isr(command) if level else [MetadataRecord(ClearElrRecord(topic_name=EVERY_TOPIC), 0)]
        )
    return writes


def _one_min_isr(command: Command) -> list[MetadataRecord]:
    configs = command.image.configs
    writes = []
    if MIN_INSYNC_REPLICAS not in configs.get(CLUSTER_DEFAULT, {}):
        value = str(command.settings.config.min_insync_replicas)
        writes.append(_min_isr_record(CLUSTER_DEFAULT[1], value))
    for kind, resource in configs:
        if kind == BROKER_RESOURCE and resource and MIN_INSYNC_REPLICAS in configs[kind, resource]:
            writes.append(_min_isr_record(resource, None))
    return writes


def _min_isr_record(resource: str, value: str | None) -> MetadataRecord:
    assert value is not None or resource, "with ELR the cluster's own min ISR is never removed"
    record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=resource, name=MIN_INSYNC_REPLICAS, value=value)
    return MetadataRecord(record, 0)
