"""Makes random streams, one for each purpose."""

from __future__ import annotations

from random import Random


def rng_for(seed: int, *purpose: object) -> Random:
    """Return the random stream of a seed for one purpose, so that removing one fault does not change what others draw.
    """
    return Random(repr((seed, *purpose)))
