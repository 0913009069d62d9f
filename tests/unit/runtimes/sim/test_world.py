"""Checks what a simulated world keeps of its nodes' traces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from squall.chaos.runtimes.sim.world import SimWorld

HEAD = {"t": 1012.25, "w": 1767225612250, "n": "broker-1", "i": 1, "e": "told"}


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"topic": 'a "b"\n', "offset": 7, "ok": True, "why": None}, {}),
        ({"isr": (1, 2), "offset": 7}, {"isr": [1, 2]}),
        ({"id": b"\x01\xff"}, {"id": "01ff"}),
        ({"left": frozenset({3, 1, 2})}, {"left": [1, 2, 3]}),
    ],
)
def test_a_line_is_kept_as_it_stands_in_the_file(said: dict[str, Any], kept: dict[str, Any]) -> None:
    world = SimWorld(1)
    world.traced({**HEAD, **said})
    assert world.trace == [{**HEAD, **said, **kept}]
    (text,) = world.trace_text["broker-1"]
    assert text.decode() == json.dumps(world.trace[0], separators=(",", ":"))


def test_what_is_traced_later_does_not_change_what_was() -> None:
    world, isr = SimWorld(1), [1, 2]
    world.traced({**HEAD, "isr": isr})
    isr.append(3)
    assert world.trace[0]["isr"] == [1, 2]
