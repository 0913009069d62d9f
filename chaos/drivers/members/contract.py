"""What a driver's process asks of a library that is a member of a group; one module a library does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from squall.chaos.drivers.library import OK, Order, Place, ReadRecord

CLASSIC, CONSUMER = "classic", "consumer"
FETCH_S = 2.0
"""A group is asked for so long where it stands."""


class Who(NamedTuple):
    """A member, as the library knows it: without an id, of generation -1 while it is of none."""

    member_id: str = ""
    generation: int = -1


class Kept(NamedTuple):
    """How a commit ended. FAIL: nothing of it can have left the process."""

    status: int = OK
    error: str = ""
    errors: Mapping[Place, str] = {}
    """Partition -> why, where partitions differ."""


class Fatal(Exception):
    """The library says that this membership is over for good."""


class Hearing(Protocol):
    """Who is told by a library's callbacks (`squall.chaos.drivers.members.member.Member`)."""

    def joined(self, added: Collection[Place], owned: Collection[Place]) -> None:
        """`added` came to what it owns, which is `owned` now. Nothing of `added` is read before `Grouped.begin`."""

    def giving(self, places: Collection[Place]) -> Mapping[Place, int]:
        """These are to be given up, and are still its own: what is to be committed first."""

    def gave(self, places: Collection[Place], kept: Kept | None) -> None:
        """These are given up; `kept`: what came of the commit, if there was one."""

    def lost(self, places: Collection[Place]) -> None:
        """These are not its own any more."""

    def tell(self, records: Sequence[ReadRecord]) -> None:
        """A poll has brought these so far: told before a callback of the same poll takes partitions away."""


class Grouped(Protocol):
    """A library's consumer that has subscribed."""

    stable: bool
    """It waits for pending offsets of transactions when it asks where its group stands."""

    def who(self) -> Who:
        """As the library knows it just now."""

    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        """What is there, of partitions that have begun. Raises Fatal, Impossible, or errors that it goes on after."""

    def standing(self, places: Sequence[Place]) -> Mapping[Place, int]:
        """What is committed; -1: nothing. Raises what the library raises where that is not known within FETCH_S."""

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        """First offset and end of these; what cannot be found out just now is left out."""

    def begin(self, at: Mapping[Place, int]) -> Collection[Place]:
        """Read these from there on. Those that it can begin with now."""

    def hold(self, places: Collection[Place]) -> None:
        """Read nothing of these until they begin anew."""

    def commit(self, offsets: Mapping[Place, int]) -> Kept:
        """And wait for the answer. Never raises for what a cluster does."""

    def identity(self) -> Any:
        """What a transactional producer of the same library takes for this member."""

    def close(self) -> None:
        """Give everything up, and leave the group."""


class Library(Protocol):
    """A module that drives a library's members."""

    version: str

    def member(self, order: Order, hearing: Hearing) -> Grouped:
        """One, subscribed."""


def load(client: str) -> Library:
    """The module that drives this library's members."""
    from importlib import import_module

    name = f"squall.chaos.drivers.members.with_{client.replace('-', '_')}"
    found: Library = import_module(name)
    return found
