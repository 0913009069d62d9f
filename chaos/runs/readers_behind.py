"""Readers that did not come as far as the harness waited for: what run.json says of them."""

from __future__ import annotations

from typing import Any

from chaos.faults.targets import ClusterView
from workloads.client.cluster import Place
from workloads.live_readers import Behind


def described(reader: Behind, view: ClusterView | None) -> dict[str, Any]:
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


def led(view: ClusterView | None, name: str) -> str:
    """The leader and the ISR of a partition, in words."""
    if view is None:
        return "no broker says who leads it"
    leader = view.leaders.get(name, -1)
    return f"{f'leader {leader}' if leader >= 0 else 'no leader'}, ISR {list(view.isr.get(name, ()))}"
