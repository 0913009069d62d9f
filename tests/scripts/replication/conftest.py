"""`--update` rewrites the golden scripts with what happens now: read the difference before you commit it."""

from __future__ import annotations

import contextlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):  # another folder of scripts has added it
        parser.addoption("--update", action="store_true", help="rewrite golden scripts")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update", default=False))
