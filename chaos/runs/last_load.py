"""Extends a load after its last fault, until the load shows whether the cluster takes writes again.

If a partition acknowledges nothing for the plan's `stuck_s` after the last fault, that is a finding. A load that ends
earlier could not show this. So the load continues until every partition has acknowledged a record since the last fault,
or until that time is over. A correct cluster ends the extension at once. Meanwhile a new client writes to silent
partitions. This shows whether the cluster accepts no writes, or whether the load's clients send none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from squall.broker.env import Env
from squall.workloads.client.cluster import Place
from squall.workloads.post_heal_writes import PostHealWrites

LOOK_EVERY_S = 0.1
UNSERVED = 1 / 3
"""Gives the silence of a partition, as a share of `stuck_s`, after which a new client writes to it."""
MARGIN_S = 1.0
"""Gives how much longer than `stuck_s` to wait, in s. The checker measures a silence only while a write waits for its
acknowledgement. Such a write may begin some time after the last fault, so the load must last a little longer.
"""


async def outlast(env: Env, last_ack: Mapping[int, float], parts: Iterable[int], healed: float, stuck_s: float) -> bool:
    """Wait until each of these partitions has acknowledged a record since the time `healed`. Give up a moment after
    `stuck_s` seconds from then. Return whether all have acknowledged one.

    last_ack: partition -> env.mono() of its last acknowledgement; the load keeps this mapping up to date.
    """
    wanted = list(parts)
    while any(last_ack.get(part, -1.0) < healed for part in wanted):
        if env.mono() >= healed + stuck_s + MARGIN_S:
            return False
        await env.sleep(LOOK_EVERY_S)
    return True


async def write_beside(
    env: Env,
    last_ack: Mapping[int, float],
    parts: Mapping[Place, int],
    quiet_s: float,
    write: Callable[[Sequence[Place]], Awaitable[PostHealWrites]],
) -> None:
    """Call `write` with the partitions in which the load has got no acknowledgement for `quiet_s`, again and again,
    until cancelled.

    Once a write to a partition was acknowledged, the partition is left out until the load gets an acknowledgement
    there. parts: partition -> its key in `last_ack`. last_ack: this key -> env.mono() of the load's latest
    acknowledgement; the load keeps this mapping up to date.
    """
    healed, served = env.mono(), dict[Place, float]()
    while True:
        since = {place: max(healed, last_ack.get(part, healed)) for place, part in parts.items()}
        quiet = [place for place, at in since.items() if served.get(place, -1.0) < at <= env.mono() - quiet_s]
        if quiet:
            written = await write(quiet)
            served.update(dict.fromkeys(written.offsets, env.mono()))
        await env.sleep(LOOK_EVERY_S)
