"""Checks that what a coordinator knows and its log does not say is reported in plain words, however long the values
are.
"""

from __future__ import annotations

import pytest

from squall.chaos.runtimes.sim.invariants.group_differences import difference, records_of
from squall.chaos.runtimes.sim.invariants.group_journal import GroupStateSnapshot
from tests.support.clusters.group_cases import AT, GENERATION, GROUPS, OTHER, PLACE, books

LOG = books()["g"]
LONG = "m" * 500
MEMBERS = GENERATION.members
GIVES = ", and a replay of the log gives "
CASES = [
    (LOG._replace(offsets={}), f"committed offset of t-0 is not known{GIVES}7 (record 20)"),
    (
        LOG._replace(offsets={PLACE: AT._replace(offset=6, at=19)}),
        f"committed offset of t-0 is 6 (record 19){GIVES}7 (record 20)",
    ),
    (
        LOG._replace(offsets={PLACE: AT._replace(metadata=LONG)}),
        f"metadata of the committed offset of t-0 is {'m' * 39}…{GIVES}none",
    ),
    (
        LOG._replace(offsets={("t", n): AT for n in range(1, 7)}),
        f"committed offset of t-0 is not known{GIVES}7 (record 20); also differ: t-1, t-2, t-3, 3 more",
    ),
    (
        LOG._replace(pending={9: {OTHER: AT}}),
        f"offset of t-1 that waits for a transaction of producer id 9 is 7 (record 20){GIVES}none",
    ),
    (LOG._replace(generation=None), f"generation is not known{GIVES}3"),
    (
        LOG._replace(generation=GENERATION._replace(leader=LONG)),
        f"leader is {'m' * 39}…{GIVES}m",
    ),
    (
        LOG._replace(generation=GENERATION._replace(members=MEMBERS[:1])),
        f"list of members is m{GIVES}m, n",
    ),
    (
        LOG._replace(generation=GENERATION._replace(members=(MEMBERS[0]._replace(assignment=b"\0" * 99), MEMBERS[1]))),
        f"assignment of member m is 0x{'0' * 37}…{GIVES}0x61",
    ),
]


@pytest.mark.parametrize(("known", "said"), CASES, ids=[said[:40] for _, said in CASES])
def test_the_group_the_field_and_both_values_are_named(known: GroupStateSnapshot, said: str) -> None:
    assert difference("g", known, LOG) == f"group g: {said}"


def test_a_group_that_one_side_has_not_is_told() -> None:
    assert difference("g", None, LOG) == "group g: the coordinator does not know it, and its log has records of it"
    assert difference("g", LOG, None) == "group g: the coordinator knows it, and its log has no record of it"


def test_the_records_of_both_sides_are_named() -> None:
    known = {"g": LOG._replace(offsets={PLACE: AT._replace(offset=6, at=19)})}
    assert records_of(known, books()) == [
        {"offset": 19, "says": "as the coordinator knew it, it commits 6 for t-0 of group g"},
        {"offset": 20, "says": "in the log, it commits 7 for t-0 of group g"},
    ]
    many = {"g": LOG._replace(offsets={("t", n): AT._replace(at=100 + n) for n in range(99)})}
    assert len(records_of(many, books())) == 4


def test_no_situation_is_told_by_a_repr() -> None:
    for what, (found, replayed), _ in GROUPS["group-state-is-a-replay"]:
        said = difference("g", found.get("g"), replayed["g"])
        assert "(offset=" not in said and "{" not in said, what
