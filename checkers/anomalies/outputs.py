"""Collects the outputs that members of groups made of their inputs, and for each output whether read_committed readers
got it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from squall.checkers.anomalies.transactions import ended_late, transactions_of
from squall.checkers.history.group_tables import PipelineOutput
from squall.checkers.history.tables import ABORT, COMMIT, POLL, History


@dataclass(frozen=True, slots=True)
class ObservedOutput:
    """Describes one output record of a group, and whether readers got it."""

    output: PipelineOutput
    off: int
    """Is the lowest offset at which a read_committed reader got the output; -1 if none did."""
    late_commit: bool
    """Is True if a late EndTxn, which was sent for an earlier transaction, may have committed the output's transaction.
    """
    late_abort: bool


@dataclass(slots=True)
class OutputsByInput:
    """Holds the outputs of all groups, by their inputs."""

    made: dict[tuple[int, int], list[ObservedOutput]] = field(default_factory=dict)
    """Maps (group, value of the input) to the outputs of the input, in the order in which they were sent."""
    places: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    """Maps each value to the (partition, offset) of all reads of it."""


def outputs_of(history: History) -> OutputsByInput:
    """Return all outputs of a history, by their inputs."""
    found = OutputsByInput()
    lowest: dict[int, int] = {}
    for record in history.records.rows():
        if record.kind == POLL and record.val >= 0:
            found.places.setdefault(record.val, set()).add((record.part, record.off))
            if record.iso == 1:
                lowest[record.val] = min(record.off, lowest.get(record.val, record.off))
    of_value, late = transactions_of(history).of_value, ended_late(history)
    for output in sorted(history.outputs.rows()):
        ends = late[of_value[output.val].op] if output.val in of_value else frozenset()
        made = ObservedOutput(output, lowest.get(output.val, -1), COMMIT in ends, ABORT in ends)
        found.made.setdefault((output.group, output.src), []).append(made)
    return found
