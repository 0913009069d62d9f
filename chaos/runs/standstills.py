"""Detects that the harness, or the whole machine, was stopped for a while: Ctrl-Z, a debugger, a suspended virtual
machine.

Clients and brokers may have been stopped as well, so delays in that time are no finding about the cluster. A task that
wakes often reads two clocks. CLOCK_MONOTONIC, which times histories, stops while the machine is suspended;
CLOCK_BOOTTIME does not.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

AWAKE_S = 0.5
"""Gives the pause between two readings of the clocks, in s."""
STILL_S = 3.0
"""Gives the shortest standstill of the harness that is recorded, in s. A busy machine also stops the harness, but for
less time. That does no harm, because time limits are several times as long.
"""


class ClockPair(NamedTuple):
    """Holds the times of CLOCK_MONOTONIC and CLOCK_BOOTTIME at one moment, in ns."""

    monotonic: int
    boot: int


def clocks() -> ClockPair:
    """Read CLOCK_MONOTONIC and CLOCK_BOOTTIME now."""
    return ClockPair(time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))


def standstill_between(before: ClockPair, now: ClockPair) -> dict[str, float] | None:
    """Return run.json's entry for a standstill of the harness between two readings of the clocks; None if it was
    shorter than STILL_S.

    `began`: the monotonic time of the first reading in ns, as in a history. `s`: the standstill's length in s, which
    includes the time in which the machine was suspended. `suspended_s`: only the time in which the machine was
    suspended.
    """
    took_s = (now.boot - before.boot) / 1e9 - AWAKE_S
    suspended_s = max(0.0, took_s + AWAKE_S - (now.monotonic - before.monotonic) / 1e9)
    if took_s < STILL_S:
        return None
    return {"began": before.monotonic, "s": round(took_s, 1), "suspended_s": round(suspended_s, 1)}


async def record_standstills(go: Callable[[], Awaitable[None]], info: dict[str, Any]) -> None:
    """Run `go`, and record in `standstills` of `info` (run.json) each time in which the harness did not run for STILL_S
    or more.
    """
    seen = info.setdefault("standstills", [])

    async def look() -> None:
        before = clocks()
        while True:
            await trio.sleep(AWAKE_S)
            now = clocks()
            if found := standstill_between(before, now):
                seen.append(found)
            before = now

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await go()
        nursery.cancel_scope.cancel()
