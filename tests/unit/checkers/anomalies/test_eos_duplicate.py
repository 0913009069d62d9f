"""Two outputs of one input, and the nearest histories in which there is one."""

from __future__ import annotations

from squall.checkers.history.tables import INFO
from tests.support.histories.builder import GeneratedHistory
from tests.support.histories.case import Cases
from tests.support.histories.group_history import GroupHistory

CASES = Cases()
test_the_reference = CASES.test()
FOUND = ("eos-duplicate", "")


def _twice(first: str = "commit", *, same: bool = True, copied: bool = False, late: bool = False) -> GroupHistory:
    """Two processes make an output each, of the same input or of two inputs. first: whether the first transaction
    commits or aborts.
    """
    h = GroupHistory(2)
    p = h.producer(idempotence=not copied)
    sends = [h.send(p), h.send(p)]
    for off, send in enumerate(sends):
        if copied:
            h.info(send)
        else:
            h.ok(send, off)
    values = [send.val for send in sends]
    inputs = [(0, values[0]), (1, values[0] if copied else values[1])]
    one, two = h.pipe(), h.pipe()
    h.initialised(one)
    h.initialised(two, "b")
    if late:
        before = h.begin(one)
        h.end(before, "commit")
        before.completion["unanswered"] = 1
    txn, other = h.begin(one), h.begin(two, "b")
    outputs = [h.output(one, values[0], 1, 0, txn), h.output(two, values[0 if same else 1], 1, 2, other)]
    h.end(txn, first)
    h.end(other, "commit")
    shown = [(2, outputs[1].val)]
    if first == "commit" or late:
        shown = [(0, outputs[0].val), *shown]
    for isolation in (0, 1):
        h.final(inputs, isolation=isolation)
        h.final(shown if isolation else [(0, outputs[0].val), (2, outputs[1].val)], part=1, end=4, isolation=isolation)
    return h


@CASES.case("one input has two committed outputs", FOUND)
def _() -> GroupHistory:
    return _twice()


@CASES.case("a late commit made the first of two outputs visible", ("eos-duplicate", "late end"), ("G1a", "late end"))
def _() -> GroupHistory:
    return _twice("abort", late=True)


@CASES.case("the first output was aborted")
def _() -> GroupHistory:
    return _twice("abort")


@CASES.case("two inputs have an output each")
def _() -> GroupHistory:
    return _twice(same=False)


@CASES.case("an input that stands twice has two outputs", ("duplicate", "final"))
def _() -> GroupHistory:
    return _twice(copied=True)


@CASES.case("of two groups each has an output of the same input")
def _() -> GroupHistory:
    h = GroupHistory(2)
    value = h.sent(h.producer(), 0)
    one, two = h.pipe(), h.pipe(group="another")
    outputs = [h.output(one, value, 1, 0), h.output(two, value, 1, 1)]
    for isolation in (0, 1):
        h.final([(0, value)], isolation=isolation)
        h.final([(each.off, each.val) for each in outputs], part=1, isolation=isolation)
    return h


@CASES.case("one output that stands twice is a duplicate and not a second output", ("duplicate", "final"))
def _() -> GroupHistory:
    h = GroupHistory(2)
    value = h.sent(h.producer(), 0)
    pipe = h.pipe(idempotence=False)
    output = h.output(pipe, value, 1, 0)
    output.st, output.off = INFO, -1
    for isolation in (0, 1):
        h.final([(0, value)], isolation=isolation)
        h.final([(0, output.val), (1, output.val)], part=1, isolation=isolation)
    return h


@CASES.plant("eos-duplicate")
def _(history: GeneratedHistory) -> None:
    history.take_in(_twice())
