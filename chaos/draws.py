"""Makes random streams from a seed, one for each purpose."""

from __future__ import annotations

from random import Random


def rng_for(seed: int, *purpose: object) -> Random:
    """Return a random stream that depends only on the seed and the purpose: `rng_for(7, "fault", 2)` is for the fault
    with the number 2. So if one fault is removed from a plan, the other faults draw the same values.
    """
    return Random(repr((seed, *purpose)))
