"""Plants KAFKA-5355 and KAFKA-5376: a read_committed fetch that has waited is answered as if it were read_uncommitted,
or (mutant 31b) without its list of aborted transactions.
"""

from __future__ import annotations

from functools import partial

from squall.broker.apis.fetch import DelayedFetch, FetchApi
from squall.broker.apis.fetch_session import PartitionRequest
from squall.broker.protocol.hot import FetchResponsePartition
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series, txn_plan
from squall.chaos.plans.plan import Plan

_SOUND_WAKE, _SOUND_READ = DelayedFetch.wake, FetchApi._read
READ_UNCOMMITTED = 0


def wake(self: DelayedFetch) -> None:
    """Wake the fetch, and turn it into a read_uncommitted fetch."""
    self.isolation = READ_UNCOMMITTED
    _SOUND_WAKE(self)


def _read(
    self: FetchApi, fetch: DelayedFetch, want: PartitionRequest, left: int, first: bool
) -> FetchResponsePartition:
    """Do what the correct function does, but leave the list of aborted transactions empty if the fetch has waited. The
    consumer then returns aborted records.
    """
    out = _SOUND_READ(self, fetch, want, left, first)
    return out._replace(aborted=[]) if out.aborted and fetch.slot.parked is fetch else out


def plan(seed: int, mutant: str = "31") -> Plan:
    """Return a plan in which readers wait for more records while transactions begin, and many are aborted. Readers
    hardly pause, so most fetches wait.
    """
    rng = draw(seed, mutant)
    return txn_plan(seed, [], series(rng, 2.0), time_s=2.5, workload={"poll_pause_ms": 0})


MUTANT = Mutant(
    id="31",
    name="delayed-fetch-loses-isolation",
    title="answers a fetch that has waited as if it were read_uncommitted",
    source="KAFKA-5355",
    replaces=(ReplacedFunction(DelayedFetch, "wake", wake),),
    expected=("dirty-read", "G1a", "lso-violation"),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
)
WITHOUT_ABORTED = Mutant(
    id="31b",
    name="delayed-fetch-loses-aborted",
    title="leaves the aborted transactions out of the answer to a fetch that has waited",
    source="KAFKA-5376",
    replaces=(ReplacedFunction(FetchApi, "_read", _read),),
    expected=("G1a",),
    faults=(),
    plan=partial(plan, mutant="31b"),
    group=TRANSACTIONS,
)
