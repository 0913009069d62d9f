"""Disks that fail, run full, are slow, and rot."""

from __future__ import annotations

import errno
import hashlib
from random import Random

import pytest

from squall.broker.env import Fs
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import FailWrites, Quota, SlowDisk
from squall.chaos.runtimes.sim.disk import SimDisk


def no_gate(op: str, path: str) -> None:
    """Lets everything through."""


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


@pytest.fixture
def fs(disk: SimDisk) -> Fs:
    return disk.mount(no_gate)


def test_the_nth_write_and_all_later_ones_fail_until_the_fault_is_removed(disk: SimDisk, fs: Fs) -> None:
    file = fs.open("a.log", create=True)
    disk.add_fault("bad", FailWrites("EIO", nth=2))
    file.append(b"one")
    for call in (lambda: file.append(b"two"), lambda: file.pwrite(b"two", 0), lambda: file.truncate(0)):
        with pytest.raises(OSError) as failed:
            call()
        assert failed.value.errno == errno.EIO
    assert disk.files() == {"a.log": b"one"}
    file.fsync()
    assert disk.hits("bad") == 3
    assert disk.remove_fault("bad") == 3
    assert disk.remove_fault("bad") == disk.hits("bad") == 0
    file.append(b"two")


def test_a_fault_hits_only_the_paths_it_names_and_outlives_the_node(disk: SimDisk, fs: Fs) -> None:
    disk.add_fault("bad", FailWrites("EIO", path_glob="data/t-*/*.log"))
    disk.kill()
    fs = disk.mount(no_gate)
    fs.mkdirs("data/t-1")
    fs.open("data/t-1/0.index", create=True).append(b"x")
    with pytest.raises(OSError, match="t-1"):
        fs.open("/data/t-1/0.log", create=True).append(b"x")
    assert disk.hits("bad") == 1


def test_a_full_disk_takes_nothing_of_an_append_perhaps_a_part_of_a_pwrite_and_truncates(disk: SimDisk, fs: Fs) -> None:
    file = fs.open("f", create=True)
    file.append(b"0123456789")
    disk.add_fault("full", FailWrites("ENOSPC"))
    with pytest.raises(OSError, match="No space"):
        file.append(b"abc")
    assert file.size() == 10
    sizes = set()
    for _ in range(50):
        with pytest.raises(OSError, match="No space"):
            file.pwrite(b"ABCD", 9)
        sizes.add(file.size())
        file.truncate(9)
    assert sizes == {9, 10, 11, 12}


def test_a_quota_counts_all_files_and_what_is_given_back(disk: SimDisk, fs: Fs) -> None:
    first, second = fs.open("a", create=True), fs.open("b", create=True)
    first.append(bytes(100))
    disk.add_fault("quota", Quota(free_bytes=10))
    second.append(b"123456")
    with pytest.raises(OSError, match="No space"):
        first.append(b"12345")
    with pytest.raises(OSError, match="No space"):
        second.pwrite(b"abcdef", 5)
    assert disk.files()["b"] == b"12345abcde"
    first.pwrite(b"over what is there", 0)
    first.truncate(50)
    second.append(bytes(50))
    fs.remove("a")
    second.append(bytes(50))
    with pytest.raises(OSError, match="No space"):
        second.append(b"1")
    assert disk.hits("quota") == 3


def test_after_a_failed_fsync_a_later_one_succeeds_without_the_data() -> None:
    found = set()
    for seed in range(100):
        disk = SimDisk(Random(seed))
        fs = disk.mount(no_gate)
        file = fs.open("f", create=True)
        fs.fsync_dir("")
        file.append(b"A")
        disk.add_fault("bad", FailWrites("EIO", op="fsync"))
        with pytest.raises(OSError, match="f"):
            file.fsync()
        disk.remove_fault("bad")
        file.append(b"B")
        file.fsync()
        assert disk.durable_files() == {"f": b"\0B"}
        assert file.pread(2, 0) == b"AB"
        file.append(b"C")
        disk.power_loss()
        found.add(disk.files()["f"])
    assert found == {one + b"B" + two for one in (b"A", b"\0") for two in (b"", b"\0", b"C")}


def test_after_a_failed_fsync_of_a_directory_a_later_one_succeeds_without_the_names() -> None:
    found = set()
    for seed in range(50):
        disk = SimDisk(Random(seed))
        fs = disk.mount(no_gate)
        fs.open("a", create=True).close()
        disk.add_fault("bad", FailWrites("EIO", op="fsync"))
        with pytest.raises(OSError, match="Input/output"):
            fs.fsync_dir("")
        disk.remove_fault("bad")
        fs.open("b", create=True).close()
        fs.fsync_dir("")
        disk.power_loss()
        found.add(tuple(disk.files()))
    assert found == {("b",), ("a", "b")}


def test_delays_add_up_by_what_they_delay(disk: SimDisk, fs: Fs) -> None:
    assert disk.delay_s("fsync") == 0
    disk.add_fault("slow", SlowDisk(20))
    disk.add_fault("slower", SlowDisk(300))
    disk.add_fault("writes", SlowDisk(7, op="write"))
    assert disk.delay_s("fsync") == pytest.approx(0.32)
    assert disk.delay_s("write") == pytest.approx(0.007)
    file = fs.open("f", create=True)
    file.append(b"x")
    file.fsync()
    fs.fsync_dir("")
    assert [disk.hits(name) for name in ("slow", "slower", "writes")] == [2, 2, 1]


def test_a_name_is_given_once(disk: SimDisk) -> None:
    disk.add_fault("bad", FailWrites())
    with pytest.raises(HarnessError, match="bad"):
        disk.add_fault("bad", SlowDisk(1))


# ------------------------------------------------------------------------------------------------------------------ rot

FOLDER = {f"t-0/{base:020}{suffix}": bytes(100) for base in (0, 10, 20) for suffix in (".log", ".index")}


def test_rot_flips_bits_of_a_closed_segment_only(disk: SimDisk) -> None:
    hit = set()
    for seed in range(40):
        disk.restore(FOLDER)
        evidence = disk.rot("*.log", Random(seed), bits=3)
        path = evidence["path"]
        assert isinstance(path, str)
        hit.add(path)
        content = disk.files()[path]
        assert sum(byte.bit_count() for byte in content) == evidence["bits"] == 3
        assert [at for at, byte in enumerate(content) if byte] == sorted(set(evidence["offsets"]))  # type: ignore[arg-type]
        assert evidence["offset"] == evidence["offsets"][0]  # type: ignore[index,call-overload]
        assert evidence["before"] == hashlib.sha256(bytes(100)).hexdigest()
        assert evidence["after"] == hashlib.sha256(content).hexdigest()
        assert disk.durable_files() == disk.files()
        assert {name: data for name, data in disk.files().items() if name != path}.items() <= FOLDER.items()
    assert hit == {f"t-0/{base:020}.log" for base in (0, 10)}


def test_what_is_not_durable_yet_does_not_rot(disk: SimDisk) -> None:
    disk.restore(FOLDER)
    fs = disk.mount(no_gate)
    fs.open(f"t-0/{0:020}.log").append(b"x")
    fs.rename(f"t-0/{10:020}.log", f"t-0/{11:020}.log")
    assert disk.rot("*.log", Random(1))["path"] is None


def test_other_files_rot_when_asked_for(disk: SimDisk) -> None:
    disk.restore({"quorum-state": b"abc", "empty": b""})
    assert disk.rot("*", Random(1), bits=99)["bits"] == 24
    assert disk.files()["quorum-state"] == bytes(255 - byte for byte in b"abc")
