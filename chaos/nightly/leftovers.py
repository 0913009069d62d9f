"""Ends the processes and containers that a killed session of a night has left, before the night is resumed."""

from __future__ import annotations

from pathlib import Path

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.docker import labels
from squall.chaos.runtimes.real.processes import registry
from squall.chaos.toolchain.engine import EngineError, reach_engine


def end_leftovers(runs: Path) -> list[str]:
    """End the processes and containers of each run below this folder whose harness has died. Return a line about each.

    If a run had stopped or paused containers of an external cluster, `squall clean` has to restore them. The lines name
    such runs.
    """
    ended = []
    for each in registry.runs():
        if each.harness_alive or not Path(each.folder).is_relative_to(runs.absolute()):
            continue
        if each.hurt:
            ended.append(f"{each.run} left containers of an external cluster down or paused: squall clean")
        else:
            ended += registry.end(each)
    return ended + _containers(runs)


def _containers(runs: Path) -> list[str]:
    try:
        engine = reach_engine()
    except HarnessError:
        return []
    removed: list[str] = []
    try:
        names = {
            each["Labels"][labels.RUN]
            for each in (*engine.containers(labels.RUN), *engine.networks(labels.RUN), *engine.volumes(labels.RUN))
            # Without the label its run is not known: "/" is below no folder of runs.
            if Path(each["Labels"].get(labels.FOLDER, "/")).is_relative_to(runs.absolute())
        }
        for each in labels.find(engine):
            if each.run in names and not each.harness_alive:
                removed += labels.remove(engine, each)
    except EngineError:
        pass  # the next run in a container calls the engine again, and reports the error
    finally:
        engine.close()
    return removed
