"""Finds every mutant, in the order of the table in docs/shown/mutants.md: by their ids."""

from __future__ import annotations

import difflib
import pkgutil
from importlib import import_module
from string import ascii_lowercase

from squall.chaos.errors import PreconditionError
from squall.chaos.mutants import bugs
from squall.chaos.mutants.mutant import Mutant


def _found() -> tuple[Mutant, ...]:
    """Import all modules of `bugs`, and return the mutants that they define. 20 comes before 20a, and 9 before 10."""
    modules = [import_module(f"{bugs.__name__}.{each.name}") for each in pkgutil.iter_modules(bugs.__path__)]
    found = [each for module in modules for each in vars(module).values() if isinstance(each, Mutant)]
    assert len({each.id for each in found}) == len(found), "two mutants have one id"
    return tuple(sorted(found, key=lambda each: (int(each.id.rstrip(ascii_lowercase)), each.id)))


_ALL = _found()

MUTANTS: dict[str, Mutant] = {mutant.id: mutant for mutant in _ALL}
"""Maps each id to its mutant."""


def find(name: str) -> Mutant:
    """Return the mutant of that id or name. Raise PreconditionError, with similar names, if there is none."""
    for mutant in _ALL:
        if name in (mutant.id, mutant.name):
            return mutant
    near = difflib.get_close_matches(name, [mutant.name for mutant in _ALL]) if name[:1].isalpha() else []
    meant = f": did you mean {' or '.join(f'{each} ({find(each).id})' for each in near)}?" if near else ";"
    raise PreconditionError(f"there is no mutant {name!r}{meant} docs/shown/mutants.md lists them")


def select(names: str) -> tuple[Mutant, ...]:
    """Return the mutants of a list like `1,9,no-fsync`, of a group like `replication`, or `all` of them. Raise
    PreconditionError for an unknown name.
    """
    if names == "all":
        return _ALL
    if any(mutant.group == names for mutant in _ALL):
        return tuple(mutant for mutant in _ALL if mutant.group == names)
    return tuple(find(name.strip()) for name in names.split(",") if name.strip())
