"""Makes malformed frames from valid ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

LENGTHS = (
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1, the frame that ended kio's process
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # ten bytes of a varint
    b"\x80\x80\x80\x80\x80\x80",  # a varint without end
    b"\x80\x80\x80\x80\x00",
    b"\xff\xff\x03",
    b"\x7f",
    b"\x00",
    struct.pack(">i", 0x7FFFFFFF),
    struct.pack(">i", 0x10000000),
    struct.pack(">i", -1),
    struct.pack(">i", -2),
    struct.pack(">i", -(1 << 31)),
    struct.pack(">h", 0x7FFF),
    struct.pack(">h", -1),
    struct.pack(">h", -(1 << 15)),
)
"""Encoded lengths that are negative or far too large."""


def truncations(frame: bytes, most: int = 400) -> Iterator[bytes]:
    """Yield every shorter prefix of the frame, or `most` of them."""
    step = max(1, len(frame) // most)
    for length in range(0, len(frame), step):
        yield frame[:length]


def mutations(frame: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Yield `count` frames with flipped bits, replaced, removed and repeated bytes, or wrong lengths."""
    rng = random.Random(seed)
    for _ in range(count):
        out = bytearray(frame)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            at = rng.randrange(len(out) + 1)
            match rng.randrange(5):
                case 0 if out:
                    out[at % len(out)] ^= 1 << rng.randrange(8)
                case 1:
                    lie = rng.choice(LENGTHS)
                    out[at : at + len(lie)] = lie
                case 2:
                    out[at:at] = rng.choice(LENGTHS)
                case 3:
                    del out[at : at + rng.randrange(1, 9)]
                case _:
                    out[at:at] = out[at : at + rng.randrange(1, 40)]
        yield bytes(out)


def noise(count: int, seed: int) -> Iterator[bytes]:
    """Yield `count` random frames, some of them made of a few small byte values."""
    rng = random.Random(seed)
    for _ in range(count):
        length = rng.choice((0, 1, 5, 17, 64, 300))
        alphabet = rng.choice((range(256), (0, 1), (0, 1, 2), (1, 2, 3, 255), (0, 0, 0, 0, 1, 127, 128)))
        yield bytes(rng.choice(alphabet) for _ in range(length))
