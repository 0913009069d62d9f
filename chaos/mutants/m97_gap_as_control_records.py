"""Plants a bug of a load, the reverse of SPARK-25005: offsets that are gone from the log are taken for those of control
records, and passed over in silence.
"""

from __future__ import annotations

from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.load_plans import load_kill, load_plan
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series
from squall.chaos.plans.plan import Plan
from squall.workloads.kill_moments import PLANNED
from squall.workloads.load.reading import RangeReader


def skip_to(self: RangeReader, offset: int, why: str) -> None:
    """Count the offsets before `offset` as those of control records."""
    end = min(offset, self.wanted.end)
    if end > self.position:
        self.skipped = self.skipped._replace(control=self.skipped.control + end - self.position)
        self.position = end


def plan(seed: int) -> Plan:
    """Return a plan in which records are deleted that a plan has named and no task has read: the driver dies between
    the two, again and again.
    """
    rng = draw(seed, "97")
    times = [1.0 + 0.7 * n + rng.uniform(0.0, 0.3) for n in range(6)]
    deletions = [fault(at_s, 0.3, "topics", "all", how="delete_records") for at_s in times]
    kills = load_kill(0.6, 5.0, PLANNED, 300)
    return load_plan(seed, [*deletions, kills], series(rng, 6.0, every_s=0.06, aborts=0.1), time_s=6.5)


MUTANT = Mutant(
    id="97",
    name="gap-as-control-records",
    title="is sound; a load takes offsets that are gone for those of control records",
    source="SPARK-25005 (2018): a reader has to tell offsets without records from lost ones",
    replaces=(ReplacedFunction(RangeReader, "skip_to", skip_to),),
    expected=("poll-skip",),
    faults=("topics", "load_kill"),
    plan=plan,
    group=TRANSACTIONS,
    load="load",
)
