"""What a driver tells of its reads, as the workload takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chaos.errors import HarnessError
from workloads.libraries import Assigned, Part, Read, Sought, Troubled


def heard(message: Sequence[Any]) -> Assigned | Read | Sought | Troubled:
    """A reader's message as the workload takes it."""
    match message:
        case ["a", positions]:
            return Assigned({(topic, index): position for topic, index, position in positions})
        case ["r", began_ns, at, parts]:
            return Read(
                began_ns,
                {(topic, index): position for topic, index, position in at},
                [Part((topic, index), position, pairs, bad) for topic, index, position, pairs, bad in parts],
            )
        case ["k", topic, index, position, why]:
            return Sought((topic, index), position, why)
        case ["e", why]:
            return Troubled(why)
    raise HarnessError(f"a driver said what none says: {message!r}")
