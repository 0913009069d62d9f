"""Measures what became of the inputs of applications that read, transform and write: how many were lost, and how many
were duplicated.

These measures are never findings by themselves: `eos-loss` and `eos-duplicate` are, if the configuration forbids them.
The counts are taken from the reference finders of these two anomalies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from squall.checkers.anomalies import eos_duplicate, eos_loss
from squall.checkers.anomalies.anomaly import HistoryViews
from squall.checkers.anomalies.outputs import outputs_of
from squall.checkers.findings import Witness
from squall.checkers.history.tables import History


def measure_outputs(history: History) -> dict[str, Any]:
    """Return the measures of each group by its name, as plain JSON; empty if no group made outputs.

    - `inputs`: records that any reader got of the partitions that the group read.
    - `outputs`: distinct outputs of the group that read_committed readers got.
    - `lost`: inputs without an output, although the group committed a position above them; null if no final read could
      show that.
    - `doubled`: inputs with more than one output.
    - `further`: outputs beyond the first of each input.
    - `waiting`: inputs without an output that the group would still read; null if `lost` is null.
    """
    seen = HistoryViews(history)
    outputs, judged = seen.view(outputs_of), eos_loss.judged_until(history)
    group_of = {each.proc: str(each.settings.get("group", "")) for each in history.processes}
    lost = _by_group(eos_loss.find(seen), group_of)
    further = _by_group(eos_duplicate.find(seen), group_of)
    found = {}
    for group in sorted({output.group for output in history.outputs.rows()}):
        name = history.names[group]
        parts = {hold.part for hold in history.holds.rows() if hold.group == group}
        inputs = [val for val, places in outputs.places.items() if any(part in parts for part, _ in places)]
        made = [sum(each.off >= 0 for each in outputs.made.get((group, src), ())) for src in inputs]
        gone = len(lost.get(name, ())) if judged.get(group, -1) >= 0 else None
        found[name] = {
            "inputs": len(inputs),
            "outputs": sum(made),
            "lost": gone,
            "doubled": len({each.other for each in further.get(name, ())}),
            "further": len(further.get(name, ())),
            "waiting": None if gone is None else made.count(0) - gone,
        }
    return found


def _by_group(witnesses: Iterable[Witness], group_of: Mapping[int, str]) -> dict[str, list[Witness]]:
    found: dict[str, list[Witness]] = {}
    for each in witnesses:
        found.setdefault(group_of[each.proc], []).append(each)
    return found
