"""Checks that the leader is known only if every broker's trace is whole: one that ends early excludes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from squall.checkers import leaderships
from squall.checkers.fault_traits import TAKES_DOWN
from squall.checkers.history.tables import ObservedPartition, RecordedFault
from squall.checkers.in_memory import judge_bytes
from tests.support.histories import kafka_lines
from tests.unit.checkers.test_signs import PLAN, Run, led, losses

PARTITION = ObservedPartition(0, "t", 0, "delete", -1, False)
Traces = dict[int, list[dict[str, Any]]]
UNTIL = 100
"""When the final reads end, ns."""


def line(event: str, ns: int, **more: Any) -> dict[str, Any]:
    return {"t": ns / 1e9, "i": 1, "e": event, **more}


def follows(ns: int, epoch: int, leader: int) -> dict[str, Any]:
    return line("became_follower", ns, topic="t", partition=0, epoch=epoch, leader=leader)


def traces() -> Traces:
    """Broker 1 leads, then broker 2, of which 1 and 3 hear. Each stops in the end, and hands over what it has."""
    begun = {node: [line("node_started", 0), line("node_ready", 5)] for node in (1, 2, 3)}
    of = {1: [led(1, 0, 0, 10), follows(52, 1, 2)], 2: [follows(11, 0, 1), led(2, 1, 7, 50)]}
    of[3] = [follows(12, 0, 1), follows(51, 1, 2)]
    return {node: [*begun[node], *of[node], line("node_stopped", 200)] for node in begun}


def unknown(told: Traces, *down: int) -> str:
    return leaderships.of_events(told, [PARTITION], UNTIL, (1, 2, 3), down).unknown


def test_traces_of_all_brokers_from_their_start_to_their_stop_are_whole() -> None:
    assert not unknown(traces())


@pytest.mark.parametrize("node", [1, 2, 3])
def test_each_broker_of_the_plan_has_a_trace(node: int) -> None:
    told = traces()
    del told[node]
    assert f"there is no trace or log of broker {node}" in unknown(told)
    assert f"there is no trace or log of broker {node}" in unknown({**told, node: []}, node)


def test_a_trace_without_its_begin_is_not_whole() -> None:
    told = traces()
    assert unknown({**told, 3: told[3][1:]}) == "the trace or log of broker 3 lacks its begin"


def test_a_trace_that_ends_before_the_final_reads_is_not_whole_unless_its_broker_was_down() -> None:
    told = traces()
    cut = {**told, 3: told[3][:-1]}
    assert unknown(cut) == "the trace or log of broker 3 ends before the final reads do"
    assert not unknown(cut, 3)
    assert not unknown({**told, 3: [*cut[3], line("node_stopped", 60)]})
    assert not unknown({**told, 3: [*cut[3], line("offsets", UNTIL)]}), "it goes on until then, whatever it tells"
    assert not leaderships.of_events(cut, [PARTITION], brokers=(1, 2, 3)).unknown, "there was no final read"


def test_a_leader_whom_others_name_says_so_itself() -> None:
    told = traces()
    untold = {**told, 2: [event for event in told[2] if event["e"] != "became_leader"]}
    assert unknown(untold) == "no trace or log has broker 2 begin to lead t-0 in epoch 1, as others do"
    of_controller = {**told, 3: [*told[3], line("leader_elected", 60, topic="t", partition=0, epoch=2, leader=1)]}
    assert "broker 1 begin to lead t-0 in epoch 2" in unknown(of_controller)
    deleted = ObservedPartition(0, "t", 0, "delete", -1, False, deleted=True)
    assert not leaderships.of_events(untold, [deleted], UNTIL, (1, 2, 3)).unknown


def test_a_leader_that_had_ended_or_was_starting_need_not_say_so() -> None:
    told = traces()
    began, heard, stopped = told[2][:2], told[2][2], told[2][-1]
    anew = [line("node_started", 55), follows(57, 2, 1), line("node_ready", 58), stopped]
    later = {1: [*told[1][:-1], led(1, 2, 7, 56), told[1][-1]], 3: told[3]}
    assert not unknown({**later, 2: [*began, heard, *anew]}), "it was killed as it began to lead"
    before = {**anew[0], "t": 45e-9}
    assert not unknown({**later, 2: [*began, heard, before, *anew[1:]]}), "it started, and heard of the newest epoch"
    ready = [before, anew[2], *anew[1:2], stopped]
    assert "broker 2 begin to lead t-0 in epoch 1" in unknown({**later, 2: [*began, heard, *ready]})
    ended = {**told, 2: [*began, heard]}
    assert not unknown(ended, 2), "it never came back"
    assert "broker 2 begin to lead t-0 in epoch 1" in unknown(ended)


@pytest.mark.parametrize(("heard", "whole"), [(59, False), (61, True)])
def test_a_leader_that_heard_late_of_a_short_epoch_passed_over_it(heard: int, whole: bool) -> None:
    """As one does that was cut off when it was elected: epoch 1 began at 50, epoch 2 at 55."""
    told = traces()
    told[1][3:4] = [follows(50, 1, 2), led(1, 2, 7, 55)]
    told[2][3] = follows(heard, 2, 1)
    assert (unknown(told) == "") is whole


def test_a_gap_between_epochs_is_none_in_what_is_known() -> None:
    """Brokers that hear of two epochs at once take up the second one."""
    told = traces()
    for node, event in ((1, led(1, 4, 7, 60)), (2, follows(61, 4, 1)), (3, follows(62, 4, 1))):
        told[node].insert(-1, event)
    assert not unknown(told)


def fault(began: int, ended: int, traits: tuple[str, ...] = (TAKES_DOWN,)) -> RecordedFault:
    return RecordedFault(0, "kill", "P", traits, "node:3", (3,), {}, 0, began, ended, None, "")


def test_who_was_down_is_told_by_faults_and_by_the_run() -> None:
    exits = {"node_exits": [{"node": 2}, {"node": 1}], "heal": {"started": [1], "failed": [4]}}
    assert leaderships.down_at(UNTIL, [], exits) == {2, 4}
    assert leaderships.down_at(UNTIL, [], {"heal": None}) == set()
    for began, ended, down in ((50, -1, {3}), (50, 101, {3}), (50, 99, set()), (-1, -1, set())):
        assert leaderships.down_at(UNTIL, [fault(began, ended)], {}) == down
    assert not leaderships.down_at(UNTIL, [fault(50, -1, ())], {})


# --------------------------------------------------------------------------------------------------- what comes of it


def whole(run: Run) -> dict[str, list[dict[str, Any]]]:
    """The run's events with starts and stops around them."""
    end = run.h.tick()
    began = {"t": 0.0, "i": 1, "e": "node_started"}
    return {node: [began, *events, line("node_stopped", end)] for node, events in run.events.items()}


