"""The analysis of a run directory by Spark, as `squall.spark`: `analyse()` finds anomalies and takes measures.

This is an interface: docs/run.md, "From your own program", describes it. It needs the extra `[spark]`.
"""

from __future__ import annotations

from squall.checkers.analysis import Analysis
from squall.spark_analysis.jobs import NoStart, analyse
from squall.spark_analysis.session import NoJava

__all__ = ["Analysis", "NoJava", "NoStart", "analyse"]
