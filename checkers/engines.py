"""Names the engines that search a history, and says how large a history each engine accepts. Spark (`spark_analysis`)
is the default, and the engine for nightly runs and large histories. The reference engine (`squall.checkers.analysis`)
needs neither Java nor pyarrow.
"""

from __future__ import annotations

from pathlib import Path

SPARK, REFERENCE = "spark", "reference"
"""Are the engines' names on the command line, in findings.json and in verdict.json."""
LARGEST_MIB = 128
"""Is the largest history.jsonl, in MiB, that the reference engine accepts. It holds the history in memory, where it
takes twenty times as many bytes as on disk.
"""


def too_large(history: Path) -> str:
    """Return a sentence that says why the reference engine does not accept this history.jsonl; empty if it does."""
    return over_limit(f"{history.name} has", history.stat().st_size if history.exists() else 0)


def over_limit(subject: str, size: float) -> str:
    """Return a sentence that says why the reference engine does not accept a history of `size` bytes; empty if it does.
    `subject` begins the sentence, as in "history.jsonl has".
    """
    if size <= LARGEST_MIB << 20:
        return ""
    large = f"{subject} {size / (1 << 20):,.0f} MiB"
    return f"{large}, and the reference engine takes at most {LARGEST_MIB} MiB; Spark takes more"
