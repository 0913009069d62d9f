"""Alters settings at run time: IncrementalAlterConfigs (KIP-339) and AlterConfigs, for topics, brokers, groups and
client metrics.

All changes of a resource are made, or none. A refusal for one resource affects no other. squall.broker.config validates
the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from squall.broker.cluster.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    CLUSTER_DEFAULT,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from squall.broker.cluster.names import name_fault
from squall.broker.cluster.replay import MetadataRecord
from squall.broker.cluster.settings import DYNAMIC_BROKER_SETTINGS
from squall.broker.config import (
    BROKER_SETTINGS,
    ConfigError,
    ConfigOp,
    alter_list,
    alter_topic_configs,
    load_config,
    validate_topic_configs,
)
from squall.broker.config.client_metrics import InvalidClientMetricsConfig, alter_subscription
from squall.broker.config.group import alter_group_configs
from squall.broker.config.kafka_settings import NODE
from squall.broker.config.settings import unknown
from squall.broker.config.unsupported_settings import unsupported_error, unsupported_row
from squall.broker.controller.decision import Decision, Refusal, duplicates
from squall.broker.controller.elections import elr_enabled
from squall.broker.controller.features import EVERY_TOPIC, MIN_INSYNC_REPLICAS
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import broker_id_in
from squall.broker.protocol.schema import alter_configs as legacy_wire
from squall.broker.protocol.schema import incremental_alter_configs as wire
from squall.broker.protocol.schema.metadata_records import ClearElrRecord, ConfigRecord
from squall.broker.protocol.wire import LONGEST_STRING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from squall.broker.cluster.image import ClusterImage
    from squall.broker.controller.decision import Command

LONG_VALUE: Final = 64
"""Is the length, in characters, above which a setting's value counts as long: parsing it then takes longer than all
other work on it.
"""
MOST_CHARACTERS: Final = 500_000
"""Limits the total length of the values longer than LONG_VALUE in a request that alters several resources. Such values
that these resources already have count, too. Parsing so many characters takes up to 0.2 s.
"""

MOST_RECORDS: Final = 10_000
"""Limits the changes in one request, each of which may make a record. The controller decides a request in one piece;
Kafka has the same limit. A resource without changes counts as one change.
"""
MOST_IN_NAMES: Final = 8 << 20
"""Limits the characters of resource names in the records of one request: every record repeats the name of its resource.
The limit is the largest batch of Kafka's controllers. Without it, a request with 65 MB of names of 32 KB would make a
batch of 330 MB, which no other controller could fetch.
"""

Change = tuple[str, int, str | None]
"""Holds name of the setting, ConfigOp, and value."""


def incremental_alter_configs(
    command: Command, request: wire.IncrementalAlterConfigsRequest
) -> Decision[wire.IncrementalAlterConfigsResponse]:
    """Change the given settings of each resource; its other settings stay."""
    twice = duplicates([(resource.resource_type, resource.resource_name) for resource in request.resources])
    too_much = _too_much(command.image, request)
    writes: list[MetadataRecord] = []
    responses = []
    for asked in request.resources:
        resource = (asked.resource_type, asked.resource_name)
        response = wire.AlterConfigsResourceResponse(
            error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        try:
            if resource in twice:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            if too_much is not None:
                raise Refusal(too_much.code, too_much.message)
            changes = [(config.name, config.config_operation, config.value) for config in asked.configs]
            writes += _incremental(command, resource, changes)
        except Refusal as refused:
            response.error_code, response.error_message = refused.code, refused.message
        responses.append(response)
    assert len(responses) == len(request.resources)
    reply = wire.IncrementalAlterConfigsResponse(responses=responses)
    return Decision(reply, () if request.validate_only else tuple(writes))


def alter_configs(
    command: Command, request: legacy_wire.AlterConfigsRequest
) -> Decision[legacy_wire.AlterConfigsResponse]:
    """Replace all settings of each resource: settings that the request does not name return to their defaults."""
    twice = duplicates([(resource.resource_type, resource.resource_name) for resource in request.resources])
    too_much = _too_much(command.image, request)
    writes: list[MetadataRecord] = []
    responses = []
    for asked in request.resources:
        resource = (asked.resource_type, asked.resource_name)
        response = legacy_wire.AlterConfigsResourceResponse(
            error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        try:
            if resource in twice:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            if too_much is not None:
                raise Refusal(too_much.code, too_much.message)
            changes = [(config.name, int(ConfigOp.SET), config.value) for config in asked.configs]
            writes += _replacing(command, resource, changes)
        except Refusal as refused:
            response.error_code, response.error_message = refused.code, refused.message
        responses.append(response)
    assert len(responses) == len(request.resources)
    reply = legacy_wire.AlterConfigsResponse(responses=responses)
    return Decision(reply, () if request.validate_only else tuple(writes))


def _too_much(
    image: ClusterImage, request: wire.IncrementalAlterConfigsRequest | legacy_wire.AlterConfigsRequest
) -> Refusal | None:
    """Return the refusal of a request that is too large to be decided at once, or None. A request for a single resource
    never has too many characters, because the length of its values is limited.
    """
    changes = sum(max(len(resource.configs), 1) for resource in request.resources)
    if changes > MOST_RECORDS or _names_are_long(image, request):
        return Refusal(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    given = long_characters(config.value for resource in request.resources for config in resource.configs)
    asked = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    there = long_characters(value for resource in asked for value in image.configs.get(resource, {}).values())
    return too_many_characters() if len(asked) > 1 and given + there > MOST_CHARACTERS else None


def _names_are_long(
    image: ClusterImage, request: wire.IncrementalAlterConfigsRequest | legacy_wire.AlterConfigsRequest
) -> bool:
    """Return whether the names of a request's resources are too long in total, counted once per setting that may
    change.
    """
    size = 0
    for resource in request.resources:
        there = image.configs.get((resource.resource_type, resource.resource_name), ())
        size += len(resource.resource_name) * (len(resource.configs) + len(there))
    return size > MOST_IN_NAMES


def long_characters(values: Iterable[str | None]) -> int:
    """Return the total length of the values that are longer than LONG_VALUE. Only these take long to parse."""
    return sum(len(value) for value in values if value is not None and len(value) > LONG_VALUE)


def too_many_characters() -> Refusal:
    """Return the refusal of a request whose values have too many characters."""
    return Refusal(
        ErrorCode.POLICY_VIOLATION,
        f"The settings of one request's resources may have at most {MOST_CHARACTERS:,} characters: send several.",
    )


def _incremental(command: Command, resource: tuple[int, str], changes: Sequence[Change]) -> list[MetadataRecord]:
    if duplicates([name for name, _, _ in changes]):
        raise Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for _, operation, _ in changes:
        if operation not in tuple(ConfigOp):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}")
    _check_nulls(changes)
    _check_resource(command.image, resource)
    before = command.image.configs.get(resource, {})
    after = _altered(command, resource, before, changes)
    return _records(command, resource, before, after)


def _replacing(command: Command, resource: tuple[int, str], changes: Sequence[Change]) -> list[MetadataRecord]:
    _check_nulls(changes)
    _check_resource(command.image, resource)
    after = _altered(command, resource, {}, changes)
    return _records(command, resource, command.image.configs.get(resource, {}), after)


def _check_nulls(changes: Sequence[Change]) -> None:
    for name, operation, value in changes:
        if value is None and operation != ConfigOp.DELETE:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")


def _check_resource(image: ClusterImage, resource: tuple[int, str]) -> None:
    kind, name = resource
    if kind == TOPIC_RESOURCE:
        if name not in image.topic_ids:
            if not name:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Settings of all topics are settings of the brokers.")
            if fault := name_fault(name):
                raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif kind == BROKER_RESOURCE:
        if name and broker_id_in(name) is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        if name and broker_id_in(name) not in image.brokers:
            raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")
    elif kind not in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind}.")
    elif not name:
        of_groups = "Default group resources are not allowed."
        raise Refusal(
            ErrorCode.INVALID_REQUEST, of_groups if kind == GROUP_RESOURCE else "Subscription name can't be empty"
        )


def _altered(
    command: Command, resource: tuple[int, str], before: Mapping[str, str], changes: Sequence[Change]
) -> dict[str, str]:
    try:
        config = command.settings.in_force(command.image)
        if resource[0] == TOPIC_RESOURCE:
            after = alter_topic_configs(config, before, changes)
            return validate_topic_configs(config, after)
        if resource[0] == GROUP_RESOURCE:
            return alter_group_configs(config, before, changes)
        if resource[0] == CLIENT_METRICS_RESOURCE:
            return alter_subscription(before, changes)
        after = _alter_broker(before, changes)
    except InvalidClientMetricsConfig as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
    except ConfigError as error:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    try:
        load_config({**command.settings.config.given, **after})
    except ConfigError as error:  # Kafka's code for this, because its broker parses the settings before the controller
        raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
    return after


def _alter_broker(before: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    altered = dict(before)
    for name, operation, value in changes:
        if name not in DYNAMIC_BROKER_SETTINGS:
            raise _unalterable(name)
        if operation == ConfigOp.DELETE:
            altered.pop(name, None)
        elif value is None:
            raise ConfigError(name, f"{name} has no value")
        elif operation == ConfigOp.SET:
            altered[name] = value
        else:
            altered[name] = alter_list(BROKER_SETTINGS[name], altered.get(name), operation, value)
    assert altered.keys() - before.keys() <= {name for name, _, _ in changes}
    return altered


def _unalterable(name: str) -> Refusal | ConfigError:
    assert name not in DYNAMIC_BROKER_SETTINGS
    if name in BROKER_SETTINGS or (name in NODE and not NODE[name].alterable):
        return Refusal(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{name}]")
    row = unsupported_row(name)
    return unknown("setting", name, DYNAMIC_BROKER_SETTINGS) if row is None else unsupported_error(name, row)


def _records(
    command: Command, resource: tuple[int, str], before: Mapping[str, str], after: Mapping[str, str]
) -> list[MetadataRecord]:
    kind, resource_name = resource
    changed = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    _check_lengths(after.get(name) for name in changed)
    writes = [
        MetadataRecord(
            ConfigRecord(resource_type=kind, resource_name=resource_name, name=name, value=after.get(name)),
            0,
        )
        for name in changed
    ]
    if MIN_INSYNC_REPLICAS in changed and elr_enabled(command.image):
        _check_min_isr(resource, after)
        topic = resource_name if kind == TOPIC_RESOURCE else EVERY_TOPIC
        writes.append(MetadataRecord(ClearElrRecord(topic_name=topic), 0))
    assert bool(writes) == (dict(before) != dict(after))
    return writes


def _check_lengths(values: Iterable[str | None]) -> None:
    """Refuse values that are longer than LONGEST_STRING: no node could read them from a record. APPEND to a list can
    make such a value.
    """
    for value in values:
        if value is not None and len(value.encode()) > LONGEST_STRING:
            message = "The configuration value cannot be added because it exceeds the maximum value size of"
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{message} {LONGEST_STRING} bytes.")


def _check_min_isr(resource: tuple[int, str], after: Mapping[str, str]) -> None:
    """Refuse a change after which nodes could use different values of min.insync.replicas, which ELR does not permit
    (KIP-966). `resource` is (type, name), and `after` holds its settings after the change.
    """
    if resource == CLUSTER_DEFAULT:
        if MIN_INSYNC_REPLICAS not in after:
            message = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            raise Refusal(ErrorCode.INVALID_CONFIG, message)
    elif resource[0] == BROKER_RESOURCE:
        message = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        raise Refusal(ErrorCode.INVALID_CONFIG, message)
