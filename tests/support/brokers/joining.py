"""Joins a consumer group at a real broker."""

from __future__ import annotations

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest
from squall.broker.protocol.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.brokers.broker_process import BrokerProcess


def join(broker: BrokerProcess, group_id: str, metadata: bytes = b"") -> ErrorCode:
    """Send a JoinGroup of a new member, once the group's coordinator serves. Returns its error."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1_800_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    found: list[ErrorCode] = []

    def is_answered() -> bool:
        with broker.connect() as client:
            client.ask(FindCoordinatorRequest(coordinator_keys=[group_id]), 4)
            answer = client.ask(request, 7)
        found.append(ErrorCode(answer.error_code))
        return found[-1] not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    broker.wait_for(is_answered)
    return found[-1]
