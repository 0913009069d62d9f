"""Crashes and pauses a workload's clients from outside, for fault injection.

A client is one of the workload's producers or readers; a producer's processes follow one another. A crash takes the
process that is handing records over, without a close: records without an answer stay without an outcome. A pause is the
application's: nothing is handed over or polled, while its library's connections live on, as in a long garbage
collection of a program whose network thread keeps running. A zombie pauses inside a transaction until another process
has taken over its transactional id, and continues as if nothing had happened. A client that is a member of a group may
get a duplicate: a second process with its instance id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import trio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.workloads.client.cluster import Address
    from squall.workloads.client.new_topic import NewTopic
    from squall.workloads.recorder import Recorder


@dataclass(slots=True)
class ZombieRun:
    """Holds what became of one zombie and of its successors. Process ids are the history's, -1 until there is one."""

    zombie: int = -1
    """The process that stands still inside a transaction."""
    successor: int = -1
    """The first process that got the same transactional id after that."""
    transactions: int = 0
    """That successors have ended as they asked to, before the zombie was woken."""
    early: int = 0
    """What the zombie began while it should have stood still."""
    sends: int = 0
    """Records that it handed over after it was woken."""
    ends: int = 0
    """Ends of its transaction that it then asked for."""
    results: list[str] = field(default_factory=list)
    """How these came out: ok, or the error."""
    woken: bool = False
    over: bool = False
    """It has done everything, and ended."""

    def tries(self, *, end: bool = False) -> None:
        """The zombie hands a record over, or asks for the end."""
        if not self.woken:
            self.early += 1
        elif end:
            self.ends += 1
        else:
            self.sends += 1


@dataclass(slots=True)
class DuplicateMember:
    """A second process with the instance id of a member. Process ids are the history's, -1 until there is one."""

    first: int = -1
    """The process that had the instance id."""
    second: int = -1
    error_first: str = ""
    """The error that ended the membership of the first; empty while nothing did."""
    error_second: str = ""
    fencings_first: Sequence[str] = ()
    """Errors by which a coordinator told it that another process has its instance id, each as often as it was told.
    They grow while it lives.
    """
    fencings_second: Sequence[str] = ()
    stop_requested: trio.Event = field(default_factory=trio.Event)
    """The second is to go."""
    over: bool = False
    """It has gone."""


class GroupIdentity(NamedTuple):
    """As whom a coordinator knows a process."""

    group: str = ""
    member_id: str = ""
    """Empty: as nobody, up to now."""
    instance: str = ""
    owns: bool = False
    """It has partitions."""


