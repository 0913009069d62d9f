"""Every default is Kafka's, as its own `ConfigDef`s declare it, but for those that say why they are not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from squall.broker.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting
from squall.broker.config.broker import DEVIATIONS
from squall.broker.config.group import GROUP_SETTINGS
from squall.broker.config.kafka_settings import GROUP, NODE, TOPIC, KafkaSetting
from squall.broker.config.topic import BROKER_SYNONYMS

UNPRINTED = {
    # Kafka calls these internal, or has them no more.
    "leader.imbalance.per.broker.percentage": "10",
    "log.initial.task.delay.ms": "30000",
    "producer.id.expiration.check.interval.ms": "600000",
    "replica.lag.max.messages": "-1",
}
OTHERWISE = {
    # A map that names only what is not PLAINTEXT; a name and an address of a node without others.
    "listener.security.protocol.map",
    "controller.listener.names",
}


def rendered(settings: Mapping[str, Setting]) -> dict[str, str]:
    return {name: each.render(each.default) or "" for name, each in settings.items() if not name.startswith("squall.")}


def kafkas(settings: Mapping[str, KafkaSetting]) -> dict[str, str]:
    return {name: each.default or "" for name, each in settings.items()}


def test_every_default_of_a_node_is_kafkas_or_says_why_not() -> None:
    theirs = {**kafkas(NODE), **UNPRINTED}
    differ = {name for name, default in rendered(BROKER_SETTINGS).items() if theirs[name] != default}
    assert differ - OTHERWISE <= set(DEVIATIONS)
    assert OTHERWISE <= set(BROKER_SETTINGS)


@pytest.mark.parametrize(("ours", "theirs"), [(TOPIC_SETTINGS, TOPIC), (GROUP_SETTINGS, GROUP)])
def test_topics_and_groups_have_the_settings_and_defaults_that_they_have_with_kafka(
    ours: Mapping[str, Setting], theirs: Mapping[str, KafkaSetting]
) -> None:
    assert rendered(ours) == kafkas(theirs)


def test_every_deviation_is_of_a_setting_that_exists() -> None:
    assert set(DEVIATIONS) <= set(BROKER_SETTINGS)


def test_every_topic_setting_has_the_brokers_as_its_default() -> None:
    assert set(TOPIC_SETTINGS) - set(BROKER_SYNONYMS) == {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
    for broker_name, _ in BROKER_SYNONYMS.values():
        assert broker_name in BROKER_SETTINGS


def test_every_default_is_within_its_own_range_and_can_be_written_and_read_again() -> None:
    for setting in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]:
        text = setting.render(setting.default)
        if text is not None and not setting.required:
            assert setting.parse(text) == setting.default, setting.name
