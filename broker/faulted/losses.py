"""Simulates a power loss: removes the changes of a dead broker's files that were not durable, in part or completely.

Data that an fsync covered is not harmed. For each file a random number of its oldest unsynced writes and truncations
survives; in half of the cases this number is 0. Each later one survives, survives in part ("tears") or is lost,
independently of the others.

Of the name changes in a directory, a random number of the oldest survives, because journaling file systems commit them
in order. (The simulator also has directories in which later changes outlive earlier ones.) A file whose name is lost is
gone with all its bytes, synced or not.

All random choices come from the caller's generator.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from squall.broker.faulted.journal import CUT, FileChange, parse
from squall.broker.faulted.names import NameChange, read_names

Changed = Callable[[str, bytes, bytes], None]
"""Is called with a file's path, its content before the power loss (empty if the file had been removed) and its content
after the loss (empty if the file is gone).
"""

SURVIVES = 0.4
TEARS = 0.25
"""Give the probabilities that an unsynced write survives (SURVIVES), or survives in part (TEARS). Otherwise it is lost.
"""
SECTOR = 512


@dataclass(slots=True)
class LossCounts:
    """Counts what was not durable at a power loss (pending) and how much of it was lost: bytes of files, and changes of
    names in directories. torn: writes that survived in part.
    """

    bytes_pending: int = 0
    bytes_lost: int = 0
    names_pending: int = 0
    names_lost: int = 0
    torn: int = 0


def lose_power(
    folder: str, roots: Sequence[str], rng: random.Random, changed: Changed = lambda path, before, after: None
) -> dict[str, int]:
    """Apply a power loss to the files of a broker that has ended. Returns `LossCounts` as a dict. All remaining data is
    durable.

    `folder` has the journals of `FaultedFs`, and `roots` are the log directories. `changed` is called for each file
    that had unsynced bytes, that is gone because its name was lost, or that is back because its removal was lost.
    """
    loss = LossCounts()
    seen = {os.stat(path).st_ino: path for root in roots for path in _files(root)}
    _lose_names(folder, roots, rng, loss)
    files = {os.stat(path).st_ino: path for root in roots for path in _files(root)}
    pending = {}
    for name in os.listdir(f"{folder}/files"):
        if name.isdigit():
            with open(f"{folder}/files/{name}", "rb") as journal:
                pending[int(name)] = parse(journal.read())[0]
    for number, path in sorted(files.items(), key=lambda item: item[1]):
        changes = pending.pop(number, None)
        before, after = _lose_bytes(path, changes, rng, loss) if changes else (b"", b"")
        if number not in seen:
            changed(path, b"", after)
        elif changes:
            changed(seen[number], before, after)
    for path in _files(f"{folder}/kept"):
        if "/kept/lost-" not in path:
            continue  # the removal or replacement survived, so the bytes are no loss
        number = os.stat(path).st_ino
        if number in seen:
            with open(path, "rb") as file:
                changed(seen[number], file.read(), b"")
        gone = sum(change.length for change in pending.get(number, ()) if not change.is_durable)
        loss.bytes_pending += gone
        loss.bytes_lost += gone
    for part in ("files", "names", "kept"):
        shutil.rmtree(f"{folder}/{part}")
        os.mkdir(f"{folder}/{part}")
    return asdict(loss)


def _files(root: str) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            yield os.path.join(folder, name)


# ------------------------------------------------------------------------------------------------------------- names


def _lose_names(folder: str, roots: Sequence[str], rng: random.Random, loss: LossCounts) -> None:
    directories = {}
    for top in (*roots, f"{folder}/kept"):
        for path, _, _ in os.walk(top):
            directories[path] = os.stat(path).st_ino
    opened = []
    for path, number in sorted(directories.items()):
        if changes := read_names(f"{folder}/names/{number}"):
            opened.append((os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), changes))
    # Use descriptors: a directory may itself vanish while names in it return.
    for directory, changes in opened:
        survive = rng.randrange(len(changes) + 1) if rng.random() < 0.5 else 0
        loss.names_pending += len(changes)
        loss.names_lost += len(changes) - survive
        for change in reversed(changes[survive:]):
            _undo_name(directory, f"{folder}/kept", change)
        os.close(directory)


def _undo_name(directory: int, keep: str, change: NameChange) -> None:
    """Undo one name change in `directory`, an open file descriptor. All later changes there must have been undone.
    `keep`: the folder of the removed and replaced files. Skips a change that was journaled but never happened.
    """
    kept = f"{keep}/{change.kept}" if change.kept is not None else None
    if change.op == "create":
        if _is_there(change.name, directory):
            # Moved and not deleted, so that `lose_power` can count the bytes that are lost with the name.
            os.rename(change.name, _free(keep), src_dir_fd=directory)
    elif change.op == "remove":
        if kept is not None and os.path.lexists(kept):
            os.rename(kept, change.name, dst_dir_fd=directory)
    elif change.new is not None and not _is_there(change.name, directory) and _is_there(change.new, directory):
        os.rename(change.new, change.name, src_dir_fd=directory, dst_dir_fd=directory)
        if kept is not None and os.path.lexists(kept):
            os.rename(kept, change.new, dst_dir_fd=directory)


def _is_there(name: str, directory: int) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True


def _free(keep: str) -> str:
    number = 0
    while os.path.lexists(path := f"{keep}/lost-{number}"):
        number += 1
    return path


# ------------------------------------------------------------------------------------------------------------- bytes


def _lose_bytes(path: str, changes: Sequence[FileChange], rng: random.Random, loss: LossCounts) -> tuple[bytes, bytes]:
    """Draw which of a file's unsynced changes survive, and return the file's content before and after the loss."""
    with open(path, "r+b") as file:
        before = file.read()
        content = bytearray(before)
        written: list[bytes] = []
        for change in reversed(changes):
            end = change.offset + change.length
            written.append(b"" if change.kind == CUT else bytes(content[change.offset : end]))
            content[change.offset : change.offset + len(change.replaced)] = change.replaced
            _resize(content, change.size_before)
        written.reverse()
        written_back = rng.randrange(len(changes) + 1) if rng.random() < 0.5 else 0
        for at, (change, data) in enumerate(zip(changes, written, strict=True)):
            if change.is_durable:
                _redo(content, change, data)
            else:
                _draw(content, change, data, 0.0 if at < written_back else rng.random(), rng, loss)
        first = min(min(change.offset, change.size_before) for change in changes)
        file.seek(first)
        file.write(content[first:])
        file.truncate(len(content))
    return before, bytes(content)


def _draw(
    content: bytearray, change: FileChange, data: bytes, fate: float, rng: random.Random, loss: LossCounts
) -> None:
    """Decide by `fate`, a number in [0, 1), whether one change survives, survives in part, or is lost. `data`: the
    bytes that it wrote. Apply to `content`, the file's bytes, what survives.
    """
    loss.bytes_pending += len(data)
    if fate < SURVIVES:
        _redo(content, change, data)
        return
    kept, grown = 0, False
    if data and fate < SURVIVES + TEARS:
        kept, grown = rng.randrange(len(data)), rng.random() < 0.25
        if rng.random() < 0.5:  # whole sectors only
            kept = max(0, (change.offset + kept) // SECTOR * SECTOR - change.offset)
    loss.bytes_lost += len(data) - kept
    loss.torn += kept > 0 or grown
    if kept:
        _redo(content, change, data[:kept])
    if grown and len(content) < change.offset + len(data):
        _resize(content, change.offset + len(data))


def _redo(content: bytearray, change: FileChange, data: bytes) -> None:
    if change.kind == CUT:
        _resize(content, change.offset)
        return
    if len(content) < change.offset:
        _resize(content, change.offset)
    content[change.offset : change.offset + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
