"""Defines the runs in docs/shown: the command of each, and its name in the table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from squall.workloads.registry import SCENARIOS

_TRANSACTIONS = ("--workload", "transactions", "--faults", "kill,pause,partition,zombie,client")
_CUTS = ("--faults", "kill,partition", "--time", "20")
_FOUR_FAULTS = ("--faults", "kill,pause,partition,power_loss", "--time", "30")
_PRODUCER = ("--command", ".venv/bin/python docs/examples/my_producer.py")
SETS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "docker": ("--runtime", "docker"),
    "kafka": ("--target", "kafka"),
    "transactions": _TRANSACTIONS,
    "transactions-docker": (*_TRANSACTIONS, "--runtime", "docker"),
    "transactions-kafka": (*_TRANSACTIONS, "--target", "kafka"),
    "acks-1": ("--acks", "1", *_CUTS),
    "acks-all": ("--acks", "all", *_CUTS),
    "acks-1-kafka": ("--acks", "1", *_CUTS, "--target", "kafka"),
    "acks-all-kafka": ("--acks", "all", *_CUTS, "--target", "kafka"),
    **{
        f"four-faults-{name}": ("--workload", name, *_FOUR_FAULTS, *(() if scenario.SIMULATED else _PRODUCER))
        for name, scenario in SCENARIOS.items()
    },
}
"""Named sets of runs, with the arguments that each adds to `./squall run --seed N`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One `./squall run`. In some cases a part of the harness, such as Toxiproxy or Spark, is killed during the run."""

    group: str
    """The group of rows that it belongs to: the name of a set, or "kill engine" and the like."""
    number: int
    """Its number within the group, from 1."""
    flags: tuple[str, ...]
    seed: int
    kill: str = ""
    """The part that is killed; empty if none is."""
    moment: str = ""
    """The moment of the run at which the part is killed: one of the part's `moments`."""

    @property
    def name(self) -> str:
        """Return the name of its row, which is also its folder's."""
        return f"{self.group.replace(' ', '-')}-{self.number:02}"

    @property
    def command(self) -> str:
        """Return the command that repeats the run, without the kill."""
        return shlex.join(("./squall", *self.arguments))

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of `squall`, without --runs."""
        return ("run", "--seed", str(self.seed), *self.flags)


def runs_of(group: str, times: int, first_seed: int, extra: tuple[str, ...] = ()) -> list[Case]:
    """Return `times` runs of a set, with consecutive seeds."""
    flags = (*SETS[group], *extra)
    return [Case(group, number + 1, flags, first_seed + number) for number in range(times)]
