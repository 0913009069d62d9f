"""Checks which settings of a node exclude each other. Each error names the settings, their values and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from squall.broker.config.settings import ConfigError, Endpoint, NodeAddress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class CrossCheckedConfig(Protocol):
    """Declares the properties of `BrokerConfig` that the checks of this module read. It omits most times and sizes,
    because `_at_most` reads those with `getattr`, by the names of their settings.
    """

    @property
    def process_roles(self) -> tuple[str, ...]: ...

    @property
    def is_controller(self) -> bool: ...

    @property
    def node_id(self) -> int: ...

    @property
    def log_dirs(self) -> tuple[str, ...]: ...

    @property
    def controller_quorum_voters(self) -> tuple[NodeAddress, ...]: ...

    @property
    def controller_quorum_bootstrap_servers(self) -> tuple[str, ...]: ...

    @property
    def voters(self) -> Mapping[int, NodeAddress]: ...

    @property
    def squall_peers(self) -> tuple[NodeAddress, ...]: ...

    @property
    def listeners(self) -> tuple[Endpoint, ...]: ...

    @property
    def bind_listeners(self) -> tuple[Endpoint, ...]: ...

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...]: ...

    @property
    def inter_broker_listener(self) -> str: ...

    @property
    def controller_listener_names(self) -> tuple[str, ...]: ...

    @property
    def listener_security_protocol_map(self) -> tuple[str, ...]: ...

    @property
    def broker_heartbeat_interval_ms(self) -> int: ...

    @property
    def broker_session_timeout_ms(self) -> int: ...

    @property
    def max_connections(self) -> int: ...
    @property
    def max_connections_per_ip(self) -> int: ...
    @property
    def queued_max_request_bytes(self) -> int: ...

    @property
    def retention_ms(self) -> int: ...


Found = Iterator[ConfigError]


def mistakes(config: CrossCheckedConfig) -> Found:
    """Yield an error for each rule between settings that `config` breaks, such as broker.heartbeat.interval.ms <
    broker.session.timeout.ms.
    """
    for relations in (_roles, _quorum, _listeners, _protocols, _connections, _times, _sizes):
        yield from relations(config)


def _require(holds: bool, setting: str, message: str) -> Found:
    if not holds:
        yield ConfigError(setting, message)


def _at_most(config: CrossCheckedConfig, lesser: str, greater: str, why: str) -> Found:
    low, high = getattr(config, lesser.replace(".", "_")), getattr(config, greater.replace(".", "_"))
    yield from _require(low <= high, lesser, f"{lesser}={low} should be at most {greater}={high}: {why}")


def _roles(config: CrossCheckedConfig) -> Found:
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


def _quorum(config: CrossCheckedConfig) -> Found:
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


def _listeners(config: CrossCheckedConfig) -> Found:
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


def _protocols(config: CrossCheckedConfig) -> Found:
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


def _connections(config: CrossCheckedConfig) -> Found:
    # Kafka takes 0 for max.connections, and for max.connections.per.ip beside max.connections.per.ip.overrides.
    for name, allowed in (
        ("max.connections", config.max_connections),
        ("max.connections.per.ip", config.max_connections_per_ip),
    ):
        yield from _require(allowed != 0, name, f"{name}=0 would lock out every client, also the one that undoes it")


def _times(config: CrossCheckedConfig) -> Found:
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


def _sizes(config: CrossCheckedConfig) -> Found:
    yield from _at_most(config, "message.max.bytes", "socket.request.max.bytes", "the largest batch could not be sent")
    if config.queued_max_request_bytes != -1:
        yield from _at_most(
            config, "socket.request.max.bytes", "queued.max.request.bytes", "the largest request could not be received"
        )
