"""Makes another version of the broker for tests of upgrades: a copy of its package with one module changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from squall.chaos.toolchain.places import PACKAGES


def broker_with(folder: Path, module: str, change: Callable[[str], str]) -> Path:
    """Make `folder` a checkout for `--upgrade-to` whose broker/`module` has the text that `change` returns. Returns
    `folder`.
    """
    shutil.copytree(PACKAGES / "broker", folder / "broker", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGES / "squall.py", folder)
    path = folder / "broker" / module
    before = path.read_text()
    after = change(before)
    assert after != before, f"broker/{module} is as it was"
    path.write_text(after)
    return folder
