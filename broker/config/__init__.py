"""Defines the configuration of nodes and topics, with Kafka's names, types, defaults and ranges. Values and the
relations between them are validated once.
"""

from squall.broker.config.broker import BROKER_SETTINGS, BrokerConfig
from squall.broker.config.load import load_config, load_config_text
from squall.broker.config.settings import ConfigError, ConfigType, Endpoint, NodeAddress, Setting, parse_properties
from squall.broker.config.topic import (
    TOPIC_SETTINGS,
    ConfigEntry,
    ConfigLayers,
    ConfigOp,
    ConfigSource,
    TopicConfig,
    alter_list,
    alter_topic_configs,
    describe_broker,
    describe_topic,
    source_of,
    topic_config,
    validate_topic_configs,
)

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigError",
    "ConfigOp",
    "ConfigSource",
    "Endpoint",
    "ConfigType",
    "ConfigLayers",
    "NodeAddress",
    "Setting",
    "TopicConfig",
    "alter_list",
    "alter_topic_configs",
    "describe_broker",
    "describe_topic",
    "load_config",
    "load_config_text",
    "parse_properties",
    "source_of",
    "topic_config",
    "validate_topic_configs",
]
