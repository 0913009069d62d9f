"""Formats commands and paths of Squall as the user would type them in the current folder."""

from __future__ import annotations

import shlex
import shutil
import sysconfig
from pathlib import Path

_LAUNCHER = Path(__file__).resolve().parents[1] / "squall"
PROGRAM = _LAUNCHER if _LAUNCHER.is_file() else Path(sysconfig.get_path("scripts")) / "squall"
"""Is the path of the `squall` program: a checkout's launcher, or the program that pip has installed."""


def absolute_command(*words: str | Path) -> str:
    """Return a command that does the same in every folder, because program and paths are absolute. Empty words are left
    out.
    """
    given = (str(word.absolute()) if isinstance(word, Path) else word for word in words)
    return shlex.join([str(PROGRAM), *(word for word in given if word)])


def shortened(line: str) -> str:
    """Return a shell command with absolute paths below the current folder made relative, and the installed program as
    `squall` if it is on PATH. A line that a shell could not split is returned unchanged.
    """
    try:
        return shlex.join(map(_short, shlex.split(line)))
    except (OSError, ValueError):  # this folder is gone; quotes that do not end
        return line


def typed(*words: str | Path) -> str:
    """Return a command as the user would type it in the current folder: paths below that folder are relative, and the
    installed program is `squall` if it is on PATH. Empty words are left out.
    """
    return shortened(absolute_command(*words))


def place(path: str | Path) -> str:
    """Return a path as the user would type it in the current folder, in quotes if a shell needs them."""
    return shortened(shlex.quote(str(path)))


def script(name: str) -> str:
    """Return a program of this checkout as the user would type it in the current folder."""
    return shortened(shlex.quote(str(PROGRAM.parent / name)))


def _short(word: str) -> str:
    path, cwd = Path(word), Path.cwd()
    if path == PROGRAM != _LAUNCHER and shutil.which("squall") == str(path):
        return "squall"
    if not path.is_absolute() or not path.is_relative_to(cwd):
        return word
    inside = str(path.relative_to(cwd))
    return f"./{inside}" if path == PROGRAM else inside
