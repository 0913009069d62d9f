"""Sends fault commands to a broker's `squall.broker.faulted`, and reads their results, through files in a folder.

This works for every runtime that starts its brokers with `--faults FOLDER` and can reach that folder. Commands outlive
the broker's restarts; a broker that is down reads them when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from squall.broker.faulted.fault_commands import (
    LIMIT_BYTES,
    CrashPoint,
    FaultCommand,
    FaultCommandsError,
    FaultCommandSet,
    parse_commands,
)
from squall.broker.faulted.losses import lose_power
from squall.broker.faulted.tally import calls_of, count_of, head_of, read_tally
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import CrashOp, DiskFault, Evidence, FailWrites, Quota, SlowDisk
from squall.chaos.runtimes.lost_records import LostOffsetRanges


class NodeFaults:
    """Sends fault commands to one node, through files in `folder`. `limit_bytes` limits the node's unsynced bytes.
    Beyond it, the files that have waited longest for an fsync count as written back by the kernel.
    """

    def __init__(self, folder: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self._limit_bytes = limit_bytes
        self._named: dict[str, FaultCommand] = {}
        self._crash: CrashPoint | None = None
        self._has_ordered = False
        """Is True once this object has written the control file. Before that, the file may hold commands of an earlier
        run.
        """
        try:
            self._serial = parse_commands((folder / "control").read_text()).serial
        except (FileNotFoundError, FaultCommandsError):
            self._serial = 0

    # ------------------------------------------------------------------------------------------------------- orders

    def add(self, name: str, fault: DiskFault) -> None:
        """Command the broker to apply a disk fault. Raises HarnessError if the node already has a fault of this name.
        """
        if name in self._named:
            raise HarnessError(f"there is a fault {name!r} on this disk already")
        # A fault has the number of the command that orders it, which `_write` counts.
        self._named[name] = _as_ordered(self._serial + 1, fault)
        self._write()

    def remove(self, name: str) -> int | None:
        """Command the broker to end the fault of this name. Returns the fault's number, with which `hits` can be
        called; None if no fault has this name.
        """
        fault = self._named.pop(name, None)
        if fault is None:
            return None
        self._write()
        return fault.number

    def arm(self, op: CrashOp, nth: int) -> int:
        """Order a crash just before the `nth` call of `op`. Returns the crash's number, for `crashed`."""
        if self._crash is not None:
            raise HarnessError(f"this node is going to crash at a {self._crash.op} already")
        self._crash = CrashPoint(self._serial + 1, op, nth)
        self._write()
        return self._crash.number

    def disarm(self) -> None:
        """Cancel the crash that `arm` has commanded, if there is one."""
        if self._crash is not None:
            self._crash = None
            self._write()

    def clear(self) -> None:
        """Command the broker to end every disk fault, and cancel the crash that `arm` has commanded. This also replaces
        commands of an earlier run, which the control file may hold.
        """
        if self._named or self._crash is not None or not self._has_ordered:
            self._named.clear()
            self._crash = None
            self._write()

    def _write(self) -> None:
        self._serial += 1
        faults = tuple(self._named.values())
        orders = FaultCommandSet(self._serial, self._limit_bytes, faults, self._crash)
        self.folder.mkdir(parents=True, exist_ok=True)
        # By a rename, because the broker may read the file at any time.
        fresh = self.folder / "control.new"
        fresh.write_text(json.dumps(asdict(orders)))
        fresh.replace(self.folder / "control")
        self._has_ordered = True

    # ----------------------------------------------------------------------------------------------------- what came

    def taken_over(self, incarnation: int) -> bool:
        """Return whether this incarnation of the broker has confirmed that it applies the latest command."""
        head = head_of(self._tally())
        return head is not None and head.incarnation == incarnation and head.serial == self._serial

    def ran(self, incarnation: int) -> bool:
        """Return whether this incarnation of the broker runs with `squall.broker.faulted`, or did until it ended. That
        module writes the incarnation's number to a file in `folder` at the start.
        """
        head = head_of(self._tally())
        return head is not None and head.incarnation == incarnation

    def hits(self, number: int) -> int:
        """Return how many calls the fault of this number failed or slowed."""
        return count_of(self._tally(), number).hits

    def forget(self, inode: int) -> None:
        """Forget the unsynced writes of this file, whose broker is down: from now on all of the file's content counts
        as durable.
        """
        (self.folder / "files" / str(inode)).unlink(missing_ok=True)

    def calls(self, op: CrashOp) -> int:
        """Return how many calls of `op` the broker has made since its first start."""
        return calls_of(self._tally(), op)

    def through_bytes(self) -> int:
        """Return how many unsynced bytes counted as written back by the kernel since the node's first start, because
        more than `limit_bytes` were unsynced. A power loss does not remove them.
        """
        head = head_of(self._tally())
        return 0 if head is None else head.through_bytes

    def crashed(self, number: int) -> str | None:
        """Return the target of the call before which the broker was killed: a file's path for an fsync, append, pwrite
        or truncate, the peer for a send. None if this crash has not happened. number: the crash, as returned by `arm`.
        """
        try:
            said: dict[str, Any] = json.loads((self.folder / "crashed").read_text())
        except FileNotFoundError:
            return None
        # The file may still be that of an earlier crash.
        return str(said["at"]) if said["number"] == number else None

    def lose_power(self, roots: Sequence[Path], rng: Random) -> Evidence:
        """Remove unsynced data from the files of a broker that has ended. `roots` are the broker's log directories;
        `rng` decides which unsynced data is lost. Evidence: what `Runtime.power_loss` reports for one node, such as
        bytes_lost, and through_bytes (unsynced bytes that count as written back by the kernel, so they are not lost).
        """
        records = LostOffsetRanges()
        lost = lose_power(str(self.folder), [str(root) for root in roots], rng, records.add_changed)
        for name in records.partitions:
            for path in sorted(path for root in roots for path in root.glob(f"{name}/*.log")):
                records.add_remaining(str(path), path.read_bytes())
        return {**lost, "logs": records.evidence(), "through_bytes": self.through_bytes()}

    def _tally(self) -> bytes:
        return read_tally(str(self.folder / "tally"))


def _as_ordered(number: int, fault: DiskFault) -> FaultCommand:
    match fault:
        case FailWrites():
            return FaultCommand(number, "fail", fault.op, fault.errno, fault.nth, fault.path_glob)
        case SlowDisk():
            return FaultCommand(number, "slow", fault.op, delay_ms=fault.delay_ms)
        case Quota():
            return FaultCommand(number, "quota", free_bytes=fault.free_bytes)
