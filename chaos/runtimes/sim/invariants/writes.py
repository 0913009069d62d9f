"""Records which replicas were written to, so that all others need not be compared after every event.

The broker's classes are changed during a simulation: an assignment to a watched attribute is recorded. So the broker's
code cannot forget to report a change. Changes without an assignment (of a container in place, or by
`object.__setattr__`) are found all the same, because now and then every replica is compared: `WatchedReplicas.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from types import MemberDescriptorType
from typing import Any, Final

from squall.broker.log.durability import DurabilityTracker
from squall.broker.log.log import Log
from squall.broker.replication.partition import Partition
from squall.broker.replication.replica import FollowerReplicaState

OF_STATE: Final = frozenset({"high_watermark", "log_end_offset", "partition_epoch", "maximal_isr", "isr", "is_leader"})
"""Names the watched attributes of `Partition`, the state machine of a replica."""
OF_LOG: Final = frozenset({"log_end_offset", "generation", "log_start_offset"})
OF_DURABILITY: Final = frozenset({"recovery_point"})
"""Names the watched attributes of a log's `DurabilityTracker`."""
BELIEVED: Final = "log_end_offset"
"""Names the watched attribute of `FollowerReplicaState`: the follower's log end, as its leader believes it."""

Written = dict[Any, None]
"""Holds the state machines, logs, durability trackers and follower states with a changed watched attribute, in the
order in which they were written to. It is an ordered set; the code that checks them clears it.
"""


@contextmanager
def note_writes() -> Iterator[Written]:
    """Record assignments to watched attributes inside this block, in the yielded dict. Not to be nested."""
    written: Written = {}
    slot = vars(FollowerReplicaState)[BELIEVED]
    assert isinstance(slot, MemberDescriptorType), "there is a hook already"
    Partition.__setattr__ = _hook(OF_STATE, written)  # type: ignore[method-assign]
    Log.__setattr__ = _hook(OF_LOG, written)  # type: ignore[method-assign]
    DurabilityTracker.__setattr__ = _hook(OF_DURABILITY, written)  # type: ignore[method-assign]
    # Its other attributes are written five times as often, and this one is seldom read.
    setattr(FollowerReplicaState, BELIEVED, property(slot.__get__, _setter(slot, written)))
    try:
        yield written
    finally:
        del Partition.__setattr__, Log.__setattr__, DurabilityTracker.__setattr__
        setattr(FollowerReplicaState, BELIEVED, slot)


def _hook(names: Set[str], written: Written) -> Callable[[Any, str, Any], None]:
    write, nothing = object.__setattr__, object()

    def set_and_note(self: Any, name: str, value: Any) -> None:
        if name in names and getattr(self, name, nothing) != value:
            written[self] = None
        write(self, name, value)

    return set_and_note


def _setter(slot: MemberDescriptorType, written: Written) -> Callable[[Any, Any], None]:
    read, write = slot.__get__, slot.__set__

    def set_and_note(self: Any, value: Any) -> None:
        try:
            if read(self) == value:
                return
        except AttributeError:  # it has none yet
            pass
        written[self] = None
        write(self, value)

    return set_and_note
