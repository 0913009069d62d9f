"""What a wire does to the bytes that are sent over it."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.runtimes.contract import Slicer, Stream
from chaos.runtimes.sim.wires import Wire


def sliced(size: int, *slicers: Slicer) -> tuple[list[int], list[float]]:
    """Sizes of the pieces, and when each arrives."""
    world: Any = SimpleNamespace(kernel=None, rng=lambda *purpose: Random(7))
    wire = Wire(world, 1, 2)
    for number, slicer in enumerate(slicers):
        wire.add(str(number), slicer)
    found = list(wire.pieces(Stream.THERE, bytes(range(256)) * (size // 256)))
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
