"""Evidence of a slow link is a comparison: what proves it, what noise alone cannot, and what cannot be compared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.chaos.errors import HarnessError
from squall.chaos.faults.acts.worse_links import ROUNDS, LinkFaultProof, LinkMeasurement, slowdown_proof
from squall.chaos.runtimes.contract import NOISE_MS, Latency, ProbeResult

NOBODY: frozenset[int] = frozenset()


class Place:
    """A stage in a world with so much noise."""

    def __init__(self, noise_ms: float) -> None:
        self.runtime = self
        self.noise_ms = noise_ms


def proof(least_ms: float, *, noise_ms: float = NOISE_MS, mean_ms: float = 0.0) -> LinkFaultProof:
    stage: Any = Place(noise_ms)
    measure: Any = None
    return slowdown_proof(stage, Latency(1), measure, 1.0, least_ms, mean_ms=mean_ms)


def measured(before: list[float], during: list[float], after: list[float]) -> LinkMeasurement:
    return LinkMeasurement(*([(NOBODY, ProbeResult(True, ms)) for ms in each] for each in (before, during, after)))


@pytest.mark.parametrize("effect_ms", [2 * (5 - 4), 2 * (20 - 10)])
def test_an_effect_that_noise_can_make_is_refused_where_there_is_noise(effect_ms: float) -> None:
    with pytest.raises(HarnessError, match="cannot be told from those of a busy machine"):
        proof(effect_ms)
    assert proof(effect_ms, noise_ms=0.0)


@pytest.mark.parametrize(
    ("before", "during", "after"),
    [
        ([10, 13, 12], [7, 8, 9], [10, 11, 10]),
        ([99, 120, 101], [43, 52, 45], [44, 43, 60]),
        ([100, 104, 101], [98, 110, 99], [100, 99, 98]),
        ([10, 11, 10], [200, 210, 205], [190, 195, 200]),
        ([190, 195, 200], [200, 210, 205], [10, 11, 10]),
    ],
    ids=["faster while on", "slow before", "slow throughout", "slow afterwards too", "slow before it began"],
)
def test_what_a_toxiproxy_that_applies_nothing_shows_speaks_against_the_fault(
    before: list[float], during: list[float], after: list[float]
) -> None:
    assert measured(before, during, after).proves(proof(80)) is False


@given(
    st.lists(st.floats(0, NOISE_MS), min_size=3 * ROUNDS, max_size=3 * ROUNDS),
    st.floats(0.1, 500),
    st.floats(NOISE_MS / 0.8 + 0.1, 10_000),
)
def test_noise_alone_never_proves_a_fault(noise: list[float], base_ms: float, effect_ms: float) -> None:
    shown = [base_ms + each for each in noise]
    found = measured(shown[:ROUNDS], shown[ROUNDS : 2 * ROUNDS], shown[2 * ROUNDS :])
    assert found.proves(proof(effect_ms)) is False


def test_a_fault_that_is_on_is_proven_though_some_round_trips_were_long_without_it() -> None:
    assert measured([10, 300, 12], [95, 99, 400], [11, 10, 250]).proves(proof(80)) is True


@pytest.mark.parametrize("missing", ["before", "during", "after"])
def test_a_link_that_was_not_measured_on_both_sides_says_nothing(missing: str) -> None:
    found = measured([10], [100], [10])
    getattr(found, missing).clear()
    assert found.proves(proof(80)) is None


@pytest.mark.parametrize("missing", ["before", "after"])
def test_one_side_is_enough_where_nothing_else_makes_a_link_slow(missing: str) -> None:
    found = measured([10], [100], [10])
    getattr(found, missing).clear()
    assert found.proves(proof(80), noise=False) is True
    swallowed = measured([10], [11], [10])
    getattr(swallowed, missing).clear()
    assert swallowed.proves(proof(80), noise=False) is False
    assert measured([], [100], []).proves(proof(80), noise=False) is None


def test_without_noise_too_what_another_fault_adds_is_not_taken_for_this_one() -> None:
    another = frozenset({7})
    found = LinkMeasurement(
        [(NOBODY, ProbeResult(True, 10))], [(another, ProbeResult(True, 200))], [(NOBODY, ProbeResult(True, 10))]
    )
    assert found.proves(proof(80), noise=False) is None


def test_what_another_fault_adds_is_not_taken_for_this_one() -> None:
    another = frozenset({7})
    found = LinkMeasurement(
        [(NOBODY, ProbeResult(True, 10))], [(another, ProbeResult(True, 200))], [(NOBODY, ProbeResult(True, 10))]
    )
    assert found.proves(proof(80)) is None, "the other one may have done it"
    found.before.append((another, ProbeResult(True, 110)))
    found.after.append((another, ProbeResult(True, 110)))
    assert found.proves(proof(80)) is True


@pytest.mark.parametrize(
    ("before", "during", "enough"),
    [
        ((NOBODY, 10), (NOBODY, 100), True),
        ((NOBODY, 10), (frozenset({7}), 100), False),
        ((frozenset({7}), 10), (frozenset({7}), 100), True),
        ((frozenset({7}), 80), (frozenset({7}), 100), False),
    ],
    ids=["alone", "another fault came", "another fault was there", "another fault hides it"],
)
def test_a_fault_outlasts_others_beside_which_it_was_not_seen(
    before: tuple[frozenset[int], float], during: tuple[frozenset[int], float], enough: bool
) -> None:
    link = LinkMeasurement(*([(company, ProbeResult(True, ms))] for company, ms in (before, during)))
    assert link.is_enough(proof(50, noise_ms=0.0)) is enough


def test_a_delay_that_may_be_none_now_and_then_is_proven_by_what_it_takes_on_average() -> None:
    jittery = proof(0, noise_ms=0.0, mean_ms=40)
    assert jittery.rounds == ROUNDS
    assert measured([1.0, 1.2, 1.1], [2, 35, 60], [1.1, 1.0, 1.3]).proves(jittery) is True
    assert measured([1.0, 1.2, 1.1], [2, 1.1, 1.0], [1.1, 1.0, 1.3]).proves(jittery) is False
