"""Crashes and pauses a workload's clients from outside, for fault injection.

A client is one of the workload's producers or readers. Over time it has several processes (logical processes, in
Jepsen's sense): when one ends, a successor begins. A crash ends the present process without a close: records without an
answer stay without an outcome. A pause stops the application: nothing is sent or polled, while the connections of its
library stay open, as in a long garbage collection of a program whose network thread keeps running. A zombie pauses
inside a transaction until another process has taken over its transactional id, and then continues as if nothing had
happened. A client that is a member of a group may get a duplicate: a second process with the same group.instance.id.
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
    """Records what one zombie process does, and what its successors do meanwhile. Process ids are those of the history,
    -1 until the process exists.
    """

    zombie: int = -1
    """Identifies the process that is paused inside a transaction."""
    successor: int = -1
    """Identifies the first process that got the same transactional id after the zombie had paused."""
    transactions: int = 0
    """Counts the transactions that successors ended as intended before the zombie was woken."""
    early: int = 0
    """Counts the operations that the zombie began while it should have been paused."""
    sends: int = 0
    """Counts the records that the zombie sent after it was woken."""
    ends: int = 0
    """Counts the requests of the woken zombie to commit or abort its transaction."""
    results: list[str] = field(default_factory=list)
    """Holds the result of each send and end of the woken zombie: `ok` or the error."""
    woken: bool = False
    over: bool = False
    """Is True once the zombie's process has ended."""

    def tries(self, *, end: bool = False) -> None:
        """Count a send of the zombie, or a request to end its transaction if `end`."""
        if not self.woken:
            self.early += 1
        elif end:
            self.ends += 1
        else:
            self.sends += 1


@dataclass(slots=True)
class DuplicateMember:
    """Records what happened to a member and to a second process with the member's group.instance.id. Process ids are
    those of the history, -1 until the process exists.
    """

    first: int = -1
    """Identifies the process that had the instance id first."""
    second: int = -1
    error_first: str = ""
    """Holds the error that ended the membership of the first process; empty while no error did."""
    error_second: str = ""
    fencings_first: Sequence[str] = ()
    """Lists the errors by which a coordinator fenced the first process because another process has its instance id,
    each as often as it was received. The list grows while the process lives.
    """
    fencings_second: Sequence[str] = ()
    stop_requested: trio.Event = field(default_factory=trio.Event)
    """Is set when the second process is to leave."""
    over: bool = False
    """Is True once the second process has ended."""


@dataclass(slots=True)
class LoadKill:
    """Records the kill of a load's driver or of one of its executors. Process ids are those of the history, -1 until
    the process exists.
    """

    moment: str
    """Names what the process does when it is killed (`squall.workloads.kill_moments`)."""
    place: str = ""
    """Names which process of the load is killed: `driver`, or an executor, such as `executor 1`."""
    process: int = -1
    batch: int = -1
    """Is the number of the batch that the kill hits."""
    followed_by: int = -1
    """Identifies the next process at the same place."""


class LoadHandle:
    """Lets faults kill the driver and the executors of one load. Several faults may do so at once: `holder` in the
    methods is the id of the fault that calls. A batch is hit once at most: on slow brokers a batch that is hit again
    and again would look like a stuck reader.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._pending: dict[int, LoadKill] = {}
        self._without_successor: list[LoadKill] = []
        self._last_batch = -1

    def kill(self, holder: int, moment: str) -> LoadKill:
        """Request a kill for the fault `holder`: the next process that comes to the moment dies."""
        found = self._pending[holder] = LoadKill(moment)
        return found

    def withdraw(self, holder: int) -> None:
        """Withdraw the fault's kill, unless it has hit already."""
        self._pending.pop(holder, None)

    def dies(self, moment: str, place: str, process: int, batch: int) -> bool:
        """Return whether the process at this place of the load dies now. The load ends it then."""
        holder = next((holder for holder, kill in self._pending.items() if kill.moment == moment), None)
        if holder is None or batch == self._last_batch:
            return False
        kill = self._pending.pop(holder)
        kill.place, kill.process, kill.batch, self._last_batch = place, process, batch, batch
        self._without_successor.append(kill)
        return True

    def began(self, place: str, process: int) -> None:
        """Note that a process begins at this place of the load."""
        for kill in self._without_successor:
            kill.followed_by = process if kill.place == place else -1
        self._without_successor = [kill for kill in self._without_successor if kill.followed_by < 0]


