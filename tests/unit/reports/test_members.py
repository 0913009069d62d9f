"""Stories of members: who committed ahead, how that ended, who resumed; who read what was not its own."""

from __future__ import annotations

import json
from pathlib import Path

from squall.reports.members import GroupMemberActions, answers_of, lines_of, members_of, processed_by_programs
from squall.reports.problems import StorySubject
from squall.reports.raw_files import raw_files
from squall.reports.run_files import RunFiles
from squall.reports.spacetime import draw
from squall.reports.story import PartitionStory, stories_of, text_of
from squall.reports.story_index import rendered_stories_about
from tests.support.histories.group_history import GroupHistory


def committed(
    processed: int, *, crash: bool = True, skips: bool = False, client: str = "program", commits: bool = True
) -> GroupHistory:
    """A member that has processed so many of six records commits position 3 and is gone; the next one begins there."""
    h = GroupHistory()
    p = h.producer()
    pairs = [(off, h.sent(p, off)) for off in range(6)]
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, begun="reset")
    if skips:
        h.poll(one, [pairs[0], pairs[2]], position=3)
    elif processed:
        h.poll(one, pairs[:processed])
    if commits:
        h.commit(one, {0: 3})
    if crash:
        h.lost(one, [0], "crash")
    else:
        h.revoked(one, [0])
    h.assigned(two, {0: 3}, 2)
    h.poll(two, pairs[3:], at=3)
    h.final(pairs)
    for line in h._processes:
        if line["settings"].get("group"):
            line["client"] = client
    return h


def files_of(h: GroupHistory, folder: Path) -> RunFiles:
    """Seconds count from 0 ns."""
    (folder / "history.jsonl").write_bytes(b"".join(h.lines()))
    return RunFiles(folder, origin_ns=0.0, part_names={0: "t-0"})


def ahead(offset: int = 2) -> StorySubject:
    return StorySubject("commit-ahead", "it is ahead", "t", 0, (), (offset,), process=2, other=3)


def told(h: GroupHistory, folder: Path, problem: StorySubject) -> tuple[GroupMemberActions, dict[str, str]]:
    (found,) = members_of(files_of(h, folder), [problem])
    assert found is not None
    return found, dict(answers_of(found))


def story_of(h: GroupHistory, folder: Path, problem: StorySubject) -> PartitionStory:
    (story,) = stories_of(files_of(h, folder), [problem])
    return story


def test_a_commit_ahead_has_its_committer_what_that_had_processed_and_who_resumed(tmp_path: Path) -> None:
    found, answers = told(committed(2, crash=False), tmp_path, ahead())
    assert found.alone
    assert answers == {
        "Who committed the position": "Process 1 committed position 3 of t-0 at 0.016 s (operation 7; acknowledged at "
        "0.017 s).",
        "What it had processed by then": "Process 1 had reported nothing beyond offset 1 as processed (the last at "
        "0.015 s).",
        "How its ownership ended": "Process 1 gave it up at 0.018 s.",
        "Who resumed": "Process 2 at 0.019 s, at position 3: offset 2 is before it.",
        "Which member got the record": "No member of g reported it as processed.",
    }


def test_a_crash_is_told_with_the_fault_that_hit_the_process(tmp_path: Path) -> None:
    files = files_of(committed(0), tmp_path)
    fault = {"id": 4, "action": "member_crash", "began": 0, "ended": 10**9, "evidence": {"process": 1}}
    files.faults = [fault]
    (found,) = members_of(files, [ahead()])
    assert found is not None
    answers = dict(answers_of(found))
    assert answers["How its ownership ended"].startswith("Process 1 crashed (fault 4, member_crash) at ")
    assert answers["What it had processed by then"] == "Process 1 had reported nothing of t-0 as processed."
    files.faults = [{**fault, "evidence": {"process": 2}}]
    (found,) = members_of(files, [ahead()])
    assert found is not None and "fault" not in dict(answers_of(found))["How its ownership ended"]


def test_the_picture_has_a_lane_for_each_member_and_none_for_brokers(tmp_path: Path) -> None:
    story = story_of(committed(2), tmp_path, ahead())
    assert [each for each in story.lanes if "member" in each] == ["process 1 (member)", "process 2 (member)"]
    drawn = draw(story, "s")
    assert "Process 1 (member)" in drawn
    assert not any(word in drawn for word in ("Broker", "the log at", "high watermark"))
    text = text_of(story)
    assert "LEO" not in text and "Broker" not in text
    assert "process 1 committed position 3 of t-0" in story.summary and "process 1 crashed" in story.summary
    assert [each.kind for each in story.moments if each.grave] == ["position", "ends", "begins"]


def test_the_line_of_each_witness_names_the_commit_as_its_cause(tmp_path: Path) -> None:
    files = files_of(committed(1), tmp_path)
    one, two, other = lines_of(files, [ahead(1), ahead(2), StorySubject("lost-write", "", "t", 0, (), (1,))])
    grave = [each.text for each in one if each.grave]
    assert grave == [each.text for each in two if each.grave], "one commit is one cause"
    assert grave[0].startswith("Process 1 committed position 3 of t-0 (operation ") and other == []


def test_where_brokers_may_have_a_part_in_it_their_answers_stay(tmp_path: Path) -> None:
    """A member that skipped a record may not have been given it; a position that was not committed is no member's."""
    skipped, answers = told(committed(2, skips=True), tmp_path, ahead(1))
    assert not skipped.alone
    assert "had reported offset 2 as processed, but not offset 1 (" in answers["What it had processed by then"]
    nobody, answers = told(committed(2, commits=False), tmp_path, ahead())
    assert not nobody.alone
    assert answers["Who committed the position"] == "The history has no commit of position 3 of t-0."
    assert lines_of(files_of(committed(2, commits=False), tmp_path), [ahead()]) == [[]]


