"""Runs one session of a night: starts pytest, with its configuration and the night's plugin."""

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
from squall.chaos.nightly.evidence import RunEvidence
from squall.chaos.nightly.matrix import make_matrix
from squall.chaos.nightly.player import NightLimits, NightRunner
from squall.chaos.toolchain.extras import install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.chaos.nightly.items import PlannedRun
    from squall.chaos.nightly.plugin import NightPlugin, Show

NEEDED = ("pytest", "allure_pytest")
NO_PLUGINS = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
# A file of its own: otherwise pytest would take its configuration from the folder in which the user is.
_INI = "[pytest]\naddopts =\n"
USAGE, INTERNAL, INTERRUPTED = 4, 3, 2
"""Are exit codes of pytest."""


def require() -> None:
    """Raise PreconditionError if a package is missing that a night needs and a single run does not."""
    if missing := [name.replace("_", "-") for name in NEEDED if find_spec(name) is None]:
        raise PreconditionError(f"`squall nightly` needs {' and '.join(missing)}: {install('run')}")


def play(directory: NightDirectory, player: NightRunner, show: Show, select: str, *, stop_at_first: bool) -> int:
    """Play the selected runs, and return pytest's exit code. Afterwards `player.items` are the runs that -k selects.

    Return INTERRUPTED if the disk is full; `player.disk_full` then says so. show: reads the evidence of a run directory
    for JUnit and Allure.
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
    """Return the expression for pytest's -k. A configuration may be named as `--list` shows it, with spaces and equals
    signs.
    """
    names = {item.configuration: slug(item.cell) for item in items}
    return names.get(select, select.replace("=", "-"))


def chosen(items: Sequence[PlannedRun], select: str) -> tuple[PlannedRun, ...]:
    """Return the runs that -k selects. Raise PreconditionError if pytest does not understand the expression, or if it
    selects nothing.
    """
    if not select:
        return tuple(items)
    from squall.chaos.nightly.plugin import NightPlugin

    with tempfile.TemporaryDirectory(prefix="squall-night-") as folder:
        directory = NightDirectory(Path(folder).resolve())
        for path in (directory.night, directory.path / "pytest.ini"):
            write_whole(path, _INI)
        player = NightRunner(directory, make_matrix({"runs": [{}]}), items, NightLimits(None, 0, 1), CostModel(), {})
        words = [*_plain(directory), "--collect-only", "-k", select, str(directory.night)]
        code = _main(words, NightPlugin(directory, player, lambda run, unexpected: RunEvidence()))
    if code == USAGE:
        raise PreconditionError(f"-k {select!r}: pytest does not understand this, see above")
    if not player.items:
        raise PreconditionError(f"-k {select!r}: no run of this night has such a name: --list shows them all")
    return tuple(player.items)


def _main(words: list[str], plugin: NightPlugin) -> int:
    """Run pytest and return its exit code. Other installed plugins are not loaded: they may shuffle items or time out.
    """
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
    """Return the options of every session: our own configuration file, no output, no cache."""
    words = ["-c", directory.path / "pytest.ini", "--rootdir", directory.path.absolute()]
    return [*map(str, words), "-p", "no:terminal", "-p", "no:cacheprovider", "--capture=no"]


def _arguments(directory: NightDirectory, select: str, *, stop_at_first: bool) -> list[str]:
    words: list[str | Path] = [*_plain(directory)]
    # Cleaned, because each session reports all runs of the night again, also those of earlier sessions.
    words += ["-p", "allure_pytest.plugin", "--alluredir", directory.allure.absolute(), "--clean-alluredir"]
    words += ["--junitxml", directory.junit.absolute(), "-o", "junit_family=xunit1"]
    words += ["-o", "junit_suite_name=squall nightly"]
    words += ["-k", select] if select else []
    words += ["-x"] if stop_at_first else []
    return [*map(str, words), str(directory.night.absolute())]
