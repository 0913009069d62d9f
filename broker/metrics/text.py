"""Formats metrics as OpenMetrics text, version 1.0 ("Text format" in the OpenMetrics specification), without I/O."""

from __future__ import annotations

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SUFFIXES = {"counter": "_total", "info": "_info"}
"""Maps the kind of a metric family to the suffix of its samples' names. For a summary, callers of `add` give the
suffix. Gauges have none.
"""


class MetricFamily:
    """Represents a family of metrics with its samples. `kind` is counter, gauge, summary or info."""

    __slots__ = ("_name", "_suffix", "lines")

    def __init__(self, name: str, kind: str, about: str) -> None:
        self._name, self._suffix = name, SUFFIXES.get(kind, "")
        self.lines = [f"# TYPE {name} {kind}", f"# HELP {name} {_escaped(about)}"]

    def add(self, value: float, suffix: str = "", **labels: object) -> MetricFamily:
        """Add a sample. No other sample may have the same labels with the same values."""
        written = ",".join(f'{label}="{_escaped(str(each))}"' for label, each in labels.items())
        braced = f"{{{written}}}" if written else ""
        self.lines.append(f"{self._name}{suffix or self._suffix}{braced} {value}")
        return self


def exposition(families: list[MetricFamily]) -> bytes:
    """Return the text of all families, in their order."""
    lines = [line for family in families for line in family.lines]
    return "\n".join([*lines, "# EOF\n"]).encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
