"""Sets how many of the values that a test could draw it tries: a tenth in the gate, all of them at night."""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("SQUALL_FUZZ", "0.1"))
"""The share of the examples that the tests name. The night sets 1; a hunt sets more."""

THOROUGH = EFFORT >= 1
"""Whether this is the night's share: examples are drawn anew in each run, and nothing is left out."""


def stride(gate: int) -> int:
    """The step at which to walk through all there is, such as the lines of a history: at night each one is tried."""
    return 1 if THOROUGH else gate


def examples(count: int, least: int = 5) -> int:
    """Return how many of `count` examples to try: in the gate not fewer than `least`, because Hypothesis begins with
    the simplest value there is.
    """
    return max(round(count * EFFORT), min(count, least))
