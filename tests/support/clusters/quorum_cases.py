"""Test cases for the invariants of the metadata quorum: each has a situation that breaks one, and the nearest situation
that does not.
"""

from __future__ import annotations

from typing import Any

from tests.support.clusters.known_partitions import quorum, seat

Arguments = tuple[Any, ...]
Case = tuple[str, Arguments, Arguments]
"""What the case is about, the check's arguments in the broken situation, and its arguments in the sound one."""

QUORUM: dict[str, list[Case]] = {
    "one-controller-per-epoch": [
        ("two", (None, seat(2), quorum(leaders={3: 1})), (None, seat(2, epoch=4), quorum(leaders={3: 1}))),
        ("one again", (None, seat(2), quorum(leaders={3: 1})), (None, seat(1), quorum(leaders={3: 1}))),
    ],
    "one-vote-per-epoch": [
        (
            "two",
            (None, seat(2, leads=False, voted=1), quorum(votes={(2, 3): 3})),
            (None, seat(2, leads=False, voted=1), quorum(votes={(2, 2): 3})),
        ),
    ],
    "vote-durable-before-told": [
        (
            "the vote",
            (None, seat(2, leads=False, voted=1)._replace(durable=(3, -1, -1)), quorum()),
            (None, seat(2, leads=False, voted=1)._replace(durable=(3, 1, -1)), quorum()),
        ),
    ],
    "quorum-epoch-monotone": [
        ("forgotten", (None, seat(2), quorum(epochs={2: 4})), (None, seat(2), quorum(epochs={2: 3}))),
    ],
    "metadata-hw-monotone": [
        ("back", (seat(hw=5), seat(hw=4), quorum()), (seat(hw=5), seat(hw=0, life=2), quorum())),
    ],
    "metadata-committed-prefix": [
        (
            "what it lacks",
            (None, seat(3, leads=False, hw=5), quorum(5, (5, 5, 4))),
            (None, seat(3, leads=False, hw=5), quorum(5, (5, 5, 5))),
        ),
    ],
    "metadata-leader-completeness": [
        ("it lacks something", (None, seat(3, hw=0), quorum()), (None, seat(2, hw=0), quorum())),
        (
            "one of the past",
            (None, seat(3, hw=0), quorum()),
            (None, seat(3, hw=0), quorum(leaders={4: 1})),
        ),
    ],
    "metadata-held-by-majority": [
        ("alone", (None, seat(), quorum(5, (5, 4, 4))), (None, seat(), quorum(5, (5, 4, 5)))),
    ],
    "metadata-commits-own-epoch": [
        ("epoch 1's, in epoch 3", (seat(hw=3), seat(), quorum()), (seat(epoch=1, hw=3), seat(epoch=1), quorum())),
    ],
    "metadata-leader-is-followed": [
        ("a deserted one", (seat(alone=1.5), seat(alone=2), None), (seat(alone=1.1), seat(alone=2), None)),
    ],
}
