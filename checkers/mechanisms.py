"""Defines what must have happened for a finding to be permitted, and the signs that show it.

A mechanism is a possible cause of an anomaly, such as a power loss. A configuration permits a finding only if one of
its mechanisms explains the very records that are affected. So each witness, which is one place in the history at which
an anomaly shows, has its own signs of mechanisms (`squall.checkers.signs`).
"""

# Configuration and class of faults alone are not enough: a program that acknowledged what it never sent was valid at
# acks=1. Nor is any change of leaders: a leader of a later epoch that starts above a record cannot have taken it.

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag


class MechanismSign(IntFlag):
    """Names the signs that a witness (one place in the history at which an anomaly shows) can have. Each was seen for
    the witness's record, its partition or the whole run, and shows a mechanism, alone or with others.
    """

    LATER_EPOCH = 1
    """Is set if a later leader may have truncated the witness's record: that leader's epoch starts at or below the
    record's offset, and follows the epoch of a leader which may have acknowledged the record. If two records had one
    offset (`signs.OTHER_RECORD`, `signs.OTHER_OFFSET`), that may be true of either record.
    """
    LED_ANEW = 2
    """Is set if the partition in which the anomaly shows had more than one leader epoch."""
    DISTURBED = 4
    """Is set if, while the record was under way, a fault was on, its partition's leader changed, or sends of its
    producer to this partition failed or had no answer.
    """
    POWER_LOST = 8
    """Is set if a node lost power after the record was sent, and the records that the node's log lost include its
    offset.
    """
    DAMAGED = 16
    """Is set if a disk with the record's partition was damaged after the record was sent."""
    MOVED = 32
    """Is set for all witnesses of a run in which some partition, a coordinator's included, had more than one leader
    epoch, or a disk was damaged: a coordinator may have lost records by either.
    """
    INTERRUPTED = 64
    """Is set if the interruption of a group member explains the missing or further output
    (`squall.checkers.interruptions`).

    An input with several outputs is explained if, for each n, the group had polled the input n times before it sent the
    n-th output. An input without an output is explained in two cases: an output of it was sent and not acknowledged; or
    the input was in the last poll of a member before it crashed, or before the partition was assigned anew.
    """
    RESENT = 128
    """Is set in three cases. The producer sent the record more than once. Or the sends were disturbed (DISTURBED), and
    their number is not known, because the client does not report it or the send was not acknowledged. Or, while the
    record was under way, a fault delivered requests twice or out of order.
    """
    SEVERAL_LED = 256
    """Is set if more than one leader may have led the partition while the record was under way."""
    SYNC_FAILED = 512
    """Is set if POWER_LOST is set, and an fsync had failed on that node before."""
    UNPLACED = 1024
    """Is set if the record was acknowledged without an offset, and the offsets of other records do not show whether it
    was at or above the start of a later leader epoch. If it was, that epoch explains its loss.
    """


@dataclass(frozen=True, slots=True)
class AnomalyMechanism:
    """Describes what must have happened for a finding to be explained. `needs` lists conditions, all of which must be
    met; a condition is a combination of signs, of which at least one must be set.
    """

    name: str
    what: str
    """Says what must have happened, as a clause that completes "acks=1 permits it where ...", such as "a disk with this
    partition was damaged".
    """
    seen: str
    """Names the sources that show the mechanism: nemesis.jsonl, the history, or leader epochs."""
    needs: tuple[MechanismSign, ...] = ()

    def explains(self, signs: MechanismSign) -> bool:
        """Return whether this mechanism explains a witness with these signs: they have at least one sign of each
        condition in `needs`.
        """
        return all(need & signs for need in self.needs)

    def distance(self, signs: MechanismSign) -> int:
        """Return how closely the signs that show this mechanism concern the witness; the worst of its conditions
        counts.

        - 0: each condition has a sign of the witness's own record (OF_WITNESS).
        - 1: a condition has only signs of the record's partition, or of the time in which the record was under way;
          or the mechanism has no conditions.
        - 2: a condition has only signs of the whole run.
        """
        return max((min(map(_distance, need & signs)) for need in self.needs), default=1)


def _distance(sign: MechanismSign) -> int:
    return 0 if sign & OF_WITNESS else 2 if sign & MechanismSign.MOVED else 1


OF_WITNESS = (
    MechanismSign.LATER_EPOCH
    | MechanismSign.POWER_LOST
    | MechanismSign.SYNC_FAILED
    | MechanismSign.RESENT
    | MechanismSign.INTERRUPTED
)
"""Combines the signs that concern the very record of a witness (one place in the history at which an anomaly shows).
All other signs concern only the record's partition, the time in which the record was under way, or the whole run.
"""
BY_EPOCHS = MechanismSign.LATER_EPOCH | MechanismSign.LED_ANEW | MechanismSign.MOVED | MechanismSign.SEVERAL_LED
"""Combines the signs that are derived from leader epochs: if the epochs are not known, such a sign may be missing."""
BY_LOST_RECORDS = MechanismSign.POWER_LOST | MechanismSign.SYNC_FAILED
"""Combines the signs that are derived from the records that a node's log lost in a power loss. If it is not reported
which records these were, such a sign may be missing.
"""

