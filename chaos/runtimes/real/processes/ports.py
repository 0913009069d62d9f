"""Chooses ports that stay reserved for the run even while no process listens on them."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path

from squall.chaos.errors import HarnessError

LOOPBACK = "127.0.0.1"
LOWEST, HIGHEST = 10_000, 65_535
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def ephemeral_range() -> tuple[int, int]:
    """Return the first and the last port, both inclusive, of the range from which the kernel takes ports for outgoing
    connections.
    """
    try:
        low, high = EPHEMERAL.read_text().split()
    except OSError:
        return 32_768, 60_999
    return int(low), int(high)


def free_ports(count: int, taken: Collection[int], rng: random.Random) -> list[int]:
    """Return `count` ports of loopback that are outside the ephemeral range, not in `taken`, and free now.

    They are outside that range, because a broker that is down for a while must find its port free again: a port in the
    range might by then be the local end of another connection. `rng` makes runs that choose at the same time try
    different ports. Raises HarnessError.
    """
    low, high = ephemeral_range()
    outside = [port for port in range(LOWEST, HIGHEST + 1) if not low <= port <= high]
    candidates = [port for port in outside or range(LOWEST, HIGHEST + 1) if port not in taken]
    start = rng.randrange(len(candidates)) if candidates else 0
    found: list[int] = []
    for port in candidates[start:] + candidates[:start]:
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    if len(found) < count:
        raise HarnessError(
            f"needs {count} free ports outside of {low}-{high} (from {LOWEST} on) and found {len(found)}"
        )
    return found


def is_free(port: int) -> bool:
    """Return whether a listener could bind the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        # As a broker's listener does: connections that a former one left in TIME_WAIT are in nobody's way.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((LOOPBACK, port))
            sock.listen(1)
        except OSError:
            return False
    return True
