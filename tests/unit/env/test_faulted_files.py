"""Real files that can be hurt: what processes see is what real files show; faults strike and are counted."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest

from squall.broker.faulted.fault_commands import (
    CrashPoint,
    FaultCommand,
    FaultCommandsError,
    FaultCommandSet,
    parse_commands,
)
from squall.broker.faulted.files import FaultedFs
from squall.broker.faulted.losses import lose_power
from squall.broker.faulted.tally import count_of, head_of, read_tally
from squall.broker.real_files import RealFs
from tests.unit.log.test_file_systems import life


class Disk:
    """One broker's folders."""

    def __init__(self, top: Path) -> None:
        self.faults, self.data = top / "faults", top / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.faults.mkdir(exist_ok=True)

    def mount(self) -> FaultedFs:
        return FaultedFs(str(self.faults), [str(self.data)], 1)

    def order(self, orders: FaultCommandSet) -> None:
        fresh = self.faults / "new"
        fresh.write_text(json.dumps(asdict(orders)))
        fresh.replace(self.faults / "control")

    def hits(self, number: int) -> int:
        return count_of(read_tally(str(self.faults / "tally")), number).hits

    def lose(self, seed: int = 1) -> dict[str, int]:
        return lose_power(str(self.faults), [str(self.data)], Random(seed))

    def path(self, name: str) -> str:
        return str(self.data / name)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Return a disk without any fault."""
    return Disk(tmp_path)


def test_a_log_lives_on_them_as_on_real_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "faulted")
    life(disk.mount(), str(disk.data))
    life(RealFs(), str(tmp_path / "real/data"))

    def files(top: Path, glob: str = "*") -> dict[str, bytes]:
        return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob(glob) if path.is_file()}

    assert files(disk.data) == files(tmp_path / "real/data")
    assert len(files(disk.data)) > 20
    disk.lose()
    assert files(disk.data, "t-0/*.log") == files(tmp_path / "real/data", "t-0/*.log"), "a clean stop syncs it"


def test_what_was_synced_survives_and_what_was_not_may_go(disk: Disk) -> None:
    ends = set()
    for seed in range(40):
        fs = disk.mount()
        name = f"f{seed}"
        file = fs.open(disk.path(name), create=True)
        file.append(b"synced")
        file.fsync()
        fs.fsync_dir(str(disk.data))
        file.append(b" lost?")
        file.pwrite(b"S", 0)
        fs.open(disk.path("g"), create=True).append(b"no name")
        lost = disk.lose(seed)
        assert lost["bytes_pending"] == 14
        assert lost["names_pending"] == 1
        content = Path(disk.path(name)).read_bytes()
        assert content[1:6] == b"ynced"
        ends.add((content[6:], content[:1], os.path.exists(disk.path("g"))))
        assert (lost["bytes_lost"] == 0) == (content == b"Synced lost?" and lost["names_lost"] == 0)
        (disk.data / "g").unlink(missing_ok=True)
    assert len(ends) > 8


def test_a_kill_loses_nothing_and_a_power_loss_after_it_takes_what_the_dead_process_had_written(disk: Disk) -> None:
    fs = disk.mount()
    fs.open(disk.path("f"), create=True).append(b"cached")
    again = disk.mount()
    assert again.open(disk.path("f")).pread(10, 0) == b"cached"
    assert [disk.lose(seed=3)["bytes_pending"], disk.lose()["bytes_pending"]] == [6, 0]


def test_after_a_failed_fsync_a_later_one_succeeds_without_those_bytes(disk: Disk) -> None:
    fs = disk.mount()
    file = fs.open(disk.path("f"), create=True)
    fs.fsync_dir(str(disk.data))
    disk.order(FaultCommandSet(serial=1, faults=(FaultCommand(1, "fail", "fsync"),)))
    fs.injector.apply_if_changed()
    file.append(b"never durable")
    with pytest.raises(OSError, match="Input/output error") as failed:
        file.fsync()
    assert failed.value.errno == errno.EIO
    disk.order(FaultCommandSet(serial=2))
    fs.injector.apply_if_changed()
    file.fsync()
    lost = next(lost for lost in map(disk.lose, range(1)) if lost["bytes_pending"])
    assert lost["bytes_pending"] == 13


def test_a_fault_strikes_from_the_nth_matching_call_on_and_counts(disk: Disk) -> None:
    disk.order(
        FaultCommandSet(serial=7, faults=(FaultCommand(5, "fail", "write", "ENOSPC", nth=2, path_glob="data/a*"),))
    )
    fs = disk.mount()
    head = head_of(read_tally(str(disk.faults / "tally")))
    assert head is not None
    assert (head.serial, head.incarnation) == (7, 1)
    a, b = (fs.open(disk.path(name), create=True) for name in ("a", "b"))
    a.append(b"1")
    b.append(b"1")
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            a.append(b"2")
    assert (a.size(), b.append(b"2")) == (1, 1)
    assert disk.hits(5) == 2
    again = disk.mount().open(disk.path("a"))
    with pytest.raises(OSError, match="No space left"):
        again.append(b"2")
    assert disk.hits(5) == 3, "a restart changes nothing"


def test_a_quota_counts_growth_and_gives_back_what_is_removed(disk: Disk) -> None:
    fs = disk.mount()
    fs.open(disk.path("old"), create=True).append(b"x" * 100)
    disk.order(FaultCommandSet(serial=1, faults=(FaultCommand(1, "quota", free_bytes=10),)))
    fs.injector.apply_if_changed()
    file = fs.open(disk.path("f"), create=True)
    file.append(b"y" * 10)
    with pytest.raises(OSError, match="No space left"):
        file.append(b"y")
    file.pwrite(b"z", 0)
    file.truncate(8)
    file.append(b"y")
    fs.remove(disk.path("old"))
    file.append(b"y" * 101)
    assert disk.hits(1) == 1


def test_a_slow_disk_takes_longer(disk: Disk) -> None:
    disk.order(FaultCommandSet(serial=1, faults=(FaultCommand(1, "slow", "fsync", delay_ms=30),)))
    fs = disk.mount()
    file = fs.open(disk.path("f"), create=True)
    file.append(b"1")
    before = os.times().elapsed
    file.fsync()
    fs.fsync_dir(str(disk.data))
    assert os.times().elapsed - before >= 0.05
    assert disk.hits(1) == 2


def test_beyond_the_limit_the_oldest_counts_as_written_back(disk: Disk) -> None:
    disk.order(FaultCommandSet(serial=1, limit_bytes=1000))
    fs = disk.mount()
    files = [fs.open(disk.path(name), create=True) for name in "abc"]
    fs.fsync_dir(str(disk.data))
    for file in files:
        file.append(b"x" * 400)
    head = head_of(read_tally(str(disk.faults / "tally")))
    assert head is not None
    assert head.through_bytes == 400
    assert disk.lose()["bytes_pending"] == 800
    assert (disk.data / "a").stat().st_size == 400


def test_the_journal_of_a_file_written_to_during_every_fsync_stays_short(disk: Disk) -> None:
    fs = disk.mount()
    file = fs.open(disk.path("f"), create=True)
    fs.fsync_dir(str(disk.data))
    inode = next(iter(fs._inodes.values()))
    for _ in range(30):
        file.append(b"x" * 100)
        file.pwrite(b"y" * 100_000, 0)
        mark = inode.journal.mark()
        file.append(b"z" * 10)
        inode.journal.fsync_succeeded(mark)
    assert os.path.getsize(inode.journal.path) < 2_500_000
    assert disk.lose()["bytes_pending"] == 10


@pytest.mark.parametrize(
    "text", ["", "[]", '{"serial": 1, "faults": [{"number": 1, "kind": "odd"}]}', '{"faults": []}']
)
def test_a_control_file_that_cannot_be_followed_is_named(text: str) -> None:
    with pytest.raises(FaultCommandsError, match="no control file"):
        parse_commands(text)


def test_the_process_ends_just_before_the_nth_write(disk: Disk) -> None:
    disk.order(FaultCommandSet(serial=1, crash=CrashPoint(1, "write", 3)))
    program = f"""
from squall.broker.faulted.files import FaultedFs
file = FaultedFs({str(disk.faults)!r}, [{str(disk.data)!r}], 1).open({disk.path("f")!r}, create=True)
for n in range(9):
    file.append(b"x")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (disk.data / "f").read_bytes() == b"xx"
    assert json.loads((disk.faults / "crashed").read_text()) == {"number": 1, "op": "write", "at": "data/f"}
