"""Defines the invariants of the time-outs that a group coordinator must keep: sessions, rebalances and revocations.

The coordinator's own timers are not trusted. `group_clock` observes when members send requests; a `GroupTimeouts`
compares these moments with the longest time that the protocol allows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

MARGIN_MS: Final = 2_000
"""Is the tolerance of the checks, in ms: a coordinator may act this much later than a time-out, for its timer, the
append of a record, and a retry of that append.
"""


class MemberTimes(NamedTuple):
    """Gives the times of one member of a group, in ms of its coordinator's monotonic clock."""

    member_id: str
    deadline_ms: int | None
    """Is the moment at which the coordinator removes the member if it sends nothing until then; None if there is no
    such deadline.
    """
    waits: bool
    """Is True if the member waits for the coordinator's answer to a JoinGroup or SyncGroup."""
    heard_ms: int
    """Is the time of the member's last request, or the last moment at which the member waited for an answer."""
    session_ms: int


class RebalanceTimes(NamedTuple):
    """Describes the rebalance of a classic group: the group's state (PreparingRebalance or CompletingRebalance), when
    that state began, and how long it may last.
    """

    state: str
    since_ms: int
    longest_ms: int
    """Is the longest rebalance time-out of all members that the group has had since the rebalance began."""


class RevocationTimes(NamedTuple):
    """Describes a member's deadline to revoke partitions (KIP-848). The coordinator asked the member to revoke them at
    some moment between `earliest_ms` and `latest_ms`.
    """

    member_id: str
    earliest_ms: int
    """Is the last observed moment at which the coordinator had not yet asked the member to revoke partitions."""
    latest_ms: int
    """Is the first observed moment at which the coordinator had asked the member to revoke partitions."""
    deadline_ms: int
    """Is the deadline as the coordinator first set it for the present member epoch."""
    rebalance_ms: int
    """Is the member's rebalance time-out."""


class MovedRevocation(NamedTuple):
    """Records that a member's deadline for revoking partitions (KIP-848) was changed from `before_ms` to `after_ms`
    before it had passed.
    """

    member_id: str
    epoch: int
    """Is the member epoch in which the coordinator asked the member to revoke partitions."""
    before_ms: int
    after_ms: int


class ShortSession(NamedTuple):
    """Describes a deadline that a member got, and that is earlier than its session time-out allows. Times in ms of the
    coordinator's monotonic clock.
    """

    member_id: str
    deadline_ms: int
    earliest_ms: int
    """Is the earliest permitted deadline: the time of the last observation before the coordinator set the deadline,
    plus the session time-out.
    """


class MemberRemoval(NamedTuple):
    """Describes a member that its coordinator removes because of a time-out. Times in ms of the coordinator's monotonic
    clock.
    """

    member_id: str
    deadline_ms: int | None
    """Is the earliest of the member's deadlines (its session's, for example); None if it had none."""
    now_ms: int


class GroupTimeouts(NamedTuple):
    """Describes the deadlines and time-outs of one group at one moment. All moments are in ms of the coordinator's
    monotonic clock.
    """

    name: str
    now_ms: int
    look_ms: int | None
    """Is the moment at which the coordinator's timer will check the group's deadlines next; None if no timer is set."""
    members: tuple[MemberTimes, ...]
    leader: str | None
    """Is the leader of the classic generation; None if the group has no leader."""
    rebalance: RebalanceTimes | None
    """Describes the group's rebalance; None if the group is not in a rebalance, or if the rebalance waits only for the
    sessions of static members.
    """
    moved: tuple[MovedRevocation, ...] = ()
    """Lists the revocations whose deadline the coordinator has moved since the last check."""
    revoking: tuple[RevocationTimes, ...] = ()
    """Lists the members that the coordinator has asked to revoke partitions, and that have not done so yet."""
    asked: tuple[RevocationTimes, ...] = ()
    """Lists the members that the coordinator has asked to revoke partitions since the last check."""
    short: tuple[ShortSession, ...] = ()
    """Lists the deadlines, set since the last check, that give a member less than its session time-out."""


@invariant("member-has-a-deadline", CheckTrigger.GROUP_TIMES, "Kafka's coordinators: each member has a session")
def member_has_a_deadline(now: GroupTimeouts) -> str | None:
    """Each member of a group that a coordinator serves has a deadline, or a request that the coordinator has not
    answered. The coordinator's next check of the group is not after the earliest deadline of a member.
    """
    for member in now.members:
        if member.deadline_ms is None and not member.waits:
            return f"member {member.member_id} has neither a deadline nor a request that waits"
    first = min((each.deadline_ms for each in now.members if each.deadline_ms is not None), default=None)
    if first is not None and (now.look_ms is None or now.look_ms > first):
        return f"its first deadline is at {first} ms, and the coordinator looks at it at {now.look_ms} ms"
    return None