_EPOCHS = "leader epochs: traces, Apache Kafka's logs, or polls"
_FAULTS = "nemesis.jsonl"
_HISTORY = "the history"

LATER_EPOCH = AnomalyMechanism(
    "later epoch",
    "a leader epoch later than that of the leader that acknowledged the record starts at or below its offset",
    _EPOCHS,
    (MechanismSign.LATER_EPOCH,),
)
POWER_LOSS = AnomalyMechanism(
    "power loss",
    "a node lost power before it had synced its copy of the record, and a later leader epoch starts at or below the "
    "record's offset",
    f"{_FAULTS}; {_EPOCHS}",
    (MechanismSign.POWER_LOST, MechanismSign.LATER_EPOCH),
)
DAMAGE = AnomalyMechanism(
    "disk damage",
    "a disk with this partition was damaged after the record was handed over, or a node on which an fsync had failed "
    "lost its copy of the record with its power",
    _FAULTS,
    (MechanismSign.DAMAGED | MechanismSign.SYNC_FAILED,),
)
ARRIVAL = AnomalyMechanism(
    "lost on the way",
    "a fault was on, the leader changed, or sends of its producer failed, while the record was on its way; or a later "
    "leader epoch starts at or below its offset",
    f"{_FAULTS}; {_HISTORY}; {_EPOCHS}",
    (MechanismSign.DISTURBED | MechanismSign.LATER_EPOCH | MechanismSign.UNPLACED,),
)
RETRY = AnomalyMechanism(
    "retry",
    "the record was sent again, or failed or had no answer; or its client does not tell how often it sent, and a fault "
    "was on, the leader changed, or sends of its producer failed or had no answer, while the record was on its way",
    f"{_HISTORY}; {_FAULTS}; {_EPOCHS}",
    (MechanismSign.RESENT,),
)
OVERTAKEN = AnomalyMechanism(
    "overtaken",
    f"{RETRY.what}; or more than one leader may have led the partition meanwhile",
    RETRY.seen,
    (MechanismSign.RESENT | MechanismSign.SEVERAL_LED,),
)
HALF_LOST = AnomalyMechanism(
    "lost copy",
    "a later leader epoch starts at or below the acknowledged offset, or a disk lost the record; and the record was "
    'sent again, or may have been, as for "retry"',
    RETRY.seen,
    (MechanismSign.LATER_EPOCH | DAMAGE.needs[0], MechanismSign.RESENT),
)
REPLACED = AnomalyMechanism(
    "replaced record",
    "the record, or the one that was acknowledged for its place, was lost: a leader epoch later than that of the "
    "leader that acknowledged it starts at or below this offset, or a disk lost it",
    f"{_EPOCHS}; {_HISTORY}; {_FAULTS}",
    (MechanismSign.LATER_EPOCH | DAMAGE.needs[0],),
)
SECOND_HAND = AnomalyMechanism(
    "second record",
    "the partition had more than one leader epoch, or its disk was damaged",
    f"{_EPOCHS}; {_FAULTS}",
    (MechanismSign.LED_ANEW | MechanismSign.DAMAGED,),
)
COORDINATOR = AnomalyMechanism(
    "coordinator's loss",
    "some partition of the cluster, a coordinator's included, had more than one leader epoch, or a disk was damaged",
    f"{_EPOCHS}; {_FAULTS}",
    (MechanismSign.MOVED | MechanismSign.DAMAGED,),
)
GOT_AGAIN = AnomalyMechanism(
    "got again",
    "the group got the input as often as it made outputs of it, each time before it made the next one",
    f"{_HISTORY}: polls",
    (MechanismSign.INTERRUPTED,),
)
UNFINISHED = AnomalyMechanism(
    "unfinished",
    "the member that got the input got nothing more before it crashed, or before the partition had another owner or "
    "the same one again; or its output was sent and not acknowledged",
    f"{_HISTORY}: polls, assignments, sends",
    (MechanismSign.INTERRUPTED,),
)
ITSELF = AnomalyMechanism("itself", "it is found at all: nothing else need have happened", _HISTORY)

ALL = (
    *(LATER_EPOCH, POWER_LOSS, DAMAGE, ARRIVAL, RETRY, OVERTAKEN),
    *(HALF_LOST, REPLACED, SECOND_HAND, COORDINATOR, GOT_AGAIN, UNFINISHED, ITSELF),
)
"""Lists all mechanisms, in the order of docs/permissions.md."""
