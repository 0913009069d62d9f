"""A seed into a plan of timed faults. The same seed and settings give the same plan, everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from chaos.draws import rng_for
from chaos.faults.link_actions import LINK_ACTIONS, required_nodes
from chaos.faults.vocabulary import ACTIONS, ERRORS, MANNERS, SHAPES, SIDES, Fault, FaultError, make_fault

DEFAULT_KINDS = ("kill", "pause", "partition", "latency")
ENDING = ("kill", "stop", "crash_at", "power_loss")
"""Faults after which a broker starts again."""
ONE_BY_ONE = ("rolling", "upgrade")
"""Faults of all brokers, one after the other."""
ONCE = ("upgrade",)
"""Faults that can be done once in a run."""
FIRST_AT_S = 2.0
"""Load without faults at the beginning, so that there is something to compare with."""
ZONE_SHARE = 1 / 3
"""Of drawn faults of links, where the workload has several client zones: so many are one zone's."""
QUIET_END_S = 3.0
"""No fault lasts into the last seconds of the load: what recovery looks like belongs into the history."""


def parse_kinds(text: str) -> tuple[str, ...]:
    """`kill,partition` into action names; "none" into none. FaultError names what is unknown."""
    if text.strip() in ("", "none"):
        return ()
    kinds = tuple(k.strip() for k in text.split(",") if k.strip())
    for kind in kinds:
        if kind not in ACTIONS:
            raise FaultError(f"unknown fault {kind!r}: one of {', '.join(ACTIONS)}, or none")
    return kinds


def make_schedule(seed: int, kinds: Sequence[str], time_s: float, *, restart_s: float = 0.0) -> tuple[Fault, ...]:
    """Faults one after another with quiet gaps, every kind in turn in an order that the seed draws.

    A broker that was ended has `restart_s` to come back before the next fault. Each is short enough to end before the
    load does; a load too short for any fault raises FaultError.
    """
    if not kinds:
        return ()
    if time_s < FIRST_AT_S + QUIET_END_S + 2:
        raise FaultError(
            f"a load of {time_s:g} s leaves no room for faults: at least {FIRST_AT_S + QUIET_END_S + 2:g} s"
        )
    rng = rng_for(seed, "schedule")
    faults: list[Fault] = []
    at_s, end_s = FIRST_AT_S + rng.random(), time_s - QUIET_END_S
    order: list[str] = []
    while True:
        if not order:
            order = [kind for kind in kinds if kind not in ONCE or not faults]
            if not order:
                return tuple(faults)
            rng.shuffle(order)
        kind = order.pop()
        draw = rng_for(seed, "fault", len(faults))
        # One after the other, three brokers need three times what one does, and a bit.
        duration_s = _duration(kind, draw) + (4 * restart_s if kind in ONE_BY_ONE else 0.0)
        if at_s + duration_s > end_s:
            if not faults:
                duration_s = max(ACTIONS[kind].duration_s.low, end_s - at_s)
            else:
                return tuple(faults)
        faults.append(_draw(len(faults), round(at_s, 2), duration_s, kind, draw))
        at_s += duration_s + 1.5 + 2 * draw.random() + (restart_s if kind in ENDING else 0.0)


