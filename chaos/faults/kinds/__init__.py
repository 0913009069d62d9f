"""Collects the kinds of faults, which are one file each: to add such a file is to add a fault."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module

from squall.chaos.faults.kind import FaultKind


def _found() -> dict[str, FaultKind]:
    """Return the `KIND` of every module, by name, in the order of their places."""
    kinds: list[FaultKind] = []
    for module in pkgutil.iter_modules(__path__):
        kind: FaultKind = import_module(f"{__name__}.{module.name}").KIND
        assert kind.name == module.name, f"{module.name}.py holds {kind.name}"
        kinds.append(kind)
    assert len({kind.place for kind in kinds}) == len(kinds), "two kinds of faults have one place"
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.place)}


KINDS: Mapping[str, FaultKind] = _found()
"""Maps the name of each kind of fault to its description, in the order of `place`."""
