"""Chooses which bits of a file flip ("bit rot"), by the file's content alone, so that real and simulated files are
damaged alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from squall.broker.protocol.records import CRC_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from squall.chaos.runtimes.damage import Where

_UNCHECKED: Final = range(CRC_FROM - 4)
"""Holds the positions in a batch that no checksum covers: base offset, length, leader epoch and magic. The checksum
follows.
"""
_EPOCH: Final = range(LENGTH_OVERHEAD, LENGTH_OVERHEAD + 4)
_MAGIC: Final = 2


def rotten_bits(path: str, content: bytes | bytearray, bits: int, where: Where, rng: Random) -> list[int]:
    """Draw `bits` different bits of a file to flip, and return their positions (in bits) in ascending order. Returns
    fewer if the file has fewer bits to choose from.

    where: "epoch" chooses from the leader epochs in a segment. "checked" chooses from the bits of a segment that a
    checksum covers, and from the checksums; in other files, from all bits.

    "checked" never flips a base offset, for example: neither Squall nor Kafka can tell a flipped base offset from a
    correct one. A reader would accept it, and continue at a wrong offset.
    """
    starts = list(_batches(content)) if path.endswith(".log") else []
    if where == "epoch":
        possible = [start + at for start in starts for at in _EPOCH]
    else:
        spared = {start + at for start in starts for at in _UNCHECKED}
        possible = [at for at in range(len(content)) if at not in spared]
    drawn_bits = rng.sample(range(len(possible) * 8), min(bits, len(possible) * 8))
    return sorted(possible[bit // 8] * 8 + bit % 8 for bit in drawn_bits)


def _batches(content: bytes | bytearray) -> Iterator[int]:
    """Yield the positions at which a segment's batches begin, up to the first bytes that are no batch."""
    at = 0
    while len(content) - at >= HEADER_SIZE:
        _, length, _, magic = HEADER.unpack_from(content, at)[:4]
        if magic != _MAGIC or length < HEADER_SIZE - LENGTH_OVERHEAD:
            return
        yield at
        at += LENGTH_OVERHEAD + length
