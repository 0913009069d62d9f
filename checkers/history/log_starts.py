"""Records operations that show where a partition's log begins: listings of the earliest offset, and deletions of
records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.checkers.history.tables import DELETED, LISTED_START, OK, ClientProcess, IntegerTable, ReportedBounds, int64


def add_log_start(
    reported: IntegerTable, op: int, line: Mapping[str, Any], invoked: Mapping[str, Any], process: ClientProcess
) -> None:
    """Add a row to `reported`, the history's table of ReportedBounds, if the completed operation shows a log start.
    Raises ValueError for a malformed number.

    The row's leader epoch is the completion's `led`; -1 in older histories, which do not have it. For a listing it is
    the epoch of the leader that answered. For a deletion it is the epoch of the leader that answered a listing shortly
    before. If a later response has the same epoch, the deletion was certainly done in that epoch; so a deletion is
    compared only with such responses.
    """
    f, st = invoked["f"], line["st"]
    if f == "list_offsets" and invoked.get("which") == "earliest":
        kind, off = LISTED_START, line.get("off", -1)
    elif f == "admin" and invoked.get("what") == "delete_records" and "part" in invoked:
        kind, off = DELETED, invoked.get("to", -1)
    else:
        return
    if st != OK or int64(off) < 0:
        return
    answer = ReportedBounds(
        kind=kind,
        part=int64(invoked["part"]),
        proc=process.proc,
        op=op,
        idx=0,
        st=OK,
        iso=process.isolation,
        final=0,
        epoch=int64(line.get("led", -1)),
        hw=-1,
        lso=-1,
        log_start=off,
        position=-1,
        records=0,
        last_off=-1,
        hw_before=-1,
        lso_before=-1,
        t0=invoked["t"],
        t1=line["t"],
    )
    reported.append(answer)
