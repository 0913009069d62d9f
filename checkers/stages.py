"""Encodes and decodes the lines by which an analysis reports each stage that it has reached, so that its caller can
show progress.
"""

from __future__ import annotations

CONVERT, START, LOOK = "convert the history", "start Spark", "Spark looks for anomalies"
"""Name the stages of an analysis by Spark, in this order. From LOOK on, the converted history is complete."""
FIND = "the reference engine looks for anomalies"
"""Names the only stage of an analysis by the reference engine. The comparison of replicas' logs is no stage, but a
phase of its own.
"""
READY = "ready"
"""Names the stage that begins when Spark, which is started before the run has a history, waits for the history."""

_HEAD = "stage: "


def line_of(stage: str) -> str:
    """Return the line that reports that `stage` begins."""
    return f"{_HEAD}{stage}"


def stage_of(line: str) -> str:
    """Return the stage of an analysis, such as "start Spark", that begins according to a line of the analysis's output;
    empty if the line reports no stage.
    """
    return line[len(_HEAD) :].strip() if line.startswith(_HEAD) else ""
