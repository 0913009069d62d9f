"""Holds a member of a classic group in the coordinator's memory."""

from __future__ import annotations

from squall.broker.coordinators.groups.memory_budget import size_of
from squall.broker.coordinators.groups.values import NO_MEMBER, JoinGroup, MemberRecord, Token

OF_EACH_RECORDED = 40
"""Gives the approximate bytes of one member in a GroupMetadataRecord, not counting its strings, metadata and
assignment.
"""
NEW_MEMBER_MS = 300_000
"""Gives the time in ms after which a new member that waits for its first generation is removed: it has no member id to
send heartbeats with, and may have joined again under another id.
"""


class ClassicGroupMember:
    """Holds a member of a classic group: its identity, protocols and assignment, and its waiting requests."""

    __slots__ = (
        "_known",
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_ms",
        "session_ms",
        "syncing",
        "unsynced",
    )

    def __init__(self, request: JoinGroup, member_id: str) -> None:
        assert request.member_id in (NO_MEMBER, member_id)
        self.member_id, self.instance_id = member_id, request.instance_id
        self.client_id, self.client_host = request.client_id, request.client_host
        self.rebalance_ms, self.session_ms = request.rebalance_ms, request.session_ms
        self._know(request.protocols)
        self.assignment = b""
        self.joining: Token = None
        """Holds the token of a JoinGroup that waits for the next generation; None if none waits."""
        self.syncing: Token = None
        """Holds the token of a SyncGroup that waits for the assignment; None if none waits."""
        self.is_new = True
        """Is True until the member is in a generation for the first time."""
        self.unsynced = False
        """Is True while the member knows its generation and has not asked for its assignment."""
        self.deadline_ms: int | None = None
        """Gives the monotonic time at which the member is removed. It is None while a request of the member waits for
        its response, unless the member is new.
        """

    @classmethod
    def loaded(cls, record: MemberRecord, protocol: str) -> ClassicGroupMember:
        """Return the member that a generation's record describes."""
        subscribed = ((protocol, record.subscription),)
        request = JoinGroup(
            group_id="",
            member_id=record.member_id,
            instance_id=record.instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            session_ms=record.session_ms,
            rebalance_ms=record.rebalance_ms,
            protocol_type="",
            protocols=subscribed,
            fresh_id="",
        )
        made = cls(request, record.member_id)
        made.assignment, made.is_new = record.assignment, False
        assert made.joining is None
        assert made.metadata(protocol) == record.subscription
        return made

    def update(self, request: JoinGroup) -> None:
        """Take over the protocols, time-outs and client data of a JoinGroup."""
        assert request.member_id in (NO_MEMBER, self.member_id)
        self._know(request.protocols)
        self.rebalance_ms, self.session_ms = request.rebalance_ms, request.session_ms
        self.client_id, self.client_host = request.client_id, request.client_host

    def _know(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self.protocols = protocols
        # A request may have 100,000 protocols, each of which is looked up. The first of two with one name counts.
        self._known = dict(reversed(protocols))

    def own_bytes(self) -> int:
        """Return the estimated memory, in bytes, for the ids and protocols that the member has sent. The assignment is
        not counted.
        """
        return size_of(self.protocols, self.member_id, self.client_id, self.instance_id)

    def memory_bytes(self) -> int:
        """Return the memory, in bytes, for the data that the member has sent, and for its assignment."""
        return self.own_bytes() + len(self.assignment)

    def knows(self, protocol: str) -> bool:
        """Return whether the member supports this protocol."""
        return protocol in self._known

    def metadata(self, protocol: str | None) -> bytes:
        """Return the metadata that the member sent for a protocol; empty for one that it does not support."""
        return b"" if protocol is None else self._known.get(protocol, b"")

    def recorded(self, protocol: str | None) -> int:
        """Return the approximate bytes that the member takes in a GroupMetadataRecord."""
        texts = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        return OF_EACH_RECORDED + sum(map(len, texts)) + len(self.metadata(protocol)) + len(self.assignment)

    def record(self, protocol: str | None) -> MemberRecord:
        """Return the member as it is written to the log."""
        return MemberRecord(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_ms,
            self.session_ms,
            self.metadata(protocol),
            self.assignment,
        )
