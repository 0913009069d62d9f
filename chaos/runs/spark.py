"""Where and how Spark runs while it judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spark:
    """What was asked of it."""

    master: str = "local[*]"
    """As Spark writes it: every core of this machine."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings, over those that a history of that size has."""
    limit_s: float = 3600
    """How long it may take."""


HERE = Spark()
