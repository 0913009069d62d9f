"""Serves the loggers of this broker to Kafka's tools (KIP-412). There is one logger, whose level can be set and read.

The level has no effect, because a broker's trace has no levels. It is lost when the node stops, as the levels of
Kafka's loggers are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from squall.broker.cluster.image import BROKER_LOGGER_RESOURCE
from squall.broker.config import ConfigEntry, ConfigOp, ConfigSource, ConfigType
from squall.broker.protocol.errors import ErrorCode, cut_short
from squall.broker.protocol.ids import broker_id_in
from squall.broker.protocol.schema import incremental_alter_configs as wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

ROOT = "root"
LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
Refusal = tuple[ErrorCode, str]


class Loggers:
    """Holds the levels of a node's loggers."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._level = "INFO"

    def name_error(self, name: str) -> str:
        """Return the error message for a request about the loggers of broker `name`, or "" if `name` is this broker's
        id.
        """
        if not name:
            return "Broker id must not be empty"
        if broker_id_in(name) is None:
            return f"Broker id must be an integer, but it is: {name}"
        if broker_id_in(name) != self._node_id:
            return f"Unexpected broker id, expected {self._node_id} but received {name}"
        return ""

    def describe(self) -> list[ConfigEntry]:
        """Return every logger, with its level."""
        return [ConfigEntry(ROOT, self._level, ConfigSource.BROKER_LOGGER, ConfigType.STRING, False, ())]

    async def alter(
        self,
        request: wire.IncrementalAlterConfigsRequest,
        forward: Callable[[wire.IncrementalAlterConfigsRequest], Awaitable[wire.IncrementalAlterConfigsResponse]],
    ) -> wire.IncrementalAlterConfigsResponse:
        """Set the log levels that a request names, and forward the rest of the request to the controller. Responses
        keep the order of the request.
        """
        others = [each for each in request.resources if each.resource_type != BROKER_LOGGER_RESOURCE]
        if len(others) == len(request.resources):
            return await forward(request)
        ours = [each for each in request.resources if each.resource_type == BROKER_LOGGER_RESOURCE]
        named = Counter(each.resource_name for each in ours)
        answers = {}
        for each in ours:
            twice = named[each.resource_name] > 1
            answers[id_of(each)] = self._answer(each, request.validate_only, twice=twice)
        answer = wire.IncrementalAlterConfigsResponse()
        if others:
            rest = wire.IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
            answer = await forward(rest)
            answers.update({id_of(each): each for each in answer.responses})
        answer.responses = [answers[id_of(each)] for each in request.resources if id_of(each) in answers]
        return answer

    def _answer(
        self, asked: wire.AlterConfigsResource, validate_only: bool, *, twice: bool
    ) -> wire.AlterConfigsResourceResponse:
        changes = [(config.name, config.config_operation, config.value) for config in asked.configs]
        refused = (
            (ErrorCode.INVALID_REQUEST, "Duplicate resource.") if twice else self._refusal(asked.resource_name, changes)
        )
        if refused is None and not validate_only:
            for _, _, value in changes:
                self._level = str(value)
        code, message = refused or (ErrorCode.NONE, None)
        return wire.AlterConfigsResourceResponse(
            error_code=code,
            error_message=None if message is None else cut_short(message),
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )

    def _refusal(self, node: str, changes: Sequence[tuple[str, int, str | None]]) -> Refusal | None:
        """Return Kafka's (error code, message) if one of these changes is not allowed, and so none is made; else None.
        `node` is the broker id as text that the request names. A change is (logger, operation, level).
        """
        for name, operation, value in changes:
            if value is None and operation != ConfigOp.DELETE:
                return ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}"
        if broker_id_in(node) is None:
            return ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {node}"
        if broker_id_in(node) != self._node_id:
            return ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {self._node_id}, but received {node}"
        for name, operation, value in changes:
            if operation in (ConfigOp.APPEND, ConfigOp.SUBTRACT):
                said = f"{ConfigOp(operation).name} operation is not allowed for the BROKER_LOGGER resource"
                return ErrorCode.INVALID_REQUEST, said
            if operation not in tuple(ConfigOp):
                return ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}"
            if name != ROOT:
                return ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!"
            if operation == ConfigOp.DELETE:
                return ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
            if value not in LEVELS:
                allowed = ", ".join(LEVELS)
                said = f"Cannot set the log level of {name} to {value} as it is not a supported log level"
                return ErrorCode.INVALID_CONFIG, f"{said}. Valid log levels are {allowed}"
        return None


def id_of(resource: wire.AlterConfigsResource | wire.AlterConfigsResourceResponse) -> tuple[int, str]:
    """Return type and name of a resource, which identify it in its request and in its response."""
    return resource.resource_type, resource.resource_name
