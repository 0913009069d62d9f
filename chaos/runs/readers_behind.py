"""Selects the workload's readers that reached a time limit before they had polled all records written after healing,
and describes them for run.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.broker.protocol.timestamps import EARLIEST
from squall.chaos.faults.targets import ClusterSnapshot
from squall.workloads.client.admin import list_offsets
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.live_readers import LaggingReader

ASK_LIMIT_S = 3.0


async def with_records_left(client: Client, behind: Sequence[LaggingReader]) -> list[LaggingReader]:
    """Return the readers of `behind` that can still get some of the records that they lack. A reader lacks the records
    before its `goal`. If retention has moved the log start offset to the goal or beyond, nothing is left to read, and
    the reader is omitted. Whether retention was allowed to do this is judged later, from the history.
    """
    places = list(dict.fromkeys(each.place for each in behind))
    starts = await list_offsets(client, places, EARLIEST, timeout_s=ASK_LIMIT_S) if places else {}
    return [each for each in behind if starts[each.place].error or starts[each.place].offset < each.goal]


def reader_as_json(reader: LaggingReader, view: ClusterSnapshot | None) -> dict[str, Any]:
    """Return the reader's entry in run.json, with the leader of its partition."""
    name = name_of(reader.place)
    return {
        "process": reader.process,
        "client": reader.client,
        "place": name,
        "position": reader.position,
        "goal": reader.goal,
        "idle_s": round(reader.idle_s, 3),
        "why": leader_and_isr(view, name),
    }


def name_of(place: Place) -> str:
    """Return the partition as TOPIC-N."""
    return f"{place[0]}-{place[1]}"


def leader_and_isr(view: ClusterSnapshot | None, name: str) -> str:
    """Return the leader and the ISR of a partition, in words."""
    if view is None:
        return "no broker says who leads it"
    leader = view.leaders.get(name, -1)
    return f"{f'leader {leader}' if leader >= 0 else 'no leader'}, ISR {list(view.isr.get(name, ()))}"
