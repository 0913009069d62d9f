"""A missing or a further output is permitted by what happened to that very input in its own group."""

from __future__ import annotations

from typing import Any

import pytest

from squall.checkers.in_memory import judge_bytes
from squall.checkers.verdict import INVALID, VALID, Verdict
from tests.support.histories.group_history import GroupHistory

PLAN: dict[str, Any] = {
    "workload": {"acks": -1, "min_isr": 2, "replication_factor": 3},
    "limits": {"stuck_s": 15},
}


def judged(h: GroupHistory) -> Verdict:
    return judge_bytes("r", b"".join(h.lines()), b"", PLAN).verdict


def without_output(end: str, *, goes_on: bool = False, commits: str = "before", sent: bool = False) -> GroupHistory:
    """A member gets two inputs, commits the offset after them, and makes an output of the first one only.

    end: how it loses its partition. goes_on: it processes a third input before that. sent: it also sends an output of
    the second one, without an answer.
    """
    h = GroupHistory(2)
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    member = h.pipe(commits=commits)
    h.assigned(member, {0: 0}, begun="reset")
    h.poll(member, [(0, values[0]), (1, values[1])])
    h.commit(member, {0: 2})
    made = [h.output(member, values[0], 1, 0)]
    if sent:
        h.send(member, 1).src = values[1]
    if goes_on:
        h.poll(member, [(2, values[2])])
        h.commit(member, {0: 3})
        made.append(h.output(member, values[2], 1, 1))
    if end == "crashed":
        h.lost(member, [0], why="crash")
    elif end == "lost":
        h.lost(member, [0])
    elif end == "given up":
        h.revoked(member, [0])
    elif end == "another owner":
        h.revoked(member, [0])
        h.assigned(h.pipe(commits=commits), {0: 2}, gen=2)
    elif end == "the same owner anew":
        h.assigned(member, {0: 2}, gen=2)
    elif end == "another group's owners":
        for gen in (1, 2):
            of_other = {"g": "other", "m": "", "gen": gen, "inst": "", "at": {"0": 0}, "owned": [0]}
            h.event("assigned", p=h.process("reader", group="other"), **of_other)
    return finished(h, list(enumerate(values)), [(send.off, send.val) for send in made])


def finished(h: GroupHistory, inputs: list[tuple[int, int]], outputs: list[tuple[int, int]]) -> GroupHistory:
    """With final reads that show these."""
    for isolation in (0, 1):
        h.final(inputs, isolation=isolation)
        h.final(outputs, part=1, isolation=isolation)
    return h


CHANGED = ("crashed", "lost", "another owner", "the same owner anew")


@pytest.mark.parametrize("end", [*CHANGED, "given up", "kept", "another group's owners"])
@pytest.mark.parametrize("commits", ["before", "auto"])
def test_an_output_may_be_missing_where_who_got_the_input_last_lost_its_partition(end: str, commits: str) -> None:
    found = judged(without_output(end, commits=commits))
    assert {(each.name, each.permitted) for each in found.anomalies} == {("eos-loss", end in CHANGED)}
    assert found.verdict == (VALID if end in CHANGED else INVALID)


@pytest.mark.parametrize("end", CHANGED)
def test_what_a_member_passed_over_and_went_on_is_not_explained_by_a_later_owner(end: str) -> None:
    found = judged(without_output(end, goes_on=True))
    assert found.verdict == INVALID
    assert found.reasons[0] == (
        "eos-loss: 1, not permitted: positions committed before outputs (at most once) permits it only where the "
        "member that got the input got nothing more before it crashed, or before the partition had another owner or "
        "the same one again; or its output was sent and not acknowledged, and that did not happen"
    )


def test_an_output_whose_send_was_not_acknowledged_may_be_missing() -> None:
    assert judged(without_output("kept", goes_on=True, sent=True)).verdict == VALID


def again(second: str, *, commits: str = "after", more: int = 0) -> GroupHistory:
    """A member makes two outputs of one input. second: which process gets the input once more before the second output;
    "late" is the member itself, afterwards. more: the number of further outputs.
    """
    h = GroupHistory(2)
    val = h.sent(h.producer(), 0)
    by = member = h.pipe(commits=commits)
    h.assigned(member, {0: 0}, begun="reset")
    h.poll(member, [(0, val)])
    first = h.output(member, val, 1, 0)
    if second == "another member":
        by = h.pipe(commits=commits)
        h.assigned(by, {0: 0}, gen=2)
        h.poll(by, [(0, val)])
    elif second == "another group":
        h.poll(h.reader(), [(0, val)])
    elif second == "itself":
        h.operation(member, "seek", at={"0": 0})
        h.poll(member, [(0, val)])
    outputs = [first, *(h.output(by, val, 1, 1 + number) for number in range(1 + more))]
    if second == "late":
        h.operation(member, "seek", at={"0": 0})
        h.poll(member, [(0, val)])
    return finished(h, [(0, val)], [(send.off, send.val) for send in outputs])


@pytest.mark.parametrize("second", ["itself", "another member"])
def test_an_input_has_no_more_outputs_than_its_group_got_it(second: str) -> None:
    found = judged(again(second, more=1))
    assert {(each.name, each.permitted) for each in found.anomalies} == {("eos-duplicate", False)}


@pytest.mark.parametrize(
    ("second", "verdict"),
    [("itself", VALID), ("another member", VALID), ("another group", INVALID), ("late", INVALID), ("nobody", INVALID)],
)
@pytest.mark.parametrize("commits", ["after", "auto"])
def test_an_input_may_have_two_outputs_where_its_group_got_it_twice_before(
    second: str, verdict: str, commits: str
) -> None:
    found = judged(again(second, commits=commits))
    assert {(each.name, each.permitted) for each in found.anomalies} == {("eos-duplicate", verdict == VALID)}
    assert found.verdict == verdict
