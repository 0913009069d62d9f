"""Computes shares with their uncertainty, and histograms of latencies that can be added up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

Z95 = 1.959963984540054
"""Is the number of standard deviations within which a normal distribution has 95 % of its mass."""
_LINEAR = 7
"""Is a number of bits. Each latency that fits into this number of bits has a bucket of its own. Longer latencies share
a bucket if they have the same length in bits and the same first `_LINEAR` bits.
"""
_HALF = 1 << (_LINEAR - 1)


def wilson(hits: int, trials: int, z: float = Z95) -> tuple[float, float]:
    """Return the Wilson score interval of a share: (low, high), both in [0, 1]; (0, 1) if there were no trials.

    E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference, 1927. Unlike the normal
    approximation, the interval is informative if nothing was hit: for 0 of 100 it is (0, 0.037). Raises ValueError for
    impossible counts.
    """
    if not 0 <= hits <= trials:
        raise ValueError(f"{hits} of {trials} is no share")
    if not trials:
        return 0.0, 1.0
    share, spread = hits / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * sqrt(share * (1 - share) / trials + spread / (4 * trials))
    # The ends are exact: rounding would leave 1e-19 instead of 0.
    return (max(0.0, middle - half) if hits else 0.0), (min(1.0, middle + half) if hits < trials else 1.0)


def bucket_of(took: int) -> int:
    """Return the bucket of a latency in whole units, not negative. A bucket is at most 1/64 as wide as its latencies.

    Histograms of several runs can be added; percentiles cannot. `squall.spark_analysis.nightly.measures` has the same
    function in SQL.
    """
    shift = max(took.bit_length() - _LINEAR, 0)
    return shift * _HALF + (took >> shift)


def middle_of(bucket: int) -> float:
    """Return the middle of the latencies in a bucket, in units."""
    if bucket < 2 * _HALF:
        return float(bucket)
    shift = bucket // _HALF - 1
    low = (bucket - shift * _HALF) << shift
    return low + ((1 << shift) - 1) / 2


def percentile_of(histogram: Mapping[int, int], fraction: float) -> float | None:
    """Return the latency, in units, which the share `fraction` of all latencies does not exceed; it is the middle of
    its bucket. None if the histogram is empty.

    It differs from the exact percentile by at most 1/128.
    """
    total = sum(histogram.values())
    wanted, seen = fraction * total, 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted and histogram[bucket]:
            return middle_of(bucket)
    return None
