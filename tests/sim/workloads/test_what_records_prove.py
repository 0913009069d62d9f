"""Brokers that change what clients do not look at every day, and the finding that names each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.log.log import Log
from broker.log.results import AppendResult
from broker.protocol.records import decode_records, encode_batch, read_header
from chaos.plans.plan import Plan, make_plan
from chaos.runs.simulation import SimResult, simulate

DAY_MS = 86_400_000
APPEND = Log.append_as_leader


def plan(name: str = "appends", seconds: float = 4, **load: Any) -> Plan:
    return make_plan({"seed": 1, "runtime": "sim", "time_s": seconds, "workload": {"name": name, "rate": 20, **load}})


def found(result: SimResult) -> set[str]:
    """The names of what clients saw."""
    assert result.trouble is None
    return {*result.anomalies}


def changed(change: Callable[[list[Any]], list[Any]]) -> Callable[..., AppendResult]:
    """A broker that appends other records than it was sent."""

    def append(self: Log, records: memoryview, *args: Any, **named: Any) -> AppendResult:
        header = read_header(records, 0)
        if named.get("client", True) and self.topic.startswith("appends"):
            batch = encode_batch(
                change(decode_records(records)),
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
            records = memoryview(bytearray(batch))
        return APPEND(self, records, *args, **named)

    return append


def early(records: list[Any]) -> list[Any]:
    return [record._replace(timestamp=record.timestamp - DAY_MS) for record in records]


def without_headers(records: list[Any]) -> list[Any]:
    return [record._replace(headers=()) for record in records]


def unchanged(records: list[Any]) -> list[Any]:
    return records


@pytest.mark.parametrize("harm", [early, without_headers])
def test_another_timestamp_or_a_header_that_is_lost_is_corrupt(
    monkeypatch: pytest.MonkeyPatch, harm: Callable[[list[Any]], list[Any]]
) -> None:
    monkeypatch.setattr(Log, "append_as_leader", changed(unchanged))
    assert simulate(plan()).verdict == "valid", "the harm is in the change alone"
    monkeypatch.setattr(Log, "append_as_leader", changed(harm))
    result = simulate(plan())
    assert (result.verdict, found(result)) == ("invalid", {"corrupt"})


def test_timestamps_of_a_topic_whose_leaders_set_them_are_not_held_against_its_senders() -> None:
    assert simulate(plan(topic_settings={"message.timestamp.type": "LogAppendTime"})).verdict == "valid"
