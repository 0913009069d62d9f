"""Another version of the broker: a copy of its package with one module changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from squall.chaos.toolchain.places import PACKAGES


def broker_with(folder: Path, module: str, change: Callable[[str], str]) -> Path:
    """Return `folder`, now a checkout for `--upgrade-to`: the text of broker/`module` is what `change` makes of it."""
    shutil.copytree(PACKAGES / "broker", folder / "broker", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGES / "squall.py", folder)
    path = folder / "broker" / module
    before = path.read_text()
    after = change(before)
    assert after != before, f"broker/{module} is as it was"
    path.write_text(after)
    return folder
