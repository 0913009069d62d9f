"""Builds responses that carry only an error, in the form of each API that the active controller decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.protocol.apis import ApiKey, response_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.protocol.errors import ErrorCode


def refusal(api_key: int, request: Any, code: ErrorCode, message: str | None = None) -> Any:
    """Return the response that refuses the whole request. Raises KeyError for an API that the controller does not
    decide.
    """
    return REFUSALS[api_key](response_class(api_key), request, int(code), message)


def _plain(response: Any, request: Any, code: int, message: str | None) -> Any:
    return response(error_code=code)


def _create_topics(response: Any, request: Any, code: int, message: str | None) -> Any:
    from squall.broker.protocol.schema.create_topics import CreatableTopicResult

    return response(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=message) for topic in request.topics
        ]
    )


def _delete_topics(response: Any, request: Any, code: int, message: str | None) -> Any:
    from squall.broker.protocol.schema.delete_topics import DeletableTopicResult

    by_name = [DeletableTopicResult(name=name, error_code=code, error_message=message) for name in request.topic_names]
    others = [
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)
        for topic in request.topics
    ]
    return response(responses=by_name + others)


def _create_partitions(response: Any, request: Any, code: int, message: str | None) -> Any:
    from squall.broker.protocol.schema.create_partitions import CreatePartitionsTopicResult

    return response(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _alter_configs(response: Any, request: Any, code: int, message: str | None) -> Any:
    from squall.broker.protocol.schema import alter_configs, incremental_alter_configs

    legacy = response is alter_configs.AlterConfigsResponse
    result = (alter_configs if legacy else incremental_alter_configs).AlterConfigsResourceResponse
    return response(
        responses=[
            result(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _elect_leaders(response: Any, request: Any, code: int, message: str | None) -> Any:
    from squall.broker.protocol.schema.elect_leaders import PartitionResult, ReplicaElectionResult

    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=code, error_message=message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return response(error_code=code, replica_election_results=results)


REFUSALS: dict[int, Callable[[Any, Any, int, str | None], Any]] = {
    ApiKey.BROKER_REGISTRATION: _plain,
    ApiKey.BROKER_HEARTBEAT: _plain,
    ApiKey.ALTER_PARTITION: _plain,
    ApiKey.ALLOCATE_PRODUCER_IDS: _plain,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _plain,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _plain,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.UPDATE_FEATURES: _plain,
    ApiKey.DESCRIBE_QUORUM: _plain,
}
