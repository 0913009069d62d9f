"""Small simulated runs of the workload `pipeline`: how many outputs each input has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.workloads.pipeline import PipelineLoad
from squall.workloads.pipeline.steps import ABORT, HALT, LEAVE, PAUSE, SEND

LOAD = {
    "name": "pipeline", "rate": 4, "instances": 2, "partitions": 2, "poll_pause_ms": 200, "session_timeout_ms": 1500,
    "max_poll_interval_ms": 2000, "transaction_timeout_ms": 1500,
}  # fmt: skip


def told(
    steps: Sequence[list[Any]], folder: Path, faults: Sequence[dict[str, Any]] = (), **load: Any
) -> list[dict[str, Any]]:
    """Return the lines of the history of a run in which instances take these steps."""
    inputs = [[at_s + part / 10, 0, SEND, part, 200] for at_s in range(8) for part in range(2)]
    table = {**LOAD, **load}
    settings = {**PipelineLoad.BROKERS, **PipelineLoad.suited_brokers(table)}
    plan = make_plan({
        "seed": 5, "runtime": "sim", "time_s": 9, "faults": list(faults), "workload": table,
        "operations": sorted([*inputs, *steps]), "cluster": {"nodes": 3, "settings": settings},
    })  # fmt: skip
    result = simulate(plan)
    assert not result.violations, result.reasons
    directory = save(result, folder, "run")
    return [json.loads(line) for line in (directory.path / "history.jsonl").read_bytes().splitlines()]


def outputs(lines: Sequence[dict[str, Any]]) -> Counter[int]:
    """Return, for each input, how many outputs of it the last reader at read_committed got."""
    source = {line["v"]: line["src"] for line in lines if line["e"] == "i" and "src" in line}
    finals = [
        line["p"]
        for line in lines
        if line["e"] == "p" and line["role"] == "final" and line["settings"].get("isolation") == 1
    ]
    reads = {line["op"] for line in lines if line["e"] == "i" and line["f"] == "final_read" and line["p"] == finals[-1]}
    got = [got for line in lines if line["e"] == "c" and line["op"] in reads for got in line["got"]]
    return Counter(source[value] for each in got for _, value in each[5] if value in source)


def inputs(lines: Sequence[dict[str, Any]]) -> set[int]:
    into = {line["part"] for line in lines if line["e"] == "t" and line["topic"] == "pipeline-in-0"}
    return {line["v"] for line in lines if line["e"] == "i" and line["f"] == "send" and line["part"] in into}


@pytest.mark.gate
@pytest.mark.parametrize(
    ("do", "generation"),
    [("crash polled", 2), ("crash sent", 2), ("crash offsets", 1), ("crash ending", 1), ("crash ended", 2), (ABORT, 2)],
)
def test_each_input_is_seen_as_one_output_wherever_an_instance_stops(do: str, generation: int, tmp_path: Path) -> None:
    lines = told([[3.0, 0, do, 0 if do == ABORT else 500, 0]], tmp_path, generation=generation)
    assert outputs(lines) == Counter(inputs(lines))
    lost = [line["why"] for line in lines if line["e"] == "x" and line["kind"] == "lost"]
    assert lost[:1] == ([] if do == ABORT else ["crash"])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_instance_that_stands_still_in_a_transaction_is_fenced_by_its_generation_alone(
    protocol: str, tmp_path: Path
) -> None:
    lines = told([[3.0, 0, HALT, 3200, 0]], tmp_path, group_protocol=protocol, transaction_timeout_ms=9000)
    asked = {line["op"]: line for line in lines if line["e"] == "i" and line["f"] == "commit"}
    (refused,) = [line for line in lines if line["e"] == "c" and line["op"] in asked and line["st"] == 1]
    assert refused["err"] in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_MEMBER_EPOCH")
    who = asked[refused["op"]]["p"]
    stills = [line for line in lines if line["e"] == "x" and line["kind"] == "still"]
    assert [(line["p"], line["what"], line["ms"]) for line in stills] == [(who, HALT, 3200)]
    given = [line["p"] for line in lines if line["e"] == "x" and line["kind"] == "txn_init"]
    assert given.index(who) in (0, 1) and len(given) == 2, "nobody has taken over its transactional id"
    assert outputs(lines) == Counter(inputs(lines))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_instance_whose_offsets_take_too_long_leaves_its_group_as_one_that_does_not_poll(
    protocol: str, tmp_path: Path
) -> None:
    slow = {"api": "AddPartitionsToTxn", "act": "delay", "delay_ms": 2500, "count": 0, "side": "both"}
    faults = [{"at_s": 3, "duration_s": 3, "action": "protocol", "target": "all", "params": slow}]
    load = {"max_poll_interval_ms": 1000, "transaction_timeout_ms": 9000, "instances": 1, "generation": 2}
    lines = told([], tmp_path, faults, group_protocol=protocol, **load)
    left = [line for line in lines if line["e"] == "x" and line["kind"] == "left" and line["why"] == "poll interval"]
    assert left
    polls = {line["op"] for line in lines if line["e"] == "i" and line["f"] == "poll" and line["p"] == left[0]["p"]}
    polled = max(line["t"] for line in lines if line["e"] == "c" and line["op"] in polls and line["t"] < left[0]["t"])
    assert left[0]["t"] - polled < 1.4e9, "a heartbeat's time after its poll interval, at the latest"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_committed_in_the_transaction_of_their_outputs_and_nowhere_else(
    protocol: str, tmp_path: Path
) -> None:
    lines = told([[3.0, 1, LEAVE, 1000, 0], [5.0, 0, PAUSE, 2600, 0]], tmp_path, group_protocol=protocol)
    assert {each for line in lines if line["e"] == "p" and (each := line["settings"].get("group_protocol"))} == {
        protocol,
    }  # fmt: skip
    commits = [line for line in lines if line["e"] == "i" and line["f"] == "commit"]
    txns = {line["op"] for line in lines if line["e"] == "i" and line["f"] == "txn"}
    assert commits
    assert {line["x"] for line in commits} <= txns
    assert outputs(lines) == Counter(inputs(lines))
    ends = {part: max(got[1] for line in lines if line["e"] == "c" for got in line.get("got", ()) if got[0] == part)
            for part in range(2)}  # fmt: skip
    last = [line for line in lines if line["e"] == "c" and isinstance(line.get("off"), dict)][-1]
    assert {int(part): offset for part, offset in last["off"].items()} == ends
