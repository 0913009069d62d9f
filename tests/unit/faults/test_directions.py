"""Checks which way a cut link lets requests pass, and what that says of the cut."""

from __future__ import annotations

import pytest

from squall.chaos.faults.proofs import wrong_way


@pytest.mark.parametrize(
    ("stream", "reached", "why"),
    [
        ("both", False, ""),
        ("both", True, "a request still came over link 1->2, although requests were to be cut"),
        ("there", False, ""),
        ("there", True, "a request still came over link 1->2, although requests were to be cut"),
        ("back", True, ""),
        ("back", False, "no request came over link 1->2, although only its answers were to be cut"),
        ("both", None, ""),
        ("back", None, ""),
    ],
)
def test_a_cut_has_to_be_in_the_direction_that_was_asked_for(stream: str, reached: bool | None, why: str) -> None:
    way = {"link": "1->2", "stream": stream, "reached": reached}
    assert wrong_way({"ways": [way], "proven": ["1->2"]}) == why


def test_a_link_that_others_may_have_silenced_says_nothing_of_requests_that_did_not_come() -> None:
    ways = [{"link": "1->2", "stream": "back", "reached": False}]
    assert wrong_way({"ways": ways, "proven": ["2->1"]}) == ""
    assert wrong_way({}) == "", "brokers that cannot be asked without a link"
