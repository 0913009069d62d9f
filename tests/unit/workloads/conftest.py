"""A clock that jumps: tests with time-outs of minutes take milliseconds."""

from __future__ import annotations

import pytest
from trio.testing import MockClock


@pytest.fixture
def clock() -> MockClock:
    """Asked for by a test, it is the clock that trio runs that test by."""
    return MockClock(autojump_threshold=0)
