"""The table of invariants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class CheckTrigger(StrEnum):
    """Selects when an invariant is checked, and on what. The check's arguments follow from it."""

    REPLICA = "replica"
    """One replica has changed: check(before: View | None, now: View, known: Known)."""
    LEADER = "leader"
    """One replica that leads has changed: arguments as above."""
    STANDING = "standing"
    """Of one replica that has changed, its role, epochs, ISR or fetching: arguments as above."""
    PARTITION = "partition"
    """Something of a partition has changed: check(known: Known)."""
    BELIEF = "belief"
    """As PARTITION, and also if only what its leader believes of a follower's log has changed: check(known: Known)."""
    DECISION = "decision"
    """The control plane decided: check(before: PartitionImage | None, now: PartitionImage, known: Known)."""
    BATCH = "batch"
    """A batch was committed: check(batch: Batch, producer: Producer | None)."""
    WRITTEN = "written"
    """A batch was written anywhere: check(now: Written, first: Written, view: View | None, known: Known | None).
    `first` is how a batch of that leader epoch was first seen at that offset. None and None: in the metadata log."""
    EPOCH = "epoch"
    """A log has its first batch of another leader epoch: check(epoch: int, durable: tuple[int, ...]), with the epochs
    in the file beside the log as a loss of power would leave it."""
    TRUNCATED = "truncated"
    """A log was truncated: check(node: int, before: int, now: int, known: Known) with the ends of its committed
    prefix."""
    RECOVERED = "recovered"
    """A log was loaded: arguments as above."""
    LOADED = "loaded"
    """A log was loaded: check(node: int, whole: int, now: int, known: Known): where its sound batches end, and where it
    does."""
    FLUSHED = "flushed"
    """A recovery point has moved, or its log was truncated, or its node is down: check(recovery_point: int, end: int),
    with the end of what is durable."""
    EPOCHS = "epochs"
    """A log was loaded or truncated, or its start has moved: check(cache: Epochs, batches: Iterable[Batch])."""
    INDEXES = "indexes"
    """A log was loaded or truncated: check(segment: Indexed), for each segment."""
    STARTED = "started"
    """A log was loaded: check(start: int, first: int, kept: int): its start, the base offset of its first segment, and
    what the checkpoint says."""
    WENT_BACK = "went back"
    """A log's start, or what its replica takes for it, has gone back while the node ran: check(before: int, now: int,
    end: int, cut: bool), with the log's end, and whether the log was truncated."""
    TRIMMED = "trimmed"
    """The metadata log of a node was loaded or truncated, or its start has moved: check(start: int, ends:
    Sequence[int]), with where the snapshots on its disk end."""
    QUORUM = "quorum"
    """One node's seat in the quorum has changed: check(before: Seat | None, now: Seat, quorum: Quorum)."""
    IMAGE = "image"
    """A node's image has moved: check(image: Contents, replayed: Contents), at one offset."""
    RECORDS = "records"
    """A node's image is newer than all before, and its log has the records: check(reached: int, wanted: int, why: str),
    with the offset that the records lead to, that of the image, and what was in the way."""
    ACK = "ack"
    """Records were acknowledged to a client: check(ack: Ack, known: Known)."""
    READ = "read"
    """A reader was served a record: check(now: Read, first: Read, known: Known). `first` is what any reader was served
    at that offset first. Not called for leaders whose answers do not count: see `PartitionModel.serves`."""
    REPLAY = "replay"
    """A log has changed, was truncated or loaded: check(found: Remembered, replayed: Remembered)."""
    MARKER = "marker"
    """A marker is in a log: check(marked: Marked, decided: Sequence[Prepared] | None), with all that was ever decided
    for its producer epoch; None: a permitted loss may have taken such decisions."""
    DECIDED = "decided"
    """As MARKER, unless such a loss may have: check(marked: Marked, place: Place, decided: Sequence[Prepared])."""
    COMPLETED = "completed"
    """A coordinator wrote that a transaction is complete: check(prepared: Prepared, committed: Mapping[Place,
    Sender | None]), with what the committed batches of its partitions say of its producer id."""
    OPENED = "opened"
    """A transaction began in the committed batches of a partition: check(now: Owner, others: Mapping[Place, Owner]),
    with what is open of its transactional id in other partitions."""
    COORDINATOR = "coordinator"
    """A coordinator was loaded, or its log has changed: check(found: Mapping[str, Entry | None], replayed: Mapping[str,
    Entry | None]), by transactional id."""
    GROUPS = "group state"
    """As COORDINATOR, of groups, also after a marker: check(found: Mapping[str, Books], replayed: Mapping[str, Books]),
    by group."""
    OFFSETS = "offsets"
    """As GROUPS: check(offsets: Mapping[str, Positions], unmarked: Mapping[int, int]): what the coordinator knows as
    committed, by group, and which records, by their offset, are of a producer's transaction without a commit marker."""
    OWNERS = "owners"
    """Records in the log of a coordinator that serves say who owns what: check(before: Owned | None, now: Owned)."""
    GIVEN = "given"
    """Records in the log of a coordinator that serves give a partition to a member: check(given: GivenPartition)."""
    GROUP_TIMES = "group times"
    """A look at a group of a coordinator that serves: check(now: GroupTimes)."""
    ORDER = "order"
    """A request took effect that is not the next one of its connection: check(now: Effect, last: Effect), with the one
    that took effect last."""
    FINAL = "final"
    """The cluster has converged: check(known: Known)."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """Represents one promise. `check` is pure and answers with what is wrong, or None."""

    name: str
    definition: str
    source: str
    when: CheckTrigger
    check: Callable[..., str | None]


INVARIANTS: dict[str, Invariant] = {}
"""By name."""
_entered: dict[tuple[CheckTrigger, ...], tuple[int, tuple[Invariant, ...]]] = {}
"""What `entered` has found, and among how many."""


def invariant(name: str, when: CheckTrigger, source: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a check into the table; its docstring is the definition."""

    def enter(check: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in INVARIANTS, f"two invariants are called {name}"
        assert check.__doc__, f"{name} has no definition"
        INVARIANTS[name] = Invariant(name, " ".join(check.__doc__.split()), source, when, check)
        return check

    return enter


def entered(*kinds: CheckTrigger) -> tuple[Invariant, ...]:
    """Those of these kinds, in the order in which they were entered."""
    found = _entered.get(kinds)
    if found is None or found[0] != len(INVARIANTS):
        found = _entered[kinds] = len(INVARIANTS), tuple(each for each in INVARIANTS.values() if each.when in kinds)
    return found[1]
