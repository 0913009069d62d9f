"""Checks which records a story names, and where it says that they were put."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall.reports import stories
from squall.reports.answers import answers_of
from squall.reports.lanes import leader_epochs
from squall.reports.problems import StorySubject
from squall.reports.run_files import read_run
from squall.reports.story import chosen, stories_of, story_of, text_of
from squall.reports.story_facts import GroupPosition
from squall.reports.story_moments import MUST, TURN, LabelledRecord, StoryMoment
from squall.reports.story_reads import PolledRange
from squall.reports.story_records import named_records, with_names
from tests.support.histories.story_script import facts_of_script
from tests.unit.reports.conftest import LOST, TOPIC, at

LED = "0.1 broker 1 became_leader epoch=0 leo=0 hw=0 isr=[1]\n"
TWICE_AT_0 = "0.2 sends 0 0\n0.3 told 0 ok 0\n0.4 sends 0 1\n0.6 told 1 ok 0\n"
APPENDED = (
    "0.25 broker 1 appended from=0 leo=1 epoch=0 role=leader\n0.5 broker 1 appended from=1 leo=2 epoch=0 role=leader\n"
)
KNOWN = (
    "0.25 broker 1 appended from=0 leo=1 epoch=0 role=leader\n"
    "0.5 broker 1 known_batch base_offset=0 last_offset=0 producer_id=7\n"
)
CUT = "0.35 broker 1 truncated from_offset=1 to_offset=0 reason=because\n"


def records(script: str) -> list[LabelledRecord]:
    return named_records(facts_of_script(f"about inconsistent-offset appends-0-0 value=0 value=1\n{LED}{script}"))


@pytest.mark.parametrize(
    ("more", "offset"),
    [
        (APPENDED, 1),
        (f"{APPENDED}0.7 reads 0=0 1=1\n", 1),
        ("0.7 reads 0=0 1=1\n", 1),
        ("", -1),
        (KNOWN, 0),
        (CUT, 0),
        (f"{CUT}0.7 reads 1=0\n", 0),
        ("0.35 broker 2 became_leader epoch=1 leo=0 hw=0 isr=[2]\n", 0),
    ],
    ids=["appended", "appended and read", "read", "taken", "taken for another", "cut off", "cut, read", "new epoch"],
)
def test_a_record_is_where_it_was_put_whatever_its_producer_was_told(more: str, offset: int) -> None:
    first, second = records(TWICE_AT_0 + more)
    assert (first.name, first.offset) == ("A", 0)
    assert (second.name, second.offset, second.sent.offset) == ("B", offset, 0)


def test_a_record_that_no_leader_appended_where_its_producer_was_told_is_nowhere() -> None:
    _, second = records("0.2 sends 0 0\n0.25 broker 1 appended from=0 leo=1 epoch=0 role=leader\n0.3 told 0 ok 0\n"
                        "0.4 sends 0 1\n0.6 told 1 ok 9\n")  # fmt: skip
    assert second.offset == -1


NEXT_LED = "broker 2 became_leader epoch=1 leo=2 hw=0 isr=[2]\n"
FOLLOWS = "broker 1 became_follower leader=2 epoch=1 leo=2 hw=0 isr=[2]\n"
ENDS_AT_1 = PolledRange(9.0, 9, 1, 0, 0, 0, 1, 1, 1, final=True)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("0.7..0.8 finals 7=3\n", (-1, -1)),
        ("", (-1, -1)),
        ("0.7..0.8 finals 1=3\n", (3, 0)),
        (f"0.5 {NEXT_LED}0.7..0.8 finals 7=3\n", (3, 0)),
        (f"0.3 {NEXT_LED}0.7..0.8 finals 7=3\n", (3, 0)),
        (f"0.3 {NEXT_LED}0.35 {FOLLOWS}0.7..0.8 finals 7=3\n", (-1, -1)),
        ("0.5 broker 1 truncated from_offset=4 to_offset=0 reason=because\n0.7..0.8 finals 7=3\n", (3, 0)),
    ],
    ids=["another there", "the log is shorter", "there", "a later leader", "a leader that was cut off answers late",
         "that leader had heard of it", "it was cut off"],
)  # fmt: skip
def test_a_record_was_not_put_where_final_reads_contradict_every_leader_that_could_answer(
    more: str, place: tuple[int, int]
) -> None:
    facts = facts_of_script(f"about lost-write appends-0-0 value=1\n{LED}0.4 sends 0 1\n0.45 told 1 ok 3\n{more}")
    facts.polled = [] if "finals" in more else [ENDS_AT_1]
    (record,) = named_records(facts)
    assert (record.offset, record.epoch) == place


@pytest.mark.parametrize("found", [False, True])
def test_the_epoch_of_an_offset_does_not_say_that_a_record_is_there_that_no_final_read_found(
    lost_dir: Path, found: bool
) -> None:
    files = read_run(lost_dir)
    (witness,) = files.verdict["anomalies"][0]["witnesses"]
    row = {"kind": 0, "st": 0, "t0": at(4.4), "t1": at(4.41), "off": 60, "proc": 3, "op": 9, "final": 0}
    read = {**row, "kind": 1, "t0": at(13), "t1": at(14), "final": 1}
    lines = stories.story(files, witness, leader_epochs(files)[f"{TOPIC}-0"], [row, read] if found else [row])
    (said,) = [line.text for line in lines if "In the end" in line.text]
    assert said.endswith("In the end offset 60 is of this epoch" + ("." if found else ", and the record is not there."))


def test_an_acknowledgement_beyond_every_log_says_nothing_of_the_leaders_log() -> None:
    sends = "".join(f"0.2 sends 0 {n}\n0.3 told {n} ok {n}\n" for n in range(13))
    far = "0.4 sends 0 90\n0.5 told 90 ok 10000161\n0.6..0.7 kill 1\n"
    facts = facts_of_script(f"about lost-write appends-0-0 value=1\n{LED}{sends}{far}0.7..0.8 finals 12=12\n")
    (killed,) = [each.text for each in story_of(facts).all_moments.moments if each.kind == "fault"]
    assert "LEO ≥ 13," in killed


def test_only_the_outputs_of_an_input_have_names_in_its_story() -> None:
    facts = facts_of_script(
        f"about eos-duplicate appends-0-0 value=1\n{LED}0.2 sends 0 0\n0.3 sends 0 1\n0.4 sends 0 2\n"
    )
    assert [each.sent.value for each in named_records(facts)] == [0, 1, 2]
    facts.outputs = (1, 2)
    assert [(each.sent.value, each.is_subject) for each in named_records(facts)] == [(1, True), (2, True)]


def test_a_record_that_is_quoted_as_bytes_is_named() -> None:
    value = 3 << 40 | ord("'")
    raw = b"SQ1" + value.to_bytes(8, "big")
    assert repr(raw).startswith('b"') or "\\'" in repr(raw)
    told = f"offset 0 holds {raw!r}, sent was {b'SQ1' + bytes(8)!r}, not {b'no'!r}"
    (first,) = records("0.2 sends 0 0\n")
    assert with_names(told, [first]) == (
        f"offset 0 holds record 39 of process 3 ({raw!r}), sent was A ({b'SQ1' + bytes(8)!r}), not {b'no'!r}"
    )
    assert with_names("cut short: b'SQ1'", []) == "cut short: record 0 of process 0 (b'SQ1')"


# ------------------------------------------------------------------------------------------------------------- moments


def moment(t: float, kind: str, weight: int, fault: int = -1) -> StoryMoment:
    return StoryMoment(t, "1", kind, kind, (), weight, fault=fault)


def kept(moments: list[StoryMoment], t: float | None = None) -> list[tuple[float, str]]:
    return [(each.t, each.kind) for each in chosen(moments, StorySubject("?", "", "appends-0", 0, t=t))]


MANY = [moment(10 + number / 1000, "sends", TURN - 1) for number in range(60)]


def test_a_fault_that_ends_in_a_story_begins_in_it_too_and_the_other_way_round() -> None:
    moments = [moment(1, "fault", TURN, 0), *MANY, moment(20, "told", MUST), moment(20.5, "fault ends", TURN, 0)]
    assert kept(moments) == [(1, "fault"), (20, "told"), (20.5, "fault ends")]
    moments = [moment(1, "told", MUST), moment(1.5, "fault", TURN, 0), *MANY, moment(30, "fault ends", TURN, 0)]
    assert kept(moments) == [(1, "told"), (1.5, "fault"), (30, "fault ends")]


def test_what_came_after_an_invariant_had_broken_is_told_of_no_fault() -> None:
    moments = [moment(9, "fault", TURN, 0), *MANY, moment(20, "broken", MUST), moment(30, "fault ends", TURN, 0)]
    assert (30, "fault ends") not in kept(moments, 20)


def test_faults_for_whose_other_end_there_is_no_room_are_left_out() -> None:
    fits = [moment(10 + number / 1000, "told", MUST) for number in range(47)]
    assert kept([moment(1, "fault", TURN, 0), *fits, moment(10.9, "fault ends", TURN, 0)]) == kept(fits)


def test_an_old_position_is_told_with_its_broker_and_the_fault_that_it_had() -> None:
    facts = facts_of_script(f"about eos-duplicate appends-0-0 value=1\n{LED}1.0..3.0 pause 3\n2.1 sends 0 1\n")
    facts.positions = [
        GroupPosition(2.0, 0, "in-0", 5, fetched=False),
        GroupPosition(3.2, 0, "in-0", 4, fetched=True, broker=3, newer=5),
    ]
    story = story_of(facts)
    text = " ".join(text_of(story).split())
    assert (
        "At 3.200 s process 0 was told position 4 of in-0 by broker 3 (paused from 1.000 s to 3.000 s), though "
        "position 5 had been committed: so it read that input again." in text
    )
    assert "Process 0 commits position 5 of in-0." in text
    assert "Process 0 is told position 4 of in-0 (by broker 3), though position 5 is committed." in text
    told = [each for each in story.moments if each.kind == "position"]
    assert [each.weight for each in told] == [MUST, MUST] and {each.lane for each in told} <= {*story.lanes}


def test_the_answers_tell_a_wrong_offset_too(lost_dir: Path) -> None:
    """Readers see the record at 61, and another one at the offset that was acknowledged."""
    lines = (lost_dir / "history.jsonl").read_text().splitlines()
    final = json.loads(lines[-1])
    final["got"][0][5] = [[60, LOST + 1], [61, LOST]]
    trace = lost_dir / "nodes" / "1" / "trace.jsonl"
    trace.write_text("".join(line for line in trace.read_text().splitlines(True) if "truncated" not in line))
    (lost_dir / "history.jsonl").write_text("".join(f"{line}\n" for line in [*lines[:-1], json.dumps(final)]))
    files = read_run(lost_dir)
    (story,) = stories_of(files)
    assert "A was appended at offset 61, and its producer was told offset 60." in story.summary
    written = next(each.text for each in answers_of(files, story) if each.question == "When it was written")
    assert "at offset 60 (acks=all), but appended at offset 61." in written
