"""Finds modules of Squall that were imported under two names: the classes of `squall.broker.env` and `broker.env`
differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from os.path import realpath
from types import ModuleType

from squall.chaos.toolchain.places import ROOT
from tests.architecture.source import PACKAGES

FOLDERS = tuple(f"{ROOT / package}/" for package in PACKAGES)


def with_two_names(modules: Iterable[tuple[str, ModuleType]] | None = None) -> list[str]:
    """Return "a, b: path" for each file of our packages that was imported as more than one module. `modules` is by
    default sys.modules.
    """
    names: dict[str, list[str]] = {}
    for name, module in list(modules if modules is not None else sys.modules.items()):
        # `__main__` runs a file that may be imported, too.
        if (file := getattr(module, "__file__", None)) and name != "__main__":
            names.setdefault(realpath(file), []).append(name)
    return [
        f"{', '.join(sorted(has))}: {file}"
        for file, has in sorted(names.items())
        if len(has) > 1 and file.startswith(FOLDERS)
    ]
