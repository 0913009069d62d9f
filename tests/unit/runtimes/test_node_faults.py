"""The harness's end of a broker's disk: orders in a file, and what came of them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from squall.broker.faulted.files import FaultedFs
from squall.chaos.errors import HarnessError
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.schedule import likely
from squall.chaos.runtimes.contract import FailWrites, Quota, SlowDisk
from squall.chaos.runtimes.real.bit_rot import rot
from squall.chaos.runtimes.real.node_faults import NodeFaults


@pytest.fixture
def faults(tmp_path: Path) -> NodeFaults:
    """Return the faults of a broker that was never started."""
    (tmp_path / "data").mkdir()
    return NodeFaults(tmp_path / "faults")


def mount(tmp_path: Path, incarnation: int = 1) -> FaultedFs:
    return FaultedFs(str(tmp_path / "faults"), [str(tmp_path / "data")], incarnation)


def test_what_is_ordered_of_a_broker_that_is_down_is_there_when_it_starts(faults: NodeFaults, tmp_path: Path) -> None:
    faults.add("f", FailWrites())
    assert not faults.taken_over(1)
    assert not faults.ran(1)
    fs = mount(tmp_path)
    assert faults.taken_over(1)
    assert faults.ran(1)
    assert not faults.ran(2), "another incarnation"
    with pytest.raises(OSError, match="Input/output"):
        fs.open(str(tmp_path / "data/f"), create=True).append(b"x")
    number = faults.remove("f")
    assert number is not None
    assert not faults.taken_over(1)
    assert faults.hits(number) == 1
    assert faults.remove("f") is None


def test_a_name_is_used_once_and_a_crash_is_one_at_a_time(faults: NodeFaults) -> None:
    faults.add("f", SlowDisk(1))
    with pytest.raises(HarnessError, match="'f'"):
        faults.add("f", Quota(1))
    number = faults.arm("write", 2)
    with pytest.raises(HarnessError, match="going to crash at a write"):
        faults.arm("send", 1)
    assert faults.crashed(number) is None
    faults.disarm()
    faults.arm("send", 1)


def test_orders_of_an_earlier_run_are_taken_back_and_numbers_go_on(faults: NodeFaults, tmp_path: Path) -> None:
    faults.add("f", FailWrites())
    again = NodeFaults(tmp_path / "faults")
    again.clear()
    fs = mount(tmp_path)
    fs.open(str(tmp_path / "data/f"), create=True).append(b"x")
    again.add("f", FailWrites())
    number = again.remove("f")
    assert number is not None
    assert number > 2


def test_only_closed_segments_rot(tmp_path: Path) -> None:
    folder = tmp_path / "data/t-0"
    folder.mkdir(parents=True)
    for base in (0, 7):
        (folder / f"{base:020}.log").write_bytes(bytes(100))
    told = rot(tmp_path / "data", "*.log", 3, "checked", Random(1))
    assert told["path"] == f"data/t-0/{0:020}.log"
    assert told["before"] != told["after"]
    changed = (folder / f"{0:020}.log").read_bytes()
    assert sum(byte.bit_count() for byte in changed) == 3
    assert (folder / f"{7:020}.log").read_bytes() == bytes(100)
    assert rot(tmp_path / "data", "*.index", 1, "checked", Random(1))["path"] is None


def test_a_drawn_fault_of_fsyncs_is_one_of_writes_where_nobody_may_sync() -> None:
    fault = make_fault(0, 0, 3, "disk", "random", {"op": "fsync", "nth": 4})
    assert likely(7, fault, 5).params == {**fault.params, "op": "write"}
    slow = make_fault(0, 0, 3, "slow", "random", {"share": 0.5})
    assert likely(7, slow, 5) == slow
    asked = make_fault(0, 0, 3, "protocol", "random", {"api": "Metadata", "act": "drop"})
    assert likely(7, asked, 5).params == {**asked.params, "api": "Fetch"}
