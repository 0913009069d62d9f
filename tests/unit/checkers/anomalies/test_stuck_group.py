"""Groups that stand still after healing, and the nearest that go on, or may not."""

from __future__ import annotations

from squall.checkers.anomalies.stuck_group import REBALANCES, SESSIONS
from squall.checkers.history.values import AFTER_HEALING
from tests.support.histories.builder import MS, GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory

CASES = Cases()
test_the_reference = CASES.test()
FOUND = ("stuck-group", "")
LIMIT = SESSIONS * 10 * MS
POLLS_MS = 90
LONG_LIMIT = REBALANCES * (10 + POLLS_MS) * MS


def _stands(
    *,
    alive_ns: int = LIMIT,
    got: bool = False,
    late: bool = False,
    held: bool = True,
    session_ms: int = 10,
    polls_ms: int = 0,
) -> GroupHistory:
    """A member is alive for so long after a write that follows healing. got: it gets the record at once; late: at the
    end. held: the group owns that partition.
    """
    h = GroupHistory(2)
    member = h.member(session_timeout_ms=session_ms, max_poll_interval_ms=polls_ms)
    h.assigned(member, {0 if held else 1: 0}, begun="reset")
    val = h.sent(h.producer(**{AFTER_HEALING: True}), 0)
    written = h.now
    if got:
        h.poll(member, [(0, val)])
    h.now = written + alive_ns
    h.poll(member, [(0, val)] if late else [], at=0)
    h.final([(0, val)])
    return h


@CASES.case("a live member gets nothing for ten session time-outs", FOUND)
def _() -> GroupHistory:
    return _stands()


@CASES.case("a member gets no record that retention removed")
def _() -> GroupHistory:
    h = _stands()
    h._partitions[0]["retention_ms"] = 1
    h.final([], at=1, log_start=1, end=1, position=1, round_=2)
    return h


@CASES.case("a member gets nothing although the log begins at the record", FOUND)
def _() -> GroupHistory:
    h = _stands()
    h._partitions[0]["retention_ms"] = 1
    h.final([(0, h.sends[0].val)], round_=2)
    return h


@CASES.case("what a member gets after that is too late", FOUND)
def _() -> GroupHistory:
    return _stands(late=True)


@CASES.case("a member that gets the record is not stuck")
def _() -> GroupHistory:
    return _stands(got=True)


@CASES.case("a member that is not heard of for so long need not be alive")
def _() -> GroupHistory:
    return _stands(alive_ns=LIMIT - 3 * MS)


@CASES.case("a group that does not read a partition has nothing to get there")
def _() -> GroupHistory:
    return _stands(held=False)


@CASES.case("where no session time-out is known nobody is late")
def _() -> GroupHistory:
    return _stands(session_ms=0)


@CASES.case("where members may poll seldom, a rebalance may wait for them")
def _() -> GroupHistory:
    return _stands(polls_ms=POLLS_MS, alive_ns=LONG_LIMIT - 3 * MS)


@CASES.case("a rebalance that waits for longer than that is stuck", FOUND)
def _() -> GroupHistory:
    return _stands(polls_ms=POLLS_MS, alive_ns=LONG_LIMIT)


@CASES.plant("stuck-group")
def _(history: GeneratedHistory) -> None:
    history.take_in(_stands())
