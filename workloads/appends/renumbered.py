"""Makes a load smaller for shrinking: the same records go to fewer partitions, or come from fewer producers. An
operation is a list [at_s, producer, topic, partition, bytes].
"""

from __future__ import annotations

from typing import Any

from squall.workloads.scenario import AT, RenumberedLoad, Table

PRODUCER, TOPIC, PARTITION, BYTES = range(AT + 1, 5)


def on_one_topic(first: str, table: Table, operations: list[list[Any]]) -> RenumberedLoad:
    """Return the load with all used partitions renamed to the first partitions of the topic `first`. `table` holds the
    workload's settings.
    """
    used = sorted({(str(op[TOPIC]), int(op[PARTITION])) for op in operations})
    places = {place: (first, number) for number, place in enumerate(used)}
    moved = [
        [op[AT], op[PRODUCER], *places[str(op[TOPIC]), int(op[PARTITION])], op[BYTES]] for op in operations
    ]  # fmt: skip
    return RenumberedLoad({**table, "topics": 1, "partitions": len(used)}, moved, places)


def by_one_producer(table: Table, operations: list[list[Any]]) -> RenumberedLoad:
    """Return the load with all records sent by the first producer. `table` holds the workload's settings."""
    moved = [[op[AT], 0, *op[TOPIC:]] for op in operations]
    return RenumberedLoad({**table, "producers": 1}, moved, {})
