"""Decides whether a Kafka setting that this broker lacks is ignored or refused.

A setting is refused if its user relies on it for security, for data or for a limit. A setting that has Kafka's default
changes nothing, and is ignored silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from squall.broker.config.kafka_settings import NODE
from squall.broker.config.settings import ConfigError, unknown

GONE = (
    *("inter.broker.protocol.version", "log.message.format.version", "log.message.timestamp.difference.max.ms"),
    *("log.message.downconversion.enable", "offsets.commit.required.acks", "reserved.broker.max.id"),
    *("broker.id.generation.enable", "control.plane.listener.name", "password.encoder.*"),
)
"""Names settings of Kafka 3 that Kafka 4 no longer has."""
UNDECLARED_PREFIXES = (
    *(name.rstrip("*") for name in GONE),
    *("zookeeper.", "listener.name.", "config.providers.", "rlmm.config.", "rsm.config."),
    *("super.users", "allow.everyone.if.no.acl.found"),
)
"""Lists prefixes of settings that occur in Kafka's configuration files although its `ConfigDef` lacks them. Kafka 4 has
removed some (`GONE`, `zookeeper.`), and plug-ins read others (`rsm.config.`).
"""


class UnsupportedSettings(NamedTuple):
    """Represents settings that are unsupported for one reason. `names` are whole names, or prefixes that end in `*`."""

    names: tuple[str, ...]
    why: str
    refused: bool = False

    def has(self, name: str) -> bool:
        """Return whether `name` is one of the settings."""
        return any(name == each or (each[-1] == "*" and name.startswith(each[:-1])) for each in self.names)


UNSUPPORTED = (
    UnsupportedSettings(GONE, "Kafka has it no more since 4.0"),
    UnsupportedSettings(("broker.id",), "give node.id", refused=True),
    UnsupportedSettings(
        ("zookeeper.*",), "Kafka has no ZooKeeper since 4.0: controllers are controller.quorum.voters", refused=True
    ),
    UnsupportedSettings(
        ("ssl.*", "security.*"), "TLS is not spoken: whatever is sent can be read on its way", refused=True
    ),
    UnsupportedSettings(
        ("sasl.*", "connections.max.reauth.ms"), "SASL is not spoken: no client is asked who it is", refused=True
    ),
    UnsupportedSettings(
        ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found", "principal.builder.class"),
        "there are no ACLs: every client may do everything",
        refused=True,
    ),
    UnsupportedSettings(("delegation.token.*",), "there are no delegation tokens", refused=True),
    UnsupportedSettings(("listener.name.*",), "no listener has settings of its own", refused=True),
    UnsupportedSettings(
        ("create.topic.policy.*", "alter.config.policy.*"), "no policy is asked before a change", refused=True
    ),
    UnsupportedSettings(("client.quota.callback.class",), "there are no quotas", refused=True),
    UnsupportedSettings(
        ("max.connections.per.ip.overrides",), "max.connections.per.ip holds for every address", refused=True
    ),
    UnsupportedSettings(("config.providers*",), "values are taken as they are written", refused=True),
    UnsupportedSettings(("cordoned.log.dirs",), "there is one log directory", refused=True),
    UnsupportedSettings(("remote.log.storage.system.enable",), "there is no tiered storage", refused=True),
    UnsupportedSettings(
        ("controller.quorum.auto.join.enable",), "controller.quorum.voters names all voters", refused=True
    ),
    UnsupportedSettings(
        ("remote.*", "follower.fetch.last.tiered.*", "rlmm.config.*", "rsm.config.*"), "there is no tiered storage"
    ),
    UnsupportedSettings(("group.share.*", "share.*"), "there are no share groups"),
    UnsupportedSettings(("group.streams.*",), "there are no streams groups"),
    UnsupportedSettings(("group.coordinator.*",), "coordinators run in the event loop, and write each change at once"),
    UnsupportedSettings(("group.consumer.*",), "an assignment is computed with the heartbeat that asks for it"),
    UnsupportedSettings(("replica.selector.class",), "consumers fetch from leaders"),
    UnsupportedSettings(("replication.quota.*", "alter.log.dirs.replication.quota.*"), "replication is not throttled"),
    UnsupportedSettings(("metric*", "kafka.metrics.*", "telemetry.*"), "there are no such metrics"),
    UnsupportedSettings(("early.start.listeners", "connection.failed.*"), "no listener waits for an authorizer"),
    UnsupportedSettings(
        ("num.replica.alter.log.dirs.threads", "log.dir.failure.timeout.ms"), "there is one log directory"
    ),
    UnsupportedSettings(("metadata.log.segment.ms",), "segments of the metadata log end by their size"),
    UnsupportedSettings(("controller.quorum.fetch.*",), "one fetch of the metadata log has at most 1 MiB"),
    UnsupportedSettings(
        ("controller.socket.timeout.ms", "socket.connection.setup.*"), "requests have their own time-outs"
    ),
    UnsupportedSettings(
        ("add.partitions.to.txn.retry.backoff.ms",), "an addition waits for the transaction before it to complete"
    ),
    UnsupportedSettings(
        ("queued.max.requests",), "requests are not queued: queued.max.request.bytes bounds what is held"
    ),
    UnsupportedSettings(
        ("socket.send.buffer.bytes", "socket.receive.buffer.bytes", "replica.socket.receive.buffer.bytes"),
        "the system sizes the sockets' buffers",
    ),
    UnsupportedSettings(
        tuple(f"{each}.purgatory.purge.interval.requests" for each in ("fetch", "producer", "delete.records")),
        "what is complete leaves the purgatory at once",
    ),
)
"""Lists the unsupported settings. The first row that has a setting's name applies."""


def unsupported_row(name: str) -> UnsupportedSettings | None:
    """Return the first row of `UNSUPPORTED` that has this setting. Return None if there is none, or if Kafka has no
    such setting.
    """
    if name not in NODE and not name.startswith(UNDECLARED_PREFIXES):
        return None
    return next((each for each in UNSUPPORTED if each.has(name)), None)


def refusal(name: str, value: str, ours: Iterable[str]) -> ConfigError | None:
    """Return the error for a setting that this broker does not have, or None if the setting is accepted and ignored.
    `ours` lists the settings that this broker has: the error for an unknown name suggests the nearest one.
    """
    row = unsupported_row(name)
    if row is None:
        return unknown("setting", name, [*ours, *NODE])
    if not row.refused or is_kafka_default(name, value):
        return None
    return unsupported_error(name, row)


def unsupported_error(name: str, row: UnsupportedSettings) -> ConfigError:
    """Return the error for a setting that Kafka has, or had, and this broker lacks."""
    return ConfigError(name, f"{name} is a setting of Kafka's that Squall lacks: {row.why}")


def is_kafka_default(name: str, value: str) -> bool:
    """Return whether the value is Kafka's own default of the setting."""
    return name in NODE and value.strip() == (NODE[name].default or "")


def ignored(given: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return warnings about given settings that have no effect, one sentence for each reason. `given` maps all given
    settings to their values; `names` are those among them that this broker lacks.
    """
    by_reason: dict[str, list[str]] = {}
    for name in names:
        row = unsupported_row(name)
        if row is not None and not row.refused and not is_kafka_default(name, given[name]):
            by_reason.setdefault(row.why, []).append(name)
    return [f"ignored, because {why}: {', '.join(names)}" for why, names in by_reason.items()]
