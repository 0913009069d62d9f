"""Readers that did not come as far as the harness waited for: which of them count, and what run.json says of them."""

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
    """Those that can still get something: not where retention has removed all that the harness waited for, so that the
    log begins at the goal or beyond. Whether it was allowed to is judged by the records that are gone.
    """
    places = list(dict.fromkeys(each.place for each in behind))
    starts = await list_offsets(client, places, EARLIEST, timeout_s=ASK_LIMIT_S) if places else {}
    return [each for each in behind if starts[each.place].error or starts[each.place].offset < each.goal]


def described(reader: LaggingReader, view: ClusterSnapshot | None) -> dict[str, Any]:
    """As run.json has it, with who led its partition."""
    name = name_of(reader.place)
    return {
        "process": reader.process,
        "client": reader.client,
        "place": name,
        "position": reader.position,
        "goal": reader.goal,
        "idle_s": round(reader.idle_s, 3),
        "why": led(view, name),
    }


def name_of(place: Place) -> str:
    """As people write it."""
    return f"{place[0]}-{place[1]}"


def led(view: ClusterSnapshot | None, name: str) -> str:
    """The leader and the ISR of a partition, in words."""
    if view is None:
        return "no broker says who leads it"
    leader = view.leaders.get(name, -1)
    return f"{f'leader {leader}' if leader >= 0 else 'no leader'}, ISR {list(view.isr.get(name, ()))}"
