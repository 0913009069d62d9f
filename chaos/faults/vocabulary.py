"""Makes checked faults from action, target and parameters.

Each fault has its own begin and end, so a plan without some of its faults is a valid plan, too. The fault's kind
(`squall.chaos.faults.kinds`) decides what its action requires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from squall.chaos.faults.kind import TRAFFIC, Fault, FaultError, FaultKind, FaultTrait
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.targets import (
    CLIENT_TARGETS,
    LINK_TARGET,
    LOAD,
    MEMBER,
    NODE_TARGETS,
    ZONE_TARGET,
    check_target,
    link_ends,
    of_clients,
    zone_of,
)
from squall.chaos.nearest import did_you_mean

ELSEWHERE = {
    **dict.fromkeys(("timeout", "blackhole"), "partition with manner drop"),
    **dict.fromkeys(("down", "disconnect"), "partition with manner refuse"),
    **dict.fromkeys(("crash", "restart", "sigkill"), "kill"),
    **dict.fromkeys(("freeze", "hang", "sigstop"), "pause"),
    **dict.fromkeys(("delay", "lag", "jitter"), "latency"),
    **dict.fromkeys(("packet", "loss", "drop"), "packet_loss"),
    **dict.fromkeys(("skew", "time"), "clock"),
    **dict.fromkeys(("file-corruption", "bitflip", "truncate"), "bit_rot or damage"),
}
"""Maps words of Toxiproxy (its toxic `timeout`, a proxy that is down), of Jepsen's nemeses and of other tools to the
kind that does the same in Squall.
"""


def unknown_kind(name: str) -> str:
    """Return a hint for a kind of fault that does not exist: the kind that was probably meant, or else all that exist.
    """
    if name in ELSEWHERE:
        return f"here it is {ELSEWHERE[name]} (docs/faults.md)"
    return did_you_mean(name, KINDS)


def kind_of(here: str, action: str) -> FaultKind:
    """Return the definition of the fault that a plan calls `action`, such as "kill". Raise FaultError if no fault has
    this name. here: how the message names the fault.
    """
    kind = KINDS.get(action)
    if kind is None:
        raise FaultError(f"{here}: unknown action {action!r}: {unknown_kind(action)}")
    return kind


def make_fault(
    fault_id: int, at_s: float, duration_s: float, action: str, target: str, params: Mapping[str, Any]
) -> Fault:
    """Return a checked fault, with the defaults of its parameters filled in. Raise FaultError with all that is wrong, a
    line each.
    """
    here = f"fault {fault_id} ({action})"
    wrong: list[str] = []
    kind: FaultKind | None = None
    with _collecting(wrong):
        kind = kind_of(f"fault {fault_id}", action)
        kind.duration_s.check(f"{here}: duration_s", duration_s)
    if at_s < 0:
        wrong.append(f"{here}: at_s = {at_s}: must not be negative")
    whom = ""
    with _collecting(wrong):
        whom, _ = check_target(here, target)
    checked: dict[str, Any] = {}
    if kind is not None:
        with _collecting(wrong):
            if whom in (ZONE_TARGET, LINK_TARGET):
                params = _of_zone_or_link(here, kind, target, params)
        checked = _params(here, kind, params, wrong)
        if whom:
            wrong += _mismatched(here, kind, target)
    # Only with valid values: these checks compare parameters with each other.
    if kind is not None and not wrong and (why := kind.check(checked) or kind.check_target(target, checked)):
        wrong.append(f"{here}: {why}")
    if wrong or kind is None:
        raise FaultError("\n".join(wrong))
    return Fault(fault_id, float(at_s), float(duration_s), kind, target, checked)


@contextmanager
def _collecting(wrong: list[str]) -> Iterator[None]:
    """Append a FaultError that the block raises to `wrong`, so that several errors are reported together."""
    try:
        yield
    except FaultError as error:
        wrong += str(error).splitlines()


def _params(here: str, kind: FaultKind, given: Mapping[str, Any], wrong: list[str]) -> dict[str, Any]:
    """Return the parameters with their defaults, and append to `wrong` what is wrong with them."""
    for name in given:
        if name not in kind.params:
            wrong.append(f"{here}: unknown parameter {name!r}: {did_you_mean(name, kind.params)}")
    checked: dict[str, Any] = {}
    for name, each in kind.params.items():
        with _collecting(wrong):
            checked[name] = each.check(f"{here}: {name}", given.get(name, each.default))
    return checked


def _mismatched(here: str, kind: FaultKind, target: str) -> list[str]:
    """Return errors if a fault of clients targets nodes, or another fault targets clients."""
    if FaultTrait.OF_CLIENTS not in kind.traits:
        return [f"{here}: target {target!r}: one of {', '.join(NODE_TARGETS)}"] if of_clients(target) else []
    own = {MEMBER: FaultTrait.NEEDS_MEMBERS, LOAD: FaultTrait.NEEDS_LOADS}
    named = [each for each, trait in own.items() if trait in kind.traits]
    allowed = named or [each for each in CLIENT_TARGETS if each not in own]
    fits = target.partition(":")[0] in allowed
    return [] if fits else [f"{here}: target {target!r}: one of {', '.join(allowed)}"]


def _of_zone_or_link(here: str, kind: FaultKind, target: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a fault that targets a client zone or one link. Fill in the parameter `side` if it is
    not given: "peers" for a link between brokers, else "clients".

    Raise FaultError if this kind of fault does not act on links, or if `side` contradicts the target.
    """
    of_link = target.startswith(f"{LINK_TARGET}:")
    if FaultTrait.OF_LINKS not in kind.traits:
        what = "a link is no broker" if of_link else "a zone has nothing but links"
        raise FaultError(f"{here}: target {target!r}: {what}: of faults that take a side")
    if "side" not in kind.params:
        return dict(params)
    of_brokers = of_link and not zone_of(link_ends(here, target)[0])
    side = "peers" if of_brokers else "clients"
    given = {"side": side, **params}
    told_apart = of_brokers and given["side"] in TRAFFIC  # the parameter's own check says whether the fault has it
    if given["side"] != side and not told_apart:
        whose = f"this link is of {side}" if of_link else "a zone's links are its clients'"
        raise FaultError(f"{here}: side = {given['side']!r}: {whose}: leave it out")
    return given
