"""The engines that search a history, by name, and how large a history each of them takes.

Spark (`spark_analysis`) is the default, and judges nights and large histories. The reference engine
(`squall.checkers.analysis`) needs neither Java nor pyarrow.
"""

from __future__ import annotations

from pathlib import Path

SPARK, REFERENCE = "spark", "reference"
"""As the command line, findings.json and verdict.json name them."""
LARGEST_MIB = 128
"""Of the history.jsonl that the reference engine takes: it holds the history in memory, in twenty times the bytes."""


def too_large(history: Path) -> str:
    """Why the reference engine does not take this history.jsonl, in a sentence; empty if it does."""
    return beyond(f"{history.name} has", history.stat().st_size if history.exists() else 0)


def beyond(what: str, size: float) -> str:
    """Why the reference engine does not take a history of so many bytes, in a sentence; empty if it does."""
    if size <= LARGEST_MIB << 20:
        return ""
    large = f"{what} {size / (1 << 20):,.0f} MiB"
    return f"{large}, and the reference engine takes at most {LARGEST_MIB} MiB; Spark takes more"
