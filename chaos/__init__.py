"""Injects faults into a cluster on schedule, proves that each fault took effect, and records what happened. The package
is private: only `squall.fixture` and `squall.spark` are an interface.
"""

__version__ = "0.1.0"
