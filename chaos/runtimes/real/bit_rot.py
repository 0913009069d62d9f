"""Flips bits in a closed segment on the disk."""

from __future__ import annotations

import hashlib
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

from squall.chaos.runtimes.contract import Evidence
from squall.chaos.runtimes.damage import Where
from squall.chaos.runtimes.rotting import rotten_bits


def rot(data: Path, path_glob: str, bits: int, where: Where, rng: Random) -> Evidence:
    """Flip `bits` different bits of one closed file below a log directory. Evidence: path (None: no such file), bits
    (how many were flipped), offset (the first flipped bit's byte), offsets (every flipped bit's byte), before and after
    (SHA-256 of the file).

    A segment or index is closed if a later one follows in its directory: the broker no longer writes to it.
    """
    closed = sorted(path for folder in data.iterdir() if folder.is_dir() for path in _closed(folder))
    told = {path: str(path.relative_to(data.parent)) for path in closed}
    possible = [path for path in closed if fnmatchcase(told[path], path_glob) and path.stat().st_size]
    if not possible:
        return {"path": None, "offset": None, "offsets": [], "bits": 0, "before": None, "after": None}
    path = rng.choice(possible)
    content = path.read_bytes()
    flipped = rotten_bits(told[path], content, bits, where, rng)
    with path.open("r+b") as file:
        for bit in flipped:
            file.seek(bit // 8)
            byte = file.read(1)[0]
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))
            file.flush()
    return {
        "path": told[path],
        "offset": flipped[0] // 8 if flipped else None,
        "offsets": [bit // 8 for bit in flipped],
        "bits": len(flipped),
        "before": hashlib.sha256(content).hexdigest(),
        "after": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def _closed(folder: Path) -> list[Path]:
    segments = sorted(path for path in folder.iterdir() if path.stem.isdigit() and path.suffix and path.is_file())
    last = {path.suffix: path for path in segments}
    return [path for path in segments if last[path.suffix] != path]