def test_our_own_members_get_records_and_report_nothing(tmp_path: Path) -> None:
    _, answers = told(committed(2, client="squall"), tmp_path, ahead())
    assert answers["What it had processed by then"].startswith("Process 1 had got nothing beyond offset 1 (")
    assert answers["Which member got the record"] == "No member of g got it."


def test_a_revoked_read_has_the_time_of_the_release_and_the_next_owner(tmp_path: Path) -> None:
    h = GroupHistory()
    p = h.producer()
    pairs = [(off, h.sent(p, off)) for off in range(3)]
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, begun="reset")
    h.poll(one, pairs[:1])
    h.revoked(one, [0])
    h.assigned(two, {0: 1}, 2)
    h.poll(one, pairs[1:2], at=1)
    h.final(pairs)
    lines = [json.loads(line) for line in h.lines()]
    op = next(x["op"] for x in lines if x["e"] == "i" and x.get("f") == "poll" and x.get("at") == {"0": 1})
    problem = StorySubject("revoked-read", "", "t", 0, (pairs[1][1],), (1,), op=op, process=one)
    found, answers = told(h, tmp_path, problem)
    assert found.alone
    (told_in_lines,) = lines_of(files_of(h, tmp_path), [problem])
    causes = [each.text for each in told_in_lines if each.grave]
    assert causes == [f"Process {one} gave it up."], "the same for all that it read"
    assert answers["Who processed it"].startswith(f"Process {one} did, at ")
    assert " until it gave it up at " in answers["When it owned the partition"]
    assert answers["Who owned it afterwards"].startswith(f"Process {two} owned it from ")


def stuck_group(client: str = "program", *, crash: bool = True) -> tuple[GroupHistory, StorySubject]:
    """A group whose only member has processed two of three records; the harness knows it under its first process."""
    h = committed(2, client=client, crash=crash)
    return h, StorySubject("stuck-consumer", "no progress", "t", 0, process=1, other=20 * 10**9)


def answers_with_phases(folder: Path, h: GroupHistory, problem: StorySubject, over_s: float) -> dict[str, str]:
    """Return the page's answers if the final reads began then."""
    files = files_of(h, folder)
    files.run = {"phases": [{"name": "final reads", "began": over_s * 1e9, "ended": over_s * 1e9 + 1e9}]}
    files.traces = {1: [{"e": "became_leader", "t": 0.001, "topic": "t", "partition": 0, "epoch": 0, "leo": 0}]}
    (telling,) = rendered_stories_about(files, [problem])
    return {each.question: each.text for each in telling.answers}


def test_a_group_that_stands_still_has_the_record_that_it_read_last_and_the_last_owner(tmp_path: Path) -> None:
    h, problem = stuck_group()
    answers = answers_with_phases(tmp_path, h, problem, 1.0)
    assert answers["What the group read last"].startswith("Process 2 reported offset 5 as processed, the last that g")
    assert answers["Which member owned it last"].startswith("Process 2 owned it from ")
    assert answers["Which member owned it last"].endswith(" to the end of the run.")
    (lines,) = lines_of(files_of(h, tmp_path), [problem])
    assert [each.text for each in lines if each.grave] == [
        "Process 2 reported offset 5 as processed, the last that g did."
    ]


def test_a_stuck_program_has_its_last_words_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "clients.log").write_text("".join(f"line {number}\n" for number in range(30)) + "no price\n")
    h, problem = stuck_group()
    said = answers_with_phases(tmp_path, h, problem, 1.0)["What the program said last"]
    assert said.startswith("The end of clients.log, ") and said.endswith("\nline 29\nno price")
    assert "line 18\n" not in said, "the last lines only"
    ours, problem = stuck_group("squall")
    assert "What the program said last" not in answers_with_phases(tmp_path, ours, problem, 1.0)
    (tmp_path / "clients.log").unlink()
    h, problem = stuck_group()
    assert "What the program said last" not in answers_with_phases(tmp_path, h, problem, 1.0)


def test_a_program_that_no_fault_hit_ended_by_itself_unless_the_run_was_over(tmp_path: Path) -> None:
    (tmp_path / "clients.log").write_text("no price\n")
    question = "How its ownership ended"
    answers = answers_with_phases(tmp_path, committed(2), ahead(), 1.0)
    assert answers[question].startswith("Process 1 ended by itself (no fault hit it) at ")
    assert answers["What the program said last"].endswith("\nno price")
    answers = answers_with_phases(tmp_path, committed(2), ahead(), 0.001)
    assert answers[question] == "Process 1 never gave it up." and "What the program said last" not in answers
    ours = answers_with_phases(tmp_path, committed(2, client="squall"), ahead(), 1.0)
    assert ours[question].startswith("Process 1 crashed at ")
    assert [each.path for each in raw_files(tmp_path)] == ["history.jsonl", "clients.log"]
    assert "clients.log" not in [each.path for each in raw_files(tmp_path, sent_only=True)]


def test_the_records_that_members_reported_are_counted_once_each(tmp_path: Path) -> None:
    h = committed(2)
    again = h.member()
    h.assigned(again, {0: 4}, 3)
    for line in h._processes:
        if line["settings"].get("group"):
            line["client"] = "program"
    value = next(send.val for send in h.sends if send.off == 4)
    h.poll(again, [(4, value)], at=4)
    assert processed_by_programs(files_of(h, tmp_path)) == 5, "offsets 0, 1, 3, 4 and 5; 4 was reported twice"
    assert processed_by_programs(files_of(committed(2, client="squall"), tmp_path)) == 0
    (tmp_path / "history.jsonl").unlink()
    assert processed_by_programs(RunFiles(tmp_path, part_names={0: "t-0"})) is None
