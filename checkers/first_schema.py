"""Derives the traits and classes of faults from their actions, for lines of nemesis.jsonl that are older than schema 2
and do not have them.

Such lines are no longer written, so later actions are not added here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.checkers.fault_traits import (
    CUTS_LINKS,
    EITHER_END,
    FORGETS_SYNCS,
    OUT_OF_SYNC,
    PAUSES,
    SLOWS_LINKS,
    TAKES_DOWN,
)

CLASSES: Mapping[str, str] = {
    **dict.fromkeys(("kill", "stop", "pause", "slow", "crash_at", "disk", "rolling", "upgrade"), "P"),
    **dict.fromkeys(("leadership", "client"), "P"),
    **dict.fromkeys(("partition", "flapping", "latency", "bandwidth", "slicer", "limit_data"), "N"),
    **dict.fromkeys(("reset_peer", "slow_close", "packet_loss", "reset", "protocol"), "N"),
    "clock": "C",
    "power_loss": "W1",
    "bit_rot": "D",
    "damage": "D",
}
"""Maps each fault action in schema 1 of nemesis.jsonl to its class (`FaultClass`), for example "bit_rot" to "D"."""
TRAITS: Mapping[str, str] = {
    **dict.fromkeys(("kill", "stop", "power_loss", "damage"), TAKES_DOWN),
    "pause": PAUSES,
    "partition": CUTS_LINKS,
    **dict.fromkeys(("latency", "bandwidth", "slicer"), SLOWS_LINKS),
}
STAY_IN_SYNC = frozenset({"leadership", "client", "clock", "bit_rot"})
TARGET_ALONE = frozenset({"isolate", "one-way"})
"""Lists the shapes of network partitions that separate only the target from all other nodes."""


def class_of(action: str) -> str:
    """Return the class (`FaultClass`) of a fault action in schema 1 of nemesis.jsonl, for example "P" for "kill"; empty
    if schema 1 had no such action.
    """
    return CLASSES.get(action, "")


def traits_of(action: str, params: Mapping[str, Any]) -> frozenset[str]:
    """Return the traits (`fault_traits`) of a fault in schema 1 of nemesis.jsonl, for example "pauses" and "out of
    sync" for the action "pause". `params` are the fault's parameters in its line.
    """
    found = {TRAITS[action]} if action in TRAITS else set()
    if action in CLASSES and action not in STAY_IN_SYNC:
        found.add(OUT_OF_SYNC)
    if class_of(action) == "N" and params.get("shape") not in TARGET_ALONE:
        found.add(EITHER_END)
    if action == "disk" and params.get("op") == "fsync" and params.get("how") != "slow":
        found.add(FORGETS_SYNCS)
    return frozenset(found)
