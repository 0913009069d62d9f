"""How patient the nemesis is. In seconds."""

PROBE_TIMEOUT_S = 0.7
HEALED_WITHIN_S = 10.0
WHOLE_WITHIN_S = 3.0
"""How long to wait for the links of a broker that is coming back, and for a node that fits a target's name."""
BEHIND_OTHERS_S = 20.0
"""How much longer to wait while other faults are in the way."""
LONGER_S = 5.0
"""How much longer a fault may stay that has met nothing."""
POLL_S = 0.1
