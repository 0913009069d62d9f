"""A broker's program as files: which program a folder holds, and whether it holds one."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from squall.chaos.errors import PreconditionError

MAGIC = re.compile(r'^MAGIC = b"(\w+)"', re.MULTILINE)
"""Of the file that a broker counts in what was done to its files: another layout has another one."""


def digest_of(package: Path) -> str:
    """16 hex digits over all Python files of a package, by name. Equal programs have equal digests in any folder."""
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        for data in (path.relative_to(package).as_posix().encode(), path.read_bytes()):
            found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()[:16]


def package_in(folder: Path) -> tuple[str, Path]:
    """(module, folder) of the package of brokers in a checkout, or in a folder of installed packages.

    The module is `broker` in a checkout of former days, in which it was a package by itself.
    """
    if (folder / "squall").is_dir():
        return "squall.broker", folder / "squall" / "broker"
    return "squall.broker" if (folder / "squall.py").is_file() else "broker", folder / "broker"


def second_version(given: str, first: Path, *, hurt: bool = False) -> Path:
    """The folder that --upgrade-to names: see `package_in`. Refused if it holds no broker, or the same as `first`.

    hurt: its broker must report changes of its files in the same way as `first` does, see `_layout`.
    """
    folder = Path(given).absolute()
    _, package = package_in(folder)
    if not (package / "__main__.py").is_file():
        raise PreconditionError(f"--upgrade-to {given}: there is no broker/__main__.py: a checkout of Squall is wanted")
    if digest_of(package) == digest_of(package_in(first)[1]):
        raise PreconditionError(
            f"--upgrade-to {given}: its broker is this one, file by file: another version is wanted"
        )
    if hurt and _layout(package) != _layout(package_in(first)[1]):
        raise PreconditionError(
            f"--upgrade-to {given}: its broker's files cannot be hurt as this one's (broker/faulted): "
            "leave out power_loss, crash_at, disk and damage"
        )
    return folder


def _layout(package: Path) -> str | None:
    """Return the layout in which a broker reports what was done to its files; None if it has no file faults."""
    tally = package / "faulted" / "tally.py"
    found = MAGIC.search(tally.read_text()) if tally.is_file() else None
    return found[1] if found else None
