"""Commands of Squall as people type them: what is printed works in the folder in which it is printed."""

from __future__ import annotations

import shlex
import shutil
import sysconfig
from pathlib import Path

_LAUNCHER = Path(__file__).resolve().parents[1] / "squall"
PROGRAM = _LAUNCHER if _LAUNCHER.is_file() else Path(sysconfig.get_path("scripts")) / "squall"
"""A checkout's launcher, or the program that pip has installed."""


def lasting(*words: str | Path) -> str:
    """A command that does the same in every folder: program and paths are absolute. Empty words are left out."""
    given = (str(word.absolute()) if isinstance(word, Path) else word for word in words)
    return shlex.join([str(PROGRAM), *(word for word in given if word)])


def here(line: str) -> str:
    """A command of `lasting` as somebody in this folder types it. What is no command is left as it is."""
    try:
        return shlex.join(map(_short, shlex.split(line)))
    except (OSError, ValueError):  # this folder is gone; quotes that do not end
        return line


def typed(*words: str | Path) -> str:
    """Return a command as somebody in this folder types it: `lasting`, with its paths shortened by `here`."""
    return here(lasting(*words))


def place(path: str | Path) -> str:
    """A path as somebody in this folder types it, in quotes where a shell needs them."""
    return here(shlex.quote(str(path)))


def script(name: str) -> str:
    """A program of this checkout as somebody in this folder types it."""
    return here(shlex.quote(str(PROGRAM.parent / name)))


def _short(word: str) -> str:
    path, cwd = Path(word), Path.cwd()
    if path == PROGRAM != _LAUNCHER and shutil.which("squall") == str(path):
        return "squall"
    if not path.is_absolute() or not path.is_relative_to(cwd):
        return word
    inside = str(path.relative_to(cwd))
    return f"./{inside}" if path == PROGRAM else inside
