"""Histories in which two members own one partition."""

from __future__ import annotations

from tests.support.histories.group_history import GroupHistory


def two_owners(
    *, before: bool = False, after: bool = True, second: bool = True, gens: tuple[int, int] = (1, 2)
) -> GroupHistory:
    """Return a history in which a member owns a partition and a second member gets it too. The arguments say which
    requests the coordinator accepts: of the first member `before` and `after` that, of the second member (`second`)
    after it.
    """
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, gens[0])
    beat = h.tick() if before else -1
    h.assigned(two, {0: 0}, gens[1])
    if after:
        beat = h.tick()
    other = h.tick() if second else -1
    h.revoked(one, [0], beat)
    h.revoked(two, [0], other)
    return h


def two_that_commit() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {0: 1})
    h.commit(two, {0: 1}, gen=2)
    return h
