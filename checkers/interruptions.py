"""Finds inputs that a group left unfinished, which explains missing outputs, and inputs that it read again, which
explains further outputs.

A member processes the records of one poll before it polls again. So if it crashes, or its partition goes to another
member, it leaves unfinished at most the records of its last poll, and the inputs whose outputs it failed to write.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.history.group_tables import CRASHED, LOST, PartitionOwnership
from squall.checkers.history.tables import OK, POLL, SEND, History, RecordRow

LOSS, DUPLICATE = "eos-loss", "eos-duplicate"
EXPLAINED = (LOSS, DUPLICATE)
"""Names the anomalies that an interruption of a member may explain."""


def interruptions(history: History) -> set[tuple[str, int, int]]:
    """Return (anomaly, process, value) of each finding that an interruption of a member explains. For a missing output
    (`eos-loss`) these are every member of the group, each in a tuple of its own, and the input's value. For a further
    output (`eos-duplicate`) these are the member that sent it, and the output's value.
    """
    members: dict[int, set[int]] = {}
    for hold in history.holds.rows():
        members.setdefault(hold.group, set()).add(hold.proc)
    procs = set().union(*members.values())
    polled = [row for row in history.records.rows() if row.kind == POLL and not row.final and row.proc in procs]
    found = set(_got_again(history, members, polled))
    for group, val in (*_not_written(history), *_dropped(history, polled)):
        found.update((LOSS, proc, val) for proc in members.get(group, ()))
    return found


def _got_again(
    history: History, members: dict[int, set[int]], polled: list[RecordRow]
) -> Iterator[tuple[str, int, int]]:
    """Yield (anomaly, process, output) of each output that repeated polls of its input explain: before the group sent
    its n-th output of the input, n of its polls had returned the input. `members` maps each group to its processes;
    `polled` holds the records that members' polls returned.
    """
    sent = {row.val: row.t0 for row in history.records.rows() if row.kind == SEND}
    polls: dict[int, list[RecordRow]] = {}
    for row in polled:
        polls.setdefault(row.val, []).append(row)
    made: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for output in history.outputs.rows():
        if output.val in sent:
            made.setdefault((output.group, output.src), []).append((sent[output.val], output.val, output.proc))
    for (group, src), outputs in made.items():
        got = sorted({row.op: row.t1 for row in polls.get(src, ()) if row.proc in members.get(group, ())}.values())
        if len(outputs) <= len(got) and all(t1 <= t0 for t1, (t0, _, _) in zip(got, sorted(outputs), strict=False)):
            yield from ((DUPLICATE, proc, val) for _, val, proc in outputs)


def _not_written(history: History) -> Iterator[tuple[int, int]]:
    """Yield (group, input) of outputs whose send failed or was not answered."""
    failed = {row.val for row in history.records.rows() if row.kind == SEND and row.st != OK}
    yield from ((output.group, output.src) for output in history.outputs.rows() if output.val in failed)


def _dropped(history: History, polled: list[RecordRow]) -> Iterator[tuple[int, int]]:
    """Yield (group, input) of the records that a member's last poll returned before it crashed, lost the partition, or
    another member got the partition.
    """
    last_owned: dict[tuple[int, int], int] = {}
    for hold in history.holds.rows():
        place = hold.group, hold.part
        last_owned[place] = max(hold.t0, last_owned.get(place, -1))
    by_op: dict[int, list[RecordRow]] = {}
    of_proc: dict[int, dict[int, RecordRow]] = {}
    for row in polled:
        by_op.setdefault(row.op, []).append(row)
        of_proc.setdefault(row.proc, {})[row.op] = row
    for hold in history.holds.rows():
        if hold.how in (LOST, CRASHED) or hold.t0 < last_owned[hold.group, hold.part]:
            last = max((op for op, row in of_proc.get(hold.proc, {}).items() if _meanwhile(row, hold)), default=-1)
            yield from ((hold.group, row.val) for row in by_op.get(last, ()) if row.part == hold.part)


def _meanwhile(poll: RecordRow, hold: PartitionOwnership) -> bool:
    return poll.t1 >= hold.t0 and (hold.t1 < 0 or poll.t0 <= hold.t1)
