"""A pytest plugin that removes one rule from the broker: `-p tests.mechanisms.plugin --without R2.0`.

The rule's module is edited while it is imported, so that every module which imports from it gets the edited one. No
file and no byte code is written. OS processes that a test starts have the unedited module; such tests are not in the
table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.mechanisms.mechanism import Removal
from tests.mechanisms.table import removal_of

FAILED = "squall-failed:"
"""Begins the line that is printed for each failed test."""


class Edited(SourceFileLoader):
    """Loads the module of a removal, with the removal applied."""

    def __init__(self, name: str, path: str, removal: Removal) -> None:
        super().__init__(name, path)
        self._removal = removal

    def get_code(self, fullname: str) -> CodeType:
        """Compile the edited source, and ignore byte code on disk."""
        source = self._removal.edited(self.get_data(self.path).decode())
        return compile(source, self.path, "exec", dont_inherit=True)


class Finder(MetaPathFinder):
    """Finds the module of a removal, and leaves all other modules to the usual finders."""

    def __init__(self, removal: Removal) -> None:
        self._removal = removal

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module, as `importlib` asks for it."""
        if fullname != self._removal.module_name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = Edited(fullname, spec.origin, self._removal)
        return spec


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --without, which takes the id of a removal."""
    parser.addoption("--without", required=True, help="take this rule out of the broker, for example R2.0")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Install the finder before anything of the broker is imported."""
    removal = removal_of(early_config.known_args_namespace.without)
    assert removal.module_name not in sys.modules, f"{removal.module} is imported already"
    sys.meta_path.insert(0, Finder(removal))


def pytest_sessionstart() -> None:
    """Let Hypothesis stop at the first failing example instead of shrinking it. It runs after tests/conftest.py has
    loaded its own profile.
    """
    settings.register_profile("rules", settings.get_profile("gate"), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("rules")


def pytest_runtest_logreport(report: Any) -> None:
    """Print the name of a failed test, for the runner."""
    if report.failed:
        sys.__stdout__.write(f"\n{FAILED}{report.nodeid}\n")  # type: ignore[union-attr]
