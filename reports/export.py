"""Packs a run into one file to send: what its page shows and what a new judgement needs, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from squall.reports.page import page_of
from squall.reports.raw_files import sent
from squall.reports.run_files import PAGE, read_run

PLACE = "runs"
"""Is the folder into which a packed run is to be unpacked, inside of a checkout. The commands on its page name the run
by this path, for example runs/NAME.
"""
WITH_COMMAND = ("run.json", "junit.xml")
"""Lists the files that contain the command which repeats the run. This command names paths of this machine, so the zip
has these files with a rewritten command.
"""
OURS = ("history.jsonl", "trace.jsonl", "messages.jsonl", "polled.jsonl")
"""Lists the files whose every value Squall made: they can hold no secret, and they may be large."""
_NAME = rb"(?:passw(?:or)?d|secret|token|api[_.-]?key|jaas\.config)"
SECRET = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    rb"|\w://[^/\s:@]+:[^/\s@]+@"
    rb"|--[\w-]*" + _NAME + rb"[\"', =]+\w"
    rb"|" + _NAME + rb"[\"']?\s*[=:]\s*[\"']?(?!null\b|none\b|\[hidden\]|[\"',\s}\]])[^\s]",
    re.IGNORECASE,
)
"""Matches passwords, tokens and private keys, with their values."""


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """Describes a file of the zip, with its size before compression."""

    name: str
    size: int


def suspects(run_dir: Path) -> Iterator[str]:
    """Yield the lines that seem to hold a secret, as FILE:LINE. The page is not searched, because all that it shows is
    also in other files of the run.
    """
    for name in sent(run_dir):
        if name.name not in OURS:
            for number, line in enumerate((run_dir / name).read_bytes().splitlines(), start=1):
                if SECRET.search(line):
                    yield f"{name}:{number}"


def page_to_send(run_dir: Path) -> str:
    """Return a fresh page for the zip, whose commands name no path of this machine."""
    return page_of(run_dir, f"{PLACE}/{run_dir.name}")


def write_zip(run_dir: Path, path: Path, page: str | None) -> list[ArchiveEntry]:
    """Write the zip of a run, with a folder of the run's name in it, and return its entries.

    `page` comes from `page_to_send`; None leaves the page out. The commands of run.json and junit.xml name no path of
    this machine. Plan and history are not changed, because their digests are part of the verdict. Raises OSError if a
    file cannot be read or written.
    """
    files, place = read_run(run_dir), f"{PLACE}/{run_dir.name}"
    own = [str(files.run.get("command") or ""), files.command, files.command_in_checkout()]
    fresh = path.with_name(f"{path.name}.new")
    with ZipFile(fresh, "w", ZIP_DEFLATED) as packed:
        if page is not None:
            packed.writestr(f"{run_dir.name}/{PAGE}", page)
        for name in sent(run_dir):
            inside = f"{run_dir.name}/{name.as_posix()}"
            if name.name in WITH_COMMAND:
                text = (run_dir / name).read_text(encoding="utf-8")
                for command in filter(None, own):
                    text = text.replace(command, files.command_in_checkout(place))
                packed.writestr(inside, text)
            else:
                packed.write(run_dir / name, inside)
        entries = [ArchiveEntry(each.filename, each.file_size) for each in packed.infolist()]
    fresh.replace(path)
    return entries
