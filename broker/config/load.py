"""Makes the configuration of a node from its properties, and checks every value and which settings exclude each other.
Each error names the settings, their values and the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from squall.broker.config import unsupported_settings
from squall.broker.config.broker import BROKER_SETTINGS, BrokerConfig
from squall.broker.config.settings import ConfigError, Endpoint, read_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REQUIRED = tuple(name for name, setting in BROKER_SETTINGS.items() if setting.required)


def load_config(properties: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration that `properties` describe, with defaults for the rest.

    Raises ConfigError for all unknown names (with the nearest known name), settings of Kafka that Squall lacks and
    cannot ignore, impossible values, and values that exclude each other.
    """
    known: dict[str, Any] = {}
    strange: list[ConfigError] = []
    wrong: list[ConfigError] = []
    for name, value in properties.items():
        setting = BROKER_SETTINGS.get(name)
        try:
            if setting is not None:
                known[name.replace(".", "_")] = setting.parse(value)
            elif refused := unsupported_settings.refusal(name, value, BROKER_SETTINGS):
                strange.append(refused)
        except ConfigError as error:
            wrong.append(error)
    if all(name.replace(".", "_") in known for name in _REQUIRED):
        config = BrokerConfig(**known, given=MappingProxyType(dict(properties)))
        # A setting without a value cannot be compared with another setting.
        names = [each.setting for each in wrong]
        wrong += [each for each in _contradictions(config) if not any(name in str(each) for name in names)]
        if not strange and not wrong:
            return config
    missing = [ConfigError(name, f"{name} must be given") for name in _REQUIRED if name not in properties]
    raise ConfigError.of([*strange, *wrong, *missing])


def load_config_text(text: str) -> BrokerConfig:
    """Return the configuration that the text of a properties file describes. Raises one ConfigError for all mistakes,
    each with its line number if a line caused it.
    """
    found = read_properties(text)
    errors = list(found.errors)
    try:
        config = load_config(found.values)
    except ConfigError as error:
        lines = [(found.line_of(each), each) for each in error.each]
        for line, each in sorted(lines, key=lambda pair: (pair[0] is None, pair[0] or 0)):
            errors.append(each if line is None else ConfigError(each.setting, f"line {line}: {each}"))
    if errors:
        raise ConfigError.of(errors)
    return config


Found = Iterator[ConfigError]


def _contradictions(config: BrokerConfig) -> Found:
    """Yield an error for each rule between settings that `config` breaks, such as broker.heartbeat.interval.ms <
    broker.session.timeout.ms.
    """
    for relations in (_roles, _quorum, _listeners, _protocols, _connections, _times, _sizes):
        yield from relations(config)


def _require(holds: bool, setting: str, message: str) -> Found:
    if not holds:
        yield ConfigError(setting, message)


def _at_most(config: BrokerConfig, lesser: str, greater: str, why: str) -> Found:
    low, high = getattr(config, lesser.replace(".", "_")), getattr(config, greater.replace(".", "_"))
    yield from _require(low <= high, lesser, f"{lesser}={low} should be at most {greater}={high}: {why}")


def _roles(config: BrokerConfig) -> Found:
    yield from _require(
        "broker" in config.process_roles,
        "process.roles",
        f"process.roles={','.join(config.process_roles)} should name broker, or broker and controller: "
        "no node is a controller alone",
    )
    yield from _require(
        len(config.log_dirs) <= 1, "log.dirs", f"log.dirs={','.join(config.log_dirs)}: one directory holds all logs"
    )
    peers = [address.node_id for address in config.squall_peers]
    yield from _require(len(set(peers)) == len(peers), "squall.peers", f"squall.peers names a node twice: {peers}")


def _quorum(config: BrokerConfig) -> Found:
    voters = config.voters
    ids = [address.node_id for address in config.controller_quorum_voters]
    yield from _require(
        len(ids) == len(voters), "controller.quorum.voters", f"controller.quorum.voters names a node twice: {ids}"
    )
    if voters and config.is_controller:
        yield from _require(
            config.node_id in voters,
            "controller.quorum.voters",
            f"node.id={config.node_id} has the role of a controller, but controller.quorum.voters={ids} lacks it",
        )
    if voters and not config.is_controller:
        yield from _require(
            config.node_id not in voters,
            "controller.quorum.voters",
            f"node.id={config.node_id} is in controller.quorum.voters={ids}, but process.roles lacks controller",
        )
    if not config.is_controller:
        yield from _require(
            bool(voters),
            "controller.quorum.voters",
            "controller.quorum.voters=ID@HOST:PORT must be given where process.roles lacks controller: "
            "controller.quorum.bootstrap.servers names no ids",
        )
    if config.is_controller and not voters:
        own = {
            f"{_normalized_host(each.host)}:{each.port}" for each in (*config.listeners, *config.advertised_listeners)
        }
        for server in config.controller_quorum_bootstrap_servers:
            host, _, port = server.rpartition(":")
            yield from _require(
                f"{_normalized_host(host)}:{port}" in own,
                "controller.quorum.bootstrap.servers",
                f"controller.quorum.bootstrap.servers={server} is another node: voters are not asked for here, "
                "so name them all, as controller.quorum.voters=ID@HOST:PORT",
            )