@invariant("silent-member-leaves", CheckTrigger.GROUP_TIMES, "KIP-62, KIP-848: session.timeout.ms")
def silent_member_leaves(now: GroupTimeouts) -> str | None:
    """A member that sent nothing for its session time-out is removed from its group, while its coordinator serves and
    can write to its log. (Not if the member waits for an answer of the coordinator.)
    """
    for member in now.members:
        silent_ms = now.now_ms - member.heard_ms
        if not member.waits and silent_ms > member.session_ms + MARGIN_MS:
            return (
                f"member {member.member_id} has been silent for {silent_ms} ms, its session is {member.session_ms} ms"
            )
    return None


@invariant("rebalance-ends", CheckTrigger.GROUP_TIMES, "KIP-62: a rebalance takes max.poll.interval.ms at most")
def rebalance_ends(now: GroupTimeouts) -> str | None:
    """A classic group stays in each of the states PreparingRebalance and CompletingRebalance for at most the longest
    rebalance time-out of its members.
    """
    found = now.rebalance
    if found is None or now.now_ms - found.since_ms <= found.longest_ms + MARGIN_MS:
        return None
    return (
        f"it has been in {found.state} for {now.now_ms - found.since_ms} ms; the longest rebalance time-out of its "
        f"members is {found.longest_ms} ms"
    )


@invariant("revocation-deadline-stays", CheckTrigger.GROUP_TIMES, "KIP-848: rebalance.timeout.ms of a member")
def revocation_deadline_stays(now: GroupTimeouts) -> str | None:
    """The deadline by which a member must have revoked partitions does not move before it is due, whatever requests the
    member sends.
    """
    for member_id, epoch, before_ms, after_ms in now.moved:
        return f"member {member_id} had to give up partitions in epoch {epoch} by {before_ms} ms, then by {after_ms} ms"
    return None


@invariant("revocation-ends", CheckTrigger.GROUP_TIMES, "KIP-848: rebalance.timeout.ms of a member")
def revocation_ends(now: GroupTimeouts) -> str | None:
    """A coordinator gives a member its rebalance time-out to revoke partitions. If the member has not revoked them by
    then, the coordinator removes it from the group, as long as the coordinator serves and can write to its log.
    """
    for each in now.asked:
        if not each.earliest_ms <= each.deadline_ms - each.rebalance_ms <= each.latest_ms:
            return (
                f"member {each.member_id} was asked to give up partitions between {each.earliest_ms} and "
                f"{each.latest_ms} ms, by {each.deadline_ms} ms; its rebalance time-out is {each.rebalance_ms} ms"
            )
    for each in now.revoking:
        if now.now_ms > each.deadline_ms + MARGIN_MS:
            late_ms = now.now_ms - each.deadline_ms
            return f"member {each.member_id} had to give up partitions {late_ms} ms ago, and is still a member"
    return None


@invariant("session-is-whole", CheckTrigger.GROUP_TIMES, "KIP-62, KIP-848: session.timeout.ms")
def session_is_whole(now: GroupTimeouts) -> str | None:
    """A coordinator gives a member its whole session time-out: a deadline that it sets for the member is at least the
    session time-out in the future.
    """
    for member_id, deadline_ms, earliest_ms in now.short:
        return f"member {member_id} has to send a request by {deadline_ms} ms, too early before {earliest_ms} ms"
    return None


@invariant("removed-after-its-deadline", CheckTrigger.REMOVED, "KIP-62, KIP-848: session and rebalance time-outs")
def removed_after_its_deadline(found: MemberRemoval) -> str | None:
    """A coordinator removes a member by its own decision only if one of the member's deadlines has passed. (A classic
    group that rebalances may also remove members that it does not wait for any longer; they are not checked.)
    """
    if found.deadline_ms is not None and found.deadline_ms <= found.now_ms:
        return None
    return f"member {found.member_id} was removed at {found.now_ms} ms, its first deadline is {found.deadline_ms} ms"


@invariant("leader-is-a-member", CheckTrigger.GROUP_TIMES, "JoinGroup: the leader assigns, so it is a member")
def leader_is_a_member(now: GroupTimeouts) -> str | None:
    """The leader of a classic group is one of its members."""
    if now.leader is None or any(member.member_id == now.leader for member in now.members):
        return None
    return f"its leader {now.leader} is no member; members: {', '.join(m.member_id for m in now.members) or 'none'}"
