"""Consumer groups as page and terminal show them: who held what, and what rebalances cost."""

from __future__ import annotations

from typing import Any

from squall.checkers.measured_groups import measure_groups
from squall.reports.sections.on_terminal import GRAVITY, MARKS, STYLES, drawn
from squall.reports.sections.strip import COLOURS, HEIGHTS, OPACITY
from squall.workloads.group_section import MARK_S, MOST_LANES, section_of
from squall.workloads.section import TimelineBar
from tests.support.histories.builder import MS, HistoryBuilder
from tests.support.histories.group_history import GroupHistory


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
    assert lost == TimelineBar(both.end_s - MARK_S, both.end_s, "bad", lost.title) and lost.title.startswith("lost at")
    assert alone.title.endswith(" s: t-0") and alone.begin_s == both.end_s
    (only,) = two.spans
    assert only.begin_s >= 0.014 and only.end_s == section.strip.end_s


def test_the_sentence_says_who_was_without_an_owner_and_for_how_long() -> None:
    section = section_of(figures(handed_over()))
    assert section is not None
    assert "2 processes held partitions in 2 generations" in section.sentence
    assert "t-1 was without an owner for 0.01 s" in section.sentence
    (table,) = section.tables
    assert list(table.rows) == [("g", "members came or went, as the load has it", "1")]


def test_a_zombie_is_told_apart_from_an_owner_and_every_mark_has_a_legend() -> None:
    h = GroupHistory()
    zombie, other = h.member(), h.member()
    h.joined(zombie, [0])
    h.assigned(zombie, {0: 0})
    h.now = 100 * MS
    h.assigned(other, {0: 0}, 2)
    h.now = 900 * MS
    h.lost(zombie, [0])
    section = section_of(figures(h))
    assert section is not None and section.strip is not None
    _, lane, _ = section.strip.lanes
    held, believed = (next(span for span in lane.spans if span.tone == tone) for tone in ("good", "neutral"))
    assert held.end_s == believed.begin_s and believed.end_s > 0.9
    (mark,) = (span for span in lane.spans if span.tone == "bad")
    assert mark.end_s == held.end_s, "there it was over"
    assert {tone for tone, _ in section.strip.legend} == {"good", "neutral", "bad", "mark"}


def test_each_letter_of_the_strip_has_one_meaning() -> None:
    section = section_of(figures(handed_over()))
    assert section is not None and section.strip is not None
    shown = [str(part) for part in drawn(section, 100)]
    first = next(line for line in shown if line.startswith("generations"))
    assert "|" in first and "#" not in first
    legend = next(line for line in shown if "only believes" in line)
    assert legend.count("# ") == 1 and "# only believes to hold them," in legend and "| a generation begins" in legend
    assert len(set(MARKS.values())) == len(MARKS)
    assert set(MARKS) == set(COLOURS) == set(HEIGHTS) == set(OPACITY) == set(STYLES) == set(GRAVITY)


def test_the_page_counts_the_rebalances_that_static_members_caused() -> None:
    h = GroupHistory(2)
    about = {"instance": "i-1", "session_timeout_ms": 1000}
    first, other = h.member(**about), h.member()
    h.joined(first, [0], 1)
    h.joined(other, [1], 1)
    again = h.member(**about)
    h.joined(again, [0], 1)
    h.assigned(again, {0: 0})
    h.revoked(other, [1])
    section = section_of(figures(h))
    assert section is not None
    said = "Static members came back within their session time-out 1 time; the group rebalanced for 0 of these."
    assert section.sentence.endswith(said)
    assert section.tables == [], "there was no rebalance"


def test_static_members_whose_return_is_not_the_only_reason_are_told_apart() -> None:
    h = handed_over()
    figures_of_g = figures(h)
    figures_of_g["g"]["static"] = {"returns": 3, "rebalanced": 1, "unclear": 2}
    section = section_of(figures_of_g)
    assert section is not None
    assert "3 times; the group rebalanced for 1 of these. For 2 more it did so while a fault" in section.sentence
    (table,) = section.tables
    assert list(table.rows) == [("g", "members came or went, as the load has it", "1")]


def test_a_rebalance_without_any_fault_has_no_known_cause() -> None:
    h = GroupHistory()
    one = h.member()
    h.joined(one, [0], 1)
    h.assigned(one, {0: 0})
    h.joined(one, [0], 2)
    section = section_of(figures(h))
    assert section is not None
    (table,) = section.tables
    assert list(table.rows) == [("g", "no known cause", "1")]


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


def test_without_generations_the_sentence_says_so_and_no_lane_is_empty() -> None:
    """A program under test need not report them."""
    h = GroupHistory()
    one = h.member()
    h.assigned(one, {0: 0}, -1)
    h.now = 20 * MS
    h.revoked(one, [0], gen=-1)
    section = section_of(figures(h))
    assert section is not None and section.strip is not None
    assert "1 process held partitions; in which generations is not known, because no member reported one." in (
        section.sentence
    )
    assert [lane.name for lane in section.strip.lanes] == ["process 0"]
    assert "generation" not in section.strip.caption
    assert "mark" not in {tone for tone, _ in section.strip.legend}
