"""Finds the coordinator of a group and sends requests to it."""

from __future__ import annotations

from typing import TypeVar

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from squall.broker.protocol.wire import Message
from squall.workloads.client.client import Client
from squall.workloads.client.connection import RequestFailed, UnsupportedApi

R = TypeVar("R", bound=Message)

OF_GROUPS = 0
"""Is the key_type of FindCoordinator for groups."""
SINGLE_KEY = 3
"""Is the last version of FindCoordinator that asks for a single key."""


class GroupCoordinatorClient:
    """Sends requests to the coordinator of one group. It needs a running client, preferably its own: a JoinGroup may
    wait for long.
    """

    def __init__(self, client: Client, group: str) -> None:
        self.client, self.group = client, group
        self._node = -1
        self.moves = 0
        """Counts the successful look-ups of the coordinator, even if one finds the same broker again."""

    def forget(self) -> None:
        """Find the coordinator again before the next request, because it has moved or cannot be reached."""
        self._node = -1

    async def ask(self, request: Message, response: type[R], newest: int, limit_s: float | None = None) -> R:
        """Send a request, at most in version `newest`, and return the coordinator's response. Waits until a coordinator
        is found; after that, at most `limit_s` seconds (None: the request time-out).

        Raises RequestFailed, UnsupportedApi: the next call then looks the coordinator up again.
        """
        node = await self._find()
        try:
            version = min(newest, request.MAX_VERSION)
            return await self.client.ask_node(node, request, response, version=version, limit_s=limit_s)
        except (RequestFailed, UnsupportedApi):
            # Another task may have found the new coordinator meanwhile.
            if self._node == node:
                self.forget()
            raise

    async def _find(self) -> int:
        failures = 0
        request = FindCoordinatorRequest(self.group, OF_GROUPS)
        while self._node < 0:
            answer = await self.client.ask(request, FindCoordinatorResponse, version=SINGLE_KEY)
            if answer.error_code == ErrorCode.NONE and answer.node_id in self.client.view.nodes:
                self._node = answer.node_id
                self.moves += 1
                break
            self.client.refresh_soon()
            failures += 1
            await self.client.env.sleep(self.client.backoff(failures))
        return self._node
