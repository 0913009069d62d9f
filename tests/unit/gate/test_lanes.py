"""Files are planned into lanes by their measured costs, and a file without a wanted test is not collected."""

from __future__ import annotations

import pytest

from tests.support.gate import bounds
from tests.support.gate.costs import Cost
from tests.support.gate.lanes import plan, unmeasured

ONE = "def test_a(): ...\n"
MARKED = "@pytest.mark.gate\ndef test_a(): ...\n"


def rows(**costs: float) -> dict[str, Cost]:
    """A row for test_a of each file, named folder_file."""
    return {f"tests/{name.replace('_', '/')}.py::test_a": Cost(cost_s, 2 * cost_s) for name, cost_s in costs.items()}


def files(*names: str, text: str = ONE) -> dict[str, str]:
    """Files with one test each."""
    return {f"tests/{name.replace('_', '/')}.py": text for name in names}


def test_a_file_goes_whole_to_the_lane_with_least_to_do() -> None:
    costs = rows(unit_a=0.4, unit_b=0.3, unit_c=0.2)
    first, second = plan(files("unit_a", "unit_b", "unit_c"), costs, ["gate"], 2)
    assert (first.files, second.files) == (["tests/unit/a.py"], ["tests/unit/b.py", "tests/unit/c.py"])
    assert (first.cost_s, second.cost_s) == (0.4, 0.5)


def test_what_starts_processes_has_a_lane_of_its_own_and_counts_by_the_clock() -> None:
    lanes = plan(files("live_a", "interop_b", text=MARKED) | files("unit_c"), rows(live_a=1, interop_b=2), ["gate"], 2)
    assert [(lane.name, lane.files) for lane in lanes] == [
        ("cpu 1", ["tests/unit/c.py"]),
        ("waiting", ["tests/interop/b.py", "tests/live/a.py"]),
    ]
    assert lanes[-1].cost_s == 6


def test_spark_is_one_session() -> None:
    costs = rows(parity_a=10, parity_b=10, unit_c=0.1)
    lanes = plan(files("parity_a", "parity_b", text=MARKED) | files("unit_c"), costs, ["gate"], 2)
    assert lanes[0].files == ["tests/parity/a.py", "tests/parity/b.py"]


def test_only_files_with_a_wanted_test_are_collected() -> None:
    known = files("unit_cheap", "unit_dear", "sim_a") | files("sim_marked", text=MARKED)
    costs = rows(unit_cheap=0.1, unit_dear=9, sim_a=1, sim_marked=1)
    [lane] = plan(known, costs, ["gate"], 1)
    assert lane.files == ["tests/unit/cheap.py", "tests/sim/marked.py"]
    [lane] = plan(known, costs, ["gate", "night"], 1)
    assert len(lane.files) == 4


def test_a_test_without_a_row_brings_its_file_into_the_gate() -> None:
    text = (
        ONE + "class TestB:\n    async def test_c(self): ...\nTestMachine = Machine.TestCase\ntest_d = CASES.test()\n"
    )
    assert unmeasured(text, ["test_a[1]"]) == {"test_c", "TestMachine", "test_d"}
    assert unmeasured(text, ["test_a[1]", "TestB::test_c", "TestMachine::runTest", "test_d[x]"]) == set()
    [lane] = plan({"tests/sim/a.py": text}, rows(sim_a=1), ["gate"], 1)
    assert lane.files == ["tests/sim/a.py"]
    assert plan({"tests/sim/a.py": ONE}, rows(sim_a=1), ["gate"], 1) == []


@pytest.mark.parametrize("measured", [False, True])
def test_a_quiet_test_is_found_by_its_bound_whether_it_has_a_row_or_not(
    monkeypatch: pytest.MonkeyPatch, measured: bool
) -> None:
    monkeypatch.setattr(bounds, "BOUNDS_S", {"tests/live/a.py::test_a[row]": 1.0})
    costs = {"tests/live/a.py::test_a[row]": Cost(1, 1)} if measured else {}
    assert plan(files("live_a"), costs, ["gate", "night"], 1) == []
    [lane] = plan(files("live_a"), costs, ["quiet"], 1)
    assert lane.files == ["tests/live/a.py"]


@pytest.mark.parametrize(
    "text",
    [
        "class TestA:\n    @pytest.mark.gate\n    def test_a(self): ...\n",
        "fast = pytest.mark.gate\n@fast\ndef test_a(): ...\n",
        "CASES = [pytest.param(1, marks=pytest.mark.gate)]\n@pytest.mark.parametrize('x', CASES)\ndef test_a(x): ...\n",
        "pytestmark: object = [pytest.mark.gate]\ndef test_a(): ...\n",
        "@pytest.mark.gate\ndef test_a(: ...\n",
    ],
    ids=["a method", "another name", "a case", "an annotation", "it cannot be read"],
)
def test_a_mark_that_only_pytest_understands_brings_its_file_into_the_gate(text: str) -> None:
    [lane] = plan({"tests/live/a.py": text}, rows(live_a=1), ["gate"], 1)
    assert lane.files == ["tests/live/a.py"]


def test_a_new_kind_of_tests_comes_last() -> None:
    [lane] = plan(files("unit_a", "soak_a") | {"tests/test_b.py": ONE}, {}, ["gate"], 1)
    assert lane.files == ["tests/unit/a.py", "tests/soak/a.py", "tests/test_b.py"]
