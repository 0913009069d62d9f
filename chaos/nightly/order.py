"""Orders the runs of a night so that its time is spread evenly over configurations, wherever the time runs out. It does
no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from squall.chaos.nightly.items import PlannedRun
from squall.checkers.nightly.results import VALID, RunAttempt

NEVER, DOUBTFUL, WELL = 0, 1, 2
"""Grade a configuration by the newest night that ran it. NEVER: no night ran it; DOUBTFUL: a run had a finding or no
verdict; WELL: every run was valid.
"""


def in_order(items: Sequence[PlannedRun], history: Mapping[str, int]) -> list[PlannedRun]:
    """Return the runs in turns: each configuration has its first run before any has its second. Within a turn,
    configurations that never ran come first, then doubtful ones (`history`: configuration -> NEVER, DOUBTFUL or WELL).
    """
    turns: dict[str, int] = {}
    keyed = []
    for number, item in enumerate(items):
        turn = turns[item.configuration] = turns.get(item.configuration, -1) + 1
        keyed.append(((turn, history.get(item.configuration, NEVER), number), item))
    return [item for _, item in sorted(keyed, key=lambda each: each[0])]


def history_of(nights: Iterable[tuple[Sequence[PlannedRun], Sequence[RunAttempt]]]) -> dict[str, int]:
    """Grade each configuration that has ever run, by the newest night that ran it: DOUBTFUL or WELL. nights: the runs
    and attempts of each night, the newest night first.
    """
    found: dict[str, int] = {}
    for items, attempts in nights:
        of_item = {each.item: each.configuration for each in items}
        this: dict[str, int] = {}
        for each in attempts:
            if each.item in of_item:
                well = each.verdict == VALID and not each.unexpected
                name = of_item[each.item]
                this[name] = min(this.get(name, WELL), WELL if well else DOUBTFUL)
        found = {**this, **found}
    return found
