"""The vocabulary of faults: action x target x parameters, checked.

A fault is an interval, so any subset of a plan is a plan. Its kind (`chaos.faults.kinds`) answers every question about
an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos.faults.kind import Fault, FaultError, Kind, Trait
from chaos.faults.kinds import KINDS
from chaos.faults.targets import CLIENT_TARGETS, NODE_TARGETS, ZONE_TARGET, check_target, of_clients


def kind_of(here: str, action: str) -> Kind:
    """The kind of that name. Raises FaultError if there is none."""
    kind = KINDS.get(action)
    if kind is None:
        raise FaultError(f"{here}: unknown action {action!r}: one of {', '.join(KINDS)}")
    return kind


def make_fault(
    fault_id: int, at_s: float, duration_s: float, action: str, target: str, params: Mapping[str, Any]
) -> Fault:
    """A checked fault with its parameters' defaults filled in. FaultError says what is wrong."""
    kind = kind_of(f"fault {fault_id}", action)
    here = f"fault {fault_id} ({action})"
    kind.duration_s.check(f"{here}: duration_s", duration_s)
    if at_s < 0:
        raise FaultError(f"{here}: at_s = {at_s}: must not be negative")
    for name in params:
        if name not in kind.params:
            raise FaultError(f"{here}: unknown parameter {name!r}: {', '.join(kind.params) or 'it takes none'}")
    whom, _ = check_target(here, target)
    if whom == ZONE_TARGET:
        params = _of_zone(here, kind, target, params)
    checked = {
        name: each.check(f"{here}: {name}", params.get(name, each.default)) for name, each in kind.params.items()
    }
    of_client = Trait.OF_CLIENTS in kind.traits
    if of_clients(target) != of_client:
        raise FaultError(
            f"{here}: target {target!r}: one of {', '.join(CLIENT_TARGETS if of_client else NODE_TARGETS)}"
        )
    if wrong := kind.check(checked) or kind.check_target(target, checked):
        raise FaultError(f"{here}: {wrong}")
    return Fault(fault_id, float(at_s), float(duration_s), kind, target, checked)


def _of_zone(here: str, kind: Kind, target: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a fault that targets a client zone: only faults of links may. Raises FaultError for any other
    fault.
    """
    if Trait.OF_LINKS not in kind.traits:
        raise FaultError(f"{here}: target {target!r}: a zone has nothing but links: of faults that take a side")
    if "side" not in kind.params:
        return dict(params)
    given = {"side": "clients", **params}
    if given["side"] != "clients":
        raise FaultError(f"{here}: side = {given['side']!r}: a zone's links are its clients': leave it out")
    return given
