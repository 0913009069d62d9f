"""Defines the interface that the driver program uses for a library's group member. Each library has a module that
implements it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from squall.chaos.drivers.library import OK, DriverConfig, Place, ReadRecord

CLASSIC, CONSUMER = "classic", "consumer"
FETCH_S = 2.0
"""Limits, in seconds, how long a look-up of committed offsets may take."""


class MemberGeneration(NamedTuple):
    """Names a member as its library knows it: by member id and generation, which are "" and -1 before it has joined."""

    member_id: str = ""
    generation: int = -1


class CommitResult(NamedTuple):
    """Holds the result of an offset commit. FAIL means that no byte of the request can have left the OS process."""

    status: int = OK
    error: str = ""
    errors: Mapping[Place, str] = {}
    """Maps partitions to their errors, if partitions of one commit have different results."""


class FatalMemberError(Exception):
    """Is raised if the library reports that this membership is over for good."""


class RebalanceListener(Protocol):
    """Receives the rebalance callbacks of a library (`squall.chaos.drivers.members.member`)."""

    def on_assigned(self, added: Collection[Place], owned: Collection[Place]) -> None:
        """Record that `added` was assigned, so that the member owns `owned`. The added partitions are not read before
        `MemberAdapter.start_reading`.
        """

    def offsets_to_commit(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the offsets to commit before these partitions, which the member still owns, are revoked."""

    def on_revoked(self, places: Collection[Place], kept: CommitResult | None) -> None:
        """Record that these partitions were revoked. `kept`: the result of the commit that the callback made first;
        None if it made none.
        """

    def on_lost(self, places: Collection[Place]) -> None:
        """Record that the member does not own these partitions any more."""

    def report_records(self, records: Sequence[ReadRecord]) -> None:
        """Report records of a poll that has not returned yet. An adapter calls this before a callback inside the poll
        can take partitions away.
        """


class MemberAdapter(Protocol):
    """Adapts a library's consumer, which has subscribed to topics, to the driver program."""

    stable: bool
    """Is True if OffsetFetch asks for stable offsets, so that it waits for pending transactional commits."""

    def member_generation(self) -> MemberGeneration:
        """Return the member id and generation that the library has at this moment."""

    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        """Return the records that have arrived from partitions for which `start_reading` was called. Raise
        FatalMemberError, OffsetOutOfRange, or another error after which the member can be polled again.
        """

    def committed_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        """Return the committed offsets; -1: nothing is committed. Raise the library's error if they are not known
        within FETCH_S.
        """

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        """Return the first offset and the end offset of each partition. Partitions whose offsets are not available are
        left out.
        """

    def start_reading(self, at: Mapping[Place, int]) -> Collection[Place]:
        """Read these partitions from these offsets. Return the partitions for which that was possible."""

    def stop_reading(self, places: Collection[Place]) -> None:
        """Pause these partitions until `start_reading` is called for them again."""

    def commit(self, offsets: Mapping[Place, int]) -> CommitResult:
        """Commit offsets and wait for the result. An error of the cluster is in the result, and is not raised."""

    def group_metadata(self) -> Any:
        """Return the group metadata that a transactional producer of the same library takes for this member."""

    def close(self) -> None:
        """Give all partitions up, and leave the group."""


class MemberLibrary(Protocol):
    """Is the interface of a module that runs a library's group members."""

    version: str

    def member(self, config: DriverConfig, listener: RebalanceListener) -> MemberAdapter:
        """Return a member that has subscribed."""


def load(client: str) -> MemberLibrary:
    """Return the module that runs a library's group members."""
    from importlib import import_module

    name = f"squall.chaos.drivers.members.with_{client.replace('-', '_')}"
    found: MemberLibrary = import_module(name)
    return found
