"""Runs one member of the load: a sequence of processes of the history (Jepsen's logical processes), each of which joins
the group anew.

A process polls and commits what its polls returned. In between it does the actions that are due: it pauses, leaves or
crashes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace

import trio

from squall.broker.env import Env
from squall.workloads.control import DuplicateMember
from squall.workloads.group_progress import GroupProgress, OperationSchedule
from squall.workloads.groups.acts import CONVERT, CRASH, DELETE, HALT, LEAVE, OF_ALL, PAUSE, TWIN, GroupAction
from squall.workloads.groups.group_pause import EmptyGroupInterval, delete_group
from squall.workloads.library_abilities import CLASSIC, CONSUMER, MIXED
from squall.workloads.library_subscriber import LibrarySubscriber
from squall.workloads.scenario import ScenarioEnvironment, WorkloadFailed
from squall.workloads.subscriber import ON_CLOSE, Subscriber, SubscriberSettings

SUCCESSOR_PAUSE_S = 0.1
IMPOSSIBLE = (
    "INVALID_SESSION_TIMEOUT",
    "INVALID_GROUP_ID",
    "GROUP_AUTHORIZATION_FAILED",
    "UNSUPPORTED_VERSION",
    "UNSUPPORTED_ASSIGNOR",
)
"""Lists errors of a join that show that the workload's settings do not fit the cluster. Every other member would get
them too.
"""
TAKEN, RELEASED_LATER_S = "UNRELEASED_INSTANCE_ID", 0.5
"""`TAKEN` is the error of a process whose instance id still belongs to its predecessor: a consumer group (KIP-848) lets
even a crashed process keep the id until its session is over. The next process joins `RELEASED_LATER_S` seconds later.
"""
LAST_LIMIT_S = 3.0
"""Limits in seconds how long a member may take to commit and leave at the end of the load."""


class MemberSlot:
    """Runs one member of the group as a sequence of processes of the history: when one ends, a successor joins. It also
    runs duplicates: second processes with the member's group.instance.id.
    """

    def __init__(
        self,
        env: Env,
        around: ScenarioEnvironment,
        settings: SubscriberSettings,
        number: int,
        agenda: OperationSchedule[GroupAction],
        progress: GroupProgress,
        group_pause: EmptyGroupInterval,
        poll_pause_ms: int,
        foreign: Callable[..., LibrarySubscriber] = LibrarySubscriber,
    ) -> None:
        """Prepare the slot of the member with this number. `agenda` holds its planned actions. `foreign` is called to
        make a process that runs a client library instead of Squall's client.
        """
        self._foreign = foreign
        self._env, self._around, self._settings, self._number = env, around, settings, number
        self._agenda, self._progress, self._pause_s = agenda, progress, poll_pause_ms / 1000
        self._group_pause = group_pause
        self._handle = around.controls.readers[number]
        self._end = around.readers.may_end
        self._absent_s = 0.0
        self._duplicates: list[DuplicateMember] = []
        """Lists the second processes that a fault started beside the present process."""
        self._was_member = False
        """Is True once a process of this slot has been a member of the group. A later join error that looks like wrong
        settings (`IMPOSSIBLE`) is then the effect of a fault, and does not end the run.
        """

    async def run(self) -> None:
        """Run the member's processes one after another, until the harness lets readers end."""
        async with trio.open_nursery() as twins:
            while not self._end.is_set():
                self._absent_s = SUCCESSOR_PAUSE_S
                await self._run_until_crash(twins)
                await self._rest(max(self._absent_s, self._group_pause.until - self._env.mono()))

    async def _run_until_crash(self, twins: trio.Nursery) -> None:
        """Run one process until it ends or a fault crashes it. After a crash, wait until the fault allows a successor.
        Second processes with the same instance id run in the nursery `twins`, because they may outlive this process.
        """
        scope = trio.CancelScope()
        subscriber = self._subscriber(self._settings)
        process = subscriber.declare("reader", {"member": self._number})
        self._progress.begins(process)
        self._handle.began(process, scope, lambda: subscriber.group_identity)
        self._duplicates = []
        with self._handle.process_lifetime():
            with scope:
                await self._while_connected(subscriber, lambda: self._live(subscriber, twins, process))
            self._handle.over(scope)
            if scope.cancelled_caught:
                subscriber.crashed()
        for duplicate in self._duplicates:
            duplicate.error_first = subscriber.out
        self._was_member |= subscriber.was_member
        # Once a process was a member, the settings fit, and such an error comes from a fault.
        if subscriber.out in IMPOSSIBLE and not self._was_member:
            raise WorkloadFailed(f"no member can join the group: {subscriber.out}")
        if subscriber.out == TAKEN:
            self._absent_s = RELEASED_LATER_S
        if scope.cancelled_caught:
            await self._handle.until_replaceable(self._end)

    def _subscriber(self, settings: SubscriberSettings) -> Subscriber | LibrarySubscriber:
        around, zone = self._around, self._around.zone(self._number)
        settings = replace(settings, member=replace(settings.member, protocol=self._next_protocol()))
        if zone.driver is not None:
            return self._foreign(
                self._env, zone, zone.driver, around.recorder, around.counters, settings, self._progress.moved
            )
        return Subscriber(self._env, zone, around.recorder, around.counters, settings, self._progress.moved)

    def _next_protocol(self) -> str:
        """Return the group protocol of the next process. In a mixed group, neighbouring members begin with different
        protocols.
        """
        spoken = self._group_pause.protocol
        if spoken != MIXED:
            return spoken
        if not self._handle.processes:
            return (CLASSIC, CONSUMER)[self._number % 2]
        return self._env.rng.choice((CLASSIC, CONSUMER))

    async def _while_connected(
        self, subscriber: Subscriber | LibrarySubscriber, do: Callable[[], Awaitable[None]]
    ) -> None:
        """Start the subscriber's client, run `do`, and stop the client."""
        async with trio.open_nursery() as nursery:
            await nursery.start(subscriber.run)
            await do()
            nursery.cancel_scope.cancel()

    async def _live(self, subscriber: Subscriber | LibrarySubscriber, twins: trio.Nursery, process: int) -> None:
        """Poll and commit until the process leaves, crashes or loses its membership. If the harness lets readers end
        before that, cancel a poll in progress, commit and leave.
        """
        stays, born = True, self._group_pause.number
        async with trio.open_nursery() as nursery:
            # A poll may wait long for a coordinator: the end of the run cancels it.
            nursery.start_soon(self._cancel_at_end, nursery.cancel_scope)
            while stays and not subscriber.out:
                await self._until_released(subscriber)
                if self._group_pause.number != born:
                    stays = await self._leave_group(subscriber, SUCCESSOR_PAUSE_S)
                    continue
                self._agenda.skip(self._env.mono())
                # After the load, what is still to be done would keep the group from coming to rest.
                if self._agenda.due_at <= self._env.mono() and not self._around.stop.is_set():
                    stays = await self._act(self._agenda.take(), subscriber, twins)
                    continue
                self._handle.done += 1
                await subscriber.poll()
                await subscriber.commit_if_due()
                self._start_duplicate_if_wanted(subscriber, twins, process)
                await self._env.sleep(self._pause_s)
            nursery.cancel_scope.cancel()
        if subscriber.out:
            subscriber.hear()
        elif self._end.is_set() and stays:
            with self._env.timeout(LAST_LIMIT_S):
                await subscriber.commit(ON_CLOSE)
                await subscriber.leave()

    async def _until_released(self, subscriber: Subscriber | LibrarySubscriber) -> None:
        """Wait until no fault pauses the client. A client library that polls by itself is halted for that time."""
        stopped = self._handle.is_held and isinstance(subscriber, LibrarySubscriber) and subscriber.POLLS_BY_ITSELF
        if stopped:
            subscriber.halt(still=True)
        await self._handle.until_released(self._end)
        if stopped:
            subscriber.halt(still=False)

    async def _cancel_at_end(self, scope: trio.CancelScope) -> None:
        await self._end.wait()
        scope.cancel()

    async def _act(self, act: GroupAction, subscriber: Subscriber | LibrarySubscriber, twins: trio.Nursery) -> bool:
        """Do the action that is due. Return whether the process continues. Tasks that may outlive the process, such as
        a second process with the same instance id, run in the nursery `twins`.
        """
        for_s = act.number / 1000
        if act.do in (PAUSE, HALT):
            subscriber.record_pause(act.do, act.number)
            subscriber.halt(still=act.do == HALT)
            await self._rest(for_s)
            subscriber.halt(still=False)
        elif act.do == TWIN:
            twins.start_soon(self._run_duplicate, for_s)
        elif act.do in OF_ALL:
            self._make_all_leave(act, twins)
        elif act.do == LEAVE:
            return await self._leave_group(subscriber, for_s)
        else:
            assert act.do == CRASH, act
            subscriber.crashed()
            self._absent_s = for_s
            return False
        return True

    async def _leave_group(self, subscriber: Subscriber | LibrarySubscriber, for_s: float) -> bool:
        """Leave the group in good order, to come back after `for_s` seconds. Return False: the process does not
        continue.
        """
        with self._env.timeout(LAST_LIMIT_S):
            await subscriber.leave()
        self._absent_s = for_s
        return False

    def _make_all_leave(self, act: GroupAction, others: trio.Nursery) -> None:
        """Begin an interval in which all members leave the group, this one included. `act` may also convert the group
        to the other protocol, or delete the group. The deletion runs as a task in the nursery `others`.
        """
        until = self._env.mono() + act.number / 1000
        self._group_pause.begins(until)
        if act.do == CONVERT:
            self._group_pause.converts()
        elif act.do == DELETE:
            group, client = self._settings.member.group, self._settings.client
            others.start_soon(delete_group, self._env, self._around, client, group, until)

    def _start_duplicate_if_wanted(
        self, subscriber: Subscriber | LibrarySubscriber, twins: trio.Nursery, process: int
    ) -> None:
        """Start a duplicate of `process`, the present process, in the nursery `twins` if a fault wants one. Nothing is
        started before the present process has a member id: without one it could not be fenced.
        """
        if subscriber.is_member and subscriber.group_identity.member_id:
            duplicate = self._handle.begin_duplicate(process)
            if duplicate is not None:
                duplicate.fencings_first = subscriber.fencings
                self._duplicates.append(duplicate)
                twins.start_soon(self._run_duplicate, math.inf, duplicate)

    async def _run_duplicate(self, for_s: float, duplicate: DuplicateMember | None = None) -> None:
        """Run a second process with the same group.instance.id for a while: it takes over the id, and the first process
        is fenced.

        `duplicate` records the result for the fault that asked for this process, and says when to stop it; None if the
        load itself planned it.
        """
        subscriber = self._subscriber(self._settings)
        duplicate = duplicate or DuplicateMember()
        duplicate.second = subscriber.declare("reader", {"member": self._number, "twin": True})
        duplicate.fencings_second = subscriber.fencings
        until, born = self._env.mono() + for_s, self._group_pause.number

        async def live() -> None:
            while self._env.mono() < until and not self._end.is_set() and not subscriber.out:
                if self._group_pause.number != born or duplicate.stop_requested.is_set():
                    break
                await subscriber.poll()
                await subscriber.commit_if_due()
                await self._env.sleep(self._pause_s)

        with self._handle.process_lifetime():
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_at_end, scope)
                    await self._while_connected(subscriber, live)
                    nursery.cancel_scope.cancel()
            duplicate.error_second, duplicate.over = subscriber.out, True
            subscriber.hear()
            subscriber.crashed()

    async def _rest(self, for_s: float) -> None:
        """Wait for `for_s` seconds, but at most until the harness lets readers end."""
        with self._env.timeout(for_s):
            await self._end.wait()


def of_member(settings: SubscriberSettings, instance: str) -> SubscriberSettings:
    """Return a copy of the settings for the member with the group.instance.id `instance`, which is empty for a dynamic
    member.
    """
    return replace(settings, member=replace(settings.member, instance=instance))
