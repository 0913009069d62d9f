"""Parses the harness's commands for a broker's disk faults: the control file, `control` in the faults folder.

It is JSON, replaced by renaming: {"serial": 7, "limit_bytes": 268435456, "faults": [...], "crash": null}. The broker
checks it every 10 ms and writes the serial of the last file it applied into its tally. Each fault has a number of its
own, from 1, never used again on this node:

    {"number": 1, "kind": "fail", "errno": "EIO", "op": "write", "nth": 3, "path_glob": "*"}
    {"number": 2, "kind": "slow", "op": "fsync", "delay_ms": 100}
    {"number": 3, "kind": "quota", "free_bytes": 100000}

Fault 1 fails the third matching write and all later ones. Under fault 3 all files together may still grow by 100,000
bytes; then writes fail with ENOSPC. If the node has more than `limit_bytes` unsynced bytes, the files that have waited
longest for an fsync count as durable.

crash: {"number": 4, "op": "fsync", "nth": 2} ends the broker by SIGKILL just before the second fsync from now on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

LIMIT_BYTES = 256 << 20
"""Limits the unsynced bytes of one node. Beyond it, the files that have waited longest for an fsync count as written
back by the kernel: a power loss no longer loses them.
"""

Op = Literal["write", "fsync", "send"]


class FaultCommandsError(ValueError):
    """Is raised for an invalid control file."""


@dataclass(frozen=True, slots=True)
class FaultCommand:
    """Describes one disk fault. Fields that its kind does not use keep their defaults."""

    number: int
    kind: Literal["fail", "slow", "quota"]
    op: Op = "write"
    errno: Literal["EIO", "ENOSPC"] = "EIO"
    nth: int = 1
    path_glob: str = "*"
    delay_ms: float = 0
    free_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Describes the call (fsync, write or network send) just before which the broker's OS process is killed."""

    number: int
    op: Op
    nth: int


@dataclass(frozen=True, slots=True)
class FaultCommandSet:
    """Holds all faults and the crash point of one control file."""

    serial: int = 0
    limit_bytes: int = LIMIT_BYTES
    faults: tuple[FaultCommand, ...] = ()
    crash: CrashPoint | None = None


def parse_commands(text: str) -> FaultCommandSet:
    """Parse a control file. Raises FaultCommandsError, which says what is wrong."""
    try:
        data: Mapping[str, Any] = json.loads(text)
        crash = data.get("crash")
        return FaultCommandSet(
            serial=int(data["serial"]),
            limit_bytes=int(data.get("limit_bytes", LIMIT_BYTES)),
            faults=tuple(_fault(each) for each in data.get("faults", ())),
            crash=CrashPoint(**crash) if crash else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FaultCommandsError(f"no control file: {type(error).__name__}: {error}") from None


def _fault(data: Mapping[str, Any]) -> FaultCommand:
    fault = FaultCommand(**data)
    if fault.kind not in ("fail", "slow", "quota") or fault.op not in ("write", "fsync"):
        raise ValueError(f"there is no fault of kind {fault.kind!r} for {fault.op!r}")
    if fault.errno not in ("EIO", "ENOSPC"):
        raise ValueError(f"errno {fault.errno!r}: EIO or ENOSPC")
    return fault
