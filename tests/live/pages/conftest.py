"""Run directories for pages, and the browser that opens them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser
from tests.unit.reports.conftest import lost_dir, run_dir

__all__ = ["browser", "lost_dir", "run_dir"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield one Chromium for all tests of a module."""
    with Browser() as browser:
        yield browser
