"""Positions that only a transaction explains which did not commit, and the nearest that may be reported."""

from __future__ import annotations

from squall.checkers.history.tables import FAIL, INFO
from tests.support.histories.builder import GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory

CASES = Cases()
test_the_reference = CASES.test()
FOUND = ("uncommitted-offset", "")


def _asked(how: str, *, st: int = 0, early: bool = False, before: int = -1, after: int = -1) -> GroupHistory:
    """A transaction commits offset 5, and a client fetches committed offset 5. before, after: the outcome of a further
    commit of offset 5, outside of the transaction and before or after it; -1: there is none.
    """
    h = GroupHistory()
    pipe, member = h.pipe(), h.member()
    h.initialised(pipe)
    if before >= 0:
        h.commit(member, {0: 5}, st=before)
    txn = h.begin(pipe)
    h.commit(pipe, {0: 5}, txn=txn)
    if early:
        h.fetched(member, {0: 5})
    if how:
        h.end(txn, how, st)
    if after >= 0:
        h.commit(member, {0: 5}, st=after)
    if not early:
        h.fetched(member, {0: 5})
    return h


@CASES.case("offsets of an aborted transaction are the position", FOUND)
def _() -> GroupHistory:
    return _asked("abort")


@CASES.case("offsets of a transaction whose end nobody asked for are the position", FOUND)
def _() -> GroupHistory:
    return _asked("")


@CASES.case("offsets are the position before the commit of their transaction is asked for", FOUND)
def _() -> GroupHistory:
    return _asked("commit", early=True)


@CASES.case("offsets of a transaction that failed are the position", FOUND)
def _() -> GroupHistory:
    return _asked("commit", st=FAIL)


@CASES.case("a plain commit that failed does not explain what an aborted transaction wanted", FOUND)
def _() -> GroupHistory:
    return _asked("abort", before=FAIL)


@CASES.case("a late commit of an earlier transaction may have committed them", ("uncommitted-offset", "late end"))
def _() -> GroupHistory:
    h = GroupHistory()
    pipe = h.pipe()
    h.initialised(pipe)
    before = h.begin(pipe)
    h.end(before, "commit")
    before.completion["unanswered"] = 1
    txn = h.begin(pipe)
    h.commit(pipe, {0: 5}, txn=txn)
    h.end(txn, "abort")
    h.fetched(pipe, {0: 5})
    return h


@CASES.case("a late request may have put them into the next transaction", ("uncommitted-offset", "late end"))
def _() -> GroupHistory:
    h = _asked("abort")
    commit = next(each for each in h.others if each.f == "commit")
    commit.completion["unanswered"] = 1
    return h


@CASES.case("offsets of a committed transaction are the position")
def _() -> GroupHistory:
    return _asked("commit")


@CASES.case("a transaction of which nobody knows how it ended may have committed")
def _() -> GroupHistory:
    return _asked("commit", st=INFO)


@CASES.case("somebody else had committed the position that an aborted transaction wanted")
def _() -> GroupHistory:
    return _asked("abort", before=0)


@CASES.case("somebody else may have committed the position that an aborted transaction wanted")
def _() -> GroupHistory:
    return _asked("abort", after=INFO)


@CASES.case("an administrator may have set the position")
def _() -> GroupHistory:
    h = _asked("abort")
    h.others.insert(-1, h.others.pop())
    asked = h.others[-1]
    h.reset(asked.fields["p"])
    h.others[-1].t0 = h.others[-1].t1 = asked.t0 - 1
    return h


@CASES.plant("uncommitted-offset")
def _(history: GeneratedHistory) -> None:
    history.take_in(_asked("abort"))
