"""Test cases for the invariants of acknowledgements and reads: each has a situation that breaks one, and the nearest
situation that does not.
"""

from __future__ import annotations

from typing import Any

from squall.chaos.runtimes.sim.invariants.acks import Ack
from squall.chaos.runtimes.sim.invariants.batches import BatchIdentity, BatchInLog
from squall.chaos.runtimes.sim.invariants.models import LostTail, PartitionModel, ServedRecord
from tests.support.clusters.known_partitions import known, one, run
from tests.support.clusters.quorum_cases import Arguments, Case


def told(offset: int, about: PartitionModel, **more: Any) -> Arguments:
    return Ack(offset, more.get("acks", -1), 2, more.get("found"), more.get("value"), more.get("epoch", -1)), about


def seen(*batches: BatchIdentity) -> dict[tuple[int, int], BatchInLog]:
    """Return these batches as ones that some replica's log has held, keyed by (base offset, leader epoch)."""
    return {(batch.base, batch.epoch): BatchInLog(batch, None) for batch in batches}


HELD = {1: 5, 2: 5, 3: 4}
AFTER_LOSS = (*run(4), one(4, epoch=3))
"""The log of leader 1, which was elected uncleanly in epoch 3: it had four records, and added one."""
TWO = {1: 1, 2: 2}
ACK: dict[str, list[Case]] = {
    "acknowledged-is-committed": [
        ("too early", told(5, known(5, copies=HELD)), told(4, known(5, copies=HELD))),
        ("acks=1", told(5, known(5, copies=HELD)), told(5, known(5, copies=HELD), acks=1)),
        (
            "a loss in epoch 3 overtakes what earlier leaders appended, and nothing later",
            told(5, known(5, copies=HELD, void_epoch=3), epoch=3),
            told(5, known(5, copies=HELD, void_epoch=3), epoch=2),
        ),
        (
            "no log tells its epoch: it counts from where no earlier leader ever was",
            told(6, known(5, copies=HELD, void_epoch=3, written=seen(one(5, epoch=2), one(6, epoch=3)))),
            told(5, known(5, copies=HELD, void_epoch=3, written=seen(one(5, epoch=2), one(5, epoch=3)))),
        ),
        (
            "a node that lost something with the power excuses nobody",
            told(5, known(5, copies=HELD, lost={3: LostTail(9, 102)})),
            told(4, known(5, copies=HELD, lost={3: LostTail(9, 102)})),
        ),
    ],
    "acknowledged-is-replicated": [
        ("by one", told(4, known(5, copies={1: 5, 2: 4})), told(3, known(5, copies={1: 5, 2: 4}))),
        (
            "lost since",
            told(4, known(5, copies={1: 5, 2: 4})),
            told(4, known(5, copies={1: 5, 2: 4}, lost={2: LostTail(5, 102)})),
        ),
        (
            "committed after a permitted loss, or before it",
            told(4, known(AFTER_LOSS, copies={1: AFTER_LOSS, 2: 4}, void_epoch=3)),
            told(3, known(AFTER_LOSS, copies={1: AFTER_LOSS, 2: 3}, void_epoch=3)),
        ),
    ],
    "acknowledged-offset": [
        (
            "another record",
            told(4, known(5, copies=HELD), found=b"a", value=b"b"),
            told(4, known(5, copies=HELD), found=b"b", value=b"b"),
        ),
        (
            "no leader from before a permitted loss was ever there",
            told(4, known(5, void_epoch=1, written=seen(one(4))), found=b"a", value=b"b"),
            told(4, known(5, void_epoch=1, written=seen(one(4), one(4, epoch=0))), found=b"a", value=b"b"),
        ),
        (
            "acks=1, and no other leader was ever there",
            told(4, known(5, leaders=TWO, written=seen(one(4), one(3, epoch=2))), acks=1, found=b"a", value=b"b"),
            told(4, known(5, leaders=TWO, written=seen(one(4), one(4, epoch=2))), acks=1, found=b"a", value=b"b"),
        ),
        (
            "a node that lost something with the power excuses nobody",
            told(4, known(5, lost={3: LostTail(9, 102)}), found=b"a", value=b"b"),
            told(4, known(5, lost={3: LostTail(9, 102)}), found=b"b", value=b"b"),
        ),
    ],
}

# -------------------------------------------------------------------------------------------------------------- reads


def got(offset: int, about: PartitionModel, *, value: int = 7, epoch: int = 2, first: int = 7) -> Arguments:
    return ServedRecord(offset, value, epoch), ServedRecord(offset, first, 1), about


READ: dict[str, list[Case]] = {
    "consistent-read": [
        ("another record in another epoch", got(3, known(5), value=8), got(3, known(5), value=7)),
        ("another record in the same epoch", got(3, known(5), value=8, epoch=1), got(3, known(5), epoch=1)),
    ],
    "served-is-committed": [("the first offset that is not", got(5, known(5)), got(4, known(5)))],
}
