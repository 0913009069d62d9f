"""Two owners of one partition, and the nearest histories in which one of them only does not know yet."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory

CASES = Cases()
test_the_reference = CASES.test()
FOUND = ("dual-ownership", "")


def _two(
    *, before: bool = False, after: bool = True, second: bool = True, gens: tuple[int, int] = (1, 2)
) -> GroupHistory:
    """A member owns a partition, another one is assigned it. before, after: the coordinator accepts a request of the
    first one before, after that; second: one of the second one.
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


@CASES.case("a coordinator takes requests of two owners of a partition", FOUND)
def _() -> GroupHistory:
    return _two()


@CASES.case("one generation assigns a partition to two members", FOUND)
def _() -> GroupHistory:
    return _two(gens=(1, 1))


@CASES.case("the commits of both prove that they were members", FOUND)
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {0: 1})
    h.commit(two, {0: 1}, gen=2)
    return h


@CASES.case("a member that was removed may not know it yet")
def _() -> GroupHistory:
    return _two(before=True, after=False)


@CASES.case("of two that both believe to be owners only one is proven to be a member")
def _() -> GroupHistory:
    return _two(second=False)


@CASES.case("a request that was sent before the other one was told proves nothing")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    commit = h.commit(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    commit.t1 = h.tick()
    h.commit(two, {0: 1}, gen=2)
    h.lost(one, [0])
    return h


@CASES.case("a commit without membership proves nothing")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {0: 1}, gen=-1)
    h.commit(two, {0: 1}, gen=2)
    return h


@CASES.case("who has revoked a partition may go on as a member without it")
def _() -> GroupHistory:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0, 1: 0})
    h.revoked(one, [0], h.tick())
    h.assigned(two, {0: 0}, 2)
    h.commit(one, {1: 1}, gen=2)
    h.commit(two, {0: 1}, gen=2)
    return h


@CASES.case("a member that crashed owns nothing")
def _() -> GroupHistory:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.operation(one, "crash_client")
    h.assigned(two, {0: 0}, 2)
    h.commit(two, {0: 1}, gen=2)
    return h


@CASES.case("a member of another partition of the same generation is no second owner")
def _() -> GroupHistory:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {1: 0})
    h.commit(one, {0: 1})
    h.commit(two, {1: 1})
    return h


@CASES.plant("dual-ownership")
def _(history: GeneratedHistory) -> None:
    history.take_in(_two())
