"""Hurts a cluster on schedule, proves that each fault landed, and records what happened. Private, as `squall` says."""

__version__ = "0.1.0"
