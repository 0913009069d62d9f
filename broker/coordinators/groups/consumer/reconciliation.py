"""Moves a member from its current assignment to its target: it first revokes partitions, then gets partitions that
other members have released (KIP-848).

| state | event | next |
|---|---|---|
| Stable | no newer target | stays |
| Stable, Unreleased | a newer target | Unrevoked with its old epoch, if it has to revoke; else the target's epoch |
| Unrevoked | still owns a partition to revoke | stays; also revokes topics that it no longer reads (KAFKA-19431) |
| Unrevoked | has revoked all of them | the target's epoch; if it has more to revoke, its old epoch (KAFKA-19974) |

A member in the target's epoch gets the partitions of its target that no other member owns. It is Stable once it has its
whole target, else Unreleased.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer.members import CurrentAssignment, MemberState, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Reconciliation:
    """Computes one step of a member towards its target. `owned` holds the partitions that the member says it owns (None
    if it says nothing); `is_free` returns whether no member owns a partition; `is_read` returns whether the member
    still subscribes to the partition's topic.
    """

    __slots__ = ("_is_free", "_is_read", "_owned", "_target", "_target_epoch")

    def __init__(
        self,
        target: tuple[Place, ...],
        target_epoch: int,
        owned: tuple[Place, ...] | None,
        is_free: Callable[[Place], bool],
        is_read: Callable[[Place], bool],
    ) -> None:
        self._target, self._target_epoch, self._owned = target, target_epoch, owned
        self._is_free, self._is_read = is_free, is_read

    def step(self, current: CurrentAssignment) -> CurrentAssignment:
        """Return the member's assignment after its heartbeat, or the same object if nothing changes."""
        if current.state == MemberState.STABLE and current.epoch == self._target_epoch:
            return current
        if current.state == MemberState.UNREVOKED and self.still_owns(current.revoking):
            after = self._without_unread(current)
        else:
            after = self._next(current)
        assert after.epoch in (current.epoch, self._target_epoch)
        # In any other state nothing waits for a revocation, so these partitions would never become free.
        assert after is current or bool(after.revoking) == (after.state == MemberState.UNREVOKED)
        return after

    def still_owns(self, revoking: Mapping[Place, int]) -> bool:
        """Return whether the member has not yet confirmed that it revoked the partitions `revoking`. Each is mapped to
        the member epoch at which it was assigned.
        """
        return self._owned is None or any(place in revoking for place in self._owned)

    def must_revoke(self, given_up: Mapping[Place, int]) -> bool:
        """Return whether the coordinator has to wait until the member has revoked the partitions `given_up`. Each is
        mapped to the member epoch at which it was assigned. There is no wait for a joining member, because its
        heartbeat says that it owns no partitions.
        """
        return bool(given_up) and self.still_owns(given_up)

    def may_get(self, place: Place) -> bool:
        """Return whether the member may get a partition of its target, because no other member owns it any more."""
        return self._is_free(place)

    def _without_unread(self, current: CurrentAssignment) -> CurrentAssignment:
        assert current.state == MemberState.UNREVOKED
        unread = {place: since for place, since in current.assigned.items() if not self._is_read(place)}
        if not unread:
            return current
        kept = {place: since for place, since in current.assigned.items() if place not in unread}
        assert len(kept) + len(unread) == len(current.assigned)
        return CurrentAssignment(current.epoch, current.epoch, current.state, kept, {**current.revoking, **unread})

    def _next(self, current: CurrentAssignment) -> CurrentAssignment:
        wanted = dict.fromkeys(self._target)
        kept = {place: since for place, since in current.assigned.items() if place in wanted}
        given_up = {place: since for place, since in current.assigned.items() if place not in wanted}
        assert len(kept) + len(given_up) == len(current.assigned)
        if self.must_revoke(given_up):
            return self._changed(
                current, CurrentAssignment(current.epoch, current.epoch, MemberState.UNREVOKED, kept, given_up)
            )
        # The member has confirmed that it revoked `given_up`: these partitions are free, and not in its target.
        lacking = [place for place in self._target if place not in kept]
        given = {place: self._target_epoch for place in lacking if self.may_get(place)}
        assert not kept.keys() & given.keys()
        assert kept.keys() | given.keys() <= wanted.keys()
        state = MemberState.STABLE if len(given) == len(lacking) else MemberState.UNRELEASED
        assert state != MemberState.STABLE or len(kept) + len(given) == len(wanted)
        return self._changed(current, CurrentAssignment(self._target_epoch, current.epoch, state, {**kept, **given}))

    def _changed(self, before: CurrentAssignment, after: CurrentAssignment) -> CurrentAssignment:
        # The previous epoch alone is no change. It has to stay: a member whose response got lost still sends it.
        same = replace(after, previous_epoch=before.previous_epoch) == before
        return before if same else after
