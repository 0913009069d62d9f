"""A matrix as data: what it may say, and what is said of one that is wrong."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from squall.chaos.nightly.budget import MIB, CostModel, forecast
from squall.chaos.nightly.items import plan_night
from squall.chaos.nightly.matrix import MatrixError, make_matrix, plain, read_matrix, seconds, varied, write_matrix
from squall.chaos.nightly.order import in_order
from squall.chaos.typed import PROGRAM
from squall.workloads.registry import SCENARIOS

WHOLE = """\
budget = "20m"
seeds = 3
unknown_share = 0.1

[faults]
processes = "kill,pause"

[[runs]]
name = "corners"
axes = { runtime = "sim", acks = ["all", 1], min-isr = [1, 2], unclean = false }
faults = ["processes", "partition"]
time_s = 20

[[exclude]]
where = { acks = 1, min-isr = 2 }
why = "acks=1 waits for nobody"

[[expect]]
where = { acks = "1" }
never = ["lost-write"]
"""


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text(WHOLE)
    matrix = read_matrix(file)
    assert (matrix.budget, matrix.seeds, matrix.faults) == (1200, 3, {"processes": ("kill", "pause")})
    again = tmp_path / "again.toml"
    again.write_text(write_matrix(matrix))
    assert read_matrix(again) == matrix


def test_an_axis_that_means_nothing_to_any_workload_of_its_parts_is_refused() -> None:
    """Its runs would be those of a matrix without it."""

    def runs(*axes: dict[str, object]) -> dict[str, object]:
        return {"runs": [{"axes": each} for each in axes]}

    with pytest.raises(MatrixError, match="axis static-members means nothing to the workload steady and transactions"):
        make_matrix(runs({"workload": ["steady", "transactions"], "static-members": "on"}))
    make_matrix(runs({"workload": ["steady", "groups"], "static-members": "on"}))
    make_matrix(runs({"static-members": "on"}, {"workload": "groups", "static-members": "off"}))
    make_matrix(runs({"workload": "transactions", "acks": "all"}))


def test_the_matrix_of_this_checkout_has_every_target_runtime_and_workload_and_fits_into_an_hour() -> None:
    matrix = read_matrix(PROGRAM.parent / "plans/nightly.toml")
    planned = plan_night(matrix, first_seed=1)
    assert not planned.excluded
    assert len({each.configuration for each in planned.items}) >= 8
    there = {axis: {each.cell[axis] for each in planned.items} for axis in ("target", "runtime", "workload")}
    assert there["target"] == {"squall", "kafka"}
    assert there["runtime"] == {"process", "docker", "sim"}
    assert there["workload"] == set(SCENARIOS)
    told = forecast(in_order(planned.items, {}), CostModel(), matrix.budget, matrix.keep_mib * MIB, slots=1)
    assert not told.left_out
    assert (len(told.plays) >= 40, told.seconds <= 3600) == (True, True)


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("acks = [", "axes.acks: 'two' is not possible: one of all, 1, 0", "line 10"),
        ("min-isr", "there is no such axis: did you mean 'min-isr'?", "line 10"),
        ('"partition"', "'partitoin' is neither a mix of this matrix (processes) nor a list of kinds", "line 11"),
        ("time_s = 20", "there is no such setting: did you mean 'time_s'?", "line 12"),
        ('"lost-write"', "there is no anomaly 'lost-writes': did you mean 'lost-write'?", "line 20"),
        ('"20m"', "'soon' is no time: write it as 90s, 20m or 1h", "line 1"),
        ('"kill,pause"', "unknown fault 'kil'", "line 6"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(wrong: str, right: str, said: str, tmp_path: Path) -> None:
    broken = {
        "acks = [": 'acks = ["two", ',
        "min-isr": "mni-isr",
        '"partition"': '"partitoin"',
        "time_s = 20": "tmie_s = 20",
        '"lost-write"': '"lost-writes"',
        '"20m"': '"soon"',
        '"kill,pause"': '"kil,pause"',
    }
    file = tmp_path / "matrix.toml"
    file.write_text(WHOLE.replace(wrong, broken[wrong]))
    with pytest.raises(MatrixError) as refused:
        read_matrix(file)
    lines = str(refused.value).splitlines()
    assert any(line.startswith(f"{file}: {said}: ") and right in line for line in lines), lines


def test_mistakes_are_said_in_the_order_of_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text('budget = "5"\n[[runs]]\naxes = { ack = 1 }\ntime_s = "x"\n[[expect]]\nnever = ["unsen"]\n')
    with pytest.raises(MatrixError) as refused:
        read_matrix(file)
    lines = [line.removeprefix(f"{file}: line ")[0] for line in str(refused.value).splitlines()]
    assert lines == ["1", "3", "4", "6"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"runs": []}, ["runs: names none, and needs one"]),
        ({"runs": [{"axes": {"min-isr": [1.5]}}]}, ["runs.0.axes.min-isr: 1.5 is neither a word nor a number"]),
        ({"runs": [{}], "expect": [{"never": []}]}, ["expect.0.never: names none, and needs one"]),
    ],
)
def test_what_is_wrong_is_said_once_and_in_words_of_people(broken: dict[str, object], said: list[str]) -> None:
    with pytest.raises(MatrixError) as refused:
        make_matrix(broken)
    assert str(refused.value).splitlines() == said


def test_times_are_read_as_people_write_them() -> None:
    assert [seconds(each) for each in (90, "90s", "20m", "1.5h")] == [90, 90, 1200, 5400]


def test_axes_of_the_command_line_replace_those_of_every_part() -> None:
    matrix = make_matrix({"runs": [{"axes": {"acks": ["all", "1"]}}, {"axes": {"codec": "lz4"}}]})
    changed = varied(matrix, {"acks": ("0",)})
    assert [each.values() for each in changed.runs] == [{"acks": ("0",)}, {"codec": ("lz4",), "acks": ("0",)}]


def test_mistakes_of_types_and_mistakes_of_meaning_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text("""\
seeds = "many"
budgt = "20m"

