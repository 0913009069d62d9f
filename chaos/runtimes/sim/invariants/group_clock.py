"""Records when members of groups send requests, and derives from this by when their coordinators must act."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from squall.broker.coordinators.groups.values import GroupState
from squall.chaos.runtimes.sim.invariants.group_times import (
    GroupTimeouts,
    MemberTimes,
    MovedRevocation,
    RebalanceTimes,
    RevocationTimes,
    ShortSession,
)

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.classic import ClassicGroup
    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
    from squall.broker.coordinators.groups.shard import GroupCoordinatorShard

REBALANCES: Final = frozenset({GroupState.PREPARING, GroupState.COMPLETING})


class MemberRequestTimes:
    """Records when each member of one shard's groups last sent a request, in ms of the coordinator's monotonic clock.
    """

    __slots__ = (
        *("_asked", "_deadlines", "_followed_ms", "_forgiven_ms", "_heard", "_is_consumer"),
        *("_moved", "_rebalances", "_revoking", "_short"),
    )

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, int]] = {}
        """Maps a group and a member id to the time of the member's last request."""
        self._is_consumer: dict[str, bool] = {}
        """Maps a group to True if it was a consumer group (KIP-848) when it was last observed, else to False."""
        self._rebalances: dict[str, tuple[int, RebalanceTimes]] = {}
        """Maps a group to the generation and the times of its rebalance."""
        self._forgiven_ms = -1
        """Is when all time-outs were restarted last, on the node's clock; -1 if they never were."""
        self._revoking: dict[str, dict[str, tuple[int, int, RevocationTimes]]] = {}
        """Maps a group and a member id to (member epoch in which the coordinator asked the member to revoke partitions,
        its present deadline, the `RevocationTimes` of that request).
        """
        self._moved: dict[str, list[MovedRevocation]] = {}
        """Maps a group to the revocations whose deadline has moved since `times` was last called."""
        self._asked: dict[str, list[RevocationTimes]] = {}
        """Maps a group to the revocations that its coordinator has asked for since `times` was last called."""
        self._followed_ms: dict[str, int] = {}
        """Maps a group to the time when its members and deadlines were last observed (by `follow`)."""
        self._deadlines: dict[str, dict[str, MemberTimes]] = {}
        """Maps a group and a member id to the member's times when the group was last observed (by `follow`). If the
        deadline is another one now, the coordinator has set a new deadline since.
        """
        self._short: dict[str, list[ShortSession]] = {}
        """Maps a group to the deadlines, set since `times` was last called, that give a member less than its session
        time-out.
        """

    def heard(self, shard: GroupCoordinatorShard, group_id: str, member_id: str, now_ms: int) -> None:
        """Record that a member has sent a request."""
        known = self._heard.setdefault(group_id, {})
        if member_id in known:
            known[member_id] = now_ms
        self.follow(shard, group_id, now_ms)

    def follow(self, shard: GroupCoordinatorShard, group_id: str, now_ms: int) -> None:
        """Observe a group's members and deadlines, and record what has changed since the last call. A new member, and a
        member that waits for an answer, count as having sent a request now. So do all members of a group that has
        changed its protocol, because their sessions begin anew (KIP-848).
        """
        members, waiting = _members_of(shard, group_id)
        is_consumer = group_id in shard.ledger.consumers
        known = self._heard.get(group_id, {}) if is_consumer == self._is_consumer.get(group_id, is_consumer) else {}
        self._is_consumer[group_id] = is_consumer
        self._heard[group_id] = {one: now_ms if one in waiting else known.get(one, now_ms) for one in members}
        if is_consumer:
            self._follow_revocations(shard, group_id, now_ms)
        self._follow_deadlines(shard, group_id, now_ms)
        self._followed_ms[group_id] = now_ms

    def _follow_revocations(self, shard: GroupCoordinatorShard, group_id: str, now_ms: int) -> None:
        members, sessions = shard.ledger.consumers[group_id].members, shard.consumers._sessions.get(group_id)
        before, revoking = self._revoking.pop(group_id, {}), {}
        for member_id, (epoch, until_ms) in () if sessions is None else sessions._revoking.items():
            was_epoch, was_ms, times = before.get(member_id, (-1, -1, None))
            if epoch != was_epoch or times is None:
                rebalance_ms = members[member_id].rebalance_ms if member_id in members else 0
                earliest_ms = self._followed_ms.get(group_id, until_ms - rebalance_ms)
                times = RevocationTimes(member_id, earliest_ms, now_ms, until_ms, rebalance_ms)
                self._asked.setdefault(group_id, []).append(times)
            # A deadline that has passed may be set anew.
            elif until_ms != was_ms > now_ms:
                self._moved.setdefault(group_id, []).append(MovedRevocation(member_id, epoch, was_ms, until_ms))
            revoking[member_id] = epoch, until_ms, times
        if revoking:
            self._revoking[group_id] = revoking

    def _follow_deadlines(self, shard: GroupCoordinatorShard, group_id: str, now_ms: int) -> None:
        """Record the session deadlines that are too early, among those that the coordinator has set since the last call
        of `follow`. A deadline is too early if it is before the time of that call plus the member's session time-out.
        """
        before, followed_ms = self._deadlines.get(group_id, {}), self._followed_ms.get(group_id)
        members = self._deadlines[group_id] = {each.member_id: each for each in self._members(shard, group_id)}
        if followed_ms is None:
            return
        for member_id, each in members.items():
            was = before.get(member_id)
            if each.deadline_ms is None or each.waits or (was is not None and was.deadline_ms == each.deadline_ms):
                continue
            # A member whose removal could not be written is removed a little later.
            if was is not None and was.deadline_ms is not None and was.deadline_ms <= now_ms:
                continue
            earliest_ms = followed_ms + min(each.session_ms, each.session_ms if was is None else was.session_ms)
            if each.deadline_ms < earliest_ms:
                short = ShortSession(member_id, each.deadline_ms, earliest_ms)
                self._short.setdefault(group_id, []).append(short)

    def forgive(self, shard: GroupCoordinatorShard, now_ms: int) -> None:
        """Restart all time-outs now, because the coordinator could not act on them: it could not write to its log, or
        was not running.
        """
        for kept in (self._rebalances, self._moved, self._revoking, self._asked, self._followed_ms, self._short):
            kept.clear()
        self._forgiven_ms = now_ms
        for group_id in (*shard.groups, *shard.ledger.consumers):
            self._heard[group_id] = dict.fromkeys(_members_of(shard, group_id)[0], now_ms)

    def times(self, shard: GroupCoordinatorShard, now_ms: int) -> Iterator[GroupTimeouts]:
        """Yield the deadlines and time-outs of each group of the shard."""
        moved, asked, short = self._moved, self._asked, self._short
        self._moved, self._asked, self._short = {}, {}, {}
        for group_id in dict.fromkeys((*shard.groups, *shard.ledger.consumers)):
            self.follow(shard, group_id, now_ms)
            classic, consumer = shard.groups.get(group_id), shard.ledger.consumers.get(group_id)
            if consumer is None and classic is None:
                continue
            members = self._members(shard, group_id)
            found = GroupTimeouts(group_id, now_ms, shard.deadline_of(group_id), members, None, None)
            if consumer is not None:
                # A revocation has an absolute deadline, which may have passed while the coordinator could not act.
                revoking = tuple(
                    times._replace(deadline_ms=max(times.deadline_ms, self._forgiven_ms))
                    for _, _, times in self._revoking.get(group_id, {}).values()
                )
                asked_now = tuple(asked.get(group_id, ()))
                found = found._replace(moved=tuple(moved.get(group_id, ())), revoking=revoking, asked=asked_now)
            elif classic is not None:
                found = found._replace(leader=classic.leader, rebalance=self._rebalance(classic, now_ms))
            yield found._replace(short=tuple(short.get(group_id, ())))

    def _members(self, shard: GroupCoordinatorShard, group_id: str) -> tuple[MemberTimes, ...]:
        """Return the times of a group's members."""
        classic, consumer = shard.groups.get(group_id), shard.ledger.consumers.get(group_id)
        if consumer is not None:
            return self._of_consumers(shard, consumer)
        return () if classic is None else self._of_classics(classic)

    def _of_classics(self, group: ClassicGroup) -> tuple[MemberTimes, ...]:
        heard = self._heard[group.group_id]
        return tuple(
            MemberTimes(name, each.deadline_ms, waits(each), heard[name], each.session_ms)
            for name, each in group.members.items()
        )

    def _of_consumers(self, shard: GroupCoordinatorShard, group: ConsumerGroup) -> tuple[MemberTimes, ...]:
        heard, sessions = self._heard[group.group_id], shard.consumers._sessions.get(group.group_id)
        deadlines: dict[str, int] = {} if sessions is None else sessions._sessions
        own_ms = shard.settings.own_session_ms(group.group_id)
        session_ms = shard.settings.consumer_session_ms if own_ms is None else own_ms
        return tuple(
            MemberTimes(
                name, deadlines.get(name), False, heard[name], each.classic.session_ms if each.classic else session_ms
            )
            for name, each in group.members.items()
        )

    def _rebalance(self, group: ClassicGroup, now_ms: int) -> RebalanceTimes | None:
        """Return the group's present rebalance. None if there is none, or if it waits only for the sessions of static
        members.
        """
        members = group.members.values()
        if group.state not in REBALANCES or all(each.instance_id and each.joining is None for each in members):
            self._rebalances.pop(group.group_id, None)
            return None
        longest_ms = max(each.rebalance_ms for each in members)
        found = RebalanceTimes(str(group.state), now_ms, longest_ms)
        generation, known = self._rebalances.get(group.group_id, (-1, found))
        if generation == group.generation and known.state == found.state:
            found = known._replace(longest_ms=max(known.longest_ms, longest_ms))
        self._rebalances[group.group_id] = group.generation, found
        return found


def waits(member: Any) -> bool:
    """Return whether a classic group's member waits for the coordinator's answer to a JoinGroup or SyncGroup."""
    return member.joining is not None or member.syncing is not None


def _members_of(shard: GroupCoordinatorShard, group_id: str) -> tuple[list[str], set[str]]:
    """Return the ids of a group's members, and of those members that wait for an answer of the coordinator."""
    consumer, classic = shard.ledger.consumers.get(group_id), shard.groups.get(group_id)
    if consumer is not None:
        return list(consumer.members), set()
    if classic is None:
        return [], set()
    return list(classic.members), {name for name, each in classic.members.items() if waits(each)}
