"""Members that go on with a partition which they have given up, and the nearest that may."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory

CASES = Cases()
test_the_reference = CASES.test()
FOUND = ("revoked-read", "")


def _going_on(*, ended: str = "revoked", other: bool = False, again: bool = False) -> GroupHistory:
    """A member gets a record, loses its partition, and gets another record. `other`: that one is from another
    partition; `again`: it got its partition back before.
    """
    h = GroupHistory(partitions=2)
    p = h.producer()
    pairs = [(off, h.sent(p, off)) for off in range(2)]
    elsewhere = [(0, h.sent(p, 0, part=1))]
    member = h.member()
    h.assigned(member, {0: 0, 1: 0}, begun="reset")
    h.poll(member, pairs[:1])
    if ended == "revoked":
        h.revoked(member, [0])
    else:
        h.lost(member, [0])
    if again:
        h.assigned(member, {0: 1}, 2)
    if other:
        h.poll(member, elsewhere, part=1)
    else:
        h.poll(member, pairs[1:], at=1)
    h.final(pairs)
    h.final(elsewhere, part=1)
    return h


@CASES.case("a member processes a record of a partition that it has given up", FOUND)
def _() -> GroupHistory:
    return _going_on()


@CASES.case("it goes on with a partition that it has kept")
def _() -> GroupHistory:
    return _going_on(other=True)


@CASES.case("it has got the partition back")
def _() -> GroupHistory:
    return _going_on(again=True)


@CASES.case("a member that has lost a partition may learn that while it works on what it got before")
def _() -> GroupHistory:
    return _going_on(ended="lost")


@CASES.plant("revoked-read")
def _(history: GeneratedHistory) -> None:
    history.take_in(_going_on())
