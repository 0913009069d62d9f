"""Measures the task step with the most CPU time, and the most work that any one step has done, in units such as bytes
or records (`work`). A step ends when the task lets others run.

`squall.turn.measurement.enable` switches the measurement on. The meter is an instrument of trio, so it sees each step
of each task of the OS process; a simulation has no meter.
"""

from __future__ import annotations

from time import thread_time
from typing import TYPE_CHECKING

import trio

from squall.broker.work import DONE, WorkCounters

if TYPE_CHECKING:
    from collections.abc import Callable


class TaskStepMeter(trio.abc.Instrument):
    """Keeps the longest task step since the last report, and traces each step that is longer than all before it."""

    def __init__(self, trace: Callable[..., None], cpu_time: Callable[[], float] = thread_time) -> None:
        self._trace, self._cpu_time = trace, cpu_time
        self._began = cpu_time()
        self._reset()

    @property
    def longest_s(self) -> float:
        """Returns the CPU time of the longest task step since the last report, in seconds."""
        return self._longest_s

    def _reset(self) -> None:
        self._longest_s, self._task = 0.0, ""
        self._most = WorkCounters()
        for unit in WorkCounters.__slots__:
            setattr(DONE, unit, 0)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note the CPU time at which the step begins."""
        self._began = self._cpu_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Keep the step's CPU time and its units of work if they are the most so far."""
        took_s = self._cpu_time() - self._began
        most = self._most
        for unit in WorkCounters.__slots__:
            done = getattr(DONE, unit)
            if done:
                setattr(DONE, unit, 0)
                if done > getattr(most, unit):
                    setattr(most, unit, done)
        if took_s > self._longest_s:
            self._longest_s, self._task = took_s, task.name
            self._trace("longest_turn", squall_longest_turn_seconds=round(took_s, 6), task=task.name)

    def report(self) -> None:
        """Trace the longest task step and the most units of work since the last report, and reset both."""
        most = {f"most_{unit}": getattr(self._most, unit) for unit in WorkCounters.__slots__}
        longest_s = round(self._longest_s, 6)
        self._trace("turns_measured", squall_longest_turn_seconds=longest_s, task=self._task, **most)
        self._reset()
