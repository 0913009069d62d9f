"""Collects the messages to be sent, and allows at most one outstanding request to each other voter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.quorum.messages import QuorumMessage

if TYPE_CHECKING:
    from squall.broker.quorum.messages import Reply, Request
    from squall.broker.quorum.settings import QuorumSettings

NEVER = 1 << 62


class _VoterRequestState:
    """Tracks the requests to one voter. `ticket`: the number of the outstanding request, or 0. `due_ms`: the time from
    which on a request may be due. `failures`: failed requests since the last reply.
    """

    __slots__ = ("due_ms", "failures", "ticket")

    def __init__(self) -> None:
        self.ticket = self.failures = 0
        self.due_ms = NEVER


class Outbox:
    """Tracks requests until their reply or failure. After `forget`, replies to older requests are ignored."""

    def __init__(self, settings: QuorumSettings) -> None:
        self._node_id = settings.node_id
        self._backoff_ms, self._longest_backoff_ms = settings.retry_backoff_ms, settings.fetch_timeout_ms // 4
        self._lines = {voter: _VoterRequestState() for voter in settings.voters if voter != settings.node_id}
        self._tickets = 0
        self.messages: list[QuorumMessage] = []
        """Holds the messages that the next `take` returns."""

    @property
    def voters(self) -> tuple[int, ...]:
        """Returns the other voters, ascending."""
        return tuple(self._lines)

    def take(self) -> tuple[QuorumMessage, ...]:
        """Return the messages to send, each once."""
        messages, self.messages = tuple(self.messages), []
        return messages

    def answer(self, request: QuorumMessage, body: Reply) -> None:
        """Add the reply to a request to the messages that the next `take` returns."""
        self.messages.append(QuorumMessage(self._node_id, request.sender, request.ticket, body))

    def send(self, voter: int, body: Request) -> None:
        """Send a request to a voter that has no outstanding request."""
        line = self._lines[voter]
        assert not line.ticket
        self._tickets += 1
        line.ticket = self._tickets
        self.messages.append(QuorumMessage(self._node_id, voter, line.ticket, body))

    def ended(self, voter: int, ticket: int) -> bool:
        """Note that the request with this ticket got its reply or failed. Returns False if it is not outstanding (any
        more).
        """
        line = self._lines.get(voter)
        # Ticket 0 means no outstanding request. Another ticket belongs to a request from before `forget`.
        if line is None or not ticket or line.ticket != ticket:
            return False
        line.ticket = 0
        return True

    def answered(self, voter: int) -> None:
        """Reset the count of failed requests of a voter that has replied."""
        self._lines[voter].failures = 0

    def backoff_ms(self, voter: int) -> int:
        """Count a failed request, and return the pause before the next one, in ms. The pause doubles with each failure
        (KIP-144), up to a quarter of the fetch time-out. By default that is 500 ms, as in Kafka's raft client.
        """
        line = self._lines[voter]
        line.failures += 1
        return max(self._backoff_ms, min(self._backoff_ms << min(line.failures - 1, 20), self._longest_backoff_ms))

    def forget(self) -> None:
        """Drop all outstanding and due requests."""
        for line in self._lines.values():
            line.ticket = 0
            line.due_ms = NEVER

    def due(self, voter: int, at_ms: int) -> None:
        """Set a voter's due time: the time from which on `take_due` returns it, so that a request can be sent to it."""
        self._lines[voter].due_ms = at_ms

    def due_all(self, at_ms: int) -> None:
        """Set the due time of every voter to `at_ms`."""
        for line in self._lines.values():
            line.due_ms = at_ms

    def take_due(self, now_ms: int) -> list[int]:
        """Return the voters whose due time has come, except those with an outstanding request, and clear their due
        times. The caller decides whether there is a request to send.
        """
        due = []
        for voter, line in self._lines.items():
            if line.due_ms <= now_ms and not line.ticket:
                line.due_ms = NEVER  # The caller sets it again with `due` if no request is sent now.
                due.append(voter)
        return due

    def next_due_ms(self) -> int:
        """Return when `take_due` will have a voter to return."""
        soonest = NEVER
        for line in self._lines.values():
            if line.due_ms < soonest and not line.ticket:
                soonest = line.due_ms
        return soonest
