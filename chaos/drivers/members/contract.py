"""Defines what a driver's process asks of a library that is a member of a group. One module for each library implements
it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from squall.chaos.drivers.library import OK, DriverConfig, Place, ReadRecord

CLASSIC, CONSUMER = "classic", "consumer"
FETCH_S = 2.0
"""A group is asked for so long where it stands."""


class MemberGeneration(NamedTuple):
    """A member, as the library knows it: without an id, of generation -1 while it is of none."""

    member_id: str = ""
    generation: int = -1


class CommitResult(NamedTuple):
    """Result of a commit. FAIL: nothing of it can have left the process."""

    status: int = OK
    error: str = ""
    errors: Mapping[Place, str] = {}
    """Partition -> why, where partitions differ."""


class FatalMemberError(Exception):
    """The library says that this membership is over for good."""


class RebalanceListener(Protocol):
    """Receives what a library's callbacks report (`squall.chaos.drivers.members.member`)."""

    def joined(self, added: Collection[Place], owned: Collection[Place]) -> None:
        """Add `added` to what the member owns, now `owned`. Nothing of it is read before `MemberAdapter.begin`."""

    def giving(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return what is to be committed before these, which are still its own, are given up."""

    def gave(self, places: Collection[Place], kept: CommitResult | None) -> None:
        """Record that these are given up. `kept`: the result of the commit, if there was one."""

    def lost(self, places: Collection[Place]) -> None:
        """Record that these are not its own any more."""

    def tell(self, records: Sequence[ReadRecord]) -> None:
        """Record what a poll has brought so far, before a callback of the same poll takes partitions away."""


class MemberAdapter(Protocol):
    """Drives a library's consumer that has subscribed."""

    stable: bool
    """It waits for pending offsets of transactions when it asks where its group stands."""

    def who(self) -> MemberGeneration:
        """Return the member as the library knows it just now."""

    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        """Return the records that have arrived, of partitions that have begun. Raises Fatal, Impossible, or another
        error after which it can be polled again.
        """

    def standing(self, places: Sequence[Place]) -> Mapping[Place, int]:
        """Return the committed offsets; -1: nothing is committed. Raises the library's error if that is not known
        within FETCH_S.
        """

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        """Return first offset and end of these. Partitions for which they cannot be found just now are left out."""

    def begin(self, at: Mapping[Place, int]) -> Collection[Place]:
        """Read these from there on. Return those that it can begin with now."""

    def hold(self, places: Collection[Place]) -> None:
        """Read nothing of these until they begin anew."""

    def commit(self, offsets: Mapping[Place, int]) -> CommitResult:
        """Commit, and wait for the answer. It never raises for what a cluster does."""

    def identity(self) -> Any:
        """Return what a transactional producer of the same library takes for this member."""

    def close(self) -> None:
        """Give everything up, and leave the group."""


class MemberLibrary(Protocol):
    """Drives a library's members: one module for each library is one."""

    version: str

    def member(self, order: DriverConfig, hearing: RebalanceListener) -> MemberAdapter:
        """Return a member that has subscribed."""


def load(client: str) -> MemberLibrary:
    """Return the module that drives this library's members."""
    from importlib import import_module

    name = f"squall.chaos.drivers.members.with_{client.replace('-', '_')}"
    found: MemberLibrary = import_module(name)
    return found
