"""From the faults of a run to the classes that the guarantees know, and whether each fault proved that it landed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from checkers.guarantees import FaultClass
from checkers.tables import Fault

ACTIONS: Mapping[str, FaultClass] = {
    "kill": FaultClass.P,
    "stop": FaultClass.P,
    "pause": FaultClass.P,
    "slow": FaultClass.P,
    "rolling": FaultClass.P,
    "upgrade": FaultClass.P,
    "leadership": FaultClass.P,
    "client": FaultClass.P,
    "partition": FaultClass.N,
    "latency": FaultClass.N,
    "link": FaultClass.N,
    "packet": FaultClass.N,
    "protocol": FaultClass.N,
    "clock": FaultClass.C,
    "power_loss": FaultClass.W1,
    "disk": FaultClass.P,
    "crash_at": FaultClass.P,
    "packet_loss": FaultClass.N,
    "reset": FaultClass.N,
    "bit_rot": FaultClass.D,
}
"""Of faults whose record does not say their class itself."""


class UnknownFault(ValueError):
    """An action of which nobody said what it can do to data."""


def class_of(action: str, said: str = "") -> FaultClass:
    """The class of one fault taken by itself. UnknownFault where neither its record nor its action tells."""
    try:
        return FaultClass(said) if said else ACTIONS[action]
    except (KeyError, ValueError):
        raise UnknownFault(f"fault {action!r} is of no known class ({said or 'none given'})") from None


def classes_of(faults: Iterable[Fault]) -> tuple[FaultClass, ...]:
    """The classes of all faults that began, landed or not: one without evidence may have done its work all the same.

    Power losses of different nodes at once, or of a second node before the first one was back, are WM.
    """
    began = [fault for fault in faults if fault.began >= 0]
    found = {class_of(fault.action, fault.fault_class) for fault in began}
    losses = [fault for fault in began if class_of(fault.action, fault.fault_class) is FaultClass.W1]
    if _several_at_once(losses):
        found.add(FaultClass.WM)
    return tuple(each for each in FaultClass if each in found)


def _several_at_once(losses: Sequence[Fault]) -> bool:
    if any(len(fault.resolved) > 1 for fault in losses):
        return True
    ordered = sorted(losses, key=lambda fault: fault.began)
    for number, first in enumerate(ordered):
        for second in ordered[number + 1 :]:
            if second.resolved != first.resolved and (_caught_up(first) < 0 or second.began < _caught_up(first)):
                return True
    return False


def _caught_up(fault: Fault) -> int:
    """When the node had again what the others have: as the nemesis saw it, else when it was back. -1: never."""
    told = (fault.evidence or {}).get("caught_up_ns")
    return int(told) if told is not None else fault.ended


def not_landed(fault: Fault) -> str | None:
    """Why a fault counts for nothing; None where it has its evidence."""
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
