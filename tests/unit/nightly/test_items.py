"""From a matrix to runs: every combination once, and none that makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from squall.chaos.nightly.axes import ImpossibleCombination, cell_of, flags_of, plan_of, title
from squall.chaos.nightly.items import NightPlan, item_of, plan_night
from squall.chaos.nightly.matrix import make_matrix


def planned(*runs: dict[str, Any], seeds: int = 1, **rest: Any) -> NightPlan:
    return plan_night(make_matrix({"runs": list(runs), "seeds": seeds, **rest}), first_seed=7)


def test_every_combination_has_every_mix_and_every_seed() -> None:
    axes = {"runtime": "sim", "acks": ["all", "1"], "min-isr": [1, 2]}
    found = planned({"axes": axes, "faults": ["kill", "partition,latency"]}, seeds=3)
    assert len(found.items) == 2 * 2 * 2 * 3
    assert len({each.item for each in found.items}) == len(found.items)
    assert {each.seed for each in found.items} == {7, 8, 9}
    assert not found.excluded


def test_a_cell_holds_every_axis_of_its_workload_and_its_name_only_what_is_unusual() -> None:
    cell = cell_of({"acks": "1", "runtime": "sim"})
    assert (cell["min-isr"], cell["idempotence"], cell["flush"]) == ("2", "off", "os")
    assert title(cell) == "squall/sim appends acks=1"
    assert "generation" not in cell


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ({"acks": "1", "idempotence": "on"}, "idempotence needs acks=all (-1)"),
        ({"replication-factor": "1", "min-isr": "2"}, "min_isr 2 is above replication_factor 1"),
        ({"runtime": "sim", "target": "kafka"}, "the simulator runs Squall's own broker only"),
        ({"runtime": "docker", "target": "kafka"}, "there are images of Squall's own broker only"),
        ({"runtime": "sim", "client": "confluent"}, "the simulator runs our own client only"),
        ({"workload": "transactions", "acks": "1"}, "the workload transactions always has acks=all"),
        ({"workload": "transactions", "client": "confluent", "generation": "2"}, "speaks generation 1"),
        ({"runtime": "process", "mutant": "1"}, "a mutant is planted into Squall's own broker, in the simulator"),
        ({"workload": "command"}, "needs a program: the axis command"),
        ({"workload": "pipeline", "group-protocol": "mixed"}, "group_protocol"),
        ({"workload": "groups", "client": "aiokafka", "group-protocol": "consumer"}, "speaks the classic protocol"),
        ({"mutant": "18"}, "mutant 18 is a setting that is called safe"),
    ],
)
def test_what_makes_no_sense_is_excluded_with_the_reason(named: dict[str, str], why: str) -> None:
    with pytest.raises(ImpossibleCombination, match=r".*") as refused:
        cell_of(named)
    assert why in str(refused.value)
    found = planned({"axes": {name: [value] for name, value in named.items()}})
    assert not found.items
    assert why in found.excluded[0].why


def test_an_axis_that_means_nothing_to_a_workload_makes_no_second_run() -> None:
    found = planned({"axes": {"runtime": "sim", "workload": ["steady", "transactions"], "generation": [1, 2]}})
    names = [each.configuration for each in found.items]
    assert names == ["squall/sim steady", "squall/sim transactions generation=1", "squall/sim transactions"]


def test_exclusions_of_the_matrix_are_said_with_their_reason() -> None:
    where = {"where": {"acks": 1, "min-isr": 2}, "why": "acks=1 waits for nobody"}
    found = planned({"axes": {"runtime": "sim", "acks": ["all", "1"], "min-isr": [1, 2]}}, exclude=[where])
    assert len(found.items) == 3
    assert [each.why for each in found.excluded] == ["acks=1 waits for nobody"]


def test_a_fault_that_cannot_be_there_excludes_the_run() -> None:
    found = planned({"axes": {"nodes": 1, "replication-factor": 1}, "faults": ["partition", "kill"], "time_s": 20})
    assert [each.faults for each in found.items] == ["kill"]
    assert "partition" in found.excluded[0].what


def test_flags_say_what_is_unusual_and_nothing_else() -> None:
    cell = cell_of({"runtime": "sim", "acks": "1", "unclean": "on", "flush": "1", "mutant": "1"})
    assert flags_of(cell) == (
        *("--workload", "appends", "--acks", "1", "--topic-set", "unclean.leader.election.enable=true"),
        *("--topic-set", "flush.messages=1", "--mutant", "1"),
    )
    assert flags_of(cell_of({"target": "kafka"})) == ("--workload", "appends", "--target", "kafka")
    assert flags_of(cell_of({"runtime": "docker"})) == ("--workload", "appends", "--runtime", "docker")


def test_how_members_of_groups_agree_and_who_they_are_are_axes_of_their_workloads() -> None:
    axes = {"workload": ["groups", "steady"], "group-protocol": ["classic", "mixed"], "static-members": ["off", "on"]}
    found = planned({"axes": {"runtime": "sim", **axes}})
    names = [each.configuration.removeprefix("squall/sim ") for each in found.items]
    mixed = "groups group-protocol=mixed"
    assert sorted(names) == ["groups", mixed, f"{mixed} static-members=on", "groups static-members=on", "steady"]
    cell = cell_of({"workload": "groups", "group-protocol": "mixed", "static-members": "on"})
    assert flags_of(cell) == ("--workload", "groups", "--group-protocol", "mixed", "--static-members")
    assert plan_of(cell).workload.model_dump()["static_members"] is True


def test_an_id_is_a_word_for_names_of_files() -> None:
    program = "./my producer --fast; rm -r /"
    (item,) = planned({"axes": {"workload": "command", "command": program}, "faults": ["kill"], "time_s": 20}).items
    assert item.item == "squall-process.command.command-.-my.producer.fast.rm.r.kill.seed7"
    assert item.arguments[item.arguments.index("--command") + 1] == program


def test_an_item_is_read_again_from_what_is_written_of_it() -> None:
    item = planned({"axes": {"runtime": "sim"}, "rate": 9, "fault_count": 2, "faults": ["kill"], "time_s": 30}).items[0]
    assert item_of(item.as_json()) == item
    assert item.arguments[:3] == ("sim", "--seed", "7")
    assert item.arguments[7:11] == ("--rate", "9", "--fault-count", "2")
