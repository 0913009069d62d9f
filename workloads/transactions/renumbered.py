"""Reduces the partitions or the producers that a plan's transactions use, for shrinking. Each operation is a list with
the fields of `PlannedTransaction`, such as `[0.5, 1, "send 0, poll", 200, "commit"]`.
"""

from __future__ import annotations

from typing import Any

from squall.workloads.scenario import AT, RenumberedLoad, Table
from squall.workloads.transactions.operations import SEND, STEPS, steps_of, text_of

PRODUCER = AT + 1


def on_fewer_partitions(topic: str, table: Table, operations: list[list[Any]]) -> RenumberedLoad | None:
    """Return the load on only as many partitions as its transactions send to, renumbered from 0. Return None if they
    send no record.
    """
    others = [op for op in operations if op[PRODUCER] < 0]
    operations = [op for op in operations if op[PRODUCER] >= 0]
    listed = [steps_of(op[STEPS]) for op in operations]
    used = sorted({step.number for steps in listed for step in steps if step.do == SEND})
    if not used:
        return None
    now = {number: index for index, number in enumerate(used)}
    texts = [
        text_of([step._replace(number=now[step.number]) if step.do == SEND else step for step in steps])
        for steps in listed
    ]  # fmt: skip
    moved = [[*op[:STEPS], text, *op[STEPS + 1 :]] for op, text in zip(operations, texts, strict=True)]
    places = {(topic, number): (topic, index) for number, index in now.items()}
    return RenumberedLoad({**table, "partitions": len(used)}, sorted(moved + others), places)


def by_one_producer(table: Table, operations: list[list[Any]]) -> RenumberedLoad | None:
    """Return the load with all transactions assigned to producer 0, which does them one after the other. Operations of
    other clients, whose numbers are negative, stay as they are. `table` holds the workload's settings. Never returns
    None, although the type `Renumbering` allows it.
    """
    moved = [op if op[PRODUCER] < 0 else [op[AT], 0, *op[PRODUCER + 1 :]] for op in operations]
    return RenumberedLoad({**table, "producers": 1}, moved, {})