def likely(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters under which a drawn fault strikes: a broker that is not told to flush may sync nothing for seconds, a
    client that has its metadata asks for none for minutes.
    """
    if params.get("api") == "Metadata":
        return {**params, "api": "Fetch"}
    return {**params, "op": "write"} if params.get("op") == "fsync" else dict(params)


def of_one_broker(fault: Fault) -> Fault:
    """A drawn fault as it lands on an only broker: its links are its clients', and no other one takes a partition."""
    params = dict(fault.params)
    if params.get("side") == "peers" and required_nodes(fault.action, params) == 1:
        params["side"] = "clients"
    if params.get("how") == "move":
        params["how"] = "preferred"
    return replace(fault, params=params)


def overtaken(seed: int, fault_id: int, params: Mapping[str, Any], in_flight: int) -> dict[str, Any]:
    """Of a load with several requests in flight some that were drawn to come late are overtaken by others instead."""
    late = params.get("api") == "Produce" and params.get("act") == "delay"
    if not late or in_flight < 2 or rng_for(seed, "overtaken", fault_id).random() < 0.5:
        return dict(params)
    return {**params, "act": "reorder", "stream": "there", "count": 0}


def in_a_zone(seed: int, fault: Fault, zones: int) -> Fault:
    """Where there are several client zones, now and then a fault of links is one of a zone's links instead."""
    rng = rng_for(seed, "zone", fault.id)
    if zones < 2 or fault.action not in _OF_LINKS or rng.random() >= ZONE_SHARE:
        return fault
    whole = {"shape": "isolate"} if "shape" in fault.params else {}
    return replace(fault, target=f"zone:{rng.randint(1, zones)}", params={**fault.params, **whole, "side": "clients"})


def _duration(kind: str, rng: Random) -> float:
    known = {
        "kill": (1.0, 4.0),
        "stop": (2.0, 4.0),
        "pause": (1.0, 5.0),
        "rolling": (14.0, 18.0),
        "upgrade": (20.0, 22.0),
    }
    low, high = known.get(kind, (2.0, 5.0))
    return round(rng.uniform(low, high), 2)


def _draw(fault_id: int, at_s: float, duration_s: float, kind: str, rng: Random) -> Fault:
    target = rng.choice(("leader", "leader", "controller", "random"))
    params = _PARAMS[kind](rng) if kind in _PARAMS else {}
    if kind == "protocol":
        target = _ASKED.get(params["api"], target)
    if kind in ONE_BY_ONE:
        target = "all"
    if kind == "client":
        target = "producer" if params["how"] == "crash" else rng.choice(("producer", "reader"))
    return make_fault(fault_id, at_s, duration_s, kind, target, params)


def _protocol(rng: Random) -> dict[str, Any]:
    act = rng.choice(("drop", "delay", "duplicate", "error"))
    stream = rng.choice(("there", "back")) if act in ("drop", "delay") else "there"
    api = rng.choice(("Produce", "Produce", "Produce", "Fetch", "Fetch", "Fetch", "Metadata", "BrokerHeartbeat"))
    count = rng.choice((1, 1, 3, 10, 0))
    return {
        "api": api,
        "act": act,
        "stream": stream,
        "nth": 1 if api == "Metadata" else rng.randint(1, 3),
        "count": count,
        "error": rng.choice(ERRORS),
    }


_OF_LINKS = frozenset(action.name for action in LINK_ACTIONS) | {"reset"}
"""Faults that land on any link that is whole, whatever is sent over it."""

_ASKED: Mapping[str, str] = {"Produce": "leader", "Fetch": "leader", "BrokerHeartbeat": "controller", "Metadata": "all"}
"""Whom requests go to: a fault of anybody else's would hit nothing."""

_PARAMS: Mapping[str, Callable[[Random], dict[str, Any]]] = {
    "partition": lambda rng: {"shape": rng.choice(SHAPES[:3]), "manner": rng.choice(MANNERS)},
    "latency": lambda rng: {"latency_ms": rng.choice((20, 50, 100, 200)), "jitter_ms": rng.choice((5, 10, 20))},
    "slow": lambda rng: {"share": rng.choice((0.05, 0.1, 0.3))},
    "flapping": lambda rng: {
        "manner": rng.choice(MANNERS),
        "down_ms": rng.choice((300, 600)),
        "up_ms": rng.choice((300, 1000)),
        "side": rng.choice(SIDES),
    },
    "bandwidth": lambda rng: {"kb_per_s": rng.choice((8, 32, 128)), "side": rng.choice(SIDES)},
    "slicer": lambda rng: {
        "average_bytes": rng.choice((64, 256)),
        "delay_us": rng.choice((200, 1000)),
        "side": rng.choice(SIDES),
    },
    "limit_data": lambda rng: {"limit_bytes": rng.choice((2000, 20_000, 200_000)), "side": rng.choice(SIDES)},
    # Through Toxiproxy the proof takes twice as long and more, and the fault lasts 2 s at least.
    "reset_peer": lambda rng: {"after_ms": rng.choice((0, 100, 500)), "side": rng.choice(SIDES)},
    "slow_close": lambda rng: {"delay_ms": rng.choice((100, 500)), "side": rng.choice(SIDES)},
    "rolling": lambda rng: {"how": rng.choice(("stop", "kill"))},
    "upgrade": lambda rng: {"how": rng.choice(("stop", "stop", "kill"))},
    "client": lambda rng: {"how": rng.choice(("crash", "pause"))},
    "crash_at": lambda rng: rng.choice(
        [
            {"op": "fsync", "nth": rng.randint(1, 2)},
            {"op": "write", "nth": rng.randint(1, 5)},
            {"op": "write", "nth": 1},
            {"op": "send", "nth": rng.randint(1, 30)},
        ]
    ),
    "clock": lambda rng: {
        "offset_ms": rng.choice((-3_600_000, -10_000, -500, 500, 10_000, 3_600_000)),
        "rate": rng.choice((1.0, 1.0, 0.9, 1.1)),
    },
    "packet_loss": lambda rng: {
        "probability": rng.choice((0.05, 0.1, 0.3)),
        "rto_ms": rng.choice((50, 200)),
        "side": rng.choice(SIDES),
    },
    "reset": lambda rng: {"every_ms": rng.choice((0, 200, 1000)), "side": rng.choice(SIDES)},
    "protocol": _protocol,
    "disk": lambda rng: {
        "how": rng.choice(("EIO", "ENOSPC", "slow", "slow")),
        "op": rng.choice(("write", "fsync")),
        "nth": rng.randint(1, 5),
        "delay_ms": rng.choice((20, 200, 1000)),
    },
    "damage": lambda rng: {"how": rng.choice(("tail", "file")), "bytes": rng.choice((1, 100, 10_000))},
    "bit_rot": lambda rng: {"bits": rng.choice((1, 8))},
    "leadership": lambda rng: {"how": rng.choice(("preferred", "unclean", "move", "move"))},
}
