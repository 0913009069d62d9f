"""Plans, schedules and targets: what is refused, and that a seed means the same everywhere."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from squall.chaos.faults.kind import FaultError
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.targets import ClusterSnapshot, UnresolvedTargetError, resolve
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.mistakes import beyond_limits
from squall.chaos.plans.plan import PlanError, make_plan, read_plan, with_schedule, write_plan
from squall.chaos.plans.schedule import make_schedule, parse_kinds
from squall.chaos.plans.swarm import swarm_plan
from squall.checkers.history.seal import plan_seal
from squall.workloads.registry import SCENARIOS

VIEW = ClusterSnapshot(
    nodes=(1, 2, 3),
    controller=2,
    leaders={"t-0": 1, "t-1": -1},
    isr={"t-0": (1, 2, 3), "t-1": ()},
    replicas={"t-0": (1, 2, 3), "t-1": (2, 3, 1)},
)


def test_a_written_plan_reads_back_equal(tmp_path: Path) -> None:
    for seed in range(20):
        plan = with_schedule({"seed": seed, "workload": {"topic_settings": {"flush.messages": "1"}}}, None)
        path = tmp_path / f"{seed}.toml"
        path.write_text(write_plan(plan))
        assert read_plan(path) == plan


@pytest.mark.parametrize("workload", SCENARIOS)
def test_a_history_of_a_plan_belongs_to_what_is_written_of_it(workload: str) -> None:
    """Whatever it has by default, and whatever it lacks: plans without faults, of swarms, with settings of topics."""
    drawn = [swarm_plan(seed, workload=workload) for seed in range(20)] if SCENARIOS[workload].SIMULATED else []
    values = {"workload": {"name": workload, "topic_settings": {"flush.messages": "1"}}}
    seals = []
    for plan in (make_plan({"workload": {"name": workload}}), make_plan({**values, "time_s": 7}), *drawn):
        written = tomllib.loads(write_plan(plan))
        seals.append(plan_seal(written))
        assert plan_seal(plan.model_dump(exclude={"operations"})) == seals[-1]
    assert len(set(seals)) == len(seals), "each plan is another one"


def test_one_seed_gives_one_schedule_and_another_seed_another() -> None:
    kinds = ("kill", "pause", "partition", "latency")
    assert make_schedule(7, kinds, 60) == make_schedule(7, kinds, 60)
    assert make_schedule(7, kinds, 60) != make_schedule(8, kinds, 60)


@pytest.mark.parametrize("seed", range(30))
def test_every_scheduled_fault_begins_after_quiet_and_ends_before_the_load_does(seed: int) -> None:
    faults = make_schedule(seed, tuple(KINDS), 40)
    assert faults
    assert all(f.at_s >= 2 and f.at_s + f.duration_s <= 37 for f in faults)
    assert all(a.at_s + a.duration_s < b.at_s for a, b in zip(faults, faults[1:], strict=False))


def test_a_drawn_reset_is_over_soon_enough_to_be_proven_while_it_lasts() -> None:
    drawn = [fault for seed in range(50) for fault in make_schedule(seed, ("reset_peer",), 60)]
    assert {fault.params["after_ms"] for fault in drawn} > {0}
    # Toxiproxy takes twice the time.
    assert all(2 * fault.params["after_ms"] / 1000 <= fault.duration_s / 2 for fault in drawn)


def test_what_is_drawn_for_an_only_broker_can_land_on_it() -> None:
    kinds = ("packet_loss", "reset", "leadership")
    for seed in range(20):
        alone, three = (
            with_schedule({"seed": seed, "runtime": "sim", "cluster": {"nodes": nodes}, "workload": load}, kinds)
            for nodes in (1, 3)
            for load in [{"replication_factor": 1, "min_isr": 1}]
        )
        assert all(f.params.get("side") != "peers" and f.params.get("how") != "move" for f in alone.timeline())
        assert len(alone.timeline()) == len(three.timeline())


def test_a_load_too_short_for_faults_is_refused() -> None:
    with pytest.raises(FaultError, match="leaves no room"):
        make_schedule(1, ("kill",), 3)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sed": 1}, "sed: there is no such setting"),
        ({"workload": {"acks": 2}}, "workload.acks"),
        ({"workload": {"acks": 1}}, "idempotence needs acks=all"),
        ({"workload": {"min_isr": 4}}, "min_isr 4 is above replication_factor 3"),
        ({"cluster": {"nodes": 1}}, "replication_factor 3 needs as many nodes"),
        ({"faults": [{"at_s": 1, "duration_s": 1, "action": "kil"}]}, "unknown action 'kil'"),
        ({"faults": [{"at_s": 1, "duration_s": 1, "action": "kill", "target": "node:9"}]}, "there is no node 9"),
        ({"faults": [{"at_s": 1, "duration_s": 1, "action": "kill", "target": "somebody"}]}, "unknown target"),
        ({"faults": [{"at_s": 99, "duration_s": 1, "action": "kill"}]}, "after the load"),
        ({"faults": [{"at_s": 1, "duration_s": 1, "action": "partition", "params": {"shape": "odd"}}]}, "shape"),
    ],
)
def test_an_impossible_plan_is_refused_with_what_is_wrong(values: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        make_plan(values)


def test_unknown_fault_kinds_are_named() -> None:
    with pytest.raises(FaultError, match="unknown fault 'earthquake'"):
        parse_kinds("kill,earthquake")


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(FaultError, match="unknown parameter 'speed'"):
        make_fault(0, 1, 1, "kill", "random", {"speed": 3})


def test_targets_resolve_to_whom_the_cluster_names() -> None:
    assert resolve("leader:t-0", VIEW, Random(1)) == (1,)
    assert resolve("controller", VIEW, Random(1)) == (2,)
    assert resolve("node:3", VIEW, Random(1)) == (3,)
    assert len(resolve("minority", VIEW, Random(1))) == 1
    assert len(resolve("majority", VIEW, Random(1))) == 2
    assert resolve("follower:t-0", VIEW, Random(1))[0] in (2, 3)
    assert {resolve("isr:t-0", VIEW, Random(seed)) for seed in range(20)} == {(1,), (2,), (3,)}
    alone = replace(VIEW, isr={"t-0": (1, 2), "t-1": (3,)})
    assert resolve("last_isr:t-1", alone, Random(1)) == resolve("last_isr", alone, Random(1)) == (3,)


def test_a_target_that_nobody_answers_to_is_unresolved() -> None:
    with pytest.raises(UnresolvedTargetError, match="has no leader"):
        resolve("leader:t-1", VIEW, Random(1))
    with pytest.raises(UnresolvedTargetError, match="no partition"):
        resolve("leader:x-9", VIEW, Random(1))
    with pytest.raises(UnresolvedTargetError, match="t-1 has nobody in sync"):
        resolve("isr:t-1", VIEW, Random(1))
    for target in ("last_isr:t-0", "last_isr:t-1", "last_isr"):
        with pytest.raises(UnresolvedTargetError, match="more replicas in sync than one, or none"):
            resolve(target, VIEW, Random(1))


def test_a_broker_that_takes_long_to_come_back_has_its_time_before_the_next_fault() -> None:
    kinds = ("kill", "pause")
    faults = make_schedule(7, kinds, 120, restart_s=8)
    gaps: dict[str, list[float]] = {kind: [] for kind in kinds}
    for fault, following in pairwise(faults):
        gaps[fault.action].append(following.at_s - fault.at_s - fault.duration_s)
    assert min(gaps["kill"]) >= 9.5
    assert max(gaps["pause"]) <= 3.5


def test_a_broker_is_emptied_or_filled_only_where_there_are_more_of_them_than_replicas() -> None:
    fault = {"at_s": 1, "duration_s": 2, "action": "leadership", "target": "node:1", "params": {"how": "drain"}}
    with pytest.raises(PlanError, match="more brokers than replicas are needed"):
        make_plan({"faults": [fault]})
    assert make_plan({"cluster": {"nodes": 4, "settings": {}}, "faults": [fault]}).timeline()


def test_libfaketime_is_for_containers_and_knows_no_rate() -> None:
    clock = {"at_s": 1, "duration_s": 2, "action": "clock", "target": "node:1"}
    faked = {**clock, "params": {"how": "faketime"}}
    assert make_plan({"runtime": "docker", "faults": [faked]}).timeline()
    for runtime in ("process", "sim"):
        with pytest.raises(PlanError, match="libfaketime is in brokers' images only"):
            make_plan({"runtime": runtime, "faults": [faked]})
    with pytest.raises(PlanError, match="rate = 2: libfaketime's begin with the broker"):
        make_plan({"runtime": "docker", "faults": [{**clock, "params": {"how": "faketime", "rate": 2}}]})


@pytest.mark.parametrize("target", ["leader:appends-0-7", "isr:nobody-0", "last_isr:appends-9-0"])
def test_a_partition_that_the_workload_does_not_have_is_no_target(target: str) -> None:
    with pytest.raises(PlanError, match="there is no partition .*: the workload has appends-0-0, "):
        make_plan({"faults": [{"at_s": 1, "duration_s": 2, "action": "kill", "target": target}]})
    make_plan({"faults": [{"at_s": 1, "duration_s": 2, "action": "kill", "target": "leader:appends-0-0"}]})


def test_the_same_mistake_of_several_faults_is_said_once() -> None:
    fine = {"at_s": 1, "duration_s": 1, "action": "kill"}
    nowhere = {**fine, "action": "power_loss"}
    with pytest.raises(PlanError) as refused:
        make_plan({"target": "kafka", "time_s": 20, "faults": [nowhere, fine, nowhere, {**nowhere, "at_s": 5}]})
    said = [line for line in str(refused.value).splitlines() if "only Squall's own broker" in line]
    assert [line.partition(" (power_loss): ")[0] for line in said] == ["faults 0, 2, 3"]


LOW_LIMIT = """seed = 7
runtime = "sim"
[workload]
name = "groups"
session_timeout_ms = 20000
[limits]
stuck_s = 15.0
"""


def test_a_low_limit_in_a_file_is_refused_with_its_line_and_what_helps(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(LOW_LIMIT)
    with pytest.raises(
        PlanError, match=r"mine\.toml: line 7: limits\.stuck_s: 15 s is below 24 s, .* \(--stuck-s 48\)"
    ):
        read_plan(file)


def test_the_plan_of_a_run_is_read_with_the_limits_that_the_run_had(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(LOW_LIMIT)
    with pytest.raises(PlanError, match="line 7"):
        read_plan(tmp_path / "plan.toml")
    (tmp_path / "run.json").write_text("{}")
    plan = read_plan(tmp_path / "plan.toml")
    assert plan.limits.stuck_s == 15 and beyond_limits(plan).startswith("limits.stuck_s: 15 s is below 24 s")
    assert make_plan(plan.model_dump(mode="json"), as_recorded=True) == plan
    with pytest.raises(PlanError, match="time_s"):
        (tmp_path / "plan.toml").write_text("time_s = 0\n" + LOW_LIMIT)
        read_plan(tmp_path / "plan.toml")


def test_readers_that_take_their_time_are_not_stuck_meanwhile() -> None:
    slow = make_plan({"workload": {"poll_pause_ms": 20_000}})
    assert slow.limits.stuck_s == 2 * (3 + 3 * 20)
    waiting = {"fetch_max_wait_ms": 16_000, "poll_pause_ms": 1_000, "request_timeout_ms": 15_000}
    assert make_plan({"workload": {**waiting, "fetch_min_bytes": 2}}).limits.stuck_s == 2 * (15 + 16 + 3)
    with pytest.raises(PlanError, match=r"fetch_max_wait_ms 16000 with .* above 15999: .* set that to 16000"):
        make_plan({"workload": {**waiting, "fetch_min_bytes": 2, "request_timeout_ms": 14_999}})
    waiting["request_timeout_ms"] = 3_000
    assert make_plan({"workload": waiting}).limits.stuck_s == 15
    assert make_plan({}).limits.stuck_s == 15


def test_producers_that_gather_for_long_are_not_stuck_meanwhile() -> None:
    assert make_plan({"workload": {"linger_ms": 16_000}}).limits.stuck_s == 2 * (3 + 16)
    with pytest.raises(PlanError, match=r"stuck_s: 15 s is below 19 s, .* pauses keep its clients waiting"):
        make_plan({"workload": {"linger_ms": 16_000}, "limits": {"stuck_s": 15}})


def test_limits_after_healing_follow_from_how_long_brokers_take_to_fail_over() -> None:
    settings = {"broker.session.timeout.ms": "60000", "controller.quorum.fetch.timeout.ms": "1000"}
    limits = make_plan({"cluster": {"settings": settings}}).limits
    assert (limits.stuck_s, limits.converge_s) == (122, 122)
    for name in ("stuck_s", "converge_s"):
        said = rf"limits\.{name}: 60 s is below 61 s, which broker\.session.* set it to 122"
        with pytest.raises(PlanError, match=said):
            make_plan({"cluster": {"settings": settings}, "limits": {name: 60}})
        make_plan({"cluster": {"settings": settings}, "limits": {name: 61}})
    assert make_plan({}).limits.converge_s == 30


MEMBERS = {"name": "groups", "session_timeout_ms": 3_000}


@pytest.mark.parametrize(
    ("workload", "setting", "kept", "broken"),
    [
        ({"name": "pipeline"}, "group.min.session.timeout.ms", 3000, 3001),
        (MEMBERS, "group.max.session.timeout.ms", 3000, 2999),
        ({**MEMBERS, "group_protocol": "consumer"}, "group.consumer.session.timeout.ms", 3000, 3001),
        (MEMBERS, "offset.metadata.max.bytes", 26, 25),
        ({"name": "transactions"}, "transaction.max.timeout.ms", 4000, 3999),
        ({"name": "steady"}, "message.max.bytes", 456, 455),
    ],
)
def test_bounds_of_brokers_that_the_clients_do_not_keep_are_refused(
    workload: dict[str, object], setting: str, kept: int, broken: int
) -> None:
    shortest = {"group.min.session.timeout.ms": "500", "group.consumer.min.session.timeout.ms": "500"}
    shortest |= {f"group.consumer.{which}heartbeat.interval.ms": "500" for which in ("min.", "")}

    def given(value: int) -> dict[str, object]:
        return {"workload": workload, "cluster": {"settings": {**shortest, setting: str(value)}}}

    plan = make_plan(given(kept))
    said = rf"workload {workload['name']}: {setting} is {broken}, .*{kept} .* so .*: set {setting} to at .* {kept}"
    with pytest.raises(PlanError, match=said):
        make_plan(given(broken))
    recorded = plan.model_dump(mode="json")
    recorded["cluster"]["settings"][setting] = str(broken)
    make_plan(recorded, as_recorded=True)


def test_members_that_take_their_time_over_polls_move_partitions_later() -> None:
    """A partition is given up, asked for and read in one poll after the other."""
    slow = make_plan({"workload": {"name": "groups", "poll_pause_ms": 3_000}})
    assert slow.limits.stuck_s == 2 * (3 + 4 + 3 * 3)
    with pytest.raises(PlanError, match=r"stuck_s: 15 s is below 16 s"):
        make_plan({"workload": {"name": "groups", "poll_pause_ms": 3_000}, "limits": {"stuck_s": 15}})


def test_members_that_are_thrown_out_after_each_poll_are_refused() -> None:
    for pause_ms in (3_001, 3_900, 10_000):
        with pytest.raises(PlanError, match=f"poll_pause_ms {pause_ms} is above 3000: .* max_poll_interval_ms 4000"):
            make_plan({"workload": {"name": "groups", "poll_pause_ms": pause_ms}})
    make_plan(
        {
            "workload": {
                "name": "groups",
                "poll_pause_ms": 9_000,
                "max_poll_interval_ms": 20_000,
                "session_timeout_ms": 9_000,
            }
        }
    )


@pytest.mark.parametrize("workload", [{"name": "pipeline"}, {"name": "command", "command": "true"}])
def test_the_reader_beside_other_workloads_may_take_its_time_as_well(workload: dict[str, str]) -> None:
    assert make_plan({"workload": {**workload, "poll_pause_ms": 30_000}}).limits.stuck_s >= 60


def test_all_mistakes_of_a_plan_are_said_at_once() -> None:
    fine = {"at_s": 1, "duration_s": 1, "action": "kill"}
    with pytest.raises(PlanError) as refused:
        make_plan(
            {
                "sed": 3,
                "time_s": 20,
                "warmup_s": -1,
                "cluster": {"settings": {"segment.bytes": "1", "no.such": "2", "num.partitions": "x"}},
                "workload": {"acks": 7, "min_isr": 4, "max_bytes": 64, "topic_settings": {"a.b": "c"}},
                "faults": [
                    {**fine, "action": "kil", "target": "leadr"},
                    {**fine, "at_s": 99, "target": "node:9"},
                    {**fine, "durations": 3},
                    {**fine, "duration_s": 1e9, "target": "node:x", "params": {"spped": 1}},
                    {**fine, "when": "isr == 1"},
                ],
            }
        )
    said = str(refused.value).splitlines()
    expected = (
        "sed: there is no such setting: did you mean 'seed'?",
        "warmup_s: it must be at least 0 (given: -1)",
        "workload.acks: ",
        "workload: min_isr 4 is above replication_factor 3",
        "workload: min_bytes 100 is above max_bytes 64",
        "fault 0: unknown action 'kil': did you mean 'kill'?",
        "fault 0 (kil): unknown target 'leadr': did you mean 'leader'?",
        "fault 1 begins at 99 s, after the load of 20 s",
        "faults.2.durations: there is no such setting: did you mean 'duration_s'?",
        "fault 3 (kill): duration_s = 1000000000.0",
        "fault 3 (kill): unknown parameter 'spped'",
        "fault 3 (kill): target 'node:x'",
    )
    for each in expected:
        assert any(line.startswith(each) for line in said), (each, said)
    assert len(said) == len(expected)


def test_what_is_wrong_around_faults_and_settings_is_said_at_once() -> None:
    fault = {"at_s": 1, "duration_s": 1, "action": "kill"}
    with pytest.raises(PlanError) as refused:
        make_plan(
            {
                "cluster": {"settings": {"segment.bytes": "1", "no.such": "2", "node.id": "7"}},
                "workload": {"topic_settings": {"a.b": "c", "segment.bytes": "one"}},
                "faults": [{**fault, "target": "node:9"}, {**fault, "target": "leader:nobody-0", "when": "isr == 1"}],
                "operations": [[0.1, 0, "appends-0", 0, 100], *([number, 9] for number in range(500))],
            }
        )
    said = str(refused.value).splitlines()
    for each in ("segment.bytes", "no.such", "node.id", "a.b", "no node 9", "no partition nobody-0", "isr needs a"):
        assert [line for line in said if each in line], (each, said)
    assert len([line for line in said if "operation" in line]) == 4
    assert "497 more of the 501 operations are wrong" in said


def test_a_run_directory_given_for_a_plan_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is a folder$"):
        read_plan(tmp_path)
    (tmp_path / "plan.toml").write_text("")
    with pytest.raises(PlanError, match="is a folder: did you mean .*/plan.toml"):
        read_plan(tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"faults": {"action": "kill"}}, "faults: each fault is a table of its own, and begins with [[faults]]"),
        ({"workload": 3}, "workload: it is a table, such as [workload] with name = 'appends' (given: 3)"),
        (
            {"cluster": {"settings": {"log.segment.bytes": 5}}},
            'log.segment.bytes: values of settings are strings: write "5"',
        ),
        (
            {"workload": {"topic_settings": {"a": True}}},
            'topic_settings.a: values of settings are strings: write "true"',
        ),
        ({"workload": {"acks": "al"}}, "workload.acks: it is all, 1 or 0 (given: 'al')"),
        ({"workload": {"topics": True}}, "workload.topics: it is a number (given: True)"),
    ],
)
def test_what_is_written_in_another_way_is_said_with_how_it_is_written(values: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError) as refused:
        make_plan(values)
    assert any(line.endswith(said) for line in str(refused.value).splitlines()), str(refused.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"seed": "x"}, "seed: a whole number is needed (given: 'x')"),
        ({"seed": 1.5}, "seed: a whole number is needed (given: 1.5)"),
        ({"seed": []}, "seed: a whole number is needed (given: [])"),
        ({"seed": -1}, "seed: it must be at least 0 (given: -1)"),
        ({"seed": 1 << 63}, "seed: it must be below 9223372036854775808 (given: 9223372036854775808)"),
        ({"time_s": "x"}, "time_s: a number is needed (given: 'x')"),
        ({"time_s": []}, "time_s: a number is needed (given: [])"),
        ({"time_s": 0}, "time_s: it must be above 0 (given: 0)"),
        ({"time_s": 1e6}, "time_s: it must be at most 86400 (given: 1000000.0)"),
        ({"bootstrap": 3}, "bootstrap: a text in quotes is needed (given: 3)"),
        ({"expect": "x"}, "expect: one of 'config', 'safe' or 'loss' is needed (given: 'x')"),
        ({"schema_version": 2}, "schema_version: 1 is needed (given: 2)"),
        ({"cluster": 3}, "cluster: a table is needed (given: 3)"),
        ({"cluster": {"ids": 3}}, "cluster.ids: a list is needed (given: 3)"),
        ({"cluster": {"settings": 3}}, "cluster.settings: a table is needed (given: 3)"),
        ({"workload": {"idempotence": "x"}}, "workload.idempotence: true or false is needed (given: 'x')"),
        ({"workload": {"idempotence": []}}, "workload.idempotence: true or false is needed (given: [])"),
        ({"faults": [{"at_s": 1, "action": "kill"}]}, "faults.0.duration_s: is missing"),
        ({"faults": [3]}, "faults.0: a table is needed (given: 3)"),
    ],
)
def test_a_value_that_cannot_be_read_is_said_in_plain_words(values: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError) as refused:
        make_plan(values)
    assert str(refused.value).splitlines() == [said]


def test_a_fault_that_lacks_something_is_told_what_else_is_wrong_with_it() -> None:
    with pytest.raises(PlanError) as refused:
        make_plan({"faults": [{"at_s": 1, "action": "kil", "target": "leadr"}, {"action": 3, "target": "leadr"}]})
    said = str(refused.value).splitlines()
    assert said[0] == "faults.0.duration_s: is missing"
    assert any(line.startswith("fault 0: unknown action 'kil': did you mean 'kill'?") for line in said)
    assert any(line.startswith("fault 0 (kil): unknown target 'leadr': did you mean 'leader'?") for line in said)
    assert "faults.1.action: a text in quotes is needed (given: 3)" in said


def test_acks_may_have_its_name() -> None:
    assert make_plan({"workload": {"acks": "all"}}) == make_plan({"workload": {"acks": -1}})


def test_a_file_that_is_no_text_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xd7\0\xff")
    with pytest.raises(PlanError, match="it is no text, and a plan is a TOML file$"):
        read_plan(tmp_path / "x.toml")


@pytest.mark.parametrize("name", ["stuck_s", "converge_s"])
def test_nan_is_said_to_be_no_number(name: str) -> None:
    with pytest.raises(PlanError, match=rf"limits\.{name}: nan is no number$"):
        make_plan({"limits": {name: float("nan")}})
    with pytest.raises(PlanError, match=rf"limits\.{name}: .*\(given: inf\)"):
        make_plan({"limits": {name: float("inf")}})


@pytest.mark.parametrize(
    ("load", "stuck_s"),
    [
        ({"name": "appends"}, 15),
        ({"name": "groups"}, 15),
        ({"name": "groups", "session_timeout_ms": 45_000, "max_poll_interval_ms": 20_000}, 130),
        ({"name": "semantics", "max_poll_interval_ms": 300_000}, 606),
        ({"name": "pipeline", "transaction_timeout_ms": 60_000}, 120),
    ],
)
def test_the_limit_for_progress_is_by_default_beyond_what_members_that_are_gone_may_hold(
    load: dict[str, object], stuck_s: float
) -> None:
    assert make_plan({"workload": load}).limits.stuck_s == stuck_s
    plan = make_plan({"workload": load, "limits": {"converge_s": 9}})
    assert (plan.limits.stuck_s, plan.limits.converge_s) == (stuck_s, 9)
    assert make_plan(plan.model_dump(mode="json")) == plan


def test_a_limit_for_progress_that_a_sound_group_breaks_is_refused() -> None:
    load = {"name": "groups", "session_timeout_ms": 20_000}
    with pytest.raises(
        PlanError, match=r"^limits\.stuck_s: 15 s is below 24 s, .*: set it to 48 \(--stuck-s 48\), or "
    ):
        make_plan({"workload": load, "limits": {"stuck_s": 15}})
    assert make_plan({"workload": load, "limits": {"stuck_s": 24}}).limits.stuck_s == 24
