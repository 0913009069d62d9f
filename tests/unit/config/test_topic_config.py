"""Topic-level settings: what is in force, what may be asked for, and what DescribeConfigs says of them."""

from __future__ import annotations

import pytest

from squall.broker.config import (
    ConfigError,
    ConfigLayers,
    ConfigOp,
    ConfigSource,
    ConfigType,
    alter_topic_configs,
    describe_broker,
    describe_topic,
    load_config,
    source_of,
    topic_config,
    validate_topic_configs,
)

BROKER = load_config({"node.id": "1", "min.insync.replicas": "2", "log.retention.hours": "1"})


def test_topic_without_overrides_has_the_brokers_settings() -> None:
    topic = topic_config(BROKER, {})
    assert topic.min_insync_replicas == 2
    assert topic.retention_ms == 3_600_000
    assert topic.cleanup_policy == ("delete",)


def test_override_wins_over_the_broker() -> None:
    topic = topic_config(BROKER, {"min.insync.replicas": "1", "cleanup.policy": "compact,delete"})
    assert topic.min_insync_replicas == 1
    assert topic.compacted


def test_unknown_topic_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown topic setting retention: did you mean retention\.ms\?"):
        validate_topic_configs(BROKER, {"retention": "1"})


def test_brokers_name_of_a_setting_is_not_a_topics_name() -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes: did you mean segment\.bytes"):
        validate_topic_configs(BROKER, {"log.segment.bytes": "1"})


def test_impossible_topic_value_is_refused_with_its_range() -> None:
    with pytest.raises(ConfigError, match=r"min\.insync\.replicas=0: should be from 1 to 2147483647"):
        validate_topic_configs(BROKER, {"min.insync.replicas": "0"})


def test_null_is_no_value_for_a_topic_that_is_created() -> None:
    with pytest.raises(ConfigError, match=r"retention\.ms has no value"):
        validate_topic_configs(BROKER, {"retention.ms": None})


def test_what_excludes_each_other_because_a_broker_was_altered_later_is_in_force_all_the_same() -> None:
    """Every node ended when it heard of the broker's setting, and ended again at each start."""
    overrides = validate_topic_configs(BROKER, {"min.compaction.lag.ms": "9"})
    altered = load_config({**BROKER.given, "log.cleaner.max.compaction.lag.ms": "8"})
    topic = topic_config(altered, overrides)
    assert (topic.min_compaction_lag_ms, topic.max_compaction_lag_ms) == (9, 8)
    assert {entry.name for entry in describe_topic(altered, overrides)} >= set(overrides)
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms=9 .* max\.compaction\.lag\.ms=8"):
        alter_topic_configs(altered, overrides, [("retention.ms", ConfigOp.SET, "1")])


