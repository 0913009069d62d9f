"""Logs each stage that an analysis has come to, as a line: its caller shows how far it is."""

from __future__ import annotations

CONVERT, START, LOOK = "convert the history", "start Spark", "Spark looks for anomalies"
"""Of judging a run, in this order. From LOOK on the converted history is whole."""
FIND = "the reference engine looks for anomalies"
"""Of judging without Spark: all of it but the comparison of replicas' logs."""
READY = "ready"
"""Spark was started before there was a history, and is ready for it."""

_HEAD = "stage: "


def line_of(stage: str) -> str:
    """The line that says that `stage` begins."""
    return f"{_HEAD}{stage}"


def stage_of(line: str) -> str:
    """The stage that a line says has begun; empty where it is about something else."""
    return line[len(_HEAD) :].strip() if line.startswith(_HEAD) else ""
