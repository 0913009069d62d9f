"""The interface `squall.spark`: `analyse()` finds anomalies in a run directory and measures it, by Spark;
`SquallDataSource` offers topics to Spark jobs.

docs/run.md, "From your own program", and docs/load.md describe them. They need the extra `[spark]`.
"""

from __future__ import annotations

from squall.chaos.toolchain.extras import missing

try:
    from squall.checkers.analysis import Analysis
    from squall.spark_analysis.jobs import NoStart, analyse
    from squall.spark_analysis.load import SquallDataSource
    from squall.spark_analysis.session import NoJava
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("; ".join(missing("spark")) or str(error), name=error.name) from None

__all__ = ["Analysis", "NoJava", "NoStart", "SquallDataSource", "analyse"]
