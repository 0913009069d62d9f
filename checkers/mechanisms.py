"""Defines what must have happened for a finding to be permitted, and the signs by which it is seen.

A configuration permits a finding if its mechanism explains that very record. Each witness carries the signs that speak
for one (`squall.checkers.signs`).
"""

# Configuration and class of faults alone are not enough: a program that acknowledged what it never sent was valid at
# acks=1. Nor is any change of leaders: a leader of a later epoch that starts above a record cannot have taken it.

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag


class MechanismSign(IntFlag):
    """Names what was seen of one witness that speaks for a mechanism."""

    LATER_EPOCH = 1
    """A leader epoch later than that of a leader that may have acknowledged it starts at or below its offset. Of two
    records that were acknowledged for one place (`signs.PLACE_OF_OTHER`): of it, or of the other one."""
    LED_ANEW = 2
    """Its partition had more than one leader epoch."""
    DISTURBED = 4
    """While it was on its way a fault was on, or its partition's leader changed, or sends of its producer to this
    partition failed, or had no answer."""
    POWER_LOST = 8
    """A node lost power after it was handed over, and what is lost of that node's log includes its offset."""
    DAMAGED = 16
    """A disk with its partition was damaged, after it was handed over."""
    MOVED = 32
    """Some partition, a coordinator's included, had more than one leader epoch, or a disk was damaged."""
    INTERRUPTED = 64
    """Of an output: its group had got the input as often by then as it made outputs of it. Of an input: the member that
    got it got nothing more before it crashed, or before the partition went to another owner, or to the same one again;
    or an output of it was sent and not acknowledged."""
    RESENT = 128
    """Its producer sent it more than once; or it is not known how often, because its client does not say or the send
    was not acknowledged, and DISTURBED; or a fault delivered requests twice or out of order meanwhile."""
    SEVERAL_LED = 256
    """More than one leader may have led its partition while it was on its way."""
    SYNC_FAILED = 512
    """POWER_LOST holds, and an fsync had failed on that node before."""
    UNPLACED = 1024
    """Its acknowledgement has no offset, a later leader epoch would explain its loss if it was high enough, and no
    other record's offset says whether it did."""


@dataclass(frozen=True, slots=True)
class AnomalyMechanism:
    """Explains a finding. `needs`: each of these must be there; of a combined one, any part of it."""

    name: str
    what: str
    """What must have happened, after "where "."""
    seen: str
    """How it is seen: by our brokers, by Apache Kafka, by others."""
    needs: tuple[MechanismSign, ...] = ()

    def explains(self, signs: MechanismSign) -> bool:
        """Return whether these signs speak for it."""
        return all(need & signs for need in self.needs)

    def distance(self, signs: MechanismSign) -> int:
        """Return how far from the witness the signs are that speak for it: 0 if they are of the witness itself, 1 if
        of its partition or of the time in which it was on its way, 2 if of the run.
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
"""These signs are of the witness itself."""
BY_EPOCHS = MechanismSign.LATER_EPOCH | MechanismSign.LED_ANEW | MechanismSign.MOVED | MechanismSign.SEVERAL_LED
"""These signs cannot be excluded unless the leader epochs are known."""
BY_LOST_RECORDS = MechanismSign.POWER_LOST | MechanismSign.SYNC_FAILED
"""These signs cannot be excluded unless every power loss says which records it took."""

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
"""Each one, in the order of docs/permissions.md."""
