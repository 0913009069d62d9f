"""Regular expressions over topic names match as in Python's `re`, as far as both support them, and never take long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.broker.coordinators.patterns import BadPattern, RegexPattern

CHARS = st.sampled_from(["a", "b", "1", "-", r"\.", ".", r"\d", r"\w", "[a-c]", "[^a]", "[b1_]", r"[\d-]", "^", "$"])
PIECES = st.recursive(
    CHARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)
NAMES = st.text("ab1c-._", max_size=7)


@given(PIECES, NAMES)
def test_a_pattern_matches_what_pythons_matches(text: str, name: str) -> None:
    assert RegexPattern(text).matches(name) == (re.compile(text, re.ASCII).fullmatch(name) is not None), text


@pytest.mark.parametrize(
    "text",
    ["(", ")", "a)", "[", "[a", "a**", "*a", "a{3,2}", "a{1001}", r"\1", "(?=a)", "(?<!a)",
     "[b-a]", "\\", "((((a{50}){50}){50}))", "[[:greek:]]", "(?P<n", "(" * 900, "a" * 1001],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        RegexPattern(text)


@pytest.mark.parametrize(
    "text", ["[[:alpha:]]+", "(?P<n>a)b", r"\Aab\z", "(?<n>a)b", "(?i)AB", r"\bab\b", r"\pL+", "(?:a|b){2}"]
)
def test_what_re2_has_beyond_that_is_understood(text: str) -> None:
    assert RegexPattern(text).matches("ab")


@given(st.text(r"ab\[](){}|*+?.^$1,-:<P", max_size=12), NAMES)
def test_no_text_does_harm(text: str, name: str) -> None:
    try:
        RegexPattern(text).matches(name)
    except BadPattern:
        pass


def test_an_expression_that_takes_others_for_ever_takes_no_time(bound_s: float) -> None:
    began = time.process_time()
    assert not RegexPattern("(a*)*(a|a)*(a+a+)+b").matches("a" * 249)
    assert time.process_time() - began < bound_s
