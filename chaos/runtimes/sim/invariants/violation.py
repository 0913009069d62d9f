"""Describes a broken invariant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class InvariantViolation:
    """Describes one broken invariant, at the first moment at which it was seen."""

    name: str
    """Is the invariant's name in `INVARIANTS`."""
    message: str
    t: float
    """Is the virtual time, in seconds, at which the violation was found."""
    node: int | None
    topic: str | None
    partition: int | None
    details: Mapping[str, Any] = field(default_factory=dict)
    """Holds plain JSON values that explain the violation: offsets, epochs, batches."""

    def __post_init__(self) -> None:
        # What they are taken from goes on changing; the history is sealed with what they say now.
        object.__setattr__(self, "details", json.loads(json.dumps(dict(self.details), default=str)))

    def __str__(self) -> str:
        return self.at(self.t)

    def at(self, seconds: float) -> str:
        """Describe the violation in a line that begins with its time, `seconds`. The caller chooses from which moment
        that time counts, for example from the beginning of the load.
        """
        place = "" if self.topic is None else f" {self.topic}-{self.partition}"
        who = "" if self.node is None else f" node {self.node}"
        return f"{seconds:.3f} s {self.name}{place}{who}: {self.message}"
