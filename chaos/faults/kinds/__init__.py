"""Collects the kinds of faults, which are one file each: to add such a file is to add a fault."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module

from squall.chaos.faults.kind import FaultKind


def _found() -> dict[str, FaultKind]:
    """Import all modules of this package, and return the kinds of faults that they define, by name and in the order of
    `FaultKind.place`.
    """
    kinds: list[FaultKind] = []
    for module in pkgutil.iter_modules(__path__):
        kind: FaultKind = import_module(f"{__name__}.{module.name}").KIND
        assert kind.name == module.name, f"{module.name}.py holds {kind.name}"
        kinds.append(kind)
    assert len({kind.place for kind in kinds}) == len(kinds), "two kinds of faults have one place"
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.place)}


KINDS: Mapping[str, FaultKind] = _found()
"""Maps the name of each kind of fault to its description. The order is that of the kinds' fixed numbers,
`FaultKind.place`.
"""