def test_compaction_lags_that_exclude_each_other_are_named() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms=9 .* max\.compaction\.lag\.ms=8"):
        validate_topic_configs(BROKER, {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"})


def test_set_and_delete_change_one_override_each() -> None:
    changes = [("retention.ms", ConfigOp.SET, "5"), ("segment.bytes", ConfigOp.DELETE, None)]
    assert alter_topic_configs(BROKER, {"segment.bytes": "100", "flush.ms": "1"}, changes) == {
        "flush.ms": "1",
        "retention.ms": "5",
    }


def test_deleting_what_is_not_set_is_no_error() -> None:
    assert alter_topic_configs(BROKER, {}, [("retention.ms", ConfigOp.DELETE, None)]) == {}


def test_append_and_subtract_start_from_the_value_in_force() -> None:
    appended = alter_topic_configs(BROKER, {}, [("cleanup.policy", ConfigOp.APPEND, "compact")])
    assert appended == {"cleanup.policy": "delete,compact"}
    assert alter_topic_configs(BROKER, appended, [("cleanup.policy", ConfigOp.APPEND, "compact")]) == appended
    assert alter_topic_configs(BROKER, appended, [("cleanup.policy", ConfigOp.SUBTRACT, "delete")]) == {
        "cleanup.policy": "compact"
    }


def test_append_is_for_lists_only() -> None:
    with pytest.raises(ConfigError, match=r"operation 2 is not possible on retention\.ms: it is no list"):
        alter_topic_configs(BROKER, {}, [("retention.ms", ConfigOp.APPEND, "5")])


def test_one_impossible_change_refuses_all() -> None:
    overrides = {"flush.ms": "1"}
    with pytest.raises(ConfigError):
        alter_topic_configs(BROKER, overrides, [("flush.ms", ConfigOp.SET, "2"), ("flush.messages", ConfigOp.SET, "0")])
    assert overrides == {"flush.ms": "1"}


def test_description_names_value_source_and_where_it_would_come_from_otherwise() -> None:
    entries = {entry.name: entry for entry in describe_topic(BROKER, {"retention.ms": "5"})}
    retention = entries["retention.ms"]
    assert (retention.value, retention.source, retention.kind) == ("5", ConfigSource.TOPIC, ConfigType.LONG)
    replicas = entries["min.insync.replicas"]
    assert (replicas.value, replicas.source) == ("2", ConfigSource.STATIC_BROKER)
    assert [(s.name, s.value, s.source) for s in replicas.synonyms] == [
        ("min.insync.replicas", "2", ConfigSource.STATIC_BROKER),
        ("min.insync.replicas", "1", ConfigSource.DEFAULT),
    ]
    policy = entries["cleanup.policy"]
    assert policy.is_default
    assert policy.synonyms[0].name == "log.cleanup.policy"


def test_value_that_a_coarser_unit_gave_is_a_default_to_who_describes_and_none_to_who_creates_as_with_kafka() -> None:
    retention = next(entry for entry in describe_topic(BROKER, {}) if entry.name == "retention.ms")
    assert (retention.value, retention.source, retention.synonyms) == ("3600000", ConfigSource.DEFAULT, ())
    layers = ConfigLayers({}, {}, BROKER.given)
    assert source_of("retention.ms", {}, layers) is ConfigSource.STATIC_BROKER
    assert source_of("retention.ms", {"retention.ms": "5"}, layers) is ConfigSource.TOPIC
    assert source_of("segment.ms", {}, layers) is ConfigSource.DEFAULT


@pytest.mark.parametrize("value", ["*", "", "0:1", "0:1,2:3"])
def test_throttled_replicas_are_all_or_partitions_with_brokers(value: str) -> None:
    name = "leader.replication.throttled.replicas"
    assert alter_topic_configs(BROKER, {}, [(name, ConfigOp.SET, value)]) == {name: value}


@pytest.mark.parametrize("value", ["garbage", "1:", ":1", "0:1;", "*,0:1", "-1:2", "0:1:2"])
def test_throttled_replicas_that_are_neither_are_refused(value: str) -> None:
    for name in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        with pytest.raises(ConfigError, match=name):
            alter_topic_configs(BROKER, {}, [(name, ConfigOp.SET, value)])


def test_a_large_number_is_written_as_java_writes_it() -> None:
    entries = {entry.name: entry.value for entry in describe_broker(BROKER)}
    assert entries["log.cleaner.io.max.bytes.per.second"] == "1.7976931348623157E308"
    assert entries["log.cleaner.io.buffer.load.factor"] == "0.9"


def test_description_of_a_node_is_read_only_and_complete() -> None:
    entries = {entry.name: entry for entry in describe_broker(BROKER)}
    assert entries["node.id"].source is ConfigSource.STATIC_BROKER
    assert entries["num.partitions"].is_default
    assert entries["broker.rack"].value is None
    assert all(entry.read_only for entry in entries.values())


@pytest.mark.parametrize("text", ["1000", "+1000", " 1000\t", "0001000", "\x001000"])
def test_a_whole_number_is_read_as_java_reads_it(text: str) -> None:
    assert topic_config(BROKER, {"retention.ms": text}).retention_ms == 1000


@pytest.mark.parametrize(
    "text", ["1_000", "1 000", "", "+", "-", "--1", "+-1", "1.0", "1e3", "0x10", "١٠٠٠", "\u00a01000", "1" * 2000]
)
def test_what_java_does_not_take_for_a_whole_number_is_refused(text: str) -> None:
    """Python's int() takes some of these."""
    with pytest.raises(ConfigError, match=r"^retention\.ms="):
        topic_config(BROKER, {"retention.ms": text})
    if text != "1" * 2000:
        with pytest.raises(ConfigError, match="should be a whole number"):
            topic_config(BROKER, {"retention.ms": text})


@pytest.mark.parametrize("text", ["0.5", "+.5", "5e-1", "0.5d", "0.5F", "05E-1", " 0.5 ", "000.5"])
def test_a_decimal_number_is_read_as_java_reads_it(text: str) -> None:
    assert topic_config(BROKER, {"min.cleanable.dirty.ratio": text}).min_cleanable_dirty_ratio == 0.5


@pytest.mark.parametrize("text", ["0.1_0", "1_0", "nan", "NaN", "inf", "infinity", "1e9999", ".", "", "e1", "0.5dd"])
def test_what_is_no_decimal_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="should be a number"):
        topic_config(BROKER, {"min.cleanable.dirty.ratio": text})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("retention.mss", "retention.ms"),
        ("retentoin.ms", "retention.ms"),
        ("log.retention.ms", "retention.ms"),
        ("min.isr", "min.insync.replicas"),
        ("cleanup", "cleanup.policy"),
        ("message.max.bytes", "max.message.bytes"),
    ],
)
def test_an_unknown_name_is_told_the_nearest_that_there_is(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"did you mean {meant}\?"):
        topic_config(BROKER, {name: "1"})
