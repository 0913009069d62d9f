"""Traits of a fault as they stand in its lines of nemesis.jsonl: what judging and reports ask about an action.

The nemesis writes those that are true of the fault, so that nobody here has to know any action by its name.
"""

from __future__ import annotations

TAKES_DOWN = "takes down"
"""Its nodes are gone from its begin on, until they start again."""
PAUSES = "pauses"
"""Its nodes are held where they are."""
CUTS_LINKS = "cuts links"
SLOWS_LINKS = "slows links"
OUT_OF_SYNC = "out of sync"
"""It may take the nodes that it hits out of the ISR."""
EITHER_END = "either end"
"""Of links: either end of one may be the one that leaves the ISR. A slow leader's followers are those that lag."""
FORGETS_SYNCS = "forgets syncs"
"""An fsync failed, after which pages count as written that never came to the disk."""

ALL = frozenset({TAKES_DOWN, PAUSES, CUTS_LINKS, SLOWS_LINKS, OUT_OF_SYNC, EITHER_END, FORGETS_SYNCS})
