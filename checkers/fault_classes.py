"""Maps the faults of a run to the classes that the guarantees know, and decides whether each fault proved that it
landed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from squall.checkers import first_schema
from squall.checkers.fault_traits import EITHER_END, FORGETS_SYNCS, OUT_OF_SYNC
from squall.checkers.guarantees import FaultClass
from squall.checkers.history.tables import RecordedFault


class UnknownFault(ValueError):
    """Reports a fault action whose effect on data is not defined."""


def class_of(action: str, said: str = "") -> FaultClass:
    """Return the class of one fault taken by itself. `said` is the class that its line in nemesis.jsonl gives; empty:
    none. Raises UnknownFault if there is no such class.
    """
    try:
        return FaultClass(said or first_schema.class_of(action))
    except ValueError:
        raise UnknownFault(f"fault {action!r} is of no known class ({said or 'none given'})") from None


def classes_of(faults: Iterable[RecordedFault]) -> tuple[FaultClass, ...]:
    """Return the classes (`FaultClass`) of all faults that began. Faults that did not land count too, because a fault
    without evidence may still have done damage.

    WM (power loss of several nodes) is added if all in-sync replicas of some partition may have lost their power. That
    is so after power losses of several nodes at once, or of a second node before the first one had caught up. It is
    also so after a power loss of one node while all other replicas were out of the ISR, or were hit by other faults:
    that node may be elected again with only what it had synced (KIP-966: the last replica standing). Eligible leader
    replicas do not exclude that: a killed broker is not eligible, and if no replica is eligible, the last known leader
    leads.

    DM (disk damage while no other replica was in sync) is added if the disk of one node lost synced data, and all other
    replicas were out of the ISR or hit by other faults.

    D (disk damage) is also added if an fsync failed on a node that lost power later. After a failed fsync, pages that
    never reached the disk count as written. The broker stops, finds the unsynced batch when it recovers its log, and
    acknowledges it; the power loss then removes it.
    """
    began = [fault for fault in faults if fault.began >= 0]
    found = {class_of(fault.action, fault.fault_class) for fault in began}
    losses = [fault for fault in began if class_of(fault.action, fault.fault_class) is FaultClass.W1]
    if _several_at_once(losses) or any(_of_all_in_sync(loss, began) for loss in losses):
        found.add(FaultClass.WM)
    damages = [fault for fault in began if class_of(fault.action, fault.fault_class) is FaultClass.D]
    if any(_of_all_in_sync(damage, began) for damage in damages):
        found.add(FaultClass.DM)
    if any(_forgot_to_sync(fault, losses) for fault in began):
        found.add(FaultClass.D)
    return tuple(each for each in FaultClass if each in found)


def losses_without_isr(faults: Iterable[RecordedFault]) -> list[RecordedFault]:
    """Return the power losses that began and for which nemesis.jsonl has no ISR of any partition. Each of them may have
    hit all in-sync replicas of a partition, which would make it class WM.
    """
    return [
        fault
        for fault in faults
        if fault.began >= 0
        and class_of(fault.action, fault.fault_class) is FaultClass.W1
        and not (fault.evidence or {}).get("isr")
    ]


def logs_with_holes(faults: Iterable[RecordedFault]) -> frozenset[str] | None:
    """Return the names (topic-index, such as "orders-0") of the partitions whose logs may lack a segment that later
    segments follow; None if it may be any partition.

    The evidence of the fault `damage` names the file that it removed. A power loss of a node on which an fsync had
    failed may remove data from the inside of any log.
    """
    began, found = [fault for fault in faults if fault.began >= 0], set()
    losses = [fault for fault in began if class_of(fault.action, fault.fault_class) is FaultClass.W1]
    for fault in began:
        if _forgot_to_sync(fault, losses):
            return None
        if (fault.action, fault.params.get("how")) == ("damage", "file"):
            damaged = (fault.evidence or {}).get("damaged")
            if not isinstance(damaged, Mapping) or "path" not in damaged:
                return None
            folder, _, file = str(damaged["path"]).rpartition("/")
            # Only segments hold records: a lost index or snapshot is made anew, and leaves no hole.
            if file.endswith(".log"):
                found.add(folder.rpartition("/")[2])
    return frozenset(found)


def _forgot_to_sync(fault: RecordedFault, losses: Iterable[RecordedFault]) -> bool:
    if FORGETS_SYNCS not in fault.traits:
        return False
    return any(loss.began > fault.began and set(loss.resolved) & set(fault.resolved) for loss in losses)


def _several_at_once(losses: Sequence[RecordedFault]) -> bool:
    if any(len(fault.resolved) > 1 for fault in losses):
        return True
    ordered = sorted(losses, key=lambda fault: fault.began)
    for number, first in enumerate(ordered):
        for second in ordered[number + 1 :]:
            # A node that loses its power again before it caught up takes no other node's copy.
            if second.resolved != first.resolved and (_caught_up(first) < 0 or second.began < _caught_up(first)):
                return True
    return False


def _of_all_in_sync(loss: RecordedFault, faults: Iterable[RecordedFault]) -> bool:
    """Return whether `loss` (of power or of data) and other faults may together have hit every in-sync replica of some
    partition. The ISR is the one that was recorded before `loss`. If it was empty, the last known leader leads again,
    and that may be the node of `loss` (KIP-966). Another fault counts if it was on between the begin of `loss` and the
    time at which the node of `loss` had caught up.
    """
    hit = set(loss.resolved)
    until = _caught_up(loss)
    for other in faults:
        if (
            OUT_OF_SYNC in other.traits
            and (until < 0 or other.began < until)
            and (other.ended < 0 or other.ended > loss.began)
        ):
            hit |= _may_be_out(other)
    reported = (loss.evidence or {}).get("isr") or {}
    return any(set(isr) <= hit and (not isr or set(isr) & set(loss.resolved)) for isr in reported.values())


def _may_be_out(fault: RecordedFault) -> set[int]:
    """Return the nodes that may leave an ISR because of the fault. For slow links these are the nodes at both ends,
    because a slow leader's followers lag.
    """
    nodes = set(fault.resolved)
    if EITHER_END in fault.traits:
        for link in (fault.evidence or {}).get("links") or ():
            nodes |= {int(end) for end in str(link).split("->") if end.isdigit()}
    return nodes


def _caught_up(fault: RecordedFault) -> int:
    """Return when the node that the fault hit was in sync again, in ns; -1 if the nemesis did not see that. If the
    fault's evidence has no such time, return when the fault ended; -1 if it never did.
    """
    reported = (fault.evidence or {}).get("caught_up_ns")
    return int(reported) if reported is not None else fault.ended


def not_landed(fault: RecordedFault) -> str | None:
    """Return why a fault does not count as landed; None if it began, ended and left evidence of its effect."""
    name = f"fault {fault.id} ({fault.action} {fault.target})".replace(" )", ")")
    if fault.error:
        return f"{name}: {fault.error}"
    if fault.began < 0:
        return f"{name} never began"
    if fault.ended < 0:
        return f"{name} began and was never ended"
    if not fault.evidence:
        return f"{name} left no evidence that it landed"
    return None
