"""Test cases in which min ISR was altered, and a leader moved its high watermark although no follower has the record.
Each pair differs in which value of min ISR the leader had to use.
"""

from __future__ import annotations

from typing import Any

from tests.support.clusters.known_partitions import known, view
from tests.support.clusters.quorum_cases import Arguments, Case


def moved(*min_isrs: tuple[int, int], **more: Any) -> Arguments:
    """Return that situation. `min_isrs` are pairs of a metadata offset and the value in force from there on."""
    return view(hw=4), view(hw=5), known(5, copies={1: 5, 2: 4}, min_isrs=list(min_isrs), **more)


MIN_ISR_ALTERED: list[Case] = [
    (
        "larger since an offset that the leader knew",
        moved((0, 1), (7, 2), imaged={1: 7}),
        moved((0, 1), (7, 2), imaged={1: 6}),
    ),
    (
        "larger before its leadership was decided",
        moved((0, 1), (7, 2), decided={1: 8}),
        moved((0, 1), (7, 2), decided={1: 6}),
    ),
    ("smaller than it ever was", moved((0, 3), (7, 2), (9, 2)), moved((0, 2), (7, 1), (9, 2))),
]
