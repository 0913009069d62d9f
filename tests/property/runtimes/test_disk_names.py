"""File names on a simulated disk: synced ones are there, none is there twice, and none appears that was never made."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from squall.broker.env import Fs, NodeDead
from squall.chaos.runtimes.sim.disk import SimDisk
from tests.support.effort import examples

FOLDERS = ("", "d")
NAMES = st.sampled_from(["a", "b", "c", "d/a", "d/b"])


def folder(path: str) -> str:
    return path.rpartition("/")[0]


@dataclass
class Change:
    """A change of one name: the file `who`, identified by its content, got or lost the name."""

    who: bytes
    old: str | None
    new: str | None

    def concerns(self, path: str) -> bool:
        return any(place is not None and folder(place) == path for place in (self.old, self.new))


class Names(RuleBasedStateMachine):
    """Random changes of names. A file's content is unique and durable, so that it identifies the file under any name.
    """

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk = SimDisk(Random(seed))
        self.fs = self.mounted()
        self.fs.mkdirs("d")
        self.fs.fsync_dir("")
        self.made = 0
        self.there: dict[str, bytes] = {}
        self.ever: dict[bytes, set[str]] = {}
        self.pending: list[Change] = []
        self.synced: dict[str, bytes] = {}
        """The names at the last moment when no change was pending."""

    def mounted(self) -> Fs:
        return self.disk.mount(lambda op, path: None)

    @rule(path=NAMES)
    def create(self, path: str) -> None:
        if path not in self.there:
            self.made += 1
            who = f"file {self.made}".encode()
            file = self.fs.open(path, create=True)
            file.append(who)
            file.fsync()
            self.there[path] = who
            self.ever[who] = {path}
            self.pending.append(Change(who, None, path))

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        if old in self.there and old != new:
            handle = self.fs.open(new) if new in self.there else None
            self.fs.rename(old, new)
            if handle is not None:
                assert handle.pread(99, 0) == self.there[new]
            self.there[new] = who = self.there.pop(old)
            self.ever[who].add(new)
            self.pending.append(Change(who, old, new))

    @rule(path=NAMES)
    def remove(self, path: str) -> None:
        if path in self.there:
            handle = self.fs.open(path)
            self.fs.remove(path)
            assert handle.pread(99, 0) == self.there[path]
            self.pending.append(Change(self.there.pop(path), path, None))

    @rule(path=st.sampled_from(FOLDERS))
    def fsync_dir(self, path: str) -> None:
        self.fs.fsync_dir(path)
        self.pending = [change for change in self.pending if not change.concerns(path)]
        if not self.pending:
            self.synced = dict(self.there)

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.fs = self.mounted()

    @precondition(lambda self: self.pending)
    @rule()
    def power_loss(self) -> None:
        evidence = self.disk.power_loss()
        assert evidence["names_pending"] == len(self.pending)
        left = self.disk.files()
        self.check(left)
        event("all survived" if left == self.there else "names were lost")
        self.fs = self.mounted()
        self.there, self.pending, self.synced = dict(left), [], dict(left)
        self.ever = {who: {path} for path, who in left.items()}

    def check(self, left: dict[str, bytes]) -> None:
        assert len(set(left.values())) == len(left), "a file is found twice"
        touched = {place for change in self.pending for place in (change.old, change.new)}
        for path in {*left, *self.there} - touched:
            assert left.get(path) == self.there.get(path), f"{path}: nothing was pending, and it changed"
        for path, who in left.items():
            assert path in self.ever[who], f"{path} was never the name of {who!r}"
            assert path in touched or self.there.get(path) == who, f"{path} is not the name of {who!r} any more"
        for who in self.there.values():
            changes = [change for change in self.pending if change.who == who]
            if who in self.synced.values() and not self.displaced(who, changes):
                assert who in left.values(), f"{who!r} was only renamed, and is gone"

    def displaced(self, who: bytes, changes: list[Change]) -> bool:
        """Return whether a change of another file may have taken the durable name of `who`."""
        places = {p for change in changes for p in (change.old, change.new)}
        places |= {path for path, file in self.synced.items() if file == who}
        return any({change.old, change.new} & places for change in self.pending if change.who != who)

    @invariant()
    def as_seen(self) -> None:
        if hasattr(self, "there"):
            assert self.disk.files() == dict(sorted(self.there.items()))
            if not self.pending:
                assert self.disk.durable_files() == self.disk.files()


Names.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestNames = Names.TestCase


@given(st.integers(0, 2**32))
@settings(max_examples=examples(150), deadline=None)
def test_once_every_directory_was_synced_all_names_are_durable_in_whatever_order_that_was_done(seed: int) -> None:
    rng = Random(seed)
    for _ in range(20):
        disk = SimDisk(Random(seed))
        fs = disk.mount(lambda op, path: None)
        fs.mkdirs("d")
        fs.mkdirs("e")
        for step in range(rng.randrange(3, 10)):
            there = sorted(disk.files())
            path = rng.choice(["", "d/", "e/"]) + rng.choice("xy")
            fate = rng.random()
            if fate < 0.4 and there:
                fs.rename(rng.choice(there), path)
            elif fate < 0.7:
                file = fs.open(path, create=True)
                file.append(b"%d" % step)
                file.fsync()
            elif fate < 0.8 and there:
                fs.remove(rng.choice(there))
            else:
                fs.fsync_dir(rng.choice(["", "d", "e"]))
        for path in rng.sample(["", "d", "e"], 3):
            fs.fsync_dir(path)
        files = disk.files()
        assert disk.durable_files() == files
        assert disk.power_loss()["names_pending"] == 0
        assert disk.files() == files


CHANGING = st.sampled_from(
    ["append", "pwrite", "truncate", "fsync", "create", "rename", "remove", "mkdirs", "fsync_dir"]
)


def act(fs: Fs, rng: Random, kind: str) -> None:
    path = rng.choice(["a", "b", "d/a"])
    if kind == "mkdirs":
        fs.mkdirs("d/e")
    elif kind == "fsync_dir":
        fs.fsync_dir(folder(path))
    elif kind == "create" or not fs.exists(path):
        fs.open(path, create=True, truncate=rng.random() < 0.5)
    elif kind == "rename":
        fs.rename(path, "c" if path == "b" else "b")
    elif kind == "remove":
        fs.remove(path)
    else:
        file = fs.open(path)
        calls = {"append": lambda: file.append(b"abc"), "pwrite": lambda: file.pwrite(b"XY", 2), "fsync": file.fsync}
        calls.get(kind, lambda: file.truncate(1))()


@given(st.lists(CHANGING, max_size=30), st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=examples(200), deadline=None)
def test_a_crash_at_any_call_leaves_the_disk_as_it_was_before_that_call(kinds: list[str], seed: int, at: int) -> None:
    disk = SimDisk(Random(seed))
    rng = Random(seed)
    asked = 0
    before = ({}, {})

    def gate(op: str, path: str) -> None:
        nonlocal asked, before
        asked += 1
        if asked == at:
            before = (disk.files(), disk.durable_files())
            disk.kill()
            raise NodeDead

    fs = disk.mount(gate)
    try:
        fs.mkdirs("d")
        for kind in kinds:
            act(fs, rng, kind)
    except NodeDead:
        event("crashed")
        assert (disk.files(), disk.durable_files()) == before
