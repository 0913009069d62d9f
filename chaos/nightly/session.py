"""One session of a night, from its folder to its end: pytest is started here, and what it needs is made."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from squall.chaos.errors import PreconditionError
from squall.chaos.nightly.axes import slug
from squall.chaos.nightly.budget import CostModel
from squall.chaos.nightly.directory import NightDirectory, write_whole
from squall.chaos.nightly.evidence import Evidence
from squall.chaos.nightly.matrix import make_matrix
from squall.chaos.nightly.player import NightLimits, NightRunner
from squall.chaos.toolchain.extras import install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.chaos.nightly.items import PlannedRun
    from squall.chaos.nightly.plugin import NightPlugin, Show

NEEDED = ("pytest", "allure_pytest")
NO_PLUGINS = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
_INI = "[pytest]\naddopts =\n"
USAGE, INTERNAL, INTERRUPTED = 4, 3, 2
"""Exit codes of pytest."""


def require() -> None:
    """Refused where a package is missing that a night needs and a single run does not."""
    if missing := [name.replace("_", "-") for name in NEEDED if find_spec(name) is None]:
        raise PreconditionError(f"`squall nightly` needs {' and '.join(missing)}: {install('run')}")


def play(directory: NightDirectory, player: NightRunner, show: Show, select: str, *, stop_at_first: bool) -> int:
    """Play what is selected. pytest's exit code; afterwards `player.items` are those that -k has left.

    INTERRUPTED where the disk is full, of which `player.disk_full` says more.
    show: what reads a run directory for JUnit and Allure.
    """
    from squall.chaos.nightly import allure_results
    from squall.chaos.nightly.plugin import NightPlugin

    try:
        write_whole(directory.path / "pytest.ini", _INI)
        plugin = NightPlugin(directory, player, show)
        code = _main(_arguments(directory, select, stop_at_first=stop_at_first), plugin)
        allure_results.write_environment(directory.allure, directory.planned()[0])
    except OSError as error:  # of the files that pytest writes at its end, say
        player.stop_for(error)
        return INTERRUPTED
    return INTERRUPTED if player.disk_full else code


def expression(items: Sequence[PlannedRun], select: str) -> str:
    """The expression for pytest: a configuration may be named as `--list` shows it, with spaces and equals signs."""
    names = {item.configuration: slug(item.cell) for item in items}
    return names.get(select, select.replace("=", "-"))


def chosen(items: Sequence[PlannedRun], select: str) -> tuple[PlannedRun, ...]:
    """Those that -k leaves. Refused for an expression that pytest does not understand, and where nothing is left."""
    if not select:
        return tuple(items)
    from squall.chaos.nightly.plugin import NightPlugin

    with tempfile.TemporaryDirectory(prefix="squall-night-") as folder:
        directory = NightDirectory(Path(folder).resolve())
        for path in (directory.night, directory.path / "pytest.ini"):
            write_whole(path, _INI)
        player = NightRunner(directory, make_matrix({"runs": [{}]}), items, NightLimits(None, 0, 1), CostModel(), {})
        words = [*_plain(directory), "--collect-only", "-k", select, str(directory.night)]
        code = _main(words, NightPlugin(directory, player, lambda run, unexpected: Evidence()))
    if code == USAGE:
        raise PreconditionError(f"-k {select!r}: pytest does not understand this, see above")
    if not player.items:
        raise PreconditionError(f"-k {select!r}: no run of this night has such a name: --list shows them all")
    return tuple(player.items)


def _main(words: list[str], plugin: NightPlugin) -> int:
    """pytest's exit code. Without plugins that happen to be installed: they may shuffle, or end what takes long."""
    import pytest

    before = os.environ.get(NO_PLUGINS)
    os.environ[NO_PLUGINS] = "1"
    try:
        return int(pytest.main(words, plugins=[plugin]))
    finally:
        if before is None:
            del os.environ[NO_PLUGINS]
        else:
            os.environ[NO_PLUGINS] = before


def _plain(directory: NightDirectory) -> list[str]:
    """The options of every session: no other configuration, nothing printed, nothing kept."""
    words = ["-c", directory.path / "pytest.ini", "--rootdir", directory.path.absolute()]
    return [*map(str, words), "-p", "no:terminal", "-p", "no:cacheprovider", "--capture=no"]


def _arguments(directory: NightDirectory, select: str, *, stop_at_first: bool) -> list[str]:
    words: list[str | Path] = [*_plain(directory)]
    words += ["-p", "allure_pytest.plugin", "--alluredir", directory.allure.absolute(), "--clean-alluredir"]
    words += ["--junitxml", directory.junit.absolute(), "-o", "junit_family=xunit1"]
    words += ["-o", "junit_suite_name=squall nightly"]
    words += ["-k", select] if select else []
    words += ["-x"] if stop_at_first else []
    return [*map(str, words), str(directory.night.absolute())]
