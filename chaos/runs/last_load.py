"""How long a load goes on after its last fault: until the load itself shows whether the cluster takes writes again.

A partition that acknowledges nothing for the plan's `stuck_s` after the last fault is a finding. A load that ends
before could not show it. So it goes on until every partition has acknowledged a record since then, or until that time
is over. A sound cluster ends this at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.env import Env

LOOK_EVERY_S = 0.1
MARGIN_S = 1.0
"""A gap that is as long as what counts as stuck ends with a record that was handed over later."""


async def outlast(env: Env, last_ack: Mapping[int, float], parts: Iterable[int], healed: float, stuck_s: float) -> bool:
    """Wait until each of these partitions has acknowledged something since `healed`; whether they all have.

    last_ack: partition -> env.mono() of its last acknowledgement, as the load goes on. Waits until `stuck_s` after
    `healed`, and a moment longer.
    """
    wanted = list(parts)
    while any(last_ack.get(part, -1.0) < healed for part in wanted):
        if env.mono() >= healed + stuck_s + MARGIN_S:
            return False
        await env.sleep(LOOK_EVERY_S)
    return True
