"""Checks which bits of a segment rot: those that a checksum covers, in both worlds."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from squall.broker.protocol.records import HEADER, Record, check_crc, encode_batch
from squall.chaos.runtimes.real.bit_rot import rot
from squall.chaos.runtimes.rotting import rotten_bits
from squall.chaos.runtimes.sim.disk import SimDisk

NAME = f"t-0/{0:020}.log"


def segment() -> bytes:
    """Three batches, the second of which is compressed."""
    return b"".join(
        encode_batch([Record(0, 1000, b"key", b"value" * 20)], base_offset=at, codec=codec, leader_epoch=3)
        for at, codec in ((0, 0), (1, 1), (2, 0))
    )


def starts(content: bytes) -> list[int]:
    found, at = [], 0
    while at < len(content):
        found.append(at)
        at += HEADER.unpack_from(content, at)[1] + 12
    return found


def test_every_bit_may_rot_but_those_that_no_checksum_covers() -> None:
    content = segment()
    spared = {at + byte for at in starts(content) for byte in range(17)}
    flipped = rotten_bits(NAME, content, 10**6, "checked", Random(1))
    assert {bit // 8 for bit in flipped} == set(range(len(content))) - spared
    assert len(flipped) == len(set(flipped)) == 8 * (len(content) - len(spared))


def test_of_epochs_all_bits_may_rot_and_no_others() -> None:
    content = segment()
    flipped = rotten_bits(NAME, content, 10**6, "epoch", Random(1))
    assert {bit // 8 for bit in flipped} == {at + byte for at in starts(content) for byte in range(12, 16)}


def test_what_is_no_segment_rots_anywhere() -> None:
    assert len(rotten_bits(f"t-0/{0:020}.index", segment(), 10**6, "checked", Random(1))) == 8 * len(segment())
    assert len(rotten_bits(NAME, bytes(100), 10**6, "checked", Random(1))) == 800


@pytest.mark.parametrize("world", ["simulated", "real"])
def test_one_rotten_bit_is_noticed_by_the_checksum_of_its_batch(world: str, tmp_path: Path) -> None:
    content = segment()
    for seed in range(60):
        if world == "simulated":
            disk = SimDisk(Random(0))
            disk.restore({NAME: content, f"t-0/{10:020}.log": content})
            assert disk.rot("*.log", Random(seed))["path"] == NAME
            rotten = bytes(disk.files()[NAME])
        else:
            folder = tmp_path / str(seed) / "data/t-0"
            folder.mkdir(parents=True)
            for base in (0, 10):
                (folder / f"{base:020}.log").write_bytes(content)
            assert rot(tmp_path / str(seed) / "data", "*.log", 1, "checked", Random(seed))["path"] == f"data/{NAME}"
            rotten = (folder / f"{0:020}.log").read_bytes()
        places = [*starts(content), len(content)]
        whole = [check_crc(memoryview(rotten), at, end) for at, end in zip(places, places[1:], strict=False)]
        assert whole.count(False) == 1, seed
        assert starts(rotten) == starts(content)
