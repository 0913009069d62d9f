"""Measures how much slower than an idle machine this one is: the one factor by which tests of real processes are more
patient.

It is measured once, when the first module that asks for it is collected, and printed before the first test. Sessions,
elections, faults and the silence that proves them are all scaled by it, so that what a test shows stays the same.
Simulations have a clock of their own, and are never scaled.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

MOST = 4.0
IDLE_S = 0.5
"""What the measured piece of work takes on an idle machine of the kind that CI has."""
SCALED = ("live", "interop")
LONG_S = 60.0
"""A limit for what comes at once, or not at all."""
TESTS = Path(__file__).resolve().parents[1]


@cache
def factor() -> float:
    """Return how much slower this machine is, from 1 to 4."""
    began = time.monotonic()
    _work()
    return min(MOST, max(1.0, round((time.monotonic() - began) / IDLE_S, 1)))


def _work() -> None:
    """A piece of work that is about half interpreted."""
    data = bytes(1 << 16)
    for number in range(15_000):
        zlib.crc32(data, sum(range(number & 1023)))


def scaled(value: float, where: str = "") -> float:
    """Seconds, scaled. where: a runtime's name; "sim" is not scaled."""
    return value if where == "sim" else value * factor()


def scaled_ms(value: int) -> int:
    """Milliseconds, scaled."""
    return round(value * factor())


def slowed(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of brokers in which everything in milliseconds is scaled."""
    return {name: str(scaled_ms(int(value))) if name.endswith(".ms") else value for name, value in settings.items()}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print the factor."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and any(item.path.relative_to(TESTS).parts[0] in SCALED for item in session.items):
        reporter.write_line(f"patience x{factor():g}")
