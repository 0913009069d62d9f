"""Makes random streams from a seed, one for each purpose."""

from __future__ import annotations

from random import Random


def rng_for(seed: int, *purpose: object) -> Random:
    """Return the random stream of a seed for one purpose. If one fault is removed, the draws of all others stay the
    same.
    """
    return Random(repr((seed, *purpose)))
