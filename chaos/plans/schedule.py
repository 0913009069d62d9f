"""Draws timed faults from a seed. The same seed and settings give the same faults on every machine."""

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
"""Gives the length, in s, of the part without faults at the beginning of a load. The rest of the load can be compared
with this part.
"""
ZONE_SHARE = 1 / 3
"""Is the probability that a drawn link fault moves to the links of one client zone, if the workload has several zones.
A client zone is a part of the clients, with links of its own to all brokers.
"""
COORDINATED_SHARE = 0.35
"""Is the probability that a drawn fault is changed to hit a coordinator, or requests to it, if the workload has
transactional ids or groups.
"""
QUIET_END_S = 3.0
"""Gives the length, in s, of the part without faults at the end of a load. This part of the history should show the
recovery.
"""


def of_transactions(zombies: Sequence[int]) -> tuple[str, ...]:
    """Return the kinds of faults that need transactional producers; empty if the workload has no such producers.
    zombies: the producers that such a fault can stop while a successor takes over their transactional id.
    """
    return _with_trait(FaultTrait.NEEDS_TRANSACTIONS) if zombies else ()


def of_loads(loads: int) -> tuple[str, ...]:
    """Return the kinds of faults that need batch loads; empty if the workload has no `loads`."""
    return _with_trait(FaultTrait.NEEDS_LOADS) if loads else ()


def _with_trait(trait: FaultTrait) -> tuple[str, ...]:
    return tuple(kind.name for kind in KINDS.values() if trait in kind.traits)


def parse_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of faults named in a text such as `kill,partition`; "none" gives no kinds. Raise FaultError that
    lists all unknown names, a line each.
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
    """Draw faults one after another, with quiet gaps between them. All kinds take turns, in an order that the seed
    draws.

    A fault that takes a broker down is followed by `restart_s` more seconds without a fault. Each fault ends before the
    load does. count: draw exactly so many faults; None: as many as fit. Raise FaultError if the load is too short for
    them, or for any fault.
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
    """Raise FaultError if the load is too short for the requested number of faults, or if there are fewer because their
    kind may occur only once.
    """
    if len(faults) < count:
        raise FaultError(f"{count} faults were asked for: a run has {faults[-1].action} only once")
    fit = sum(_ends_s(fault) <= time_s for fault in faults)
    if fit < count:
        needed_s = math.ceil(_ends_s(faults[-1]))
        raise FaultError(
            f"{count} faults were asked for: a load of {time_s:g} s has room for {fit}, one of {needed_s} s for all"
        )


def _ends_s(fault: Fault) -> float:
    """Return the length in s of the shortest load with room for the fault."""
    return fault.at_s + fault.duration_s + QUIET_END_S


def needed_load_s(seed: int, kinds: Sequence[str], restart_s: float) -> int:
    """Return the shortest length of a load, in whole seconds, in which this seed draws a fault of each kind. restart_s:
    how much longer the plan's brokers take to restart than Squall's, in s.
    """
    drawn = [fault for _, fault in islice(_without_end(seed, kinds, restart_s), len(kinds))]
    return math.ceil(max(map(_ends_s, drawn), default=0.0) + 0.01)  # begins are rounded


def _without_end(seed: int, kinds: Sequence[str], restart_s: float) -> Iterator[tuple[float, Fault]]:
    """Yield the faults that the seed draws for an endless load, each with its begin in seconds before rounding."""
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
    """Return a drawn fault, changed so that it can have an effect in a cluster of one broker: link faults move to
    clients' links, and no fault needs another broker.
    """
    return replace(fault, params=fault.kind.alone(fault.params))


def likely(seed: int, fault: Fault, in_flight: int) -> Fault:
    """Return a drawn fault, its parameters changed so that it probably hits a request or a write. `in_flight`: how many
    requests the workload has in flight.
    """
    return replace(fault, params=fault.kind.draw.likely(seed, fault, in_flight))


def coordinated(seed: int, fault: Fault, names: CoordinatorKeys) -> Fault:
    """Return a drawn fault; some faults are changed, by chance (`COORDINATED_SHARE`), to hit a coordinator, or requests
    to it. A fault is unchanged if `names` is empty: the workload has neither transactional ids nor groups.
    """
    rng, draw = rng_for(seed, "coordinated", fault.id), fault.kind.draw
    if not any(names) or rng.random() >= COORDINATED_SHARE:
        return fault
    return draw.of_groups(rng, fault, names.asked) if names.groups else draw.coordinated(rng, fault)


def in_a_zone(seed: int, fault: Fault, zones: int) -> Fault:
    """Return a drawn fault; some kinds of link faults are moved, by chance (`ZONE_SHARE`), to the links of one client
    zone: a part of the clients that has links of its own to all brokers. zones: the number of client zones; with one
    zone the fault is unchanged.
    """
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
