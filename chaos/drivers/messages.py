"""Converts a driver's messages about its polls to the workload's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.chaos.drivers.lines import FetchedRecord
from squall.chaos.errors import HarnessError
from squall.workloads.client.cluster import Place
from squall.workloads.libraries import PolledPartition, PolledRecords, PollError, ReaderAssigned, ReaderPositionReset
from squall.workloads.payload import verify


def decode_read_message(message: Sequence[Any]) -> ReaderAssigned | PolledRecords | ReaderPositionReset | PollError:
    """Return a reader's message as an event of `squall.workloads.libraries`: ["r", ...] as PolledRecords, for example.
    Raise HarnessError for a message that no reader sends.
    """
    match message:
        case ["a", positions]:
            return ReaderAssigned({(topic, index): position for topic, index, position in positions})
        case ["r", began_ns, at, parts]:
            return PolledRecords(
                began_ns,
                {(topic, index): position for topic, index, position in at},
                [PolledPartition((topic, index), position, pairs, bad) for topic, index, position, pairs, bad in parts],
            )
        case ["k", topic, index, position, why]:
            return ReaderPositionReset((topic, index), position, why)
        case ["e", why]:
            return PollError(why)
    raise HarnessError(f"a driver said what none says: {message!r}")


def parts_of(records: Sequence[FetchedRecord], topic: str, at: dict[Place, int]) -> list[PolledPartition]:
    """Verify the records that a program has read from the topic, and return them grouped by partition. Set the
    positions in `at` to the offsets after them.
    """
    found: dict[Place, tuple[list[tuple[int, int]], list[tuple[int, str]]]] = {}
    for record in records:
        place = topic, int(record.partition)
        pairs, bad = found.setdefault(place, ([], []))
        value, why = verify(record.value, None if record.key is None else record.key.encode())
        pairs.append((int(record.offset), value))
        if why:
            bad.append((int(record.offset), why))
        at[place] = record.offset + 1
    return [PolledPartition(place, at[place], *pairs_and_bad) for place, pairs_and_bad in found.items()]
