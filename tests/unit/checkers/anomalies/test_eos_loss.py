"""Inputs whose positions are committed and that have no output, and the nearest histories in which nothing is wrong."""

from __future__ import annotations

from squall.checkers.history.tables import INFO, OK
from tests.support.histories.builder import GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory

CASES = Cases()
test_the_reference = CASES.test()
FOUND = ("eos-loss", "")


def _piped(
    position: int = 2,
    *,
    outputs: int = 1,
    how: str = "commit",
    st: int = 0,
    began: int = 0,
    whole: bool = True,
    reset: bool = False,
) -> GroupHistory:
    """A process makes outputs of the first `outputs` of two inputs, and commits the offset `position` in the same
    transaction.
    """
    h = GroupHistory(2)
    p = h.producer()
    values = [h.sent(p, 0), h.sent(p, 1)]
    pipe = h.pipe()
    h.initialised(pipe)
    h.assigned(pipe, {0: began}, begun="reset")
    h.poll(pipe, list(enumerate(values))[began:])
    txn = h.begin(pipe)
    made = [h.output(pipe, value, 1, off, txn) for off, value in enumerate(values[:outputs])]
    h.commit(pipe, {0: position}, txn=txn)
    h.end(txn, how, st)
    if reset:
        h.reset(pipe)
    shown = [(each.off, each.val) for each in made]
    ends = {"end": outputs + 1, "position": outputs + 1}
    for isolation in (0, 1):
        h.final(list(enumerate(values)), isolation=isolation)
        if isolation == 0 or whole:
            h.final(shown if how == "commit" or isolation == 0 else [], part=1, isolation=isolation, **ends)
    return h


@CASES.case("the position behind an input without an output was committed", FOUND)
def _() -> GroupHistory:
    return _piped()


@CASES.case("a position that was committed outside of transactions counts as well", FOUND)
def _() -> GroupHistory:
    h = GroupHistory(2)
    values = [h.sent(h.producer(), 0) for _ in range(1)]
    member = h.pipe(commits="before")
    h.assigned(member, {0: 0}, begun="reset")
    h.commit(member, {0: 1})
    other = h.output(member, values[0] + 1, 1, 0)
    for isolation in (0, 1):
        h.final([(0, values[0])], isolation=isolation)
        h.final([(0, other.val)], part=1, isolation=isolation)
    return h


@CASES.case("a late abort took the output, and the position stayed", ("eos-loss", "late end"), ("lost-txn", "late end"))
def _() -> GroupHistory:
    h = GroupHistory(2)
    value = h.sent(h.producer(), 0)
    pipe = h.pipe()
    h.initialised(pipe)
    h.assigned(pipe, {0: 0}, begun="reset")
    before = h.begin(pipe)
    h.end(before, "abort")
    before.completion["unanswered"] = 1
    txn = h.begin(pipe)
    output = h.output(pipe, value, 1, 0, txn)
    h.commit(pipe, {0: 1}, txn=txn)
    h.end(txn, "commit")
    for isolation in (0, 1):
        h.final([(0, value)], isolation=isolation)
        h.final([] if isolation else [(0, output.val)], part=1, end=2, position=2, isolation=isolation)
    return h


def _unheard(*, reported: bool = True, late: bool = False, asked: bool = True) -> GroupHistory:
    """A commit of offsets whose sender died before the answer. `reported`: a later OffsetFetch shows it; `late`: only
    after the final reads began. `asked` False: it was part of a transaction whose end nobody requested.
    """
    h = GroupHistory(2)
    value = h.sent(h.producer(), 0)
    member, other = h.pipe(commits="before"), h.member()
    if not asked:
        h.initialised(member)
    h.assigned(member, {0: 0}, begun="reset")
    h.commit(member, {0: 1}, st=-1 if asked else OK, txn=None if asked else h.begin(member))
    if reported and not late:
        h.fetched(other, {0: 1})
    made = h.output(member, value + 1, 1, 0)
    for isolation in (0, 1):
        h.final([(0, value)], isolation=isolation)
        h.final([(0, made.val)], part=1, isolation=isolation)
    if late:
        h.fetched(other, {0: 1})
    return h


@CASES.case("nobody heard the answer to the commit, and a coordinator reported its position", FOUND)
def _() -> GroupHistory:
    return _unheard()


@CASES.case("of a commit whose answer nobody heard nobody reported the position")
def _() -> GroupHistory:
    return _unheard(reported=False)


@CASES.case("the position was reported after the final reads had begun: its output may be newer than they are")
def _() -> GroupHistory:
    return _unheard(late=True)


@CASES.case("a pending offset was reported: that is another anomaly", ("uncommitted-offset", ""))
def _() -> GroupHistory:
    return _unheard(asked=False)


@CASES.case("every input below the committed position has an output")
def _() -> GroupHistory:
    return _piped(outputs=2)


@CASES.case("an input at the committed position needs no output")
def _() -> GroupHistory:
    return _piped(1)


@CASES.case("an aborted transaction commits no position")
def _() -> GroupHistory:
    return _piped(how="abort")


@CASES.case("a transaction of which nobody knows how it ended may not have committed its position")
def _() -> GroupHistory:
    return _piped(st=INFO)


@CASES.case("what stood before the group began needs no output")
def _() -> GroupHistory:
    h = GroupHistory(2)
    p = h.producer()
    values = [h.sent(p, 0), h.sent(p, 1)]
    pipe = h.pipe()
    h.assigned(pipe, {0: 1}, begun="reset")
    output = h.output(pipe, values[1], 1, 0)
    h.commit(pipe, {0: 2})
    for isolation in (0, 1):
        h.final(list(enumerate(values)), isolation=isolation)
        h.final([(0, output.val)], part=1, isolation=isolation)
    return h


@CASES.case("where no final read went through the outputs nothing is missing")
def _() -> GroupHistory:
    return _piped(whole=False)


@CASES.case("where an administrator moved the position nothing is missing")
def _() -> GroupHistory:
    return _piped(reset=True)


@CASES.plant("eos-loss")
def _(history: GeneratedHistory) -> None:
    history.take_in(_piped())
