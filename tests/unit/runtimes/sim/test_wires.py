"""Checks what a wire does to the bytes that are sent over it."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from squall.chaos.runtimes.contract import Bandwidth, Slicer, StreamDirection
from squall.chaos.runtimes.sim.links import OneWayStream, SimTransport
from squall.chaos.runtimes.sim.wires import SimLink


def sliced(size: int, *slicers: Slicer) -> tuple[list[int], list[float]]:
    """Sizes of the pieces, and when each arrives."""
    world: Any = SimpleNamespace(kernel=None, rng=lambda *purpose: Random(7))
    wire = SimLink(world, 1, 2)
    for number, slicer in enumerate(slicers):
        wire.add(str(number), slicer)
    found = list(wire.pieces(StreamDirection.THERE, bytes(range(256)) * (size // 256)))
    assert b"".join(piece for piece, _ in found if piece is not None) == bytes(range(256)) * (size // 256)
    times, now = [], 0.0
    for _, gap_s in found:
        now += gap_s
        times.append(now)
    return [len(piece or b"") for piece, _ in found], times


def test_what_is_sliced_arrives_in_pieces_one_after_the_other() -> None:
    sizes, times = sliced(1024, Slicer(256, 0, 1000))
    assert sizes == [256] * 4
    assert times == pytest.approx([0, 0.001, 0.002, 0.003])


def test_a_slicer_behind_another_one_cuts_its_pieces_once_more() -> None:
    sizes, times = sliced(1024, Slicer(256, 0, 1000), Slicer(64, 0, 1000))
    assert sizes == [64] * 16
    assert times == pytest.approx([at / 1000 for at in range(16)])


def test_a_piece_is_cut_when_it_has_come() -> None:
    sizes, times = sliced(512, Slicer(256, 0, 9000), Slicer(128, 0, 1000))
    assert sizes == [128] * 4
    assert times == pytest.approx([0, 0.001, 0.009, 0.010])


def test_a_wire_without_a_slicer_passes_on_what_it_was_given() -> None:
    assert sliced(512) == ([512], [0.0])


@pytest.mark.parametrize("rates", [(8,), (8, 32), (32, 8)])
def test_what_passes_two_narrow_places_takes_as_long_as_both_and_no_longer(rates: tuple[int, ...]) -> None:
    world: Any = SimpleNamespace(kernel=SimpleNamespace(now=100.0), rng=lambda *purpose: Random(7))
    wire = SimLink(world, 1, 2)
    for number, kb_per_s in enumerate(rates):
        wire.add(str(number), Bandwidth(kb_per_s))
    took_s, busy_until = wire.takes(StreamDirection.THERE, 8192, 0.0)
    expected_s = sum(8 / kb_per_s for kb_per_s in rates)
    assert took_s == pytest.approx(expected_s, abs=0.01)
    assert busy_until == pytest.approx(100 + expected_s)
    again_s, _ = wire.takes(StreamDirection.THERE, 8192, busy_until)
    assert again_s == pytest.approx(2 * expected_s, abs=0.01), "it waits until the line is free"


def test_a_connection_holds_no_more_than_its_window_until_the_other_end_has_read() -> None:
    kernel = SimpleNamespace(now=0.0, at=lambda *event: None)
    world: Any = SimpleNamespace(kernel=kernel, rng=lambda *purpose: Random(7), window=1024)
    end: Any = SimpleNamespace(alive=True, paused=False, links={}, gate=lambda *call: None)
    connection: Any = SimpleNamespace(followed=False)
    here, there = SimTransport(end, "2", 1), SimTransport(end, "1", 2)
    out = OneWayStream(connection, SimLink(world, 1, 2), StreamDirection.THERE, here, there)
    assert here.send([bytes(4000)]) == 1024
    assert here.send([b"more"]) == 0
    out.taken(24)
    assert here.send([bytes(100)]) == 24
