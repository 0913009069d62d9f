"""The role table, the counting of votes, settings, and the state file."""

from __future__ import annotations

import itertools

import pytest

from squall.broker.quorum.election import LEGAL, Role, VoteTally
from squall.broker.quorum.settings import QuorumSettings
from squall.broker.quorum.state import DamagedQuorumState, QuorumState
from tests.unit.quorum.cores import core

U, P, C, L, F, R = Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER, Role.FOLLOWER, Role.RESIGNED
ILLEGAL = {
    (U, C), (U, L), (U, R),
    (P, P), (P, L), (P, R),
    (C, P), (C, C), (C, R),
    (L, L), (L, P), (L, C),
    (F, C), (F, L), (F, R),
    (R, R), (R, C), (R, L),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Role, Role)))
def test_every_change_of_roles_is_legal_or_stops_the_node(old: Role, new: Role) -> None:
    raft = core()
    raft.member.role = old
    assert ((old, new) in ILLEGAL) is (new not in LEGAL[old])
    if (old, new) in ILLEGAL:
        with pytest.raises(AssertionError, match="must not become"):
            raft.member.become(new, 0, "")
    else:
        raft.member.become(new, 0, "")


@pytest.mark.parametrize(
    ("voters", "answers", "won", "lost"),
    [
        (3, {}, False, False),
        (3, {2: True}, True, False),
        (3, {2: False}, False, False),
        (3, {2: False, 3: False}, False, True),
        (3, {2: False, 3: None}, False, True),
        (3, {2: None, 3: None}, False, True),
        (3, {2: None, 3: True}, True, False),
        (5, {2: True}, False, False),
        (5, {2: True, 3: True}, True, False),
        (5, {2: False, 3: False, 4: False}, False, True),
        (5, {2: False, 3: False, 4: None}, False, False),
        (4, {2: True}, False, False),
        (4, {2: True, 3: True}, True, False),
        (2, {}, False, False),
        (1, {}, True, False),
    ],
)
def test_round_is_won_by_a_majority_and_lost_when_there_can_be_none(
    voters: int, answers: dict[int, bool | None], won: bool, lost: bool
) -> None:
    tally = VoteTally(QuorumSettings(1, tuple(range(1, voters + 1))))
    for voter, answer in answers.items():
        tally.answer(voter, answer)
    assert (tally.won, tally.lost) == (won, lost)


@pytest.mark.parametrize("voters", [(), (2, 1), (1, 1), (-1, 2)])
def test_impossible_voters_are_refused(voters: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"voters|node ids"):
        QuorumSettings(1, voters)


def test_state_file_has_the_fields_that_kraft_gives_it() -> None:
    assert QuorumState(5, 2, 3).to_json((1, 2, 3), "cluster") == (
        '{"clusterId": "cluster", "leaderId": 3, "leaderEpoch": 5, "votedId": 2, "appliedOffset": 0, '
        '"currentVoters": [{"voterId": 1}, {"voterId": 2}, {"voterId": 3}], "data_version": 0}'
    )


def test_state_file_is_read_as_it_was_written() -> None:
    state = QuorumState(5, 2, 3)
    assert QuorumState.from_json(state.to_json((1, 2, 3))) == state


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "null",
        '{"leaderId": 1, "leaderEpoch": "5", "votedId": 1}',
        '{"leaderId": 1, "leaderEpoch": true, "votedId": 1}',
        '{"leaderId": 1, "leaderEpoch": -5, "votedId": 1}',
        '{"leaderId": -7, "leaderEpoch": 5, "votedId": 1}',
    ],
)
def test_damaged_state_file_is_not_guessed_at(text: str) -> None:
    with pytest.raises(DamagedQuorumState):
        QuorumState.from_json(text)
