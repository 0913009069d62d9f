"""The runs that are shown: which command each is, and what it is called in the table."""

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
"""What a person types after `./squall run --seed N`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of `./squall run`, left alone or with a part of the harness killed in the middle."""

    group: str
    """Whose rows stand together: a set, or "kill engine"."""
    number: int
    """From 1, within its group."""
    flags: tuple[str, ...]
    seed: int
    kill: str = ""
    """Which part is killed; empty: none."""
    moment: str = ""
    """When that is, by the name of a moment."""

    @property
    def name(self) -> str:
        """Return the name of its row and of its folder."""
        return f"{self.group.replace(' ', '-')}-{self.number:02}"

    @property
    def command(self) -> str:
        """Return the command that repeats the run, but for the kill."""
        return shlex.join(("./squall", *self.arguments))

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of the program, without the folder for runs."""
        return ("run", "--seed", str(self.seed), *self.flags)


def runs_of(group: str, times: int, first_seed: int, extra: tuple[str, ...] = ()) -> list[Case]:
    """`times` runs of a set, one for each seed from the first one on."""
    flags = (*SETS[group], *extra)
    return [Case(group, number + 1, flags, first_seed + number) for number in range(times)]
