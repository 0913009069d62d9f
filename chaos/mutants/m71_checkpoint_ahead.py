"""Plants etcd #20426: the checkpoint of the log is ahead of the part of the log that is durable."""

from __future__ import annotations

from squall.broker.log import checkpoints
from squall.broker.log.checkpoints import RECOVERY_POINTS
from squall.broker.log.manager import LogManager
from squall.chaos.mutants.hunt_plans import draw, hunt_plan, killings
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def checkpoint_recovery_points(self: LogManager) -> None:
    """Write each log's end offset as its recovery point, even if the log is not synced up to that offset."""
    points = {place: log.log_end_offset for place, log in self.logs.items()}
    checkpoints.write_offsets(self._fs, self._path(RECOVERY_POINTS), points)
    self.checkpoint_log_starts()
    self._deleted_since_checkpoint.clear()


def plan(seed: int) -> Plan:
    """Return a plan with power losses and many small segments, none of which was synced."""
    rng = draw(seed, "71")
    settings = {"log.flush.offset.checkpoint.interval.ms": "200"}
    load = {"rate": 80, "min_bytes": 1000, "max_bytes": 3000, "batch_bytes": 4096}
    kills = killings(rng, rounds=4, action="power_loss")
    return hunt_plan(seed, kills, settings=settings, workload={**load, "topic_settings": {"segment.bytes": "8192"}})


MUTANT = Mutant(
    id="71",
    name="checkpoint-ahead",
    title="writes down recovery points that are ahead of what is durable",
    source="etcd #20426 (2025)",
    replaces=(ReplacedFunction(LogManager, "checkpoint_recovery_points", checkpoint_recovery_points),),
    expected=("loaded-log-is-whole", "committed-prefix", "corrupt", "lost-write", "unseen"),
    faults=("power_loss",),
    plan=plan,
)
