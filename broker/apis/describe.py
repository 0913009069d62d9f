"""Answers ApiVersions, DescribeCluster and DescribeConfigs from this node's image of the cluster, without waiting.

Requests that the active controller decides are forwarded instead (`Forwarder`). Message classes that few clients ask
for are imported inside the functions that use them, so that a broker starts faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from squall.broker.apis.loggers import Loggers
from squall.broker.cluster.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from squall.broker.cluster.names import name_fault
from squall.broker.cluster.settings import DYNAMIC_BROKER_SETTINGS, altered_settings, layers_of, with_altered
from squall.broker.config import ConfigEntry, ConfigError, ConfigSource, describe_broker, describe_topic
from squall.broker.config.client_metrics import describe_subscription
from squall.broker.config.group import describe_group
from squall.broker.controller.features import FEATURES
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.fair_scheduler import give_way
from squall.broker.net.served import SERVED
from squall.broker.protocol.apis import APIS, ApiKey
from squall.broker.protocol.errors import ErrorCode, cut_short
from squall.broker.protocol.schema import api_versions as versions_wire
from squall.broker.work import DONE

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.config import BrokerConfig
    from squall.broker.protocol.schema import describe_cluster as cluster_wire
    from squall.broker.protocol.schema import describe_configs as configs_wire
    from squall.broker.protocol.schema import list_config_resources as list_wire

RESOURCES_A_TURN = 10
"""Limits the resources that are described before other tasks run. A resource takes up to 1.5 ms."""
UNKNOWN_TYPE = 0
"""Is the config type that Kafka reports for the level of a logger."""
BROKERS_ENDPOINT, CONTROLLERS_ENDPOINT = 1, 2
"""Are the values of `DescribeClusterRequest.endpoint_type` (KIP-919)."""
NOT_ASKED = -2147483648
"""Is the value of the authorized operations if the client did not ask for them."""
TOPIC_OPERATIONS = 0b110111111000
"""Is the bit set of all operations on a topic, which a response names as authorized: read, write, create, delete,
alter, describe, describe configs, alter configs.
"""
GROUP_OPERATIONS = 0b110101001000
"""Is the bit set of all operations on a group, which a response names as authorized: read, delete, describe, describe
configs, alter configs (KIP-430).
"""
CLUSTER_OPERATIONS = 0b1111110100000
"""Is the bit set of all operations on the cluster, which a response names as authorized: create, alter, describe,
cluster action, describe configs, alter configs, idempotent write.
"""
ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_NAME = ALPHANUMERIC | {"-", "."}
FIRST_WITH_SOFTWARE = 3
"""Is the first version of ApiVersions in which clients name their software (KIP-511)."""


@dataclass(slots=True)
class AdminContext:
    """Holds the data from which ApiVersions, DescribeCluster, DescribeConfigs and Metadata are answered. `image` is
    this node's committed image of the cluster: one object for the life of the node.
    """

    image: ClusterImage
    config: BrokerConfig
    cluster_id: str
    controller_id: int = -1
    """Identifies the active controller as this node knows it. -1 if no controller is known."""
    loggers: Loggers = field(init=False)

    def __post_init__(self) -> None:
        self.loggers = Loggers(self.config.node_id)


# ----------------------------------------------------------------------------------------------------- ApiVersions

_SERVED_VERSIONS: Final = [
    versions_wire.ApiVersion(api_key=key, min_version=APIS[key].min_version, max_version=APIS[key].max_version)
    for key in SERVED
]
"""Lists the served APIs. The list is the same in every response, so it is built once."""


def api_versions(
    context: AdminContext, request: versions_wire.ApiVersionsRequest, version: int
) -> versions_wire.ApiVersionsResponse:
    """Return the APIs that this broker serves, or INVALID_REQUEST for a malformed software name or version (from
    version 3).
    """
    if version >= FIRST_WITH_SOFTWARE and not (
        is_software_name(request.client_software_name) and is_software_name(request.client_software_version)
    ):
        return versions_wire.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = context.image
    return versions_wire.ApiVersionsResponse(
        api_keys=_SERVED_VERSIONS,
        supported_features=[
            versions_wire.SupportedFeatureKey(name=feature.name, min_version=feature.low, max_version=feature.high)
            for feature in FEATURES
            # Clients of version 3 refuse a range that begins at 0 (KAFKA-17011).
            if feature.low > 0 or version > FIRST_WITH_SOFTWARE
        ],
        finalized_features_epoch=image.features_offset,
        finalized_features=[
            versions_wire.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
        ],
    )


def api_versions_unsupported() -> versions_wire.ApiVersionsResponse:
    """Return the response to an ApiVersions request of an unknown version. It must be encoded as version 0 (KIP-511).
    """
    api = APIS[ApiKey.API_VERSIONS]
    return versions_wire.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[versions_wire.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)],
    )


def is_software_name(text: str) -> bool:
    """Return whether `text` has only letters, digits, "-" and ".", and begins and ends with a letter or digit."""
    if not text or text[0] not in ALPHANUMERIC or text[-1] not in ALPHANUMERIC:
        return False
    return _NAME.issuperset(text)


# -------------------------------------------------------------------------------------------------- DescribeCluster


def describe_cluster(
    context: AdminContext, request: cluster_wire.DescribeClusterRequest, listener: str
) -> cluster_wire.DescribeClusterResponse:
    """Return the brokers with their addresses on `listener`. Fenced brokers are listed only on request (KIP-919,
    KIP-1073).
    """
    from squall.broker.protocol.schema import describe_cluster as cluster_wire

    if request.endpoint_type != BROKERS_ENDPOINT:
        return cluster_wire.DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if request.endpoint_type == CONTROLLERS_ENDPOINT
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message="The request was sent to an endpoint of the wrong type.",
            endpoint_type=BROKERS_ENDPOINT,
        )
    brokers = []
    for broker in sorted(context.image.brokers.values(), key=lambda broker: broker.id):
        address = broker.endpoints.get(listener)
        if address is None or (broker.fenced and not request.include_fenced_brokers):
            continue
        brokers.append(
            cluster_wire.DescribeClusterBroker(
                broker_id=broker.id, host=address[0], port=address[1], rack=broker.rack, is_fenced=broker.fenced
            )
        )
    return cluster_wire.DescribeClusterResponse(
        error_message=None,
        endpoint_type=BROKERS_ENDPOINT,
        cluster_id=context.cluster_id,
        controller_id=known_controller(context, listener),
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def known_controller(context: AdminContext, listener: str) -> int:
    """Return the broker that responses name as the controller: the active controller if it is a live broker, else any
    live broker, -1 if there is none. Any broker will do, because every broker forwards requests to the controller.
    """
    live = [
        broker.id for broker in context.image.brokers.values() if not broker.fenced and listener in broker.endpoints
    ]
    if context.controller_id in live:
        return context.controller_id
    return min(live, default=-1)


# -------------------------------------------------------------------------------------------------- DescribeConfigs


def describe_configs(
    context: AdminContext, request: configs_wire.DescribeConfigsRequest
) -> configs_wire.DescribeConfigsResponse | DeferredResponse:
    """Return the settings of topics, brokers, groups and other resources, and the source of each value (KIP-226).

    A resource may have 250 settings, and its name takes only ten bytes of the request. So a response has at most
    squall.request.max.elements settings in all; the resources beyond are refused (INVALID_REQUEST). If there are many
    resources, other tasks run in between.
    """
    from squall.broker.protocol.schema import describe_configs as configs_wire

    response = configs_wire.DescribeConfigsResponse()
    left = context.config.squall_request_max_elements

    def describe(resource: configs_wire.DescribeConfigsResource) -> None:
        nonlocal left
        result = configs_wire.DescribeConfigsResult(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        if left > 0:
            wanted = frozenset(resource.configuration_keys or ())
            entries = _entries(context, resource, result)
            left -= len(entries)
            DONE.entries += len(entries)
            result.configs = [
                _described(entry, request.include_synonyms) for entry in entries if not wanted or entry.name in wanted
            ]
        else:
            most = context.config.squall_request_max_elements
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"a request is told {most} settings (squall.request.max.elements): ask in several"
        # A message may quote a name of 32 KB, and would then be longer than a string may be.
        result.error_message = cut_short(result.error_message or "")
        response.results.append(result)

    if len(request.resources) <= RESOURCES_A_TURN:
        for resource in request.resources:
            describe(resource)
        return response

    async def wait() -> configs_wire.DescribeConfigsResponse:
        for number, resource in enumerate(request.resources):
            if not number % RESOURCES_A_TURN:
                await give_way()
            describe(resource)
        return response

    return DeferredResponse(wait, holds=True)


def _entries(
    context: AdminContext, resource: configs_wire.DescribeConfigsResource, result: configs_wire.DescribeConfigsResult
) -> list[ConfigEntry]:
    image, node_id, name = context.image, context.config.node_id, resource.resource_name
    altered, layers = altered_settings(image, node_id), layers_of(image, context.config)
    if resource.resource_type == TOPIC_RESOURCE:
        if name in image.topic_ids:
            overrides = image.configs.get((TOPIC_RESOURCE, name), {})
            try:
                return describe_topic(with_altered(context.config, altered), overrides, layers)
            except ConfigError as error:  # the topic's settings contradict the defaults in this node's file
                result.error_code, result.error_message = ErrorCode.INVALID_CONFIG, str(error)
                return []
        fault = name_fault(name)
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION if fault else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = fault and f"Topic name is invalid: {fault}"
    elif resource.resource_type == BROKER_RESOURCE:
        if not name:
            # Of all brokers, Kafka shows only what was altered for all of them.
            everyone = image.configs.get((BROKER_RESOURCE, ""), {})
            of_all = layers._replace(own={}, file={})
            entries = describe_broker(with_altered(context.config, everyone), of_all)
            return [entry.with_source_only() for entry in entries if entry.name in everyone]
        if name == str(node_id):
            return describe_broker(with_altered(context.config, altered), layers)
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
    elif resource.resource_type == BROKER_LOGGER_RESOURCE:
        result.error_message = context.loggers.name_error(name)
        if not result.error_message:
            return context.loggers.describe()
        result.error_code = ErrorCode.INVALID_REQUEST
    elif resource.resource_type == GROUP_RESOURCE:
        if name:
            return describe_group(context.config, image.configs.get((GROUP_RESOURCE, name), {}))
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "Group name must not be empty"
    elif resource.resource_type == CLIENT_METRICS_RESOURCE:
        if name:
            return describe_subscription(image.configs.get((CLIENT_METRICS_RESOURCE, name), {}))
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = "Client metrics subscription name must not be empty"
    else:
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = f"Unsupported resource type: {resource.resource_type}"
    return []


def list_config_resources(
    context: AdminContext, request: list_wire.ListConfigResourcesRequest, version: int
) -> list_wire.ListConfigResourcesResponse:
    """List the resources that have settings (KIP-1142): of the requested types, or of all. A group or a client metrics
    subscription is listed only if settings were given to it.
    """
    from squall.broker.protocol.schema import list_config_resources as list_wire

    known = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
    if version == 0 and not request.resource_types:
        # KIP-1000: it listed nothing else.
        request = list_wire.ListConfigResourcesRequest(resource_types=[CLIENT_METRICS_RESOURCE])
    if any(kind not in known for kind in request.resource_types):
        return list_wire.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    kinds = tuple(request.resource_types) or known
    image = context.image
    brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
    names = {TOPIC_RESOURCE: sorted(image.topic_ids), BROKER_RESOURCE: brokers, BROKER_LOGGER_RESOURCE: brokers}
    for kind in (CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
        names[kind] = sorted(name for other, name in image.configs if other == kind)
    found = [list_wire.ConfigResource(name, kind) for kind in dict.fromkeys(kinds) for name in names.get(kind, ())]
    return list_wire.ListConfigResourcesResponse(config_resources=found)


def _described(entry: ConfigEntry, include_synonyms: bool) -> configs_wire.DescribeConfigsResourceResult:
    from squall.broker.protocol.schema import describe_configs as configs_wire

    return configs_wire.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only and entry.name not in DYNAMIC_BROKER_SETTINGS,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            configs_wire.DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
        if include_synonyms
        else [],
        config_type=entry.kind if entry.source is not ConfigSource.BROKER_LOGGER else UNKNOWN_TYPE,
        documentation=None,
    )
