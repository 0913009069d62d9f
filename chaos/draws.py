"""Random streams, one for each purpose."""

from __future__ import annotations

from random import Random


def rng_for(seed: int, *purpose: object) -> Random:
    """One random stream for each purpose, so that removing one fault does not reshuffle the others."""
    return Random(repr((seed, *purpose)))
