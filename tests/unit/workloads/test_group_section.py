"""Consumer groups as page and terminal show them: who held what, and what rebalances cost."""

from __future__ import annotations

from typing import Any

from checkers.measured_groups import measure_groups
from tests.support.histories.builder import MS, HistoryBuilder
from tests.support.histories.group_history import GroupHistory
from workloads.group_section import MARK_S, MOST_LANES, section_of
from workloads.section import Span


def figures(h: HistoryBuilder) -> dict[str, Any]:
    return {"name": "groups", **measure_groups(h.history(), [])}


def handed_over() -> GroupHistory:
    """One member holds two partitions, loses one of them to a time-out, and 4 ms later another one gets it."""
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.joined(one, [0, 1], 1)
    h.assigned(one, {0: 0, 1: 0})
    h.now = 10 * MS
    h.lost(one, [1])
    h.now = 14 * MS
    h.joined(two, [1], 2)
    h.assigned(two, {1: 0}, 2)
    h.now = 20 * MS
    h.revoked(one, [0])
    return h


def test_a_run_without_groups_has_no_section() -> None:
    assert section_of({"name": "groups"}) is None


def test_each_member_has_a_lane_with_what_it_held() -> None:
    section = section_of(figures(handed_over()))
    assert section is not None and section.strip is not None
    generations, one, two = section.strip.lanes
    assert [span.title.split(":")[0] for span in generations.spans] == ["generation 1", "generation 2"]
    assert (one.name, two.name) == ("process 0", "process 1")
    both, lost, alone = one.spans
    assert both.title.endswith("t-0, t-1") and both.tone == "good"
    assert lost == Span(both.end_s - MARK_S, both.end_s, "bad", lost.title) and lost.title.startswith("lost at")
    assert alone.title.endswith(" s: t-0") and alone.begin_s == both.end_s
    (only,) = two.spans
    assert only.begin_s >= 0.014 and only.end_s == section.strip.end_s


def test_the_sentence_says_who_was_without_an_owner_and_for_how_long() -> None:
    section = section_of(figures(handed_over()))
    assert section is not None
    assert "2 processes held partitions in 2 generations" in section.sentence
    assert "t-1 was without an owner for 0.01 s" in section.sentence
    (table,) = section.tables
    assert list(table.rows) == [("g", "before the first fault", "2")]


def test_a_group_of_many_processes_says_how_many_have_no_lane() -> None:
    h = GroupHistory(1)
    for generation in range(MOST_LANES + 1):
        member = h.member()
        h.joined(member, [0], generation)
        h.assigned(member, {0: 0}, generation)
        h.revoked(member, [0])
    section = section_of(figures(h))
    assert section is not None and section.strip is not None
    assert len(section.strip.lanes) == 1 + MOST_LANES
    assert section.strip.caption.endswith("1 later process has no lane.")