def _normalized_host(host: str) -> str:
    """Return the host of an address, with one name for all hosts that mean this machine."""
    return "localhost" if host.strip("[]") in ("", "0.0.0.0", "::", "127.0.0.1", "::1") else host.strip("[]")


def _names(endpoints: Sequence[Endpoint]) -> list[str]:
    return [endpoint.name for endpoint in endpoints]


def _listeners(config: BrokerConfig) -> Found:
    names, advertised = _names(config.listeners), _names(config.advertised_listeners)
    yield from _require(bool(names), "listeners", "listeners should name at least one listener")
    if not names:
        return
    yield from _require(len(set(names)) == len(names), "listeners", f"listeners names a listener twice: {names}")
    ports = [(endpoint.host, endpoint.port) for endpoint in config.bind_listeners if endpoint.port]
    yield from _require(len(set(ports)) == len(ports), "listeners", f"two of the listeners share an address: {ports}")
    yield from _require(
        len(set(advertised)) == len(advertised),
        "advertised.listeners",
        f"advertised.listeners names a listener twice: {advertised}",
    )
    for endpoint in config.advertised_listeners:
        yield from _require(
            endpoint.name in names,
            "advertised.listeners",
            f"advertised.listeners names {endpoint.name}, which is not in listeners={names}",
        )
        yield from _require(
            endpoint.host not in ("", "0.0.0.0", "::"),
            "advertised.listeners",
            f"advertised.listeners={endpoint}: nobody can connect to that address",
        )
    inner = config.inter_broker_listener
    yield from _require(
        inner in names, "inter.broker.listener.name", f"inter.broker.listener.name={inner} is not in listeners={names}"
    )
    for name in config.controller_listener_names if config.is_controller else ():
        yield from _require(
            name in names,
            "controller.listener.names",
            f"controller.listener.names={name} is not in listeners={names}",
        )


def _protocols(config: BrokerConfig) -> Found:
    """Yield an error for each listener whose security protocol is not PLAINTEXT. The protocol is the one that
    listener.security.protocol.map gives. A listener that is not in the map speaks SSL, SASL_PLAINTEXT or SASL_SSL if
    that is its name, as with Kafka, else PLAINTEXT.
    """
    spoken = {name: name for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    spoken |= dict(pair.partition(":")[::2] for pair in config.listener_security_protocol_map)
    used = dict.fromkeys((*_names(config.listeners), *config.controller_listener_names))
    for name in used:
        protocol = spoken.get(name, "PLAINTEXT")
        given = "listener.security.protocol.map" if config.listener_security_protocol_map else "listeners"
        yield from _require(protocol == "PLAINTEXT", given, f"{given}: {name}:{protocol}: only PLAINTEXT is spoken")


def _connections(config: BrokerConfig) -> Found:
    # Kafka takes 0 for max.connections, and for max.connections.per.ip beside max.connections.per.ip.overrides.
    for name, allowed in (
        ("max.connections", config.max_connections),
        ("max.connections.per.ip", config.max_connections_per_ip),
    ):
        yield from _require(allowed != 0, name, f"{name}=0 would lock out every client, also the one that undoes it")


def _times(config: BrokerConfig) -> Found:
    yield from _require(
        config.broker_heartbeat_interval_ms < config.broker_session_timeout_ms,
        "broker.heartbeat.interval.ms",
        f"broker.heartbeat.interval.ms={config.broker_heartbeat_interval_ms} should be below "
        f"broker.session.timeout.ms={config.broker_session_timeout_ms}: no session would last until its next heartbeat",
    )
    yield from _at_most(
        config, "replica.fetch.wait.max.ms", "replica.socket.timeout.ms", "every idle fetch would time out"
    )
    yield from _at_most(
        config, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms", "idle followers would leave the ISR"
    )
    yield from _at_most(
        config,
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        "what must wait could not be due",
    )
    yield from _at_most(
        config, "group.min.session.timeout.ms", "group.max.session.timeout.ms", "no session timeout would be allowed"
    )
    for what in ("session.timeout.ms", "heartbeat.interval.ms"):
        low, own, high = (f"group.consumer.{bound}{what}" for bound in ("min.", "", "max."))
        yield from _at_most(config, low, own, "the default should be allowed")
        yield from _at_most(config, own, high, "the default should be allowed")
    yield from _at_most(
        config, "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms", "no member would live"
    )
    yield from _require(
        config.retention_ms != 0,
        "log.retention.ms",
        "log.retention.ms (.minutes, .hours) of 0 would delete what was just written: -1 is for ever",
    )


def _sizes(config: BrokerConfig) -> Found:
    yield from _at_most(config, "message.max.bytes", "socket.request.max.bytes", "the largest batch could not be sent")
    if config.queued_max_request_bytes != -1:
        yield from _at_most(
            config, "socket.request.max.bytes", "queued.max.request.bytes", "the largest request could not be received"
        )
