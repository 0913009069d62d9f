"""Loads modules that a broker or a client imports only at first use, before a simulation begins.

A simulation reads no file, and loading modules is not part of the work that is measured.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from squall.broker.controller.controller import COMMANDS, command_for

LATE = (
    *("squall.broker.config.load", "squall.broker.log.recovery", "cramjam"),
    *("squall.workloads.background_reader", "squall.workloads.final_reads", "squall.workloads.sender"),
    "squall.workloads.topics",
)
"""Names modules to load. The modules that handle the controller's requests, such as CreateTopics, are not listed:
`preload_modules` finds them in the controller's table `COMMANDS`. If a simulation loads a module that is neither here
nor there, `tests/sim/world/test_nothing_real.py` fails.
"""


@cache
def preload_modules() -> None:
    """Load the modules that are otherwise imported at first use. Only the first call in an OS process does anything."""
    for name in LATE:
        import_module(name)
    for key in COMMANDS:
        command_for(key)
