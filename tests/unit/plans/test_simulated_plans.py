"""Plans for the simulator: loads as data, what only it can do, and the swarm's draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.faults.kind import SHAPES, SIDES
from squall.chaos.faults.kinds import KINDS
from squall.chaos.plans import swarm
from squall.chaos.plans.operations import concrete, drawn, with_warm_up_times
from squall.chaos.plans.plan import PlanError, make_plan, read_plan, with_schedule, write_plan
from squall.chaos.plans.swarm import NEWER, swarm_plan
from squall.chaos.runs.rare_paths import PATHS, count, impossible
from squall.workloads.agenda import PlannedRecord
from squall.workloads.registry import SCENARIOS

SIM = {"runtime": "sim"}
ONE = [1.5, 0, "appends-0", 2, 312]


def test_an_upgrade_needs_a_second_version_and_a_world_that_can_have_one() -> None:
    fault = {"at_s": 3, "duration_s": 9, "action": "upgrade"}
    with pytest.raises(PlanError, match=r"fault 0 \(upgrade\): to which version\? name it: --upgrade-to"):
        make_plan({"faults": [fault]})
    with pytest.raises(PlanError, match="use docker or process .in a simulation there is one version of the broker"):
        make_plan({**SIM, "faults": [fault], "upgrade_to": "elsewhere"})
    assert make_plan({"faults": [fault], "upgrade_to": "elsewhere"}).faults


def test_volumes_are_of_containers_and_out_of_reach_of_what_is_done_to_files() -> None:
    assert make_plan({"runtime": "docker", "cluster": {"volume_mib": 64}}).cluster.volume_mib == 64
    with pytest.raises(PlanError, match="cluster.volume_mib is of runtime = .docker."):
        make_plan({"cluster": {"volume_mib": 64}})
    faults = [{"at_s": 3, "duration_s": 1, "action": action} for action in ("power_loss", "kill", "disk")]
    with pytest.raises(PlanError, match="disk, power_loss need brokers' data in folders of this machine"):
        make_plan({"runtime": "docker", "cluster": {"volume_mib": 64}, "faults": faults})


@pytest.mark.parametrize("kinds", [None, ("upgrade",), ("kill", "upgrade")])
def test_an_upgrade_is_drawn_once(kinds: tuple[str, ...] | None) -> None:
    for seed in range(10):
        drawn = with_schedule({"seed": seed, "time_s": 120, "upgrade_to": "elsewhere"}, kinds).faults
        assert [fault.target for fault in drawn if fault.action == "upgrade"] == ["all"]


def test_a_plan_with_operations_reads_back_equal(tmp_path: Path) -> None:
    for number, operations in enumerate(([], [ONE], [[-1.25, 3, "appends-1", 0, 64], ONE])):
        plan = make_plan({**SIM, "operations": operations})
        path = tmp_path / f"{number}.toml"
        path.write_text(write_plan(plan))
        assert read_plan(path) == plan
        assert plan.operations is not None
        assert len(plan.operations) == len(operations)


def test_without_operations_there_is_no_word_of_them() -> None:
    assert "operations" not in write_plan(make_plan({}))


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ([99, 0, "appends-0", 0, 100], "operation 0: at 99 s"),
        ([-3, 0, "appends-0", 0, 100], "operation 0: at -3 s"),
        ([1, 4, "appends-0", 0, 100], "there is no producer 4"),
        ([1, 0, "appends-2", 0, 100], "there is no partition appends-2-0"),
        ([1, 0, "appends-0", 3, 100], "there is no partition appends-0-3"),
        ([1, 0, "appends-0", 0, 63], "63 bytes"),
    ],
)
def test_an_operation_that_the_workload_cannot_do_is_refused(operation: list[object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        make_plan({**SIM, "operations": [operation]})


@pytest.mark.parametrize("action", sorted(a for a in KINDS if "process" not in KINDS[a].worlds))
def test_what_processes_cannot_do_is_refused_there(action: str) -> None:
    faults = [{"at_s": 3, "duration_s": 1, "action": action}]
    assert make_plan({**SIM, "faults": faults}).faults
    with pytest.raises(PlanError, match=f"{action}.*not possible in runtime 'process': use .*sim"):
        make_plan({"faults": faults})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cluster": {"settings": {"no.such.setting": "1"}}}, "unknown setting no.such.setting"),
        ({"cluster": {"settings": {"node.id": "4"}}}, "node.id cannot be given"),
        ({"cluster": {"settings": {"log.segment.bytes": "x"}}}, "log.segment.bytes=x"),
        ({"workload": {"topic_settings": {"segment.byte": "1"}}}, "unknown topic setting segment.byte"),
        ({"runtime": "moon"}, "runtime"),
        (
            {**SIM, "faults": [{"at_s": 1, "duration_s": 1, "action": "protocol", "params": {"api": "Fetsch"}}]},
            "api = 'Fetsch'",
        ),
        (
            {
                **SIM,
                "faults": [
                    {"at_s": 1, "duration_s": 1, "action": "protocol", "params": {"act": "error", "stream": "back"}}
                ],
            },
            "act = 'error' is of requests",
        ),
    ],
)
def test_a_plan_that_names_what_does_not_exist_is_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        make_plan(values)


def test_a_drawn_load_has_the_workloads_rate_and_each_producer_its_own_stream() -> None:
    plan = make_plan({**SIM, "seed": 5, "workload": {"rate": 100, "producers": 2}})
    operations = drawn(plan)
    assert len(operations) == pytest.approx(3200, rel=0.01)
    assert operations == tuple(sorted(operations))
    assert all(-2 <= each.at_s < 30 and 100 <= each.bytes <= 2048 for each in operations)
    alone = drawn(make_plan({**SIM, "seed": 5, "workload": {"rate": 50, "producers": 1}}))
    assert alone == tuple(each for each in operations if each.producer == 0)


def test_a_plan_with_its_load_written_out_is_a_plan_and_stays_as_it_is(tmp_path: Path) -> None:
    plan = concrete(swarm_plan(3))
    assert concrete(plan) is plan
    path = tmp_path / "plan.toml"
    path.write_text(write_plan(plan))
    assert read_plan(path) == plan


def test_operations_count_as_faults_do_and_the_workload_begins_with_the_warm_up() -> None:
    plan = make_plan({**SIM, "operations": [PlannedRecord(-2, 0, "appends-0", 0, 5000), [0, 0, "appends-0", 0, 64]]})
    given = with_warm_up_times(plan)
    assert given is not None
    assert [each.at_s for each in given] == [0, 2]
    assert plan.workload.needs(given).max_record_bytes == 5000


def test_a_seed_is_one_plan_and_seeds_differ() -> None:
    assert swarm_plan(7) == swarm_plan(7)
    plans = [swarm_plan(seed) for seed in range(400)]
    assert {plan.cluster.nodes for plan in plans} == {1, 2, 3, 4, 5}
    assert {plan.cluster.voters for plan in plans} == {None, 1, 3, 4, 5}, "None: of scenes"
    assert {plan.workload.acks for plan in plans} == {-1, 0, 1}
    assert {fault.action for plan in plans for fault in plan.faults} == {
        kind.name for kind in (*swarm.KINDS, *NEWER, *swarm.BESIDE)
    } | {"bit_rot", "slow"}
    assert any(not plan.faults for plan in plans)
    assert all(plan.workload.rate <= 100 for plan in plans)
    assert {plan.time_s for plan in plans} == {26.0, 150.0}
    targets = {fault.target for plan in plans for fault in plan.faults}
    assert targets >= {"leader", "follower", "controller", "random", "minority", "majority", "all"}


def test_a_swarm_cuts_every_shape_and_side_waits_and_leaves_quiet_phases() -> None:
    faults = [fault for plan in map(swarm_plan, range(400)) for fault in plan.faults]
    cuts = [fault.params for fault in faults if fault.action == "partition"]
    assert {cut["shape"] for cut in cuts} == set(SHAPES)
    assert {cut["side"] for cut in cuts} == set(SIDES)
    assert any(fault.when for fault in faults)


def test_only_a_controller_that_another_can_follow_is_asked_to_resign() -> None:
    asked = [
        (plan.cluster.voters or 3, fault.target)
        for plan in map(swarm_plan, range(300))
        for fault in plan.faults
        if fault.params.get("how") == "resign"
    ]
    assert asked
    assert all(voters >= 3 and target == "controller" for voters, target in asked)


def test_clients_fetch_little_and_logs_have_small_segments_and_dense_indexes() -> None:
    of_appends = [swarm_plan(seed).workload.model_dump() for seed in range(100)]
    of_transactions = [swarm_plan(seed, workload="transactions").workload.model_dump() for seed in range(100)]
    for loads in (of_appends, of_transactions):
        assert {"fetch_max_bytes", "fetch_partition_max_bytes"} <= {name for load in loads for name in load}
        drawn = {name for load in loads for name in load["topic_settings"]}
        assert {"segment.bytes", "index.interval.bytes"} <= drawn


def test_some_seeds_have_small_windows_early_deletions_of_files_older_clients_and_every_codec() -> None:
    plans = [swarm_plan(seed) for seed in range(400)]
    assert {plan.cluster.window_kib for plan in plans} == {4, 16, 64, 512}
    delays = {plan.cluster.settings.get("log.segment.delete.delay.ms") for plan in plans}
    assert delays == {None, "0", "500", "3000"}
    loads = [plan.workload.model_dump() for plan in plans]
    assert {load.get("client_release", "newest") for load in loads} == {"newest", "0.11", "2.4", "2.8"}
    assert {load["codec"] for load in loads} == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_a_window_that_is_not_given_is_in_no_file_of_a_plan() -> None:
    assert "window_kib" not in write_plan(make_plan({}))
    assert "window_kib = 4" in write_plan(make_plan({**SIM, "cluster": {"window_kib": 4}}))


def test_older_clients_are_squalls_own_and_have_nothing_that_came_later() -> None:
    with pytest.raises(PlanError, match="client_release 2.8: client confluent has versions of its own"):
        make_plan({"workload": {"client": "confluent", "client_release": "2.8"}})
    with pytest.raises(PlanError, match="client_release 0.11 has no fetch sessions"):
        make_plan({**SIM, "workload": {"client_release": "0.11", "fetch_sessions": True}})
    with pytest.raises(PlanError, match="client_release 0.11 has no codec zstd"):
        make_plan({**SIM, "workload": {"client_release": "0.11", "codec": "zstd"}})


def test_a_plan_says_how_many_brokers_vote() -> None:
    assert make_plan({"cluster": {"nodes": 5, "voters": 5}}).cluster.voters == 5
    with pytest.raises(PlanError, match="cluster.voters 4 needs as many nodes; cluster.nodes is 3"):
        make_plan({"cluster": {"voters": 4}})


def test_rare_paths_are_counted_from_traces_and_from_the_world_and_none_is_left_out() -> None:
    trace = [
        {"e": "isr_changed", "isr": [2]},
        {"e": "isr_changed", "isr": [1, 2]},
        {"e": "truncated", "topic": "t", "from_offset": 9, "to_offset": 7},
        {"e": "truncated", "topic": "t", "from_offset": 9, "to_offset": 9},
        {"e": "controller_active", "epoch": 1},
        {"e": "controller_active", "epoch": 4},
        {"e": "node_ready"},
    ]
    counts = count(trace, {"dedup hit": 3, "something else": 1})
    assert counts["ISR shrunk to one"] == 1
    assert counts["log truncated"] == 1
    assert counts["controller failover"] == 1
    assert counts["dedup hit"] == 3
    assert counts["something else"] == 1
    assert set(PATHS) <= set(counts)
    assert counts["unclean election"] == 0


def test_paths_of_what_a_workload_has_not_are_impossible_and_all_others_are_not() -> None:
    loads = {name: impossible(scenario.model_validate({})) for name, scenario in SCENARIOS.items()}
    assert set.union(*map(set, loads.values())) <= set(PATHS)
    assert not frozenset.intersection(*loads.values()), "each path has a workload that can take it"
    assert loads["appends"] >= {"member fenced", "transaction timed out", "coordinator loaded"}
    assert loads["transactions"] >= {"look-up by time", "offsets expired", "bad records fetched"}
    assert not loads["transactions"] & {"coordinator loaded", "marker refused", "unclean election by request"}
    assert loads["pipeline"] >= {"group deleted", "group became a consumer group"}
    assert not loads["groups"] & {"group deleted", "group became a consumer group", "offsets expired"}


def test_a_plan_cannot_take_what_its_own_faults_do_not_ask_for() -> None:
    fault = {"at_s": 1, "duration_s": 1, "target": "all"}
    plan = make_plan({"faults": [{**fault, "action": "topics", "params": {"how": "partitions", "value": 1}}]})
    found = impossible(plan.workload, plan.faults)
    assert found >= {"topic made again", "bad records fetched", "look-up by time"}
    assert not found & {"partition added", "unclean election"}
