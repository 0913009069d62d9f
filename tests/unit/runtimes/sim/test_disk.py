"""A simulated disk: what a kill and a power loss leave, and what a dead incarnation can still do (nothing)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from squall.broker.env import File, Fs, NodeDead
from squall.chaos.runtimes.sim.disk import SimDisk

SEEDS = 200


def no_gate(op: str, path: str) -> None:
    """Lets everything through."""


def mounted(seed: int = 0) -> tuple[SimDisk, Fs]:
    disk = SimDisk(Random(seed))
    return disk, disk.mount(no_gate)


def durable_file(fs: Fs, path: str, data: bytes = b"") -> File:
    """A file whose bytes and name are durable, in the root."""
    file = fs.open(path, create=True)
    file.append(data)
    file.fsync()
    fs.fsync_dir("")
    return file


def outcomes(story: Callable[[Fs], None], seeds: int = SEEDS) -> dict[str, dict[str, bytes]]:
    """The disks that power losses after `story` leave, by their repr, over many seeds."""
    found = {}
    for seed in range(seeds):
        disk, fs = mounted(seed)
        story(fs)
        disk.power_loss()
        found[repr(disk.files())] = disk.files()
    return found


# ------------------------------------------------------------------------------------------------------------- contents


def test_a_kill_loses_nothing() -> None:
    disk, fs = mounted()
    fs.mkdirs("a/b")
    fs.open("a/b/f", create=True).append(b"never synced")
    disk.kill()
    fs = disk.mount(no_gate)
    assert fs.open("a/b/f").pread(99, 0) == b"never synced"
    assert disk.files() == {"a/b/f": b"never synced"}
    assert disk.durable_files() == {}


def test_what_was_not_synced_is_still_not_after_a_kill() -> None:
    disk, fs = mounted(3)
    durable_file(fs, "f", b"synced").append(b"not" * 1000)
    disk.kill()
    assert disk.durable_files() == {"f": b"synced"}
    assert disk.durable("/f") == b"synced"
    fs = disk.mount(no_gate)
    fs.rename("f", "g")
    assert disk.durable("g") is None
    assert disk.durable("f") == b"synced"
    fs.fsync_dir("")
    assert disk.durable("g") == b"synced"
    evidence = disk.power_loss()
    assert evidence["bytes_pending"] == 3000
    assert disk.files()["g"].startswith(b"synced")


def test_fsync_covers_what_was_written_before_it_and_nothing_later() -> None:
    def story(fs: Fs) -> None:
        file = durable_file(fs, "f", b"one")
        file.append(b"two")
        file.pwrite(b"X", 0)
        file.fsync()
        file.append(b"3")

    assert {files["f"] for files in outcomes(story).values()} == {b"Xnetwo", b"Xnetwo3", b"Xnetwo\0"}


def test_a_write_survives_tears_or_vanishes_and_a_hole_reads_as_zeros() -> None:
    def story(fs: Fs) -> None:
        file = durable_file(fs, "f")
        file.append(b"ab")
        file.append(b"cd")

    first = {b"", b"a", b"a\0", b"ab", b"\0\0"}
    second = {b"", b"c", b"c\0", b"cd", b"\0\0"}
    expected = {one.ljust(2 if two else 0, b"\0") + two for one in first for two in second}
    assert {files["f"] for files in outcomes(story, seeds=3000).values()} == expected


def test_a_truncation_that_was_not_synced_may_be_undone_but_not_in_part() -> None:
    def story(fs: Fs) -> None:
        durable_file(fs, "f", b"0123456789").truncate(4)

    assert {files["f"] for files in outcomes(story).values()} == {b"0123", b"0123456789"}


def test_writes_over_each_other_and_truncations_are_undone_in_order() -> None:
    disk, fs = mounted()
    file = durable_file(fs, "f", b"durable")
    file.pwrite(b"XYZ", 5)
    file.truncate(2)
    file.pwrite(b"far", 6)
    file.append(b"end")
    file.truncate(20)
    assert file.pread(99, 0) == b"du\0\0\0\0farend" + bytes(8)
    assert disk.durable_files() == {"f": b"durable"}


def test_large_writes_tear_at_sectors_and_at_any_byte() -> None:
    kept = set()
    for seed in range(SEEDS):
        disk, fs = mounted(seed)
        durable_file(fs, "f", b"x" * 100).append(b"y" * 5000)
        disk.power_loss()
        kept.add(len(disk.files()["f"].rstrip(b"\0")))
    torn = kept - {100, 5100}
    assert len([size for size in torn if size % 512 == 0]) >= 5
    assert len([size for size in torn if size % 512]) >= 5


# ---------------------------------------------------------------------------------------------------------------- names


def test_a_synced_file_whose_directory_was_not_synced_may_be_gone() -> None:
    def story(fs: Fs) -> None:
        file = fs.open("f", create=True)
        file.append(b"data")
        file.fsync()

    assert sorted(outcomes(story)) == sorted([repr({}), repr({"f": b"data"})])


def test_everything_in_a_directory_whose_name_was_lost_is_lost() -> None:
    def story(fs: Fs) -> None:
        fs.mkdirs("a/b")
        durable_file(fs, "a/b/f", b"data")
        fs.fsync_dir("a/b")
        fs.fsync_dir("a")
        # The root was synced before a/b was made durable in it, by durable_file; this one is not:
        fs.mkdirs("c")
        fs.open("c/g", create=True).close()
        fs.fsync_dir("c")

    assert sorted(outcomes(story)) == sorted([repr({"a/b/f": b"data"}), repr({"a/b/f": b"data", "c/g": b""})])


def test_a_rename_over_a_file_is_all_or_nothing() -> None:
    def story(fs: Fs) -> None:
        durable_file(fs, "f", b"old")
        durable_file(fs, "tmp", b"new")
        fs.rename("tmp", "f")

    assert sorted(outcomes(story)) == sorted([repr({"f": b"old", "tmp": b"new"}), repr({"f": b"new"})])


def test_a_file_renamed_several_times_is_found_once() -> None:
    def story(fs: Fs) -> None:
        fs.mkdirs("d")
        durable_file(fs, "a", b"data")
        fs.rename("a", "b")
        fs.rename("b", "d/c")
        fs.rename("d/c", "e")

    found = [{path: data for path, data in files.items() if data} for files in outcomes(story).values()]
    assert sorted(found, key=repr) == [{path: b"data"} for path in ("a", "b", "d/c", "e")]


@pytest.mark.parametrize("synced", ["", "d"])
def test_a_rename_across_directories_is_durable_once_either_is_synced(synced: str) -> None:
    def story(fs: Fs) -> None:
        fs.mkdirs("d")
        durable_file(fs, "old", b"data")
        fs.rename("old", "d/new")
        fs.fsync_dir(synced)
        fs.fsync_dir("")
        fs.fsync_dir(synced)

    assert list(outcomes(story).values()) == [{"d/new": b"data"}]


def test_a_new_file_renamed_into_another_directory_is_not_found_under_its_first_name_again() -> None:
    def story(fs: Fs) -> None:
        fs.mkdirs("d")
        fs.open("old", create=True).close()
        fs.rename("old", "d/new")
        fs.fsync_dir("d")
        fs.fsync_dir("")

    assert list(outcomes(story).values()) == [{"d/new": b""}]


def test_a_name_given_away_and_taken_from_another_directory_keeps_both_files() -> None:
    def story(fs: Fs) -> None:
        fs.mkdirs("d")
        durable_file(fs, "other", b"other")
        durable_file(fs, "d/x", b"first")
        fs.fsync_dir("d")
        fs.rename("d/x", "d/z")
        fs.rename("other", "d/x")
        fs.fsync_dir("")
        fs.fsync_dir("d")

    assert list(outcomes(story).values()) == [{"d/x": b"other", "d/z": b"first"}]


def test_a_surviving_rename_leaves_nothing_under_the_old_name() -> None:
    def story(fs: Fs) -> None:
        durable_file(fs, "a", b"old")
        fs.remove("a")
        file = fs.open("a", create=True)
        file.append(b"new")
        file.fsync()
        fs.rename("a", "b")

    expected = [{}, {"a": b"old"}, {"a": b"new"}, {"b": b"new"}]
    assert sorted(outcomes(story)) == sorted(map(repr, expected))


def test_a_removal_that_was_not_synced_may_be_undone() -> None:
    def story(fs: Fs) -> None:
        fs.mkdirs("d")
        durable_file(fs, "d/a", b"a")
        fs.fsync_dir("d")
        fs.remove_dir("d")

    assert sorted(outcomes(story)) == sorted([repr({}), repr({"d/a": b"a"})])


def test_a_synced_removal_of_a_directory_takes_what_was_pending_in_it_along() -> None:
    disk, fs = mounted()
    fs.mkdirs("d/e")
    fs.open("d/e/f", create=True).append(b"data")
    fs.remove_dir("d")
    fs.fsync_dir("")
    assert disk.power_loss()["names_pending"] == 0


# ------------------------------------------------------------------------------------------------------------ the dead


def everything(fs: Fs, file: File) -> list[Callable[[], object]]:
    return [
        lambda: file.pread(1, 0),
        lambda: file.append(b"x"),
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
        file.fsync,
        file.size,
        file.close,
        lambda: fs.open("f"),
        lambda: fs.open("g", create=True),
        lambda: fs.exists("f"),
        lambda: fs.list(""),
        lambda: fs.mkdirs("d"),
        lambda: fs.rename("f", "g"),
        lambda: fs.remove("f"),
        lambda: fs.remove_dir("missing"),
        lambda: fs.fsync_dir(""),
    ]


@pytest.mark.parametrize(
    "end", [SimDisk.kill, SimDisk.power_loss, lambda disk: disk.mount(no_gate), lambda disk: disk.restore({})]
)
def test_a_dead_incarnation_can_do_nothing(end: Callable[[SimDisk], object]) -> None:
    disk, fs = mounted()
    file = durable_file(fs, "f", b"data")
    end(disk)
    before = disk.files()
    for call in everything(fs, file):
        with pytest.raises(NodeDead):
            call()
    assert disk.files() == before


def test_the_gate_is_asked_before_each_effect_and_its_refusal_leaves_the_disk_as_it_was() -> None:
    disk = SimDisk(Random(1))
    asked: list[tuple[str, str]] = []
    shut = False

    def gate(op: str, path: str) -> None:
        asked.append((op, path))
        if shut:
            raise NodeDead

    fs = disk.mount(gate)
    fs.mkdirs("/e/./e")
    file = durable_file(fs, "./f", b"data")
    assert asked == [
        *[("mkdirs", "e"), ("mkdirs", "e/e"), ("open", "f"), ("append", "f"), ("fsync", "f"), ("fsync_dir", "")]
    ]
    file.append(b"more")
    before, sure = disk.files(), disk.durable_files()
    asked.clear()
    shut = True
    refused = 0
    for call in everything(fs, file):
        try:
            call()
        except (NodeDead, FileNotFoundError):
            refused += 1
    assert [op for op, _ in asked] == [
        *["pread", "append", "pwrite", "truncate", "fsync", "open", "open", "list", "mkdirs", "rename", "remove"],
        "fsync_dir",
    ]
    assert refused == len(asked) + 1  # remove_dir of nothing asks no handler
    assert (disk.files(), disk.durable_files()) == (before, sure)


def test_a_power_loss_inside_of_the_gate_strikes_before_the_call() -> None:
    disk = SimDisk(Random(1))

    def gate(op: str, path: str) -> None:
        if op == "fsync":
            disk.restore({"f": b"another world"})
            raise NodeDead

    fs = disk.mount(gate)
    file = fs.open("f", create=True)
    with pytest.raises(NodeDead):
        file.fsync()
    assert disk.files() == {"f": b"another world"}


# ------------------------------------------------------------------------------------------------------------- the rest


def test_restored_files_are_durable_and_all_there_is() -> None:
    disk, fs = mounted()
    fs.open("old", create=True).close()
    files = {"data/t-0/0.log": b"abc", "data/x": b"", "y": b"z"}
    disk.restore(files)
    assert disk.files() == disk.durable_files() == files
    nothing = dict.fromkeys(["bytes_pending", "bytes_lost", "torn", "names_pending", "names_lost"], 0)
    assert disk.power_loss() == {**nothing, "logs": {}}
    assert disk.files() == files
    assert disk.read("/data/t-0/0.log") == b"abc"
    assert disk.mount(no_gate).list("data") == ["t-0", "x"]
    with pytest.raises(FileNotFoundError):
        disk.read("data")


def test_evidence_adds_up() -> None:
    lost = 0
    for seed in range(50):
        disk, fs = mounted(seed)
        durable_file(fs, "kept", b"12345").append(b"x" * 10)
        fs.open("new", create=True).append(b"y" * 7)
        evidence = disk.power_loss()
        assert (evidence["bytes_pending"], evidence["names_pending"]) == (17, 1)
        files = disk.files()
        survived = files["kept"].count(b"x") + files.get("new", b"").count(b"y")
        assert evidence["bytes_lost"] == 17 - survived
        assert evidence["names_lost"] == (0 if "new" in files else 1)
        lost += bool(evidence["torn"])
    assert lost


def test_one_seed_one_fate() -> None:
    def fates() -> list[object]:
        disk, fs = mounted(5)
        found: list[object] = []
        for step in range(20):
            fs.mkdirs(f"d{step}")
            for name in "zyx":
                fs.open(f"d{step}/{name}", create=True).append(bytes(600 + step))
            fs.fsync_dir("")
            found += [disk.power_loss(), disk.files()]
            fs = disk.mount(no_gate)
        return found

    assert fates() == fates()
