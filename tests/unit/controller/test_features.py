"""Feature levels: what a fresh cluster begins with, and who may change them to what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from squall.broker.cluster.feed import UnsupportedFeature
from squall.broker.cluster.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    ELR_FEATURE,
    METADATA_VERSION,
    TOPIC_RESOURCE,
    ClusterImage,
)
from squall.broker.cluster.snapshot import records_of, restored
from squall.broker.config import ConfigError, load_config
from squall.broker.controller.controller import Controller
from squall.broker.controller.features import FEATURES, check_supported
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import incremental_alter_configs as configs_wire
from squall.broker.protocol.schema import update_features as wire
from squall.broker.protocol.schema.metadata_records import (
    FeatureLevelRecord,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
)
from tests.support.brokers.controller_harness import ControllerHarness

UPGRADE, SAFE, UNSAFE = 1, 2, 3
ELR_ON = {"squall.bootstrap.features": f"{ELR_FEATURE}=1"}
MIN_ISR = "min.insync.replicas"


def update(harness: ControllerHarness, *levels: tuple[str, int], kind: int = UPGRADE, **more: Any) -> ErrorCode:
    updates = [wire.FeatureUpdateKey(name, level, upgrade_type=kind) for name, level in levels]
    reply = harness.do(ApiKey.UPDATE_FEATURES, wire.UpdateFeaturesRequest(feature_updates=updates, **more))
    assert [result.feature for result in reply.results] == ([] if reply.error_code else [name for name, _ in levels])
    return ErrorCode(reply.error_code)


def alter(harness: ControllerHarness, kind: int, name: str, value: str | None) -> ErrorCode:
    change = configs_wire.AlterableConfig(name=MIN_ISR, config_operation=0 if value else 1, value=value)
    asked = configs_wire.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    reply = harness.do(ApiKey.INCREMENTAL_ALTER_CONFIGS, configs_wire.IncrementalAlterConfigsRequest(resources=[asked]))
    return ErrorCode(reply.responses[0].error_code)


def with_elr(**properties: str) -> ControllerHarness:
    return ControllerHarness(**{**ELR_ON, **properties})


def test_a_fresh_cluster_begins_with_eligible_leader_replicas_unless_told() -> None:
    assert ELR_FEATURE not in ControllerHarness().image.features, "it was told"
    harness = ControllerHarness(min_insync_replicas="2", squall_bootstrap_features="")
    assert harness.image.features[ELR_FEATURE] == 1
    assert harness.image.configs[CLUSTER_DEFAULT] == {MIN_ISR: "2"}, "all nodes must agree on min ISR"


@pytest.mark.parametrize(
    "text", ["eligible.leader.replicas.version=2", "metadata.version=7", "metadata.version=31", "nonsense"]
)
def test_levels_of_a_fresh_cluster_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"eligible.leader.replicas.version=0..1"):
        load_config({"node.id": "1", "squall.bootstrap.features": text})


def test_the_feature_is_switched_on_with_one_min_isr_for_the_whole_cluster() -> None:
    harness = ControllerHarness(min_insync_replicas="2")
    assert alter(harness, BROKER_RESOURCE, "2", "3") == ErrorCode.NONE
    assert update(harness, (ELR_FEATURE, 1)) == ErrorCode.NONE
    assert harness.image.features[ELR_FEATURE] == 1
    assert harness.image.configs == {CLUSTER_DEFAULT: {MIN_ISR: "2"}}, "the broker's own is gone"
    assert update(harness, (ELR_FEATURE, 1)) == ErrorCode.NONE
    assert update(harness, (ELR_FEATURE, 0), kind=SAFE) == ErrorCode.NONE
    assert ELR_FEATURE not in harness.image.features


def test_a_min_isr_that_was_altered_before_stays() -> None:
    harness = ControllerHarness()
    alter(harness, BROKER_RESOURCE, "", "3")
    update(harness, (ELR_FEATURE, 1))
    assert harness.image.configs == {CLUSTER_DEFAULT: {MIN_ISR: "3"}}


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
    harness = ControllerHarness()
    assert update(harness, *levels, kind=kind) == error
    assert harness.image.features == {"metadata.version": 29, "transaction.version": 2, "group.version": 1}


def test_a_lower_level_must_be_meant() -> None:
    harness = with_elr()
    assert update(harness, (ELR_FEATURE, 0)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(harness, (ELR_FEATURE, 0), kind=UNSAFE) == ErrorCode.NONE


def test_a_level_that_a_registered_broker_does_not_support_is_refused() -> None:
    harness = ControllerHarness()
    harness.lose(3)
    others = {feature.name: (feature.low, feature.high) for feature in FEATURES if feature.name != ELR_FEATURE}
    harness.register(3, incarnation=2, features=others)
    assert update(harness, (ELR_FEATURE, 1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert ELR_FEATURE not in harness.image.features


def test_a_broker_that_does_not_support_a_finalized_level_may_not_register() -> None:
    harness = with_elr()
    error, _ = harness.register(4, features={"metadata.version": (7, 29)})
    assert error == ErrorCode.UNSUPPORTED_VERSION


def test_asking_whether_it_would_be_possible_changes_nothing() -> None:
    harness = ControllerHarness()
    assert update(harness, (ELR_FEATURE, 1), validate_only=True) == ErrorCode.NONE
    assert ELR_FEATURE not in harness.image.features


# ------------------------------------------------------------------------------- min ISR while replicas are eligible


def below_min_isr() -> ControllerHarness:
    """Topics "t" and "u", ISR {1}, 2 and 3 eligible at least in part."""
    harness = with_elr(min_insync_replicas="2")
    harness.topic("t", [1, 2, 3])
    harness.topic("u", [1, 2, 3])
    harness.lose(3)
    harness.lose(2, 3)
    assert [harness.partition(name).elr for name in "tu"] == [(2,), (2,)]
    return harness


def test_another_min_isr_of_a_topic_ends_what_was_eligible_by_the_old_one() -> None:
    harness = below_min_isr()
    before = harness.partition("t")
    assert alter(harness, TOPIC_RESOURCE, "t", "1") == ErrorCode.NONE
    after = harness.partition("t")
    assert (after.elr, after.isr, after.leader_epoch) == ((), (1,), before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1
    assert harness.partition("u").elr == (2,)


def test_another_min_isr_of_the_cluster_does_so_for_every_topic() -> None:
    harness = below_min_isr()
    assert alter(harness, BROKER_RESOURCE, "", "1") == ErrorCode.NONE
    assert [harness.partition(name).elr for name in "tu"] == [(), ()]


def test_min_isr_may_be_neither_removed_from_the_cluster_nor_altered_for_one_broker() -> None:
    harness = below_min_isr()
    assert alter(harness, BROKER_RESOURCE, "", None) == ErrorCode.INVALID_CONFIG
    assert alter(harness, BROKER_RESOURCE, "1", "3") == ErrorCode.INVALID_CONFIG
    assert harness.partition("t").elr == (2,)


def test_where_the_isr_is_empty_the_eligible_ones_stay_or_nobody_could_ever_lead() -> None:
    harness = below_min_isr()
    harness.lose(1, 2, 3)
    assert (harness.partition("t").isr, harness.partition("t").elr) == ((), (1, 2))
    alter(harness, TOPIC_RESOURCE, "t", "1")
    assert harness.partition("t").elr == (1, 2)
    assert update(harness, (ELR_FEATURE, 0), kind=SAFE) == ErrorCode.INVALID_UPDATE_VERSION
    harness.beat(2)
    assert (harness.partition("t").leader, harness.partition("t").isr) == (2, (2,))


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
    harness = ControllerHarness(brokers=0)
    fresh = Controller(ClusterImage(), harness.settings, harness.rng, 0, harness.now_ms)
    user = UserScramCredentialRecord(name="u", mechanism=1)
    levels = {METADATA_VERSION: 30, "group.version": 1, ELR_FEATURE: 1}
    formatted = [user, *(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items())]
    decision = fresh.bootstrap(harness.now_ms, formatted)
    assert decision.records[0] == (user, 0)
    fresh.apply(decision, 1, harness.now_ms)
    assert fresh.image.features == levels, "nothing of this version's own"
    assert fresh.image.configs[CLUSTER_DEFAULT] == {MIN_ISR: "1"}
    assert not fresh.bootstrap(harness.now_ms, formatted).records, "once"


def test_from_kafka_4_3_on_registrations_tell_of_cordoned_directories_and_new_replicas_stay_off_them() -> None:
    harness = ControllerHarness(brokers=0, squall_bootstrap_features=f"{METADATA_VERSION}=30")
    harness.join(1)
    harness.join(2)
    assert {write.version for write in records_of(harness.image) if isinstance(write.record, RegisterBrokerRecord)} == {
        4
    }
    broker = harness.image.brokers[2]
    harness.controller.image.brokers[2] = replace(broker, log_dirs=(b"d" * 16,), cordoned_log_dirs=(b"d" * 16,))
    again = restored([write.record for write in records_of(harness.image)], harness.image.offset, harness.image.epoch)
    assert again.brokers[2].cordoned
    assert harness.create("t", partitions=4, replication_factor=1).error_code == ErrorCode.NONE
    assert {harness.partition("t", index).replicas for index in range(4)} == {(1,)}
