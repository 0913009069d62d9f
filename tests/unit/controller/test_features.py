"""Feature levels: what a fresh cluster begins with, and who may change them to what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.cluster.feed import UnsupportedFeature
from broker.cluster.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    ELR_FEATURE,
    METADATA_VERSION,
    TOPIC_RESOURCE,
    ClusterImage,
)
from broker.cluster.snapshot import records_of, restored
from broker.config import BrokerConfig, ConfigError
from broker.controller.controller import Controller
from broker.controller.features import FEATURES, check_supported
from broker.protocol.apis import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.schema import incremental_alter_configs as configs_wire
from broker.protocol.schema import update_features as wire
from broker.protocol.schema.metadata_records import FeatureLevelRecord, RegisterBrokerRecord, UserScramCredentialRecord
from tests.support.brokers.controller_harness import ControllerHarness

UPGRADE, SAFE, UNSAFE = 1, 2, 3
ELR_ON = {"squall.bootstrap.features": f"{ELR_FEATURE}=1"}
MIN_ISR = "min.insync.replicas"


def update(room: ControllerHarness, *levels: tuple[str, int], kind: int = UPGRADE, **more: Any) -> ErrorCode:
    updates = [wire.FeatureUpdateKey(name, level, upgrade_type=kind) for name, level in levels]
    reply = room.do(ApiKey.UPDATE_FEATURES, wire.UpdateFeaturesRequest(feature_updates=updates, **more))
    assert {result.error_code for result in reply.results} <= {reply.error_code}
    return ErrorCode(reply.error_code)


def alter(room: ControllerHarness, kind: int, name: str, value: str | None) -> ErrorCode:
    change = configs_wire.AlterableConfig(name=MIN_ISR, config_operation=0 if value else 1, value=value)
    asked = configs_wire.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    reply = room.do(ApiKey.INCREMENTAL_ALTER_CONFIGS, configs_wire.IncrementalAlterConfigsRequest(resources=[asked]))
    return ErrorCode(reply.responses[0].error_code)


def with_elr(**properties: str) -> ControllerHarness:
    return ControllerHarness(**{**ELR_ON, **properties})


def test_a_fresh_cluster_begins_with_eligible_leader_replicas_unless_told() -> None:
    assert ELR_FEATURE not in ControllerHarness().image.features, "it was told"
    room = ControllerHarness(min_insync_replicas="2", squall_bootstrap_features="")
    assert room.image.features[ELR_FEATURE] == 1
    assert room.image.configs[CLUSTER_DEFAULT] == {MIN_ISR: "2"}, "all nodes must agree on min ISR"


@pytest.mark.parametrize(
    "text", ["eligible.leader.replicas.version=2", "metadata.version=7", "metadata.version=31", "nonsense"]
)
def test_levels_of_a_fresh_cluster_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"eligible.leader.replicas.version=0..1"):
        BrokerConfig.from_properties({"node.id": "1", "squall.bootstrap.features": text})


def test_the_feature_is_switched_on_with_one_min_isr_for_the_whole_cluster() -> None:
    room = ControllerHarness(min_insync_replicas="2")
    assert alter(room, BROKER_RESOURCE, "2", "3") == ErrorCode.NONE
    assert update(room, (ELR_FEATURE, 1)) == ErrorCode.NONE
    assert room.image.features[ELR_FEATURE] == 1
    assert room.image.configs == {CLUSTER_DEFAULT: {MIN_ISR: "2"}}, "the broker's own is gone"
    assert update(room, (ELR_FEATURE, 1)) == ErrorCode.NONE
    assert update(room, (ELR_FEATURE, 0), kind=SAFE) == ErrorCode.NONE
    assert ELR_FEATURE not in room.image.features


def test_a_min_isr_that_was_altered_before_stays() -> None:
    room = ControllerHarness()
    alter(room, BROKER_RESOURCE, "", "3")
    update(room, (ELR_FEATURE, 1))
    assert room.image.configs == {CLUSTER_DEFAULT: {MIN_ISR: "3"}}


@pytest.mark.parametrize(
    ("levels", "kind", "error"),
    [
        ([("no.such.feature", 1)], UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
        ([(ELR_FEATURE, 2)], UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
        ([(ELR_FEATURE, -1)], UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
        ([(ELR_FEATURE, 1)], 0, ErrorCode.INVALID_UPDATE_VERSION),
        ([(ELR_FEATURE, 1)], SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ([("metadata.version", 28)], SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ([("metadata.version", 31)], UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
        ([(ELR_FEATURE, 1), (ELR_FEATURE, 1)], UPGRADE, ErrorCode.INVALID_REQUEST),
        ([(ELR_FEATURE, 1), ("no.such.feature", 1)], UPGRADE, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_what_cannot_be_is_refused_as_a_whole(levels: list[tuple[str, int]], kind: int, error: ErrorCode) -> None:
    room = ControllerHarness()
    assert update(room, *levels, kind=kind) == error
    assert room.image.features == {"metadata.version": 29, "transaction.version": 2, "group.version": 1}


def test_a_lower_level_must_be_meant() -> None:
    room = with_elr()
    assert update(room, (ELR_FEATURE, 0)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(room, (ELR_FEATURE, 0), kind=UNSAFE) == ErrorCode.NONE


def test_a_level_that_a_registered_broker_does_not_support_is_refused() -> None:
    room = ControllerHarness()
    room.lose(3)
    others = {feature.name: (feature.low, feature.high) for feature in FEATURES if feature.name != ELR_FEATURE}
    room.register(3, incarnation=2, features=others)
    assert update(room, (ELR_FEATURE, 1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert ELR_FEATURE not in room.image.features


def test_a_broker_that_does_not_support_a_finalized_level_may_not_register() -> None:
    room = with_elr()
    error, _ = room.register(4, features={"metadata.version": (7, 29)})
    assert error == ErrorCode.UNSUPPORTED_VERSION


def test_asking_whether_it_would_be_possible_changes_nothing() -> None:
    room = ControllerHarness()
    assert update(room, (ELR_FEATURE, 1), validate_only=True) == ErrorCode.NONE
    assert ELR_FEATURE not in room.image.features


# ------------------------------------------------------------------------------- min ISR while replicas are eligible


def below_min_isr() -> ControllerHarness:
    """Topics "t" and "u", ISR {1}, 2 and 3 eligible at least in part."""
    room = with_elr(min_insync_replicas="2")
    room.topic("t", [1, 2, 3])
    room.topic("u", [1, 2, 3])
    room.lose(3)
    room.lose(2, 3)
    assert [room.partition(name).elr for name in "tu"] == [(2,), (2,)]
    return room


def test_another_min_isr_of_a_topic_ends_what_was_eligible_by_the_old_one() -> None:
    room = below_min_isr()
    before = room.partition("t")
    assert alter(room, TOPIC_RESOURCE, "t", "1") == ErrorCode.NONE
    after = room.partition("t")
    assert (after.elr, after.isr, after.leader_epoch) == ((), (1,), before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1
    assert room.partition("u").elr == (2,)


def test_another_min_isr_of_the_cluster_does_so_for_every_topic() -> None:
    room = below_min_isr()
    assert alter(room, BROKER_RESOURCE, "", "1") == ErrorCode.NONE
    assert [room.partition(name).elr for name in "tu"] == [(), ()]


def test_min_isr_may_be_neither_removed_from_the_cluster_nor_altered_for_one_broker() -> None:
    room = below_min_isr()
    assert alter(room, BROKER_RESOURCE, "", None) == ErrorCode.INVALID_CONFIG
    assert alter(room, BROKER_RESOURCE, "1", "3") == ErrorCode.INVALID_CONFIG
    assert room.partition("t").elr == (2,)


def test_where_the_isr_is_empty_the_eligible_ones_stay_or_nobody_could_ever_lead() -> None:
    room = below_min_isr()
    room.lose(1, 2, 3)
    assert (room.partition("t").isr, room.partition("t").elr) == ((), (1, 2))
    alter(room, TOPIC_RESOURCE, "t", "1")
    assert room.partition("t").elr == (1, 2)
    assert update(room, (ELR_FEATURE, 0), kind=SAFE) == ErrorCode.INVALID_UPDATE_VERSION
    room.beat(2)
    assert (room.partition("t").leader, room.partition("t").isr) == (2, (2,))


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({"metadata.version": 31}, "the cluster has metadata.version at level 31 (Kafka 4.4-IV0), and this broker"),
        ({"metadata.version": 6}, "supports levels 7 to 30"),
        ({"metadata.version": 29, "kraft.version": 1}, "kraft.version at level 1, a feature that this broker does not"),
        ({"transaction.version": 3}, "supports levels 0 to 2"),
    ],
)
def test_what_this_version_lacks_is_told_in_one_sentence(features: dict[str, int], said: str) -> None:
    with pytest.raises(UnsupportedFeature) as raised:
        check_supported(features, "the cluster")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_this_version_supports_is_no_trouble() -> None:
    check_supported({feature.name: feature.high for feature in FEATURES}, "the cluster")
    check_supported({"kraft.version": 0}, "the cluster")


def test_what_kafkas_tool_has_formatted_decides_what_a_fresh_cluster_begins_with() -> None:
    room = ControllerHarness(brokers=0)
    fresh = Controller(ClusterImage(), room.settings, room.rng, 0, room.now_ms)
    user = UserScramCredentialRecord(name="u", mechanism=1)
    levels = {METADATA_VERSION: 30, "group.version": 1, ELR_FEATURE: 1}
    formatted = [user, *(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items())]
    decision = fresh.bootstrap(room.now_ms, formatted)
    assert decision.records[0] == (user, 0)
    fresh.apply(decision, 1, room.now_ms)
    assert fresh.image.features == levels, "nothing of this version's own"
    assert fresh.image.configs[CLUSTER_DEFAULT] == {MIN_ISR: "1"}
    assert not fresh.bootstrap(room.now_ms, formatted).records, "once"


def test_from_kafka_4_3_on_registrations_tell_of_cordoned_directories_and_new_replicas_stay_off_them() -> None:
    room = ControllerHarness(brokers=0, squall_bootstrap_features=f"{METADATA_VERSION}=30")
    room.join(1)
    room.join(2)
    assert {write.version for write in records_of(room.image) if isinstance(write.record, RegisterBrokerRecord)} == {4}
    broker = room.image.brokers[2]
    room.controller.image.brokers[2] = replace(broker, log_dirs=(b"d" * 16,), cordoned_log_dirs=(b"d" * 16,))
    again = restored([write.record for write in records_of(room.image)], room.image.offset, room.image.epoch)
    assert again.brokers[2].cordoned
    assert room.create("t", partitions=4, replication_factor=1).error_code == ErrorCode.NONE
    assert {room.partition("t", index).replicas for index in range(4)} == {(1,)}
