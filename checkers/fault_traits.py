"""Names the traits of faults, such as "takes down" if a fault's nodes are down. Checkers and reports treat a fault by
its traits, so they need not know its action by name. The nemesis writes the traits of each fault to nemesis.jsonl.
"""

from __future__ import annotations

TAKES_DOWN = "takes down"
"""Marks a fault whose nodes are down from its begin until they start again."""
PAUSES = "pauses"
"""Marks a fault that suspends its nodes' OS processes."""
CUTS_LINKS = "cuts links"
SLOWS_LINKS = "slows links"
OUT_OF_SYNC = "out of sync"
"""Marks a fault that may take its nodes out of the ISR."""
EITHER_END = "either end"
"""Marks a fault of links after which the node at either end may leave the ISR, because a slow leader's followers lag.
"""
FORGETS_SYNCS = "forgets syncs"
"""Marks a fault in which an fsync failed; after that, pages count as written that never reached the disk."""

ALL = frozenset({TAKES_DOWN, PAUSES, CUTS_LINKS, SLOWS_LINKS, OUT_OF_SYNC, EITHER_END, FORGETS_SYNCS})