def without_node_2(events: dict[str, list[dict[str, Any]]]) -> None:
    del events["2"]


def cut_short(events: dict[str, list[dict[str, Any]]]) -> None:
    for each in events.values():
        each.pop()


def without_later_leaders(events: dict[str, list[dict[str, Any]]]) -> None:
    events["2"] = [event for event in events["2"] if event["e"] != "became_leader"]


@pytest.mark.parametrize("spoil", [without_node_2, cut_short, without_later_leaders])
def test_a_loss_is_not_forbidden_where_a_trace_is_not_whole(
    spoil: Callable[[dict[str, list[dict[str, Any]]]], None], tmp_path: Path
) -> None:
    run = Run(missing=[5])
    plan, events = {**PLAN, "cluster": {"nodes": 3}}, whole(run)
    lines = b"".join(run.h.lines())
    assert losses(judge_bytes("r", lines, b"", plan, traces=events).verdict)[5] is False
    spoil(events)
    assert losses(judge_bytes("r", lines, b"", plan, traces=events).verdict)[5] is None
    for node, told in events.items():
        (tmp_path / "nodes" / node).mkdir(parents=True)
        text = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in told)
        (tmp_path / "nodes" / node / "trace.jsonl").write_text(text)
    history = run.h.history()
    read = leaderships.read(tmp_path, history.partitions, (0, 0), {}, history.finals, (1, 2, 3))
    assert "trace or log" in read.unknown


def test_the_last_line_of_a_trace_says_how_far_it_goes(tmp_path: Path) -> None:
    for node, told in traces().items():
        (tmp_path / "nodes" / str(node)).mkdir(parents=True)
        told[-1]["e"] = "offsets"
        text = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in told)
        (tmp_path / "nodes" / str(node) / "trace.jsonl").write_text(text)
    final = Run().h.history().finals[0]._replace(t1=UNTIL)
    read = leaderships.read(tmp_path, [PARTITION], (0, 0), {}, [final], (1, 2, 3))
    assert not read.unknown
    read = leaderships.read(tmp_path, [PARTITION], (0, 0), {}, [final._replace(t1=201)], (1, 2, 3))
    assert "broker 1 ends before the final reads do" in read.unknown


def test_logs_of_apache_kafka_are_whole_from_a_start_to_the_final_reads(tmp_path: Path) -> None:
    lines = {
        1: [kafka_lines.started(0), kafka_lines.ready(1, 1), kafka_lines.leads(2, 1, 0, 0, 0, "1,2")],
        2: [kafka_lines.started(0), kafka_lines.ready(1, 2), kafka_lines.follows(2, 2, 1, 0, 0, 0)],
    }
    partition, final = replace(PARTITION, topic="appends-0"), Run().h.history().finals[0]._replace(t1=9 * 10**9)

    def read() -> str:
        for node, said in lines.items():
            (tmp_path / "nodes" / str(node)).mkdir(parents=True, exist_ok=True)
            (tmp_path / "nodes" / str(node) / "broker.log").write_text("\n".join(said))
        return leaderships.read(tmp_path, [partition], (0, 0), {}, [final], (1, 2)).unknown

    assert read().startswith("the trace or log of broker 1 ends before the final reads do")
    for said in lines.values():
        said.append(kafka_lines.stamped(10, "Nothing to tell", "kafka.log.LogManager"))
    assert not read()
    lines[2].insert(3, kafka_lines.follows(5, 2, 1, 1, 0, 0))
    assert read() == "no trace or log has broker 1 begin to lead appends-0-0 in epoch 1, as others do"
    del lines[2][3], lines[1][0]
    assert read() == "the trace or log of broker 1 lacks its begin"


def test_each_of_two_topics_of_one_name_has_leaders_of_its_own() -> None:
    """A record of the second topic was held against a leader epoch of the first: epochs begin at 0 again."""
    gone = ObservedPartition(0, "t", 0, "delete", -1, False, deleted=True, deleted_t=40)
    told = {1: [led(1, 0, 0, 10), led(1, 1, 5, 20), led(1, 0, 0, 50)]}
    found = leaderships.of_events(told, [gone, replace(PARTITION, part=1)], UNTIL)
    assert [(each.part, each.epoch, each.since) for each in found.rows] == [(0, 0, 10), (0, 1, 20), (1, 0, 50)]
    assert (found.changed(0), found.changed(1)) == (True, False)
