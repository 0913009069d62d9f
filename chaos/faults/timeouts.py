"""Defines the time-outs and pauses of the nemesis, in seconds."""

PROBE_TIMEOUT_S = 0.7
"""Gives the usual time-out of a probe, in seconds: if probes are quick, or were not measured."""
PROBE_AT_MOST_S = 2.8
"""Is the longest time-out of a probe, in seconds, however busy the machine is."""
TIMES = 12
"""Gives the time-out of a probe as a multiple of the slowest probe when the run began, before load and faults."""
PROBES = 3
"""Gives how many probes, one after the other, a fault needs while it is active."""
HEALED_WITHIN_S = 10.0
WHOLE_WITHIN_S = 3.0
"""Limits how long a fault waits before it begins, in seconds: until links answer, or until a node fits its target."""
BEHIND_OTHERS_S = 20.0
"""Gives how many more seconds a fault may wait while other faults block it."""
LONGER_S = 5.0
"""Limits, in seconds, how long a fault is extended if it has hit nothing by its end."""
POLL_S = 0.1
MIDDLE = (0.2, 0.8)
"""Gives the shares of a fault's duration between which the nemesis checks once, at a random moment, that the fault is
active.
"""


def probe_timeout_s(probe_ms: float | None) -> float:
    """Return the time-out of a probe in seconds. probe_ms: how long the slowest probe took when the run began; None:
    unknown.
    """
    return min(PROBE_AT_MOST_S, max(PROBE_TIMEOUT_S, TIMES * (probe_ms or 0.0) / 1000))


def whole_within_s(probe_timeout_s: float) -> float:
    """Return how many seconds a fault waits, before it begins, until its links answer: `WHOLE_WITHIN_S`, or more if the
    time-out of probes is longer than usual. If other faults block the links, `ExtendableDeadline` adds to this.
    """
    return WHOLE_WITHIN_S * probe_timeout_s / PROBE_TIMEOUT_S


def longer_s(probe_ms: float) -> float:
    """Return by how many seconds the faults of a plan must be lengthened, so that there is time for `PROBES` probes on
    a slow machine. probe_ms: how long the slowest probe took when the run began.
    """
    return PROBES * (probe_timeout_s(probe_ms) - PROBE_TIMEOUT_S)
