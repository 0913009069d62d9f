"""Appends and high watermarks, seen from outside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from squall.chaos.runtimes.sim.offsets import OffsetTracer


class World:
    """Two nodes with a replica each."""

    def __init__(self) -> None:
        self.mono = 1000.0
        self.lines: list[dict[str, Any]] = []
        self.nodes = {id_: self._node(id_, leads=id_ == 1) for id_ in (1, 2)}

    def _node(self, id_: int, *, leads: bool) -> Any:
        log = SimpleNamespace(topic="t", partition=0, log_end_offset=0)
        state = SimpleNamespace(is_leader=leads, leader_epoch=3, high_watermark=0)
        env = SimpleNamespace(name=f"broker-{id_}", incarnation=1, wall_ms=lambda: 5)
        replicas = SimpleNamespace(hosted=lambda: [SimpleNamespace(log=log, state=state)])
        return SimpleNamespace(node=SimpleNamespace(replicas=replicas), env=env, log=log, state=state)

    def beside(self, line: dict[str, Any]) -> None:
        self.lines.append(line)


def test_what_grew_and_what_moved_is_told_once() -> None:
    world = World()
    offsets = OffsetTracer(world)
    offsets.look()
    assert world.lines == [], "how it began is no change"
    world.nodes[1].log.log_end_offset = 4
    world.nodes[2].log.log_end_offset = 2
    world.nodes[2].state.high_watermark = 1
    offsets.look()
    offsets.look()
    assert [(line["n"], line["e"]) for line in world.lines] == [
        ("broker-1", "appended"),
        ("broker-2", "appended"),
        ("broker-2", "hw_moved"),
    ]
    head = {"t": 1000.0, "w": 5, "n": "broker-1", "i": 1, "e": "appended", "topic": "t", "partition": 0}
    assert world.lines[0] == {**head, "from": 0, "leo": 4, "epoch": 3, "role": "leader"}
    assert world.lines[1]["role"] == "follower"
    assert (world.lines[2]["hw"], world.lines[2]["leo"]) == (1, 2)


def test_a_truncation_is_no_append_and_what_is_down_is_not_asked() -> None:
    world = World()
    offsets = OffsetTracer(world)
    world.nodes[1].log.log_end_offset = 4
    offsets.look()
    world.nodes[1].log.log_end_offset = 2
    offsets.look()
    assert world.lines == []
    running, world.nodes[1].node = world.nodes[1].node, None
    world.nodes[1].log.log_end_offset = 3
    offsets.look()
    assert world.lines == []
    world.nodes[1].node = running
    offsets.look()
    assert [(line["from"], line["leo"]) for line in world.lines] == [(2, 3)]
