"""Replication and controller traffic apart: which requests are which, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from squall.broker.protocol.header import encode_request
from squall.broker.protocol.schema.fetch import FetchRequest, FetchTopic
from squall.broker.protocol.schema.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from squall.chaos.faults.acts.links import frames
from squall.chaos.faults.acts.traffic import frames_of
from squall.chaos.faults.framed import framed_links
from squall.chaos.faults.kind import ChoiceParameter
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.kinds.protocol import OF_GROUPS
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.plan import PlanError, make_plan
from squall.chaos.runtimes.contract import Cut, CutMode, FrameAct, StreamDirection
from squall.chaos.runtimes.layout import links, zone_names
from squall.chaos.runtimes.real.inquiry import probe_frames, traffic_frame
from squall.chaos.runtimes.wire.frames import (
    FETCH,
    METADATA_FETCH,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    TRAFFIC,
    BrokerTrafficKind,
)
from tests.unit.runtimes.test_conversation import Heard

LINKS = links((1, 2, 3), zone_names(1))
PARTITION = {"at_s": 2, "duration_s": 3, "action": "partition", "target": "leader:appends-0-0"}


def fetch(topic: str, topic_id: bytes, version: int) -> bytes:
    request = FetchRequest(topics=[FetchTopic(topic, topic_id)])
    return encode_request(FETCH, version, 1, "test", request.encode(version))


REPLICATED = [
    fetch("t", bytes(16), 12),
    fetch("", bytes(14) + b"\1\1", 18),
    traffic_frame(BrokerTrafficKind.REPLICATION)[0],
]
TO_CONTROLLERS = [
    fetch(METADATA_TOPIC, bytes(16), 12),
    fetch("", METADATA_TOPIC_ID, 18),
    traffic_frame(BrokerTrafficKind.CONTROLLER)[0],
]


@pytest.mark.parametrize("traffic", BrokerTrafficKind)
def test_a_cut_of_one_traffic_takes_its_requests_and_no_others(traffic: BrokerTrafficKind) -> None:
    heard = Heard(frames_of(Cut(CutMode.DROP), traffic))
    for frame in (*REPLICATED, *TO_CONTROLLERS, *probe_frames(0)):
        heard.asked(frame)
    left = TO_CONTROLLERS if traffic is BrokerTrafficKind.REPLICATION else REPLICATED
    assert heard.sent[StreamDirection.THERE] == b"".join((*left, *probe_frames(0)))


def test_a_refusal_resets_the_connection_and_lets_nothing_more_through() -> None:
    heard = Heard(frames_of(Cut(CutMode.REFUSE), BrokerTrafficKind.REPLICATION))
    heard.asked(TO_CONTROLLERS[0] + REPLICATED[0] + TO_CONTROLLERS[1])
    assert heard.sent[StreamDirection.THERE] == TO_CONTROLLERS[0]
    assert heard.resets == 1


def test_one_way_the_answers_are_cut() -> None:
    heard = Heard(frames_of(Cut(CutMode.DROP, StreamDirection.BACK), BrokerTrafficKind.CONTROLLER))
    heard.asked(TO_CONTROLLERS[0])
    assert heard.sent[StreamDirection.THERE] == TO_CONTROLLERS[0]
    heard.answered((4).to_bytes(4, "big") + (1).to_bytes(4, "big"))
    assert heard.sent[StreamDirection.BACK] == b""


@pytest.mark.parametrize(
    ("side", "apis"),
    [("both", {FETCH, METADATA_FETCH}), ("replication", {FETCH}), ("controller", {METADATA_FETCH})],
)
def test_a_protocol_fault_hits_the_fetches_of_one_traffic(side: str, apis: set[int]) -> None:
    found = frames(make_fault(0, 0, 2, "protocol", "node:1", {"api": "Fetch", "side": side}).params)
    assert {found.api, *found.also} == apis


def test_no_request_is_of_both() -> None:
    assert not set(TRAFFIC[BrokerTrafficKind.REPLICATION]) & set(TRAFFIC[BrokerTrafficKind.CONTROLLER])
    assert OffsetForLeaderEpochRequest.API_KEY in TRAFFIC[BrokerTrafficKind.REPLICATION]


def test_relays_stand_on_all_links_that_a_shape_may_choose_and_on_no_clients() -> None:
    one = make_fault(0, 0, 2, "partition", "link:1->2", {"side": "replication", "shape": "one-way", "manner": "drop"})
    assert [str(link) for link in framed_links([one], (1, 2, 3), LINKS)] == ["1->2", "2->1"]
    many = make_fault(0, 0, 2, "partition", "leader", {"side": "controller", "shape": "ring"})
    assert {str(link) for link in framed_links([many], (1, 2, 3), LINKS)} == {
        str(link) for link in LINKS if isinstance(link.source, int)
    }
    whole = make_fault(0, 0, 2, "partition", "leader", {})
    assert framed_links([whole], (1, 2, 3), LINKS) == ()


def plan(**params: Any) -> Any:
    more = {key: params.pop(key) for key in ("action", "target") if key in params}
    world = params.pop("world", {"runtime": "sim"})
    return make_plan({**world, "faults": [{**PARTITION, **more, "params": params}]})


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"side": "replication", "manner": "hold"}, "manner = 'hold' holds bytes"),
        ({"side": "followers"}, "one of peers, clients, both, replication, controller is allowed"),
        ({"side": "replication", "action": "bandwidth"}, "one of peers, clients, both is allowed"),
        ({"side": "controller", "target": "link:zone:1->2"}, "this link is of clients: leave it out"),
        ({"side": "controller", "action": "protocol", "api": "Produce"}, "is asked by clients: side = 'clients'"),
        ({"side": "replication", "action": "protocol", "api": "Vote"}, "leave out the side"),
        ({"side": "controller", "action": "protocol", "api": "WriteTxnMarkers"}, "leave out the side"),
        ({"side": "controller", "action": "protocol", "api": "EndTxn"}, "is asked by clients: side = 'clients'"),
        ({"side": "both", "action": "protocol", "api": "EndTxn"}, "the workload has no transactional producers"),
        ({"side": "both", "action": "protocol", "error": "NOT_COORDINATOR", "act": "error"}, "api is one of InitPr"),
        ({"side": "controller", "action": "protocol", "api": "JoinGroup"}, "is asked by clients: side = 'clients'"),
        ({"side": "both", "action": "protocol", "api": "Heartbeat"}, "the workload has no consumer group"),
        (
            {"side": "both", "action": "protocol", "api": "TxnOffsetCommit"},
            "the workload has no transactional producers",
        ),
        (
            {"side": "both", "action": "protocol", "error": "UNKNOWN_MEMBER_ID", "act": "error"},
            "is a group coordinator's: api is one of JoinGroup, SyncGroup",
        ),
        (
            {"side": "both", "action": "protocol", "api": "OffsetFetch", "act": "error"},
            "error = 'REQUEST_TIMED_OUT': OffsetFetch takes COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR",
        ),
        (
            {"side": "both", "action": "protocol", "api": "EndTxn", "error": "NOT_CONTROLLER", "act": "error"},
            "EndTxn takes REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR",
        ),
        (
            {"side": "both", "action": "protocol", "api": "WriteTxnMarkers", "error": "NOT_CONTROLLER", "act": "error"},
            "WriteTxnMarkers takes REQUEST_TIMED_OUT, NOT_LEADER_OR_FOLLOWER",
        ),
        (
            {"side": "replication", "world": {"runtime": "process", "target": "kafka"}},
            "only what Squall's own brokers ask each other is told apart: side = 'peers'",
        ),
    ],
)
def test_what_cannot_be_told_apart_is_refused_when_the_plan_is_read(params: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan(**params)
    assert said in str(refused.value)


def test_the_page_says_which_errors_members_may_be_told() -> None:
    page = (Path(__file__).parents[3] / "docs/faults.md").read_text()
    rows = [line.split("|")[1:3] for line in page.partition("| `api` | `error` |")[2].splitlines() if line[:3] == "| `"]
    told = {api: set(re.findall(r"`(\w+)`", errors)) for apis, errors in rows for api in re.findall(r"`(\w+)`", apis)}
    everywhere = {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"}
    for api, errors in OF_GROUPS.items():
        assert {*errors} == everywhere | told.get(api, set())


def test_the_registry_knows_who_tells_traffic_apart() -> None:
    sides = {name: kind.params["side"] for name, kind in KINDS.items() if "side" in kind.params}
    found = {name for name, side in sides.items() if isinstance(side, ChoiceParameter) and "controller" in side.values}
    assert found == {"partition", "protocol"}
    assert frames_of(Cut(CutMode.REFUSE), BrokerTrafficKind.CONTROLLER).act is FrameAct.RESET
