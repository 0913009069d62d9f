"""Client zones as a target: what a plan may ask for, and whose links are hit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.chaos.faults.framed import framed_links
from squall.chaos.faults.kind import FaultError
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.shapes import links_of, partition_cuts
from squall.chaos.faults.targets import zone_of
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.plan import PlanError, make_plan, read_plan, with_schedule, write_plan
from squall.chaos.runtimes.layout import check_zones, links, zone_names

NODES = (1, 2, 3)
EVERY_LINK = links(NODES, zone_names(2))
OF_ZONE_2 = ["CLIENT2->1", "CLIENT2->2", "CLIENT2->3"]
OF_LINKS = [name for name, action in KINDS.items() if "side" in action.params]
DRAWN = ("kill", "partition", "latency", "reset")


def plan_values(zones: int, target: str, action: str = "partition", **params: Any) -> dict[str, Any]:
    fault = {"at_s": 3, "duration_s": 2, "action": action, "target": target, "params": params}
    return {"workload": {"zones": zones}, "faults": [fault]}


def test_zones_are_listeners_of_their_own_and_the_first_keeps_its_name() -> None:
    assert zone_names(1) == ("CLIENT",)
    assert zone_names(3) == ("CLIENT", "CLIENT2", "CLIENT3")
    check_zones(zone_names(9))


@pytest.mark.parametrize("action", OF_LINKS)
def test_every_fault_of_links_hits_a_zones_links_and_no_others(action: str) -> None:
    fault = make_fault(0, 0, 2, action, "zone:2", {})
    assert fault.params["side"] == "clients"
    assert [str(link) for link in links_of(fault.params, [zone_of(fault.target)], EVERY_LINK)] == OF_ZONE_2


@pytest.mark.parametrize(("shape", "manner"), [("isolate", "refuse"), ("isolate", "hold"), ("one-way", "drop")])
def test_a_zone_is_cut_off_from_every_broker(shape: str, manner: str) -> None:
    params = make_fault(0, 0, 2, "partition", "zone:2", {"shape": shape, "manner": manner}).params
    assert [str(link) for link, _ in partition_cuts(params, ["CLIENT2"], NODES, EVERY_LINK)] == OF_ZONE_2


@pytest.mark.parametrize(
    ("target", "expected"),
    [("zone:2", OF_ZONE_2), ("node:2", ["CLIENT->2", "CLIENT2->2"]), ("leader", None)],
)
def test_a_relay_stands_where_a_protocol_fault_may_be_put(target: str, expected: list[str] | None) -> None:
    fault = make_fault(0, 0, 2, "protocol", target, {"side": "clients"})
    found = [str(link) for link in framed_links([fault], NODES, EVERY_LINK)]
    assert found == (expected or [str(link) for link in EVERY_LINK if isinstance(link.source, str)])


def test_a_plan_with_zones_reads_back_equal_and_one_without_has_no_word_of_them(tmp_path: Path) -> None:
    plan = make_plan(plan_values(2, "zone:2", manner="hold"))
    path = tmp_path / "plan.toml"
    path.write_text(write_plan(plan))
    assert read_plan(path) == plan
    assert plan.workload.zones == 2
    assert "zone" not in write_plan(make_plan({}))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (plan_values(2, "zone:3"), r"fault 0 \(partition\): there is no zone 3: the workload has 2 zones"),
        (plan_values(1, "zone:2"), "there is no zone 2: the workload has 1 zone "),
        (plan_values(2, "zone:0"), "zones are counted from 1, as in zone:2"),
        (plan_values(2, "zone"), "zones are counted from 1, as in zone:2"),
        (plan_values(2, "zone:2", "kill"), "a zone has nothing but links"),
        (plan_values(2, "zone:2", "client"), "a zone has nothing but links"),
        (plan_values(2, "zone:2", side="peers"), "a zone's links are its clients': leave it out"),
        (plan_values(2, "zone:2", shape="ring"), "side = 'peers'"),
        (plan_values(2, "nobody"), "unknown target 'nobody': one of leader, .*, zone"),
        ({"workload": {"zones": 5}}, "zones 5: 4 producers and 3 readers leave one without clients"),
        ({"workload": {"zones": 0}}, "workload.zones"),
    ],
)
def test_a_plan_that_names_what_there_is_not_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        make_plan(values)


def test_somebody_elses_cluster_has_one_zone_which_can_be_hurt() -> None:
    there = {"runtime": "external", "target": "other", "bootstrap": "there:9092"}
    cluster = {"nodes": 3, "ids": [1, 2, 3], "settings": {}}
    with pytest.raises(PlanError, match="advertises one address of each broker: 1 zone"):
        make_plan({**there, "cluster": cluster, "workload": {"zones": 2}})
    assert (
        make_plan({**there, "cluster": cluster, **plan_values(1, "zone:1")}).timeline()[0].params["side"] == "clients"
    )


def test_a_side_that_a_fault_of_brokers_has_stays_as_it_was() -> None:
    assert make_fault(0, 0, 2, "partition", "node:1", {}).params["side"] == "peers"
    with pytest.raises(FaultError, match="side"):
        make_fault(0, 0, 2, "partition", "node:1", {"side": "zone"})


def test_a_seed_draws_zones_only_where_there_are_several() -> None:
    drawn = {zones: with_schedule({"seed": 5, "time_s": 600, "workload": {"zones": zones}}, DRAWN) for zones in (1, 2)}
    pairs = list(zip(drawn[1].timeline(), drawn[2].timeline(), strict=True))
    moved = [two for one, two in pairs if one != two]
    assert not any(zone_of(one.target) for one, _ in pairs)
    assert {two.target for two in moved} == {"zone:1", "zone:2"}
    assert len(moved) > len(pairs) / 6
    assert "kill" not in {two.action for two in moved}
    assert all((one.at_s, one.duration_s, one.action) == (two.at_s, two.duration_s, two.action) for one, two in pairs)
