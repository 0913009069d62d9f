"""Log levels by admin requests: our broker has one logger, whose level it keeps; other resources go to the controller.
"""

from __future__ import annotations

import trio

from squall.broker.apis.loggers import Loggers
from squall.broker.cluster.image import BROKER_LOGGER_RESOURCE, TOPIC_RESOURCE
from squall.broker.config import ConfigOp
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def resource(kind: int, name: str, key: str, value: str | None) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[AlterableConfig(key, int(ConfigOp.SET), value)]
    )


def altered(loggers: Loggers, *resources: AlterConfigsResource, tried: bool = False) -> list[tuple[int, str, int]]:
    """Alter these resources and return the answers in order. The controller here refuses everything as an unknown
    topic.
    """

    async def forward(rest: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        assert all(each.resource_type != BROKER_LOGGER_RESOURCE for each in rest.resources)
        assert rest.validate_only == tried
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                for each in rest.resources
            ]
        )

    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=tried)
    answer = trio.run(loggers.alter, request, forward)
    return [(each.resource_type, each.resource_name, each.error_code) for each in answer.responses]


def level(loggers: Loggers) -> str | None:
    [root] = loggers.describe()
    return root.value


def test_loggers_are_altered_here_and_the_rest_by_the_controller_in_the_requests_order() -> None:
    loggers = Loggers(1)
    answers = altered(
        loggers,
        resource(TOPIC_RESOURCE, "t", "retention.ms", "5"),
        resource(BROKER_LOGGER_RESOURCE, "1", "root", "WARN"),
        resource(TOPIC_RESOURCE, "u", "retention.ms", "5"),
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answers == [(TOPIC_RESOURCE, "t", unknown), (BROKER_LOGGER_RESOURCE, "1", 0), (TOPIC_RESOURCE, "u", unknown)]
    assert level(loggers) == "WARN"


def test_a_level_that_is_only_tried_is_not_set() -> None:
    loggers = Loggers(1)
    answers = altered(loggers, resource(BROKER_LOGGER_RESOURCE, "1", "root", "WARN"), tried=True)
    assert answers == [(BROKER_LOGGER_RESOURCE, "1", 0)]
    assert level(loggers) == "INFO"


def test_loggers_named_twice_are_left_alone() -> None:
    loggers = Loggers(1)
    twice = [resource(BROKER_LOGGER_RESOURCE, "1", "root", value) for value in ("WARN", "TRACE")]
    assert {code for _, _, code in altered(loggers, *twice)} == {ErrorCode.INVALID_REQUEST}
    assert level(loggers) == "INFO"