class ClientHandle:
    """Represents one client. `done` counts what it began: records handed over, or polls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done = 0
        self.processes: list[int] = []
        """Process ids of the history, in the order in which they began."""
        self._scope: trio.CancelScope | None = None
        self._held: set[int] = set()
        self._down: set[int] = set()
        self._changed = trio.Event()
        self._lives = self._resting = 0
        self._ever_lived = False
        self._zombie_runs: dict[int, ZombieRun] = {}
        self._duplicates: dict[int, DuplicateMember] = {}
        self.group_identity: Callable[[], GroupIdentity] = GroupIdentity
        """As whom its present process is a member of a group. The client sets it."""
        self.notify: Callable[[], None] = lambda: None
        """Called when the client has to look what is wanted of it. The client sets it."""

    # ------------------------------------------------------------------ from outside

    def hold(self, who: int) -> None:
        """It stands still, until everybody who holds it has let it go."""
        self._held.add(who)

    def let_go(self, who: int) -> None:
        """It may go on, if nobody else holds it."""
        self._held.discard(who)
        self._wake_waiters()

    @property
    def at_rest(self) -> bool:
        """It has no process, or one that is paused: nothing is under way, and all that became of it is recorded.
        False of clients that do not report their lives.
        """
        return self._ever_lived and self._lives == self._resting

    @property
    def alive(self) -> bool:
        """It has a process, which could crash."""
        return self._scope is not None

    def crash(self, who: int) -> int | None:
        """Its process is gone, and has no successor until `replace`. The process; None where there is none just now."""
        if self._scope is None:
            return None
        self._down.add(who)
        self._scope.cancel()
        self._scope = None
        return self.processes[-1]

    def replace(self, who: int) -> None:
        """It may have a successor."""
        self._down.discard(who)
        self._wake_waiters()

    def make_zombie(self, who: int) -> ZombieRun:
        """Its next process becomes a zombie: it stands still inside a transaction, until `wake`."""
        found = self._zombie_runs[who] = ZombieRun()
        self.notify()
        self._wake_waiters()
        return found

    def wake(self, who: int) -> None:
        """The zombie goes on. Where none stands still yet, none will."""
        zombie_run = self._zombie_runs.pop(who, None)
        if zombie_run is not None:
            zombie_run.woken = True
        self._wake_waiters()

    def start_duplicate(self, who: int) -> DuplicateMember:
        """A second process with its instance id begins, and stays until `stop_duplicate`."""
        found = self._duplicates[who] = DuplicateMember()
        return found

    def stop_duplicate(self, who: int) -> None:
        """The second process is to go. Where none has begun yet, none will."""
        double = self._duplicates.pop(who, None)
        if double is not None:
            double.stop_requested.set()

    # ------------------------------------------------------------------ of the client

    def begin_duplicate(self, process: int) -> DuplicateMember | None:
        """The second process that is to begin beside this one, which has the instance id. Told once."""
        double = next((each for each in self._duplicates.values() if each.first < 0), None)
        if double is not None:
            double.first = process
        return double

    @property
    def pending_zombie(self) -> ZombieRun | None:
        """The zombie that the client's next process is to become."""
        return next((zombie_run for zombie_run in self._zombie_runs.values() if zombie_run.zombie < 0), None)

    @property
    def has_paused_zombie(self) -> bool:
        """Return whether a zombie is paused and its successor has done nothing yet: the successor should not wait for
        anything.
        """
        return any(zombie_run.zombie >= 0 and not zombie_run.transactions for zombie_run in self._zombie_runs.values())

    async def until_zombie_wanted(self, end: trio.Event) -> None:
        """Until its next process is to become a zombie, or all is over."""
        await self._until(lambda: self.pending_zombie is not None, end)

    def took_over(self, process: int) -> None:
        """A process of this client has got the transactional id."""
        for zombie_run in self._zombie_runs.values():
            if zombie_run.zombie >= 0 > zombie_run.successor and process != zombie_run.zombie:
                zombie_run.successor = process

    def transaction_ended(self) -> None:
        """A process that is no zombie has ended a transaction as it asked to."""
        for zombie_run in self._zombie_runs.values():
            if zombie_run.successor >= 0:
                zombie_run.transactions += 1

    async def until_woken(self, zombie_run: ZombieRun, process: int, end: trio.Event) -> None:
        """The zombie's: until it is woken, or all is over."""
        zombie_run.zombie = process
        await self._until(lambda: zombie_run.woken, end)
        zombie_run.woken = True

    def began(
        self, process: int, scope: trio.CancelScope, group_identity: Callable[[], GroupIdentity] = GroupIdentity
    ) -> None:
        """A process of this client begins, and ends where the scope is cancelled."""
        self.processes.append(process)
        self.group_identity = group_identity
        self._scope = scope

    @contextmanager
    def process_lifetime(self) -> Iterator[None]:
        """A process lives, until nothing is left to be recorded of it."""
        self._lives, self._ever_lived = self._lives + 1, True
        try:
            yield
        finally:
            self._lives -= 1

    def over(self, scope: trio.CancelScope) -> None:
        """The process hands nothing over any more: it cannot crash."""
        if self._scope is scope:
            self._scope = None

    @property
    def is_held(self) -> bool:
        """Return whether it is to stand still now."""
        return bool(self._held)

    async def until_released(self, end: trio.Event) -> None:
        """Until nobody holds it, or all is over."""
        self._resting += 1
        try:
            await self._until(lambda: not self._held, end)
        finally:
            self._resting -= 1

    async def until_replaceable(self, end: trio.Event) -> None:
        """Until it may have a successor, or all is over."""
        await self._until(lambda: not self._down, end)

    async def _until(self, true: Callable[[], bool], end: trio.Event) -> None:
        while not true() and not end.is_set():
            async with trio.open_nursery() as nursery:
                changed = self._changed

                async def wait(event: trio.Event) -> None:
                    await event.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(wait, changed)
                nursery.start_soon(wait, end)

    def _wake_waiters(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


@dataclass(frozen=True, slots=True)
class AdminLog:
    """Records the topic changes that an administrator requests while topics are used: the checkers need them."""

    topics: Sequence[NewTopic]
    """The workload's."""
    recorder: Recorder
    bootstrap: Sequence[Address]
    turns: dict[tuple[str, str], trio.Lock] = field(default_factory=dict)
    """By topic and setting: held while it is altered, until it has its old value again. Without a setting: held
    by requests that must not hit the next topic of that name.
    """


class LoadControls:
    """A workload's clients, by their numbers."""

    desk: AdminLog | None = None
    """None: of a load that nobody records."""

    def __init__(
        self,
        producers: int,
        readers: int,
        zombies: Sequence[int] = (),
        members: Sequence[str] = (),
        named: Sequence[int] = (),
    ) -> None:
        """`zombies`: numbers of the producers of which zombies can be made. `members`: which clients are members of
        groups, as `reader:0`. `named`: numbers of the members that have an instance id.
        """
        self.producers = [ClientHandle(f"producer {number}") for number in range(producers)]
        self.zombies = tuple(zombies)
        self.readers = [ClientHandle(f"reader {number}") for number in range(readers)]
        self.members = [self._client(each) for each in members]
        self.named = tuple(named)

    def _client(self, called: str) -> ClientHandle:
        kind, _, number = called.partition(":")
        return (self.producers if kind == "producer" else self.readers)[int(number)]
