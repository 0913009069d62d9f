"""Every command of a documentation page is typed in a fresh clone, in order, and does what the page says.

There is only the clone and the page: a command's requirements must be installed by earlier commands of its page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.engine import engine_and_images
from tests.support.lacks import skip_without
from tests.support.pages import ROOT, commands, pages, played

QUICK = re.compile(r"\./squall (?:guarantees|sim --plan)\b")
"""Matches those commands of the tutorial that the gate runs."""
NOT_OURS = ("SQUALL_CACHE", "SQUALL_PYTHON", "PYTHONPATH", "VIRTUAL_ENV", "COLUMNS")
PLAYED = [page for page in pages() if any(not each.not_played for each in commands((ROOT / page).read_text()))]


class Clones:
    """Makes clones of this checkout at the same path, one after the other, so that they can share the launcher's
    environment.

    The first page starts without environment and with an empty cache: its commands install everything.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self._kept, self._cache = folder / "squall", folder / "kept", folder / "cache"
        self.environment = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
        self.environment |= {"XDG_CACHE_HOME": str(self._cache), "SQUALL_PYTHON": sys.executable}

    def fresh(self) -> Path:
        """Return a new clone with the commit and the uncommitted changes of this checkout."""
        shutil.rmtree(self.path, ignore_errors=True)
        if shutil.which("git") is None or not (ROOT / ".git").exists():
            skip_without("git, and a clone of Squall", "as root: apt-get install -y git")
        changed = _git(ROOT, "stash", "create").strip() or "HEAD"
        commit = _git(ROOT, "rev-parse", changed).strip()
        _git(ROOT, "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(self.path))
        _git(self.path, "checkout", "--quiet", commit)
        if self._kept.exists():
            subprocess.run(["cp", "-al", self._kept, self.path / ".venv"], check=True)
        return self.path

    def keep(self) -> None:
        """Keep the environment for later pages if it has only what the launcher itself installs."""
        stamps = [each.name for each in (self.path / ".venv").glob(".squall-*")]
        if stamps == [".squall-requirements"] and not self._kept.exists():
            (self.path / ".venv").rename(self._kept)


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clones]:
    folder = tmp_path_factory.mktemp("clones")
    yield Clones(folder)
    shutil.rmtree(folder)


@pytest.mark.night("installs Squall anew and plays runs, for minutes")
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("page", PLAYED)
def test_a_page_and_a_fresh_clone_are_all_that_its_commands_need(page: str, clones: Clones) -> None:
    clone = clones.fresh()
    typed = [each for each in commands((clone / page).read_text(), page) if not each.not_played]
    if any("--runtime docker" in each.text for each in typed):
        engine_and_images()
    wrong = played(typed, clone, clones.environment)
    clones.keep()
    assert not wrong, "\n".join(wrong)


@pytest.mark.gate
def test_what_the_tutorial_simulates_ends_as_it_says(tmp_path: Path) -> None:
    """It uses the environment of this test, because the clone's launcher would make one of its own."""
    clones = Clones(tmp_path)
    clone = clones.fresh()
    (clone / "squall").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m squall.chaos "$@"\n')
    typed = [each for each in commands((clone / "docs/tutorial.md").read_text()) if QUICK.match(each.text)]
    assert len(typed) == 3
    wrong = played(typed, clone, {**clones.environment, "PYTHONPATH": str(clone)})
    assert not wrong, "\n".join(wrong)
