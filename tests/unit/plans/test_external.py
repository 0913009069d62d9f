"""Checks what may be planned for a cluster that is not ours, and which of its containers are its brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.chaos.errors import PreconditionError
from squall.chaos.plans.plan import PlanError, make_plan, read_plan, with_schedule, write_plan
from squall.chaos.toolchain.compose_file import FILES, FOLDER, NODE, ONE_OFF, SERVICE, brokers_of

THERE: dict[str, Any] = {
    "runtime": "external",
    "target": "other",
    "bootstrap": "h:1",
    "cluster": {"nodes": 3, "ids": [0, 7, 12], "settings": {}},
}


def refusal(*faults: dict[str, Any], **values: Any) -> str:
    planned = [{"at_s": 1, "duration_s": 2, **fault} for fault in faults]
    try:
        make_plan({**THERE, "faults": planned, **values})
    except PlanError as error:
        return str(error)
    return ""


def test_brokers_have_the_ids_that_were_found() -> None:
    assert make_plan(THERE).nodes == (0, 7, 12)
    assert refusal({"action": "leadership", "target": "node:12"}) == ""
    assert "there is no node 1" in refusal({"action": "leadership", "target": "node:1"})


def test_it_survives_being_written_and_read(tmp_path: Path) -> None:
    plan = make_plan(THERE)
    (tmp_path / "plan.toml").write_text(write_plan(plan))
    assert read_plan(tmp_path / "plan.toml") == plan


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"action": "kill"}, "--compose FILE"),
        ({"action": "partition"}, "side = 'clients'"),
        ({"action": "power_loss"}, "clients and administrators cannot do that"),
        ({"action": "clock"}, "clients and administrators cannot do that"),
        ({"action": "leadership", "params": {"how": "resign"}}, "only Squall's own broker"),
    ],
)
def test_what_is_out_of_reach_is_refused_with_the_reason(fault: dict[str, Any], why: str) -> None:
    assert why in refusal(fault)


def test_clients_links_and_leaders_are_within_reach_and_containers_with_their_file() -> None:
    assert refusal({"action": "latency", "params": {"side": "clients"}}, {"action": "leadership"}) == ""
    assert refusal({"action": "kill"}, {"action": "pause"}, compose="c.yaml") == ""


def test_connections_of_other_libraries_are_not_ours_to_cut() -> None:
    cut = {"action": "partition", "params": {"side": "clients"}}
    assert "only our own client" in refusal(cut, workload={"client": "confluent"})


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"bootstrap": ""}, "bootstrap servers"),
        ({"target": "squall"}, "nobody's to trust"),
        ({"cluster": {"nodes": 3, "ids": [1], "settings": {}}}, "cluster.ids"),
        ({"cluster": {"nodes": 3, "ids": [1, 2, 3], "settings": {"a": "b"}}}, "has its own"),
        ({"runtime": "process"}, 'are of runtime = "external"'),
    ],
)
def test_what_contradicts_being_external_is_refused(values: dict[str, Any], why: str) -> None:
    assert why in refusal(**values)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_seed_draws_is_within_reach(seed: int) -> None:
    for compose in ("", "c.yaml"):
        plan = with_schedule({**THERE, "seed": seed, "time_s": 60, "compose": compose}, None)
        assert plan.faults
        assert all(fault.params.get("how") in (None, "preferred", "move") for fault in plan.faults)


@pytest.mark.parametrize("seed", range(20))
def test_kafka_is_never_drawn_a_resignation(seed: int) -> None:
    plan = with_schedule({"target": "kafka", "seed": seed, "time_s": 60}, ("leadership",))
    assert plan.faults


def container(name: str, service: str = "", file: str = "", **labels: str) -> dict[str, Any]:
    return {"Id": f"id-{name}", "Names": [f"/{name}"], "Labels": {FILES: file, SERVICE: service, **labels}}


@pytest.fixture
def compose(tmp_path: Path) -> Path:
    """A compose file."""
    (tmp_path / "c.yaml").touch()
    return tmp_path / "c.yaml"


def test_brokers_are_found_by_label_or_by_the_number_of_their_service(compose: Path) -> None:
    listed = [
        container("p-kafka1-1", "kafka1", str(compose)),
        container("p-two-1", "two", str(compose), **{NODE: "2"}),
        container("p-toxiproxy-1", "toxiproxy", str(compose)),
        container("q-kafka1-1", "kafka1", "/another.yaml"),
    ]
    assert brokers_of(compose, listed, (1, 2)) == {1: "id-p-kafka1-1", 2: "id-p-two-1"}


def test_a_broker_that_is_no_container_or_two_is_refused_by_name(compose: Path) -> None:
    with pytest.raises(PreconditionError, match=r"no\.yaml: there is no such file"):
        brokers_of(compose.with_name("no.yaml"), [], (1,))
    with pytest.raises(PreconditionError, match="no container was made from"):
        brokers_of(compose, [], (1,))
    one = container("a", "kafka1", str(compose))
    with pytest.raises(PreconditionError, match=r"broker 3 is not one container .*found: none; there are a"):
        brokers_of(compose, [one], (1, 3))
    with pytest.raises(PreconditionError, match=r"found: a, b"):
        brokers_of(compose, [one, container("b", "k1", str(compose))], (1,))


@pytest.mark.parametrize("given", ["c.yaml", "./c.yaml", "sub/c.yaml", "../here/c.yaml"])
def test_compose_1_labels_containers_with_the_path_that_it_was_given(compose: Path, given: str) -> None:
    folder = str(compose.parent)
    theirs = container("a", "kafka1", given, **{FOLDER: folder})
    assert brokers_of(compose, [theirs], (1,)) == {1: "id-a"}
    both = container("a", "kafka1", f"{given},{Path(given).parent}/more.yaml", **{FOLDER: folder})
    (compose.parent / "more.yaml").touch()
    assert brokers_of(compose.parent / "more.yaml", [both], (1,)) == {1: "id-a"}
    with pytest.raises(PreconditionError, match="no container was made from"):
        brokers_of(compose, [container("a", "kafka1", given, **{FOLDER: "/elsewhere"})], (1,))


def test_what_is_run_beside_the_services_is_no_broker(compose: Path) -> None:
    listed = [container("a", "kafka1", str(compose)), container("b", "kafka1", str(compose), **{ONE_OFF: "True"})]
    assert brokers_of(compose, listed, (1,)) == {1: "id-a"}
