"""Checks that what producers sent is read from what brokers, or the frame relay, counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from squall.checkers.sent import (
    BROKERS,
    RELAY,
    RELAY_FILE,
    ObservedProduceRequests,
    ProduceRequestSettings,
    client_id_of,
    sent_in,
    sent_of,
)


def line(requests: int, in_flight: int = 1, client_id: str | None = "rdkafka", **fields: Any) -> dict[str, Any]:
    settings = {"client_id": client_id, "acks": -1, "idempotent": True, "transactional_id": None, "compression": "none"}
    counts = {"requests": requests, "in_flight": in_flight}
    return {"e": "produce_requests", "i": 1, **settings, **counts, **fields}


def settings(
    requests: int, in_flight: int = 1, client_id: str | None = "rdkafka", **fields: Any
) -> ProduceRequestSettings:
    whole = {"acks": -1, "idempotent": True, "transactional_id": None, "compression": "none", **fields}
    return ProduceRequestSettings(client_id, requests=requests, in_flight=in_flight, **whole)


def test_counts_of_nodes_and_incarnations_are_added_and_the_newest_of_each_holds() -> None:
    lines = [
        ("1", line(1)),
        ("1", line(17, 3)),
        ("1", line(4, 2, i=2)),
        ("2", line(100, 5)),
        ("2", line(2, acks=1, idempotent=False)),
        ("2", {"e": "became_leader", "requests": 9, "in_flight": 9}),
    ]
    found = sent_of(lines)
    assert found == ObservedProduceRequests((settings(121, 5), settings(2, acks=1, idempotent=False)), 0, BROKERS)


def test_what_was_not_told_apart_is_counted_and_squalls_own_writes_are_left_out() -> None:
    others = {"e": "produce_requests", "i": 1, "others": True, "requests": 40, "in_flight": 2}
    lines = [("1", others), ("1", line(5, client_id="squall-afterwards")), ("2", {**others, "requests": 2})]
    assert sent_of(lines) == ObservedProduceRequests((), 42, BROKERS)


def test_a_process_is_known_by_the_client_id_that_it_was_given() -> None:
    own, stranger = settings(3, client_id=client_id_of(7), acks=1), settings(9)
    found = ObservedProduceRequests((own, settings(4, client_id=client_id_of(8)), stranger), 0, BROKERS)
    assert found.of_process(7) == (own,)
    assert found.of_process(9) == (stranger,), "it may be any of those that name no process"
    assert found.of_processes([9, 7]) == (own, stranger)
    assert ObservedProduceRequests().of_process(7) == ()


def test_a_damaged_line_is_left_out() -> None:
    damaged = [line(1, acks="all"), line(1, client_id=5), {**line(1), "requests": "1"}, {**line(1), "idempotent": 1}]  # type: ignore[arg-type]
    assert sent_of(("1", each) for each in damaged) == ObservedProduceRequests()


def write(path: Path, *lines: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines) + '{"e":"produce_requests","requ')


def test_a_run_directory_is_asked_for_traces_first_and_then_for_what_the_relay_counted(tmp_path: Path) -> None:
    assert sent_in(tmp_path) == ObservedProduceRequests()
    write(tmp_path / RELAY_FILE, line(5, link="CLIENT->1"), line(7, link="CLIENT->2"), line(6, link="CLIENT->1"))
    assert sent_in(tmp_path) == ObservedProduceRequests((settings(13),), 0, RELAY)
    write(tmp_path / "nodes" / "1" / "trace.jsonl", {"e": "node_started"}, line(20))
    write(tmp_path / "nodes" / "2" / "trace.jsonl", line(1))
    assert sent_in(tmp_path) == ObservedProduceRequests((settings(21),), 0, BROKERS)
