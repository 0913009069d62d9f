"""One session of a night, from its folder to its end: pytest is started here, and what it needs is made."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.errors import Refused
from chaos.nights.directory import NightDirectory, write_whole
from chaos.nights.player import Player
from chaos.toolchain.extras import install

if TYPE_CHECKING:
    from chaos.nights.plugin import Show

NEEDED = ("pytest", "allure_pytest")
_INI = "[pytest]\naddopts =\n"
USAGE, INTERNAL, INTERRUPTED = 4, 3, 2
"""Exit codes of pytest."""


def require() -> None:
    """Refused where a package is missing that a night needs and a single run does not."""
    if missing := [name.replace("_", "-") for name in NEEDED if find_spec(name) is None]:
        raise Refused(f"`squall nightly` needs {' and '.join(missing)}: {install('nightly')}")


def play(directory: NightDirectory, player: Player, show: Show, select: str, *, stop_at_first: bool) -> int:
    """Play what is selected. pytest's exit code; afterwards `player.items` are those that -k has left.

    show: what reads a run directory for JUnit and Allure.
    """
    import pytest

    from chaos.nights import allure_results
    from chaos.nights.plugin import NightPlugin

    ini = directory.path / "pytest.ini"
    write_whole(ini, _INI)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # others' plugins may shuffle, time out, or look for tests
    plugin = NightPlugin(directory, player, show)
    code = int(pytest.main(_arguments(directory, ini, select, stop_at_first=stop_at_first), plugins=[plugin]))
    allure_results.surroundings(directory.allure, directory.planned()[0])
    return code


def _arguments(directory: NightDirectory, ini: Path, select: str, *, stop_at_first: bool) -> list[str]:
    words: list[str | Path] = ["-c", ini, "--rootdir", directory.path.absolute()]
    words += ["-p", "no:terminal", "-p", "no:cacheprovider", "--capture=no"]
    words += ["-p", "allure_pytest.plugin", "--alluredir", directory.allure.absolute(), "--clean-alluredir"]
    words += ["--junitxml", directory.junit.absolute(), "-o", "junit_family=xunit1"]
    words += ["-o", "junit_suite_name=squall nightly"]
    words += ["-k", select] if select else []
    words += ["-x"] if stop_at_first else []
    return [*map(str, words), str(directory.night.absolute())]
