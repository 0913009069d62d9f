"""A simulated disk agrees with a model that lists every content a file may have after a power loss."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from squall.broker.env import File
from squall.chaos.runtimes.contract import FailWrites
from squall.chaos.runtimes.sim.disk import SimDisk
from tests.support.effort import examples

MAX_DOUBTFUL = 4
"""The most writes whose fate is open: each multiplies the number of contents."""

offsets = st.integers(0, 12)
data = st.binary(min_size=1, max_size=5).map(lambda raw: bytes(byte | 1 for byte in raw))
"""Bytes to write, without zeros, so that they differ from a hole."""


def written(state: bytes, offset: int, piece: bytes) -> bytes:
    state = state.ljust(offset, b"\0") if piece else state
    return state[:offset] + piece + state[offset + len(piece) :]


def cut(state: bytes, size: int) -> bytes:
    return state[:size].ljust(size, b"\0")


@dataclass
class Model:
    """A file's present content, and the contents that it may have after a power loss."""

    cached: bytes = b""
    changes: list[tuple[int, bytes | None, str]] = field(default_factory=list)
    """Each change: offset, data (None: a truncation), and its state: "open" (not synced), "sure" (synced) or "failed"
    (its fsync failed).
    """

    def change(self, offset: int, piece: bytes | None) -> None:
        self.cached = cut(self.cached, offset) if piece is None else written(self.cached, offset, piece)
        self.changes.append((offset, piece, "open"))

    def sync(self, outcome: str) -> None:
        self.changes = [(at, piece, outcome if fate == "open" else fate) for at, piece, fate in self.changes]

    def doubtful(self) -> int:
        return sum(fate != "sure" for _, _, fate in self.changes)

    def possible(self) -> set[bytes]:
        states = {b""}
        for offset, piece, fate in self.changes:
            done = {cut(s, offset) if piece is None else written(s, offset, piece) for s in states}
            if fate != "sure" and piece is not None:
                torn = {written(s, offset, piece[:end]) for s in states for end in range(len(piece))}
                done |= torn | {s.ljust(offset + len(piece), b"\0") for s in torn}
            states = done if fate == "sure" else states | done
        return states


class Contents(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk = SimDisk(Random(seed))
        self.model = Model()
        self.file = self.reopened()
        self.disk.mount(lambda op, path: None).fsync_dir("")
        self.file = self.reopened()

    def reopened(self) -> File:
        return self.disk.mount(lambda op, path: None).open("f", create=True)

    def room(self) -> bool:
        return self.model.doubtful() < MAX_DOUBTFUL

    @precondition(room)
    @rule(piece=data)
    def append(self, piece: bytes) -> None:
        assert self.file.append(piece) == len(self.model.cached)
        self.model.change(len(self.model.cached), piece)

    @precondition(room)
    @rule(piece=data, offset=offsets)
    def pwrite(self, piece: bytes, offset: int) -> None:
        self.file.pwrite(memoryview(piece), offset)
        self.model.change(offset, piece)

    @precondition(room)
    @rule(size=offsets)
    def truncate(self, size: int) -> None:
        self.file.truncate(size)
        self.model.change(size, None)

    @rule()
    def fsync(self) -> None:
        self.file.fsync()
        self.model.sync("sure")

    @rule()
    def failed_fsync(self) -> None:
        self.disk.add_fault("bad", FailWrites(op="fsync"))
        with contextlib.suppress(OSError):
            self.file.fsync()
        self.disk.remove_fault("bad")
        self.model.sync("failed")

    @rule(offset=offsets, length=st.integers(0, 20))
    def pread(self, offset: int, length: int) -> None:
        assert self.file.pread(length, offset) == self.model.cached[offset : offset + length]

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.file = self.reopened()

    @rule()
    def power_loss(self) -> None:
        evidence = self.disk.power_loss()
        left = self.disk.read("f")
        assert left in self.model.possible()
        assert evidence["bytes_pending"] == sum(len(p) for _, p, fate in self.model.changes if p and fate != "sure")
        if left != self.model.cached:
            event("something was lost")
        self.model = Model(left, [(0, left, "sure")] if left else [])
        self.file = self.reopened()

    @invariant()
    def as_seen(self) -> None:
        if hasattr(self, "model"):
            assert self.disk.files() == {"f": self.model.cached}
            assert self.file.size() == len(self.model.cached)
            assert self.disk.durable_files()["f"] in self.model.possible()


Contents.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
TestContents = Contents.TestCase


@settings(max_examples=examples(8), deadline=None)
@given(pieces=st.lists(st.tuples(offsets, data.map(lambda piece: piece[:2])), min_size=1, max_size=2))
def test_every_fate_there_may_be_is_met_sooner_or_later(pieces: list[tuple[int, bytes]]) -> None:
    model = Model()
    for offset, piece in pieces:
        model.change(offset, piece)
    met = set()
    for seed in range(6000):
        disk = SimDisk(Random(seed))
        fs = disk.mount(lambda op, path: None)
        file = fs.open("f", create=True)
        fs.fsync_dir("")
        for offset, piece in pieces:
            file.pwrite(piece, offset)
        disk.power_loss()
        met.add(disk.read("f"))
        if seed % 50 == 0 and met == model.possible():
            break
    assert met == model.possible()