[faults]
processes = "kil,pause"

[[runs]]
axes = { akcs = "1", min-isr = [0, 1.5], codec = "zip" }
faults = ["processes", "lniks"]
clients = ["librdkafka"]
time_s = -1

[[exclude]]
where = { acks = 2 }

[[expect]]
where = { target = "ours" }
never = ["lost-writes"]
""")
    with pytest.raises(MatrixError) as wrong:
        read_matrix(file)
    told = str(wrong.value).splitlines()
    in_runs = ("axes.akcs", "axes.min-isr: 0", "axes.codec", "faults: 'lniks'", "clients", "time_s")
    elsewhere = ("seeds", "budgt", "faults.processes", "exclude.0.why", "exclude.0.where.acks", "expect.0.never")
    for place in (*elsewhere, *(f"runs.0.{each}" for each in in_runs)):
        assert sum(place in line for line in told) == 1, (place, told)
    assert sum("runs.0.axes.min-isr" in line for line in told) == 2, "1.5 is no whole number"
    assert len(told) == 13, told


@pytest.mark.parametrize("values", [{"runs": 1}, {"runs": [1], "faults": 3}, {"exclude": [{"where": [1]}]}])
def test_what_is_no_matrix_at_all_is_told_in_lines(values: dict[str, object]) -> None:
    with pytest.raises(MatrixError):
        make_matrix(values)


def test_a_matrix_is_in_its_file_what_it_is_in_json(tmp_path: Path) -> None:
    matrix = read_matrix(PROGRAM.parent / "plans/nightly.toml")
    assert tomllib.loads(write_matrix(matrix)) == json.loads(json.dumps(plain(matrix)))
    assert make_matrix(json.loads(json.dumps(plain(matrix)))) == matrix
