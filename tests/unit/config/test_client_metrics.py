"""Subscriptions to clients' metrics: what of their settings is refused."""

from __future__ import annotations

import time

import pytest

from squall.broker.config import ConfigError, ConfigOp
from squall.broker.config.client_metrics import InvalidClientMetricsConfig, alter_subscription


def altered(name: str, value: str) -> dict[str, str]:
    return alter_subscription({}, [(name, ConfigOp.SET, value)])


def test_what_can_be_read_is_kept() -> None:
    assert altered("match", "client_id=a.*,client_software_name=b") == {"match": "client_id=a.*,client_software_name=b"}
    assert altered("interval.ms", "100") == {"interval.ms": "100"}


NESTED = 3_000 * "("


def test_a_pattern_of_a_thousand_characters_is_read_quickly(bound_s: float) -> None:
    """To compile this one takes half a second: so many characters are turned into lower case."""
    pattern = "(?i)" + 199 * "[\0-\uffff]"
    began = time.process_time()
    assert altered("match", f"client_id={pattern}")
    assert time.process_time() - began < bound_s


def test_a_pattern_that_stays_is_not_read_again() -> None:
    kept = {"match": "client_id=("}
    assert alter_subscription(kept, [("metrics", ConfigOp.SET, "a")]) == {**kept, "metrics": "a"}
    assert alter_subscription(kept, [("match", ConfigOp.DELETE, None)]) == {}


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999}", "a" * 1001, NESTED + NESTED.replace("(", ")")])
def test_a_pattern_that_cannot_be_read_or_is_too_deep_is_told(pattern: str) -> None:
    with pytest.raises(ConfigError, match="has no pattern that can be read"):
        altered("match", f"client_id={pattern}")


@pytest.mark.parametrize(("name", "value"), [("interval.ms", "99"), ("interval.ms", "3600001"), ("intervall.ms", "1")])
def test_what_does_not_fit_is_the_requests_fault(name: str, value: str) -> None:
    with pytest.raises(InvalidClientMetricsConfig):
        altered(name, value)
