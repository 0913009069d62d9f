"""Messages to be sent, and to each other voter at most one request at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.quorum.messages import QuorumMessage

if TYPE_CHECKING:
    from squall.broker.quorum.messages import Reply, Request
    from squall.broker.quorum.settings import QuorumSettings

NEVER = 1 << 62


class _VoterRequestState:
    """Tracks the requests to one voter. `ticket`: of the request under way, 0 when there is none. `due_ms`: when it may
    be owed one. `failures`: requests that failed since the last reply.
    """

    __slots__ = ("due_ms", "failures", "ticket")

    def __init__(self) -> None:
        self.ticket = self.failures = 0
        self.due_ms = NEVER


class Outbox:
    """Requests wait for their reply or their failure. After `forget`, what comes for older ones is not awaited."""

    def __init__(self, settings: QuorumSettings) -> None:
        self._node_id = settings.node_id
        self._backoff_ms, self._longest_backoff_ms = settings.retry_backoff_ms, settings.fetch_timeout_ms // 4
        self._lines = {voter: _VoterRequestState() for voter in settings.voters if voter != settings.node_id}
        self._tickets = 0
        self.messages: list[QuorumMessage] = []
        """To be sent: see `take`."""

    @property
    def voters(self) -> tuple[int, ...]:
        """The other voters, ascending."""
        return tuple(self._lines)

    def take(self) -> tuple[QuorumMessage, ...]:
        """Return the messages to send, each once."""
        messages, self.messages = tuple(self.messages), []
        return messages

    def answer(self, request: QuorumMessage, body: Reply) -> None:
        """Reply to a request."""
        self.messages.append(QuorumMessage(self._node_id, request.sender, request.ticket, body))

    def send(self, voter: int, body: Request) -> None:
        """Send a request to a voter that has none under way."""
        line = self._lines[voter]
        assert not line.ticket
        self._tickets += 1
        line.ticket = self._tickets
        self.messages.append(QuorumMessage(self._node_id, voter, line.ticket, body))

    def ended(self, voter: int, ticket: int) -> bool:
        """The request of this ticket got its reply or failed. False where that is not awaited (any more)."""
        line = self._lines.get(voter)
        if line is None or not ticket or line.ticket != ticket:
            return False
        line.ticket = 0
        return True

    def answered(self, voter: int) -> None:
        """It has replied: the next failure is the first one again."""
        self._lines[voter].failures = 0

    def backoff_ms(self, voter: int) -> int:
        """A request to it has failed: how long not to send another. Doubles with each failure (KIP-144), up to a
        quarter of the fetch time-out: with Kafka's defaults the 500 ms of its raft client.
        """
        line = self._lines[voter]
        line.failures += 1
        return max(self._backoff_ms, min(self._backoff_ms << min(line.failures - 1, 20), self._longest_backoff_ms))

    def forget(self) -> None:
        """Nothing is awaited, nothing is owed."""
        for line in self._lines.values():
            line.ticket = 0
            line.due_ms = NEVER

    def due(self, voter: int, at_ms: int) -> None:
        """From `at_ms` on this voter may be owed a request."""
        self._lines[voter].due_ms = at_ms

    def due_all(self, at_ms: int) -> None:
        """The same for every voter."""
        for line in self._lines.values():
            line.due_ms = at_ms

    def take_due(self, now_ms: int) -> list[int]:
        """Voters that may be owed a request now and have none under way. Each is asked about once."""
        due = []
        for voter, line in self._lines.items():
            if line.due_ms <= now_ms and not line.ticket:
                line.due_ms = NEVER
                due.append(voter)
        return due

    def next_due_ms(self) -> int:
        """Return when `take_due` will have something."""
        soonest = NEVER
        for line in self._lines.values():
            if line.due_ms < soonest and not line.ticket:
                soonest = line.due_ms
        return soonest
