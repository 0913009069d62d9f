"""Turns a seed into a plan of timed faults. The same seed and settings give the same plan on every machine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random

from squall.chaos.draws import rng_for
from squall.chaos.faults.kind import Fault, FaultError, FaultKind, FaultTrait
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.targets import CoordinatorKeys
from squall.chaos.faults.vocabulary import make_fault, unknown_kind

DEFAULT_KINDS = tuple(kind.name for kind in KINDS.values() if kind.draw.by_default)
FIRST_AT_S = 2.0
"""Gives the seconds of load without faults at the beginning, for comparison."""
ZONE_SHARE = 1 / 3
"""Gives the share of drawn link faults that hit one client zone's links, if the workload has several zones."""
COORDINATED_SHARE = 0.35
"""Gives the share of drawn faults that hit a coordinator, or its requests, if a workload has transactional ids or
groups.
"""
QUIET_END_S = 3.0
"""Gives the seconds at the end of the load into which no fault lasts: the history should show the recovery."""


def of_transactions(zombies: Sequence[int]) -> tuple[str, ...]:
    """Return the kinds of faults that are drawn by default for a workload with these producers, which faults can turn
    into zombies (stopped producers whose transactional id a successor takes over).
    """
    return tuple(kind.name for kind in KINDS.values() if zombies and FaultTrait.NEEDS_TRANSACTIONS in kind.traits)


def parse_kinds(text: str) -> tuple[str, ...]:
    """Split text such as `kill,partition` into names of kinds; "none" gives no names. Raise FaultError that lists all
    unknown names, a line each.
    """
    kinds = tuple(text.replace(",", " ").split())
    if kinds == ("none",):
        return ()
    if not kinds:
        raise FaultError(f"no faults are named: {unknown_kind('')}; or none")
    wrong = [
        "none excludes all faults: leave it out, or name it alone"
        if kind == "none"
        else f"unknown fault {kind!r}: {unknown_kind(kind)}"
        for kind in kinds
        if kind not in KINDS
    ]
    if wrong:
        raise FaultError("\n".join(wrong))
    return kinds


def make_schedule(
    seed: int, kinds: Sequence[str], time_s: float, *, restart_s: float = 0.0, count: int | None = None
) -> tuple[Fault, ...]:
    """Draw faults one after another with quiet gaps; all kinds take turns in an order that the seed draws.

    A broker that was ended has `restart_s` to come back before the next fault. Each fault ends before the load does.
    count: draw exactly so many faults; None: as many as fit. Raise FaultError if the load is too short for them, or for
    any fault.
    """
    if not kinds:
        return ()
    if time_s < FIRST_AT_S + QUIET_END_S + 2:
        raise FaultError(
            f"a load of {time_s:g} s leaves no room for faults: at least {FIRST_AT_S + QUIET_END_S + 2:g} s"
        )
    end_s = time_s - QUIET_END_S
    faults: list[Fault] = []
    for at_s, fault in islice(_without_end(seed, kinds, restart_s), count):
        if count is None and at_s + fault.duration_s > end_s:
            if not faults:
                faults.append(replace(fault, duration_s=max(fault.kind.duration_s.low, end_s - at_s)))
            break
        faults.append(fault)
    if count is not None:
        _check_count(faults, count, time_s)
    return tuple(faults)


def _check_count(faults: Sequence[Fault], count: int, time_s: float) -> None:
    """Raise FaultError if the load is too short for the requested number of faults, or the seed cannot draw so many."""
    if len(faults) < count:
        raise FaultError(f"{count} faults were asked for: a run has {faults[-1].action} only once")
    fit = sum(_ends_s(fault) <= time_s for fault in faults)
    if fit < count:
        needed_s = math.ceil(_ends_s(faults[-1]))
        raise FaultError(
            f"{count} faults were asked for: a load of {time_s:g} s has room for {fit}, one of {needed_s} s for all"
        )


def _ends_s(fault: Fault) -> float:
    """Return the length of the shortest load into which the fault fits, in s."""
    return fault.at_s + fault.duration_s + QUIET_END_S


def needed_load_s(seed: int, kinds: Sequence[str], restart_s: float) -> int:
    """Return the length of the shortest load, in whole seconds, in which this seed draws each of the kinds."""
    drawn = [fault for _, fault in islice(_without_end(seed, kinds, restart_s), len(kinds))]
    return math.ceil(max(map(_ends_s, drawn), default=0.0) + 0.01)  # begins are rounded


def _without_end(seed: int, kinds: Sequence[str], restart_s: float) -> Iterator[tuple[float, Fault]]:
    """Yield the faults that the seed draws for a load without an end, each with its begin in seconds before rounding.
    """
    rng = rng_for(seed, "schedule")
    at_s = FIRST_AT_S + rng.random()
    order: list[str] = []
    for number in itertools.count():
        if not order:
            order = [name for name in kinds if FaultTrait.ONCE not in KINDS[name].traits or not number]
            if not order:
                return
            rng.shuffle(order)
        kind = KINDS[order.pop()]
        draw = rng_for(seed, "fault", number)
        # Three brokers, one after the other, need a bit more than three times what one broker needs.
        duration_s = round(draw.uniform(*kind.draw.lasts_s), 2)
        duration_s += 4 * restart_s if FaultTrait.ONE_BY_ONE in kind.traits else 0.0
        yield at_s, _draw(number, round(at_s, 2), duration_s, kind, draw)
        at_s += duration_s + 1.5 + 2 * draw.random() + (restart_s if FaultTrait.TAKES_DOWN in kind.traits else 0.0)


def of_one_broker(fault: Fault) -> Fault:
    """Return a drawn fault, changed so that it lands on a single broker: link faults hit clients' links, and no other
    broker takes a partition.
    """
    return replace(fault, params=fault.kind.alone(fault.params))


def likely(seed: int, fault: Fault, in_flight: int) -> Fault:
    """Return a drawn fault with parameters with which it hits something, whatever the load."""
    return replace(fault, params=fault.kind.draw.likely(seed, fault, in_flight))


def coordinated(seed: int, fault: Fault, names: CoordinatorKeys) -> Fault:
    """Change some faults, if there are transactional ids or groups, so that they hit a coordinator, or the requests
    that it gets.
    """
    rng, draw = rng_for(seed, "coordinated", fault.id), fault.kind.draw
    if not any(names) or rng.random() >= COORDINATED_SHARE:
        return fault
    return draw.of_groups(rng, fault, names.asked) if names.groups else draw.coordinated(rng, fault)


def in_a_zone(seed: int, fault: Fault, zones: int) -> Fault:
    """Move some link faults to the links of one client zone, if there are several zones."""
    rng, traits = rng_for(seed, "zone", fault.id), fault.traits
    if (
        zones < 2
        or FaultTrait.OF_LINKS not in traits
        or FaultTrait.NEEDS_TRAFFIC in traits
        or rng.random() >= ZONE_SHARE
    ):
        return fault
    return replace(fault, target=f"zone:{rng.randint(1, zones)}", params=fault.kind.of_clients(fault.params))


def _draw(fault_id: int, at_s: float, duration_s: float, kind: FaultKind, rng: Random) -> Fault:
    target = rng.choice(("leader", "leader", "controller", "random"))
    params = kind.draw.params(rng)
    if kind.draw.target is not None:
        target = kind.draw.target(rng, params) or target
    return make_fault(fault_id, at_s, duration_s, kind.name, target, params)
