"""Scales how many examples randomized tests try: a tenth in the gate, all of them at night."""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("SQUALL_FUZZ", "0.1"))
"""The share of a test's examples that is tried. The nightly tests set 1; a search for bugs sets more."""

THOROUGH = EFFORT >= 1
"""Whether all examples are tried, as at night: then they are drawn anew in each run."""


def stride(gate: int) -> int:
    """Return the step with which to walk through a sequence, such as the lines of a history: `gate` in the gate, 1 at
    night.
    """
    return 1 if THOROUGH else gate


def examples(count: int, least: int = 5) -> int:
    """Return how many of `count` examples to try. In the gate it is at least `least`, because Hypothesis begins with
    the simplest value.
    """
    return max(round(count * EFFORT), min(count, least))
