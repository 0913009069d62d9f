"""What a broker or a client imports only when it first needs it: a simulation has it before it begins, as it reads no
file. Nor is loading a part of the work that is measured."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from broker.controller.controller import COMMANDS, command_for

LATE = (
    *("broker.config.relations", "broker.log.recovery", "cramjam"),
    *("workloads.final_reads", "workloads.sender", "workloads.tail", "workloads.topics"),
)
"""Besides the controller's commands. `tests/sim/world/test_nothing_real.py` sees what is missing here."""


@cache
def load_what_comes_late() -> None:
    """Once in a process."""
    for name in LATE:
        import_module(name)
    for key in COMMANDS:
        command_for(key)
