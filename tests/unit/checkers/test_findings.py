"""Checks which witnesses of a finding are kept, when there are more than people read."""

from __future__ import annotations

import pytest

from squall.checkers.findings import WITNESSES, Witness, findings_of, kept, places_kept
from squall.checkers.verdict import decide
from tests.unit.checkers.test_verdict import good


def lost(part: int, off: int, signs: int = 0, op: int = 0) -> Witness:
    return Witness("lost-write", "", part, off, off, op or off, 0, -1, signs)


@pytest.mark.parametrize(
    ("counts", "places"),
    [
        ({2: 3}, {2: [0, 1, 2]}),
        ({2: 39}, {2: [*range(0, 39, 2)]}),
        ({3: 400, 2: 1000, -1: 1}, {-1: [0], 2: [111 * n for n in range(10)], 3: [399 * n // 8 for n in range(9)]}),
        ({}, {}),
    ],
    ids=["few", "first, last and between", "partitions take turns", "none"],
)
def test_partitions_take_turns_and_each_is_shown_from_its_first_to_its_last(
    counts: dict[int, int], places: dict[int, list[int]]
) -> None:
    assert places_kept(counts) == [(part, place) for part, own in places.items() for place in own]


def test_of_too_many_partitions_those_with_most_are_shown() -> None:
    assert places_kept({part: 1 + part // 10 for part in range(30)}) == [(part, 0) for part in range(10, 30)]


def test_a_finding_in_two_partitions_keeps_the_first_and_the_last_of_both() -> None:
    every = [lost(part, off) for part in (0, 1) for off in range(352)]
    (finding,) = findings_of(reversed(every))
    assert (finding.count, finding.parts, len(finding.witnesses)) == (704, ((0, 352), (1, 352)), WITNESSES)
    for part in (0, 1):
        own = [each.off for each in finding.witnesses if each.part == part]
        assert (own[0], own[-1], own) == (0, 351, sorted(own))
    assert kept(finding.witnesses) == finding.witnesses


def test_the_last_in_time_is_kept_though_offsets_between_were_lost_before_it() -> None:
    (finding,) = findings_of([*(lost(0, off) for off in range(348, 696)), lost(0, 563, op=9000)])
    assert (lost(0, 348) in finding.witnesses, lost(0, 563, op=9000) in finding.witnesses) == (True, True)
    assert finding.witnesses == tuple(sorted(finding.witnesses))


def test_a_verdict_keeps_witnesses_of_each_partition_over_all_its_findings() -> None:
    early, late = ([lost(part, off, signs) for part in (0, 1)] for signs, off in ((1, 7), (2, 40)))
    many = [lost(0, off, 1) for off in range(100, 200)]
    (judged,) = decide(good(*findings_of([*early, *many, *late]))).anomalies
    assert (judged.count, len(judged.witnesses)) == (104, WITNESSES)
    assert {each.off for each in judged.witnesses if each.part == 1} == {7, 40}
