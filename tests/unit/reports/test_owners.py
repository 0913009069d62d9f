"""Checks what is reported of two owners of one partition: which processes they were, by what they owned it, and until
when.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.reports.owners import sentences_of
from squall.reports.problems import StorySubject
from squall.reports.run_files import RunFiles
from tests.support.histories.group_history import GroupHistory
from tests.support.histories.nemesis_lines import fault_line


def told(h: GroupHistory, folder: Path, *, at: int = 0, first: int = 0, second: int = 1) -> list[str]:
    """Seconds count from 0 ns."""
    (folder / "history.jsonl").write_bytes(b"".join(h.lines()))
    files = RunFiles(folder, origin_ns=0.0, part_names={0: "t-0", 1: "t-1"})
    problem = StorySubject("dual-ownership", "", "t", 0, (), (at,), process=second, other=first)
    return sentences_of(files, problem)


def test_both_members_are_named_with_their_generations_and_times(tmp_path: Path) -> None:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.joined(one, [0, 1], 4)
    h.assigned(one, {0: 0, 1: 0}, 4)
    h.joined(two, [0], 5)
    h.assigned(two, {0: 7}, 5)
    beat = h.tick()
    h.commit(two, {0: 8}, gen=5)
    h.revoked(one, [0], beat, 4)
    first, second, proof = told(h, tmp_path, at=7)
    assert first == (
        "Process 0 (member m0 of g) owned t-0 in generation or member epoch 4, which it was told of at 0.001 s, from "
        "0.002 s on, and began at position 0. Process 0 gave it up at 0.008 s."
    )
    assert second.startswith("Process 1 (member m1 of g) owned t-0 in generation or member epoch 5")
    assert second.endswith("began at position 7. Process 1 never gave it up, and was never told of its loss.")
    assert proof == (
        "After 0.004 s, when both owned it, the coordinator accepted requests of both as members: one that process 0 "
        "sent at 0.005 s, and one that process 1 sent at 0.006 s."
    )


def test_one_that_was_told_of_its_loss_is_told_of_with_the_reason(tmp_path: Path) -> None:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, 4)
    h.assigned(two, {0: 0}, 5)
    h.commit(one, {0: 1}, gen=4)
    h.commit(two, {0: 1}, gen=5)
    h.lost(one, [0], "ILLEGAL_GENERATION")
    assert "Process 0 learnt that it had lost it (ILLEGAL_GENERATION) at 0.007 s." in told(h, tmp_path)[0]


def test_the_two_owners_are_those_of_whom_requests_prove_it(tmp_path: Path) -> None:
    """It was the first one's before, and given up in good order."""
    h = GroupHistory()
    one, two = h.member(), h.member()
    for gen in (1, 2):
        h.assigned(one, {0: 0}, gen)
        if gen == 1:
            h.revoked(one, [0], h.now, gen)
        h.assigned(two, {0: 0}, gen + 1)
        h.commit(one, {0: gen}, gen=gen)
        h.commit(two, {0: gen}, gen=gen + 1)
        h.revoked(two, [0], -1, gen + 1)
    first, second, _ = told(h, tmp_path)
    assert "member epoch 2" in first and "member epoch 3" in second


def test_one_generation_that_assigned_it_to_both_is_named(tmp_path: Path) -> None:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.joined(one, [0], 4)
    h.assigned(one, {0: 0}, 4)
    h.joined(one, [0], 6)
    h.joined(two, [0], 6)
    h.assigned(two, {0: 0}, 6)
    *_, proof = told(h, tmp_path)
    assert proof == "Generation or member epoch 6 assigned it to both, which no generation may do."


@pytest.mark.parametrize(("began_ms", "tells"), [(6, True), (5, False)])
def test_a_heartbeat_while_brokers_were_apart_makes_nobody_an_owner(began_ms: int, tells: bool, tmp_path: Path) -> None:
    """The one heartbeat is of 5 ms."""
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0})
    h.assigned(two, {0: 0}, 2)
    h.commit(two, {0: 1}, gen=2)
    h.revoked(one, [0], h.tick())
    (tmp_path / "nemesis.jsonl").write_bytes(fault_line(action="partition", began_ms=began_ms, ended_ms=99))
    assert bool(told(h, tmp_path)) is tells


def test_a_commit_makes_an_owner_only_in_a_generation_that_assigned_it(tmp_path: Path) -> None:
    for parts, tells in (([0], True), ([], False)):
        h = GroupHistory()
        one, two = h.member(), h.member()
        h.assigned(one, {0: 0}, 1)
        h.assigned(two, {0: 0}, 2)
        h.joined(one, parts, 3)
        h.commit(one, {0: 1}, gen=3)
        h.commit(two, {0: 1}, gen=2)
        assert bool(told(h, tmp_path)) is tells


def test_who_is_a_member_again_after_another_owner_was_none_meanwhile(tmp_path: Path) -> None:
    h = GroupHistory()
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0}, 1)
    h.assigned(two, {0: 0}, 2)
    h.commit(two, {0: 1}, gen=2)
    h.revoked(two, [0], gen=2)
    h.joined(one, [0], 3)
    h.commit(one, {0: 2}, gen=3)
    assert told(h, tmp_path) == []


@pytest.mark.parametrize("lines", ["", '{"e": "p", "p": 1}\n', "[1]\n"])
def test_a_history_that_does_not_tell_is_no_error(lines: str, tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text(lines)
    assert (
        sentences_of(RunFiles(tmp_path), StorySubject("dual-ownership", "", "t", 0, (), (0,), process=1, other=0)) == []
    )
