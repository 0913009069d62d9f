"""Checks which findings fail a night: new ones, known ones, accepted ones, and those whose acceptance is over."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from squall.chaos.nightly.accepted import AcceptedFinding
from squall.chaos.nightly.findings import NightFinding, tolerated

TODAY = date(2026, 7, 20)
ENTRY = AcceptedFinding(fingerprint="0123456789ab", owner="alice", until=TODAY, why="KAFKA-17754")
OVER = ENTRY.model_copy(update={"until": TODAY - timedelta(days=1)})


def finding(*nights: str, accepted: AcceptedFinding | None = None, items: tuple[str, ...] = ("a",)) -> NightFinding:
    attempts = frozenset((item, 1) for item in items)
    return NightFinding("0123456789ab", ("lost-write",), "why", ("acks=all",), attempts, nights, accepted, TODAY)


@pytest.mark.parametrize(
    ("one", "state", "fails_on_any", "fails_on_new"),
    [
        (finding("n2"), "new", True, True),
        (finding("n1", "n2"), "known", True, False),
        (finding("n2", accepted=ENTRY), "accepted", False, False),
        (finding("n1", "n2", accepted=ENTRY), "accepted", False, False),
        (finding("n1", "n2", accepted=OVER), "expired", True, True),
    ],
)
def test_what_fails_a_night(one: NightFinding, state: str, fails_on_any: bool, fails_on_new: bool) -> None:
    assert (one.state, one.fails("any"), one.fails("new")) == (state, fails_on_any, fails_on_new)


def test_a_run_is_tolerated_if_all_that_it_shows_is() -> None:
    known, new = finding("n1", "n2", items=("a", "b")), finding("n2", items=("b", "c"))
    assert tolerated([known, new], "new") == {("a", 1)}
    assert tolerated([known, new], "any") == frozenset()
    assert tolerated([], "new") == frozenset()


def test_a_finding_in_a_line_says_since_when_and_whose_it_is() -> None:
    assert finding("n2").line() == "new  0123456789ab  lost-write, in 1 run of acks=all"
    told = "known  0123456789ab  lost-write, in 2 runs of acks=all, since night n1"
    assert finding("n1", "n2", items=("a", "b")).line() == told
    told = "expired  0123456789ab  lost-write, in 1 run of acks=all, accepted by alice until 2026-07-19: KAFKA-17754"
    assert finding("n2", accepted=OVER).line() == told
