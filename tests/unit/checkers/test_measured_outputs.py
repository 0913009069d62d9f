"""Measures what became of inputs, as figures."""

from __future__ import annotations

from squall.checkers.measured_outputs import measure_outputs
from tests.support.histories.group_history import GROUP, GroupHistory


def history(*, final: bool = True) -> GroupHistory:
    """Return a history of four inputs: one has an output, one has two, one was skipped, and one is still to come."""
    h = GroupHistory(2)
    producer = h.producer()
    values = [h.sent(producer, off) for off in range(4)]
    member = h.pipe(commits="before")
    h.assigned(member, {0: 0}, begun="reset")
    made = [h.output(member, values[of], 1, off) for off, of in enumerate((0, 1, 1))]
    h.commit(member, {0: 3})
    if final:
        for isolation in (0, 1):
            h.final(list(enumerate(values)), isolation=isolation)
            h.final([(off, each.val) for off, each in enumerate(made)], part=1, isolation=isolation)
    return h


def test_inputs_are_counted_by_their_outputs_and_by_where_the_group_stands() -> None:
    assert measure_outputs(history().history()) == {
        GROUP: {"inputs": 4, "outputs": 3, "lost": 1, "doubled": 1, "further": 1, "waiting": 1}
    }


def test_without_final_reads_nobody_knows_what_was_lost() -> None:
    (found,) = measure_outputs(history(final=False).history()).values()
    assert (found["lost"], found["waiting"]) == (None, None)


def test_a_history_without_outputs_has_no_figures() -> None:
    h = GroupHistory(1)
    h.sent(h.producer(), 0)
    assert measure_outputs(h.history()) == {}
