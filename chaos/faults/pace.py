"""How patient the nemesis is. In seconds."""

PROBE_TIMEOUT_S = 0.7
HEALED_WITHIN_S = 10.0
WHOLE_WITHIN_S = 3.0
"""Links of a broker that just comes back are waited for so long, and so is somebody who answers to a target's name."""
POLL_S = 0.1
