"""Injects faults into a cluster on schedule, proves that each fault landed, and records what happened. The package is
private, as `squall` says.
"""

__version__ = "0.1.0"
