"""Defines the time-outs and pauses of the nemesis, in seconds."""

PROBE_TIMEOUT_S = 0.7
"""A probe may take so many seconds where probes are quick, or were not measured."""
PROBE_AT_MOST_S = 2.8
"""No probe may take longer, in seconds, however busy the machine is."""
TIMES = 12
"""A probe may take so many times what the slowest one took when the run began: a load and faults came since then."""
PROBES = 3
"""A fault needs so many probes, one after the other, while it is on."""
HEALED_WITHIN_S = 10.0
WHOLE_WITHIN_S = 3.0
"""How long to wait for the links of a broker that is coming back, and for a node that fits a target's name."""
BEHIND_OTHERS_S = 20.0
"""How much longer to wait while other faults are in the way."""
LONGER_S = 5.0
"""How much longer a fault may stay that has met nothing."""
POLL_S = 0.1
MIDDLE = (0.2, 0.8)
"""Shares of a fault's time between which the look in its middle falls. No unit."""


def probe_timeout_s(probe_ms: float | None) -> float:
    """Return the seconds that a probe may take. probe_ms: of the slowest one when the run began; None: not measured."""
    return min(PROBE_AT_MOST_S, max(PROBE_TIMEOUT_S, TIMES * (probe_ms or 0.0) / 1000))


def whole_within_s(probe_timeout_s: float) -> float:
    """Return the seconds to wait for links that do not answer although no other fault is on them."""
    return WHOLE_WITHIN_S * probe_timeout_s / PROBE_TIMEOUT_S


def longer_s(probe_ms: float) -> float:
    """Return by how many seconds a drawn fault must be longer to be proven on this machine."""
    return PROBES * (probe_timeout_s(probe_ms) - PROBE_TIMEOUT_S)
