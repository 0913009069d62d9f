"""Names the moments at which a load's driver and executors can be killed. A kill waits until the load reaches its
moment, so that each of them costs the load something.
"""

from __future__ import annotations

PLANNED, READ, IN_SINK = "driver-planned", "driver-read", "driver-in-sink"
READING, DONE = "executor-reading", "executor-done"
MOMENTS = (PLANNED, READ, IN_SINK, READING, DONE)
"""Lists the moments. The driver dies after it has written a plan, after the tasks have read their ranges, or after the
sink has the batch and before the commit log has it. An executor dies in the middle of a range, or when it has read a
range and has not reported that.
"""
