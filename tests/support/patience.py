"""Measures how much slower than an idle machine this one is. Tests of real processes multiply their time limits by this
factor.

It is measured once, when the first module that uses it is collected, and printed before the first test. It scales
session timeouts, election timeouts, durations of faults and the silence that proves a fault alike, so what a test shows
stays the same. Simulations have a clock of their own, and are never scaled.
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
"""Time that the measured work takes on an idle machine of CI."""
SCALED = ("live", "interop")
LONG_S = 60.0
"""A limit for events that come at once or never."""
TESTS = Path(__file__).resolve().parents[1]


@cache
def factor() -> float:
    """Return how many times slower this machine is, from 1 to 4."""
    began = time.monotonic()
    _work()
    return min(MOST, max(1.0, round((time.monotonic() - began) / IDLE_S, 1)))


def _work() -> None:
    """Do the work that is measured; about half of it is interpreted Python."""
    data = bytes(1 << 16)
    for number in range(15_000):
        zlib.crc32(data, sum(range(number & 1023)))


def scaled(value: float, where: str = "") -> float:
    """Return these seconds multiplied by the factor. `where` is a runtime's name; "sim" is not scaled."""
    return value if where == "sim" else value * factor()


def scaled_ms(value: int) -> int:
    """Return these milliseconds multiplied by the factor."""
    return round(value * factor())


def slowed(settings: Mapping[str, str]) -> dict[str, str]:
    """Return broker settings in which every value in milliseconds is multiplied by the factor."""
    return {name: str(scaled_ms(int(value))) if name.endswith(".ms") else value for name, value in settings.items()}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print the factor."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and any(item.path.relative_to(TESTS).parts[0] in SCALED for item in session.items):
        reporter.write_line(f"patience x{factor():g}")
