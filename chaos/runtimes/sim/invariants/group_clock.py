"""Records when members of groups send requests, and derives from this by when their coordinators must act."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from squall.broker.coordinators.groups.values import GroupState
from squall.chaos.runtimes.sim.invariants.group_times import GroupTimeouts, MemberTimes, MovedRevocation, RebalanceTimes

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.classic import ClassicGroup
    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
    from squall.broker.coordinators.groups.shard import GroupCoordinatorShard

REBALANCES: Final = frozenset({GroupState.PREPARING, GroupState.COMPLETING})


class MemberRequestTimes:
    """Records when each member of one shard's groups last sent a request, in ms of the coordinator's monotonic clock.
    """

    __slots__ = ("_heard", "_is_consumer", "_moved", "_rebalances", "_revoking")

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, int]] = {}
        """Maps a group and a member id to the time of the member's last request."""
        self._is_consumer: dict[str, bool] = {}
        """Maps a group to True if it was a consumer group (KIP-848) at the last call of `follow`."""
        self._rebalances: dict[str, tuple[int, RebalanceTimes]] = {}
        """Maps a group to the generation and the times of its rebalance."""
        self._revoking: dict[str, dict[str, tuple[int, int]]] = {}
        """Maps a group and a member id to (member epoch in which the member was asked to revoke partitions, deadline).
        """
        self._moved: dict[str, list[MovedRevocation]] = {}
        """Maps a group to the revocations whose deadline has moved since `times` was last called."""

    def heard(self, shard: GroupCoordinatorShard, group_id: str, member_id: str, now_ms: int) -> None:
        """Record that a member has sent a request."""
        known = self._heard.setdefault(group_id, {})
        if member_id in known:
            known[member_id] = now_ms
        self.follow(shard, group_id, now_ms)

    def follow(self, shard: GroupCoordinatorShard, group_id: str, now_ms: int) -> None:
        """Update the members of a group. A new member, and a member that waits for an answer, count as having sent a
        request now. So do all members of a group that has changed its protocol, because their sessions begin anew
        (KIP-848).
        """
        members, waiting = _members_of(shard, group_id)
        sessions = shard.consumers._sessions.get(group_id)
        before, revoking = self._revoking.pop(group_id, {}), {} if sessions is None else dict(sessions._revoking)
        for member_id, (epoch, until_ms) in revoking.items():
            was_epoch, was_ms = before.get(member_id, (-1, -1))
            # A deadline that has passed may be set anew.
            if epoch == was_epoch and until_ms != was_ms > now_ms:
                self._moved.setdefault(group_id, []).append(MovedRevocation(member_id, epoch, was_ms, until_ms))
        if revoking:
            self._revoking[group_id] = revoking
        is_consumer = group_id in shard.ledger.consumers
        known = self._heard.get(group_id, {}) if is_consumer == self._is_consumer.get(group_id, is_consumer) else {}
        self._is_consumer[group_id] = is_consumer
        self._heard[group_id] = {one: now_ms if one in waiting else known.get(one, now_ms) for one in members}

    def forgive(self, shard: GroupCoordinatorShard, now_ms: int) -> None:
        """Restart all time-outs now, because the coordinator could not act on them: it could not write to its log, or
        was not running.
        """
        self._rebalances.clear()
        self._moved.clear()
        for group_id in (*shard.groups, *shard.ledger.consumers):
            self._heard[group_id] = dict.fromkeys(_members_of(shard, group_id)[0], now_ms)

    def times(self, shard: GroupCoordinatorShard, now_ms: int) -> Iterator[GroupTimeouts]:
        """Yield the deadlines and time-outs of each group of the shard."""
        moved, self._moved = self._moved, {}
        for group_id in dict.fromkeys((*shard.groups, *shard.ledger.consumers)):
            self.follow(shard, group_id, now_ms)
            classic, consumer = shard.groups.get(group_id), shard.ledger.consumers.get(group_id)
            look_ms = shard.deadline_of(group_id)
            if consumer is not None:
                members = self._of_consumers(shard, consumer)
                yield GroupTimeouts(group_id, now_ms, look_ms, members, None, None, tuple(moved.get(group_id, ())))
            elif classic is not None:
                members = self._of_classics(classic)
                rebalance = self._rebalance(classic, now_ms)
                yield GroupTimeouts(group_id, now_ms, look_ms, members, classic.leader, rebalance)

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
