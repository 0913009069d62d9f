"""The last checks of a simulation wait for coordinators that write to their logs even then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from squall.chaos.runtimes.sim.invariants.stuck import coordinators_write


def partition(topic: str, hw: int, leo: int, *, leads: bool = True) -> Any:
    return cast("Any", SimpleNamespace(topic=topic, views={1: SimpleNamespace(leads=leads, hw=hw, leo=leo)}))


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_a_record_of_a_coordinator_that_is_not_committed_is_waited_for(topic: str) -> None:
    assert coordinators_write([partition("t", 5, 5), partition(topic, 5, 6)])
    assert not coordinators_write([partition(topic, 6, 6)])
    assert not coordinators_write([partition(topic, 5, 6, leads=False)])


def test_records_of_a_load_are_not_waited_for() -> None:
    assert not coordinators_write([partition("orders", 5, 6)])
