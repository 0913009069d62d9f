"""Damages files of a log directory as a broken disk does, without an I/O error: cuts the end of a partition's newest
segment, or removes a whole file that the broker no longer writes to.

The choice depends on paths and sizes alone, so real and simulated files are damaged alike. The log of the metadata
quorum is spared: Raft cannot cope with a voter that forgets its promises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from squall.chaos.runtimes.contract import Evidence

How = Literal["tail", "file"]
QUORUM = "__cluster_metadata"

Where = Literal["checked", "epoch"]
"""Selects which bits of a segment may flip: bits that a checksum covers (or the checksum itself), or bits of leader
epochs.
"""


@dataclass(frozen=True, slots=True)
class FileDamage:
    """Describes the damage to one file. `path` begins with the log directory's own name. `size` gives the bytes that
    are left; None means that the file is removed.
    """

    path: str
    size: int | None


def drawn(files: Mapping[str, int], how: How, size: int, rng: Random) -> FileDamage | None:
    """Choose which of these files, given as path -> size, to damage. Returns None if no file can be damaged.

    tail: the newest segment of a random partition is shortened by `size` bytes, or to 0 if it has fewer. file: a random
    file is removed whose name is an offset, and whose directory has a file of the same kind (such as .log or .index)
    with a higher offset. So the broker no longer writes to the removed file.
    """
    segments: dict[tuple[str, str], list[str]] = {}
    # A segment's name is its offset in 20 digits, so the newest one of a partition comes last.
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        stem, dot, kind = name.partition(".")
        if stem.isdigit() and dot and not folder.rpartition("/")[2].startswith(QUORUM):
            segments.setdefault((folder, kind), []).append(path)
    if how == "tail":
        possible = [paths[-1] for (_, kind), paths in segments.items() if kind == "log" and files[paths[-1]]]
    else:
        possible = [path for paths in segments.values() for path in paths[:-1]]
    if not possible:
        return None
    path = rng.choice(possible)
    return FileDamage(path, max(0, files[path] - size) if how == "tail" else None)


def evidence(done: FileDamage | None, before: bytes, after: bytes | None) -> Evidence:
    """Return the damage as `Runtime.damage` reports it: the damaged file's path, and its size and digest before and
    after. done: None if no file was damaged. after: None if the file was removed.
    """
    if done is None:
        return {"path": None, "bytes": None, "bytes_left": None, "before": None, "after": None}
    left = None if after is None else len(after)
    told: Evidence = {"path": done.path, "bytes": len(before), "bytes_left": left}
    return {**told, "before": _digest(before), "after": _digest(after)}


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def damage(data: Path, how: How, size: int, rng: Random) -> tuple[Evidence, int | None]:
    """Damage a real log directory whose broker is down. Returns the evidence and the inode number of the damaged file.
    """
    files = {path: str(path.relative_to(data.parent)) for path in data.rglob("*") if path.is_file()}
    chosen = drawn({told: path.stat().st_size for path, told in files.items()}, how, size, rng)
    if chosen is None:
        return evidence(None, b"", None), None
    path = next(path for path, told in files.items() if told == chosen.path)
    before, inode = path.read_bytes(), path.stat().st_ino
    if chosen.size is None:
        path.unlink()
    else:
        with path.open("r+b") as file:
            file.truncate(chosen.size)
    return evidence(chosen, before, path.read_bytes() if path.exists() else None), inode
