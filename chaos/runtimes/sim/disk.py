"""Simulates one node's disk, which outlives the node's incarnations.

Writes go to a page cache; `fsync` makes a file's bytes durable, `fsync_dir` a directory's names. `kill` ends the
process and loses nothing. `power_loss` loses the page cache: each unsynced write, and each unsynced change of a name,
survives or is lost independently of the others.

The model is stricter than ext4, on purpose: whatever survives here survives on ext4, and on file systems that promise
less.

- ext4 makes a new file's name durable with the file's fsync. Here only `fsync_dir` does, as POSIX has it; a synced file
  whose name was not synced is gone, and so is everything in a directory whose own name was not.
- ext4 commits changes of names in order. Here a later change may survive although an earlier one is lost: a renaming
  without the creation before it (the file is found under its new name), a removal without the renaming before it.
- ext4 writes a file's data before a rename over another file is committed (auto_da_alloc). Here the new name may be
  found with none of the bytes.
- ext4's ordered mode writes data before the file size that covers it. Here a write may be lost although a later one
  survives, and the size may survive without the bytes: the lost bytes read as zeros.
- Any write may tear at any byte, not at sectors only. Bytes that were durable and not written again are never harmed.

- A failed fsync gives up for good the changes that it should have written: a later fsync succeeds without them, for
  files (as Linux does since pages count as clean) and for names (where ext4 would stop the file system).

The model is more lenient than ext4 in some points. After a failed fsync the cache still shows the written data until
the power is lost, while a kernel may drop the pages earlier. The set of changes that an fsync covers is settled at one
instant. A removed file gives its space back at once, and names take no space.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Mapping

from squall.broker.env import Fs
from squall.chaos.runtimes.contract import DiskFault, Evidence
from squall.chaos.runtimes.damage import How, Where, drawn, evidence
from squall.chaos.runtimes.lost_records import LostOffsetRanges
from squall.chaos.runtimes.sim.disk_content import FileContent, LostChanges
from squall.chaos.runtimes.sim.disk_faults import DiskFaults, rot, used
from squall.chaos.runtimes.sim.disk_fs import Gate, SimFs
from squall.chaos.runtimes.sim.disk_names import DirectoryTree, FileNode, FolderNode, failure, parts


class SimDisk:
    """Holds the files of one node. All random draws come from `rng`, in the order of the calls."""

    def __init__(self, rng: random.Random) -> None:
        self.names = DirectoryTree()
        self.faults = DiskFaults(rng)
        self._rng = rng
        self._mount: SimFs | None = None

    # --------------------------------------------------------------------------------------------------------- life

    def mount(self, gate: Gate) -> Fs:
        """Return the file system for the next incarnation of the node, and revoke that of the previous incarnation.

        `gate(op, path)` is called before each operation that reads or changes the disk. If it raises, the operation
        does not happen. op is "open", "append", "pwrite", "truncate", "fsync", "pread", "rename", "remove", "mkdirs"
        (for each directory made), "fsync_dir" or "list". The path is as in `files`; for a file handle, it is the path
        by which the file was opened.
        """
        self.kill()
        self._mount = SimFs(self.faults, self.names, gate)
        return self._mount

    def kill(self) -> None:
        """End the process: every call on its file system and handles raises NodeDead. Nothing is lost."""
        if self._mount is not None:
            self._mount.revoke()
            self._mount = None

    def power_loss(self) -> Evidence:
        """Lose the page cache, as when the machine loses power. Everything that remains is durable.

        Evidence: bytes_pending (written, not synced), bytes_lost (of these), torn (writes that survived in part),
        names_pending (creations, renamings and removals not synced), names_lost (of these), logs ({partition: [first
        lost offset, exclusive end]} of the partitions that lost records).
        """
        self.kill()
        seen = dict(self.names.files())
        before = {path: bytes(node.content.cached) for path, node in seen.items() if path.endswith(".log")}
        names_pending, names_lost = self.names.lose_power(self._rng)
        found = dict(self.names.files())
        left = dict.fromkeys(found.values())
        loss = LostChanges()
        for node in found.values():
            loss.add(node.content.lose_power(self._rng))
        for node in seen.values():
            if node not in left:
                loss.add(node.content.lost())
        after = {path: bytes(seen[path].content.cached) if seen[path] in left else b"" for path in before}
        records = LostOffsetRanges()
        for path, content in before.items():
            records.add_changed(path, content, after[path])
        # A removal that was not synced may be undone. Then the file is back, with records that were deleted.
        known = dict.fromkeys(seen.values())
        for path, node in found.items():
            if node not in known:
                records.add_changed(path, b"", node.content.cached)
        for path, node in found.items():
            records.add_remaining(path, node.content.cached)
        return {
            "bytes_pending": loss.bytes_pending,
            "bytes_lost": loss.bytes_lost,
            "torn": loss.torn,
            "names_pending": names_pending,
            "names_lost": names_lost,
            "logs": records.evidence(),
        }

    # -------------------------------------------------------------------------------------------------------- faults

    def add_fault(self, name: str, fault: DiskFault) -> None:
        """Put a fault on this disk. Raises HarnessError if the disk has a fault of this name already. The fault
        outlives kills and power losses.
        """
        self.faults.add(name, fault, used(self.names))

    def remove_fault(self, name: str) -> int:
        """End the fault of this name, if there is one. Returns how many calls it failed or slowed."""
        return self.faults.remove(name)

    def clear_faults(self) -> None:
        """Remove every fault."""
        self.faults.active.clear()

    def hits(self, name: str) -> int:
        """Return how many calls a fault failed or slowed so far."""
        return self.faults.hits(name)

    def delay_s(self, op: str) -> float:
        """Return by how many seconds faults lengthen an `op` ("write" or "fsync") at present. The disk itself does not
        wait; the node's Env does.
        """
        return self.faults.delay_s(op)

    def rot(self, path_glob: str, rng: random.Random, bits: int = 1, where: Where = "checked") -> Evidence:
        """Flip `bits` different bits of one file, on the disk and in the cache. where: "checked" for bits that a
        checksum covers, "epoch" for bits of leader epochs; see `squall.chaos.runtimes.rotting`.

        `rng` draws the file from those that match `path_glob` and are durable, without unsynced changes. Files that are
        still written to are left out: a directory's newest segment, and its newest index of each kind.

        Evidence: path (None: no such file), offset (of the first flipped bit's byte), offsets (of every flipped bit's
        byte), bits (how many were flipped), before and after (SHA-256 of the file).
        """
        return rot(self.names, path_glob, rng, bits, where)

    def damage(self, how: How, size: int, rng: random.Random) -> Evidence:
        """Damage one file as a broken disk does, durably and without an I/O error. how: "tail" cuts the last `size`
        bytes of a partition's newest segment; "file" removes a file that the node no longer writes to, such as an older
        segment. `squall.chaos.runtimes.damage` chooses the file.
        """
        chosen = drawn({path: len(node.content.cached) for path, node in self.names.files()}, how, size, rng)
        if chosen is None:
            return evidence(None, b"", None)
        place = self.names.place(chosen.path)
        node = place[0].entries[place[1]]
        assert isinstance(node, FileNode), "it was listed as one"
        before = bytes(node.content.cached)
        if chosen.size is None:
            self.names.remove(place)
            # Durable at once: a later power loss must not bring the file back.
            self.names.sync(place[0])
        else:
            node.content = FileContent(before[: chosen.size])
        left = dict(self.names.files()).get(chosen.path)
        return evidence(chosen, before, None if left is None else bytes(left.content.cached))

    # ----------------------------------------------------------------------------------------------------- god's eye

    def read(self, path: str) -> bytes:
        """Return one file's bytes as a process would read them now. Raises FileNotFoundError if there is no such file.
        """
        node = self.names.find(path)
        if not isinstance(node, FileNode):
            raise failure(errno.ENOENT, path)
        return bytes(node.content.cached)

    def durable(self, path: str) -> bytes | None:
        """Return the bytes of one file that would surely survive a power loss now. None: the name itself may be lost.
        """
        node = self.names.find(path, durable=True)
        return node.content.durable() if isinstance(node, FileNode) else None

    def files(self) -> dict[str, bytes]:
        """Return every file as a process would read it now, by path without a leading "/", sorted."""
        return {path: bytes(node.content.cached) for path, node in self.names.files()}

    def durable_files(self) -> dict[str, bytes]:
        """Return the files that would surely survive a power loss now: synced names, each with its synced bytes."""
        return {path: node.content.durable() for path, node in self.names.durable_files()}

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Replace all files by these, all durable. Open handles are revoked."""
        self.kill()
        self.names = DirectoryTree()
        for path in sorted(files):
            folder = self.names.root
            *folders, name = parts(path)
            for step in folders:
                if step not in folder.entries:
                    self.names.create((folder, step), FolderNode())
                    self.names.sync(folder)
                inner = folder.entries[step]
                assert isinstance(inner, FolderNode), f"{path}: {step} is a file"
                folder = inner
            self.names.create((folder, name), FileNode(files[path]))
            self.names.sync(folder)
