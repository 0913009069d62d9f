"""Plants a bug of a load at read_committed: its plan goes up to the high watermark, and so over records of transactions
that are still open.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.broker.protocol.timestamps import LATEST
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.load_plans import load_plan
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series
from squall.chaos.plans.plan import Plan
from squall.workloads.client.admin import list_offsets
from squall.workloads.client.cluster import Place
from squall.workloads.load.driver import LIST_LIMIT_S, LoadDriver, ReadableEnd

_SOUND = LoadDriver._ends


async def _ends(self: LoadDriver, places: Sequence[Place]) -> dict[Place, ReadableEnd]:
    """Return the high watermarks as the ends."""
    found = await _SOUND(self, places)
    high = await list_offsets(self._client, list(found), LATEST, isolation=0, timeout_s=LIST_LIMIT_S)
    return {place: each._replace(end=max(each.end, high[place].offset)) for place, each in found.items()}


def plan(seed: int) -> Plan:
    """Return a plan with transactions that stay open for a while after their first records."""
    transactions = series(draw(seed, "95"), 3.0, every_s=0.2, aborts=0.2, pauses_ms=(150, 300))
    return load_plan(seed, [], transactions, time_s=3.5)


MUTANT = Mutant(
    id="95",
    name="end-beyond-stable-offset",
    title="is sound; a load at read_committed plans beyond the last stable offset",
    source="KIP-98: the end for read_committed is the last stable offset",
    replaces=(ReplacedFunction(LoadDriver, "_ends", _ends),),
    expected=("lso-violation",),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
    load="load",
)
