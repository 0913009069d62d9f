"""Plants a bug of a load: a task that is tried again begins where the killed executor stood, although what that one had
read is lost. So the same range gives other records.
"""

from __future__ import annotations

from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.load_plans import load_kill, load_plan
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series
from squall.chaos.plans.plan import Plan
from squall.workloads.kill_moments import READING
from squall.workloads.load.executor import TaskAttempt, TaskResult
from squall.workloads.load.reading import ReadBatch

_SOUND_RUN, _SOUND_TAKE = TaskAttempt.run, TaskAttempt._take
REACHED = "_reached"
"""Names the attribute of the recorder that maps each range to the offset that an attempt has reached."""


async def run(self: TaskAttempt) -> TaskResult:
    """Begin at the offset that an earlier attempt has reached."""
    reached = vars(self._around.recorder).setdefault(REACHED, {})
    self._reader.position = reached.get(self.task.planned, self._reader.position)
    return await _SOUND_RUN(self)


async def _take(self: TaskAttempt, found: list[ReadBatch]) -> None:
    """Remember the offset that the attempt has reached."""
    vars(self._around.recorder)[REACHED][self.task.planned] = self._reader.position
    await _SOUND_TAKE(self, found)


def plan(seed: int) -> Plan:
    """Return a plan in which executors die in the middle of ranges."""
    transactions = series(draw(seed, "98"), 3.0, every_s=0.1, aborts=0.1)
    return load_plan(seed, [load_kill(0.5, 2.5, READING, 200)], transactions, time_s=3.5)


MUTANT = Mutant(
    id="98",
    name="retries-resume",
    title="is sound; a load tries a task again from where the killed executor stood",
    source="Structured Streaming guide: a source must give the same records again",
    replaces=(ReplacedFunction(TaskAttempt, "run", run), ReplacedFunction(TaskAttempt, "_take", _take)),
    expected=("poll-skip", "int-poll-skip"),
    faults=("load_kill",),
    plan=plan,
    group=TRANSACTIONS,
    load="load",
)
