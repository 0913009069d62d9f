"""Finds the broker's package in a folder, and compares two of them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from squall.chaos.errors import PreconditionError

MAGIC = re.compile(r'^MAGIC = b"(\w+)"', re.MULTILINE)
"""Matches the line of `faulted/tally.py` that defines the magic bytes of a broker's tally. The tally is the file in
which a broker counts its file faults (I/O errors and delays that its file layer injects). A tally of another layout has
other magic bytes.
"""


def digest_of(package: Path) -> str:
    """Return a digest (16 hex digits) of the relative paths and contents of all Python files of a package. Equal
    packages have equal digests, in any folder.
    """
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        for data in (path.relative_to(package).as_posix().encode(), path.read_bytes()):
            found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()[:16]


def package_in(folder: Path) -> tuple[str, Path]:
    """Return (module, folder) of the broker's package in a checkout, or in a folder of installed packages.

    The module is `broker` in an old checkout, in which it was a package by itself.
    """
    if (folder / "squall").is_dir():
        return "squall.broker", folder / "squall" / "broker"
    return "squall.broker" if (folder / "squall.py").is_file() else "broker", folder / "broker"


def second_version(given: str, first: Path, *, faulted: bool = False) -> Path:
    """Return the folder `given` (the value of --upgrade-to) as an absolute path: a checkout, or a folder of installed
    packages, with the broker's second version. Raise PreconditionError if it has no broker, or the same broker as the
    folder `first`.

    faulted: the plan injects file faults. Then also raise if the two brokers count file faults in tally files of
    different layouts (`_layout`).
    """
    folder = Path(given).absolute()
    _, package = package_in(folder)
    if not (package / "__main__.py").is_file():
        raise PreconditionError(f"--upgrade-to {given}: there is no broker/__main__.py: a checkout of Squall is wanted")
    if digest_of(package) == digest_of(package_in(first)[1]):
        raise PreconditionError(
            f"--upgrade-to {given}: its broker is this one, file by file: another version is wanted"
        )
    if faulted and _layout(package) != _layout(package_in(first)[1]):
        raise PreconditionError(
            f"--upgrade-to {given}: its broker's files cannot be hurt as this one's (broker/faulted): "
            "leave out power_loss, crash_at, disk and damage"
        )
    return folder


def _layout(package: Path) -> str | None:
    """Return the magic bytes of a broker's tally, such as "sqtally2", which identify its layout (`MAGIC`); None if the
    broker has no tally.
    """
    tally = package / "faulted" / "tally.py"
    found = MAGIC.search(tally.read_text()) if tally.is_file() else None
    return found[1] if found else None