class GroupIdentity(NamedTuple):
    """Identifies a client's present process to a group coordinator: group, member id and instance id."""

    group: str = ""
    member_id: str = ""
    """Holds the member id; empty if the process has none yet."""
    instance: str = ""
    owns: bool = False
    """Is True if the member owns partitions."""


class ClientHandle:
    """Lets faults pause, crash and duplicate one client of the workload. `done` counts the records that a producer has
    sent, or the polls of a reader. Several faults may act on the client at once: `holder` in the methods is the id of
    the fault that calls.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.done = 0
        self.processes: list[int] = []
        """Lists the client's process ids in the history, in the order in which the processes began."""
        self._scope: trio.CancelScope | None = None
        self._held: set[int] = set()
        self._down: set[int] = set()
        self._changed = trio.Event()
        self._lives = self._resting = 0
        self._ever_lived = False
        self._zombie_runs: dict[int, ZombieRun] = {}
        self._duplicates: dict[int, DuplicateMember] = {}
        self.group_identity: Callable[[], GroupIdentity] = GroupIdentity
        """Returns the group membership of the present process. The client sets this callable."""
        self.notify: Callable[[], None] = lambda: None
        """Wakes the client, so that it checks whether a fault wants something of it. The client sets this callable."""

    # ------------------------------------------------------------------ from outside

    def hold(self, holder: int) -> None:
        """Pause the client until every fault that holds it has called `let_go`."""
        self._held.add(holder)

    def let_go(self, holder: int) -> None:
        """End this fault's pause; the client continues if no other fault pauses it."""
        self._held.discard(holder)
        self._wake_waiters()

    @property
    def at_rest(self) -> bool:
        """Is True if no process of the client runs, or all are paused, so that nothing is in flight and every outcome
        is recorded. Is False for clients that do not report when their processes live (`process_lifetime`).
        """
        return self._ever_lived and self._lives == self._resting

    @property
    def alive(self) -> bool:
        """Is True if the client has a process that could crash."""
        return self._scope is not None

    def crash(self, holder: int) -> int | None:
        """Crash the client's process for the fault `holder`. No successor begins until `replace`. Return the process
        id, or None if the client has no process just now.
        """
        if self._scope is None:
            return None
        self._down.add(holder)
        self._scope.cancel()
        self._scope = None
        return self.processes[-1]

    def replace(self, holder: int) -> None:
        """End the crash by the fault `holder`. A successor of the process begins if no other fault keeps the client
        crashed.
        """
        self._down.discard(holder)
        self._wake_waiters()

    def make_zombie(self, holder: int) -> ZombieRun:
        """Request a zombie for the fault `holder`: the client's next process pauses inside a transaction until `wake`,
        while a successor takes over its transactional id.
        """
        found = self._zombie_runs[holder] = ZombieRun()
        self.notify()
        self._wake_waiters()
        return found

    def wake(self, holder: int) -> None:
        """Wake this fault's zombie. If none has paused yet, the request for a zombie is withdrawn."""
        zombie_run = self._zombie_runs.pop(holder, None)
        if zombie_run is not None:
            zombie_run.woken = True
        self._wake_waiters()

    def start_duplicate(self, holder: int) -> DuplicateMember:
        """Request a duplicate for the fault `holder`: a second process with the client's group.instance.id, which runs
        until `stop_duplicate`.
        """
        found = self._duplicates[holder] = DuplicateMember()
        return found

    def stop_duplicate(self, holder: int) -> None:
        """Cancel the duplicate of the fault `holder`: a running duplicate ends soon, and a duplicate that has not begun
        never will.
        """
        double = self._duplicates.pop(holder, None)
        if double is not None:
            double.stop_requested.set()

    # ------------------------------------------------------------------ of the client

    def begin_duplicate(self, process: int) -> DuplicateMember | None:
        """Return the record of a duplicate that a fault has requested, or None. Each requested duplicate is returned
        only once. `process` is the running process whose instance id the duplicate takes over.
        """
        double = next((each for each in self._duplicates.values() if each.first < 0), None)
        if double is not None:
            double.first = process
        return double

    @property
    def pending_zombie(self) -> ZombieRun | None:
        """Returns the record of a zombie that a fault has requested and that has not paused yet; None if there is none.
        """
        return next((zombie_run for zombie_run in self._zombie_runs.values() if zombie_run.zombie < 0), None)

    @property
    def has_paused_zombie(self) -> bool:
        """Is True if a zombie is paused and its successor has ended no transaction yet. The successor should then do a
        transaction at once.
        """
        return any(zombie_run.zombie >= 0 and not zombie_run.transactions for zombie_run in self._zombie_runs.values())

    async def until_zombie_wanted(self, end: trio.Event) -> None:
        """Wait until a fault has requested a zombie (`make_zombie`), or until `end` is set."""
        await self._until(lambda: self.pending_zombie is not None, end)

    def took_over(self, process: int) -> None:
        """Note that this process of the client has got the transactional id."""
        for zombie_run in self._zombie_runs.values():
            if zombie_run.zombie >= 0 > zombie_run.successor and process != zombie_run.zombie:
                zombie_run.successor = process

    def transaction_ended(self) -> None:
        """Note that a process other than the zombie has committed or aborted a transaction as intended."""
        for zombie_run in self._zombie_runs.values():
            if zombie_run.successor >= 0:
                zombie_run.transactions += 1

    async def until_woken(self, zombie_run: ZombieRun, process: int, end: trio.Event) -> None:
        """Pause the zombie until it is woken, or until `end` is set."""
        zombie_run.zombie = process
        await self._until(lambda: zombie_run.woken, end)
        # Also at the end of the load, or what the zombie does from now on would count as too early.
        zombie_run.woken = True

    def began(
        self, process: int, scope: trio.CancelScope, group_identity: Callable[[], GroupIdentity] = GroupIdentity
    ) -> None:
        """Note that a process of this client begins. Cancelling `scope` crashes the process."""
        self.processes.append(process)
        self.group_identity = group_identity
        self._scope = scope

    @contextmanager
    def process_lifetime(self) -> Iterator[None]:
        """Count one more living process inside this context. The caller records every outcome of the process before it
        leaves the context.
        """
        self._lives, self._ever_lived = self._lives + 1, True
        try:
            yield
        finally:
            self._lives -= 1

    def over(self, scope: trio.CancelScope) -> None:
        """Note that the process with this cancel scope sends nothing any more. From then on `crash` leaves the process
        alone.
        """
        if self._scope is scope:
            self._scope = None

    @property
    def is_held(self) -> bool:
        """Is True while a fault pauses the client."""
        return bool(self._held)

    async def until_released(self, end: trio.Event) -> None:
        """Wait until no fault pauses the client, or until `end` is set."""
        self._resting += 1
        try:
            await self._until(lambda: not self._held, end)
        finally:
            self._resting -= 1

    async def until_replaceable(self, end: trio.Event) -> None:
        """Wait until each fault that crashed the client allows a successor (`replace`), or until `end` is set."""
        await self._until(lambda: not self._down, end)

    async def _until(self, true: Callable[[], bool], end: trio.Event) -> None:
        while not true() and not end.is_set():
            async with trio.open_nursery() as nursery:
                # Each change replaces the event, so each wait takes the present one.
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
    """Records in the history the topic changes that an administrator requests during the load: the checkers need them.
    """

    topics: Sequence[NewTopic]
    """Lists the workload's topics."""
    recorder: Recorder
    bootstrap: Sequence[Address]
    turns: dict[tuple[str, str], trio.Lock] = field(default_factory=dict)
    """Maps (topic, setting) to a lock. A fault that changes the setting holds the lock until the old value is restored.
    Under (topic, "") is the lock of the topic's name. It is held while a request that names the topic is sent, so that
    the request cannot hit a later topic of the same name.
    """


class LoadControls:
    """Holds the handles through which faults act on a workload's producers and readers, by client number."""

    admin_log: AdminLog | None = None
    """Records topic changes; None if the load is not recorded."""

    def __init__(
        self,
        producers: int,
        readers: int,
        zombies: Sequence[int] = (),
        members: Sequence[str] = (),
        named: Sequence[int] = (),
        loads: int = 0,
    ) -> None:
        """Create the handles. `zombies` lists the producers that can become zombies, `members` the clients that are
        members of groups (as `reader:0`), and `named` the members that have an instance id. `loads` counts the loads.
        """
        self.producers = [ClientHandle(f"producer {number}") for number in range(producers)]
        self.zombies = tuple(zombies)
        self.readers = [ClientHandle(f"reader {number}") for number in range(readers)]
        self.members = [self._client(each) for each in members]
        self.named = tuple(named)
        self.loads = [LoadHandle(f"load {number}") for number in range(loads)]

    def _client(self, called: str) -> ClientHandle:
        kind, _, number = called.partition(":")
        return (self.producers if kind == "producer" else self.readers)[int(number)]
