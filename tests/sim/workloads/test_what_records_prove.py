"""Brokers with errors that clients do not notice in everyday use, and the anomaly that shows each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from squall.broker.apis import committed_offsets
from squall.broker.coordinators.groups.values import OffsetAndMetadata
from squall.broker.log.config import LONG_MAX
from squall.broker.log.log import Log
from squall.broker.log.lookups import TimestampAndOffset, TimestampLookup
from squall.broker.log.results import AppendResult
from squall.broker.protocol.records import decode_records, encode_batch, read_header
from squall.chaos.mutants.group_plans import GROUPS_LOAD, LEAVE, PIPELINE_LOAD, act, group_plan
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import SimResult, simulate
from squall.checkers.history.parser import parse

DAY_MS = 86_400_000
APPEND, LOOK_UP, TELL = Log.append_as_leader, Log.offset_for_timestamp, committed_offsets._or_no_commit


def plan(name: str = "appends", seconds: float = 4, **load: Any) -> Plan:
    return make_plan({"seed": 1, "runtime": "sim", "time_s": seconds, "workload": {"name": name, "rate": 20, **load}})


def found(result: SimResult) -> set[str]:
    """Return the names of the anomalies that clients saw."""
    assert result.trouble is None
    return {*result.anomalies}


def changed(change: Callable[[list[Any]], list[Any]]) -> Callable[..., AppendResult]:
    """Return an append of the log that changes the records before it writes them."""

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


def the_end(self: Log, timestamp: int | None, limit: int) -> TimestampLookup:
    """Replace the look-up by time: every answer is the last offset that may be read."""
    lookup = LOOK_UP(self, timestamp, limit)
    lookup.found = TimestampAndOffset(timestamp or 0, limit, self.epochs.latest or 0)
    return lookup


def nothing(self: Log, timestamp: int | None, limit: int) -> TimestampLookup:
    """Replace the look-up by time: no record is ever late enough."""
    return LOOK_UP(self, LONG_MAX, limit)


@pytest.mark.parametrize("harm", [the_end, nothing])
def test_a_look_up_by_time_that_passes_over_what_its_reader_had_got_is_wrong(
    monkeypatch: pytest.MonkeyPatch, harm: Callable[..., TimestampLookup]
) -> None:
    monkeypatch.setattr(Log, "offset_for_timestamp", harm)
    result = simulate(plan(lookups=True))
    assert (result.verdict, found(result)) == ("invalid", {"wrong-lookup"})


def test_look_ups_of_a_sound_broker_find_nothing_while_its_leaders_change() -> None:
    kill = {"at_s": 3, "duration_s": 2, "action": "kill", "target": "leader"}
    load = {"name": "appends", "rate": 20, "lookups": True}
    result = simulate(make_plan({"seed": 1, "runtime": "sim", "time_s": 10, "workload": load, "faults": [kill]}))
    assert result.verdict == "valid", result.reasons
    looked = parse(result.run_files()["history.jsonl"].splitlines(keepends=True)).lookups
    assert len(looked) > 10, "they looked up records that they had got"


def without_metadata(committed: OffsetAndMetadata | None) -> OffsetAndMetadata:
    """Replace the coordinator's answer: committed offsets lose their metadata."""
    return replace(TELL(committed), metadata="")


@pytest.mark.parametrize(("load", "does"), [(GROUPS_LOAD, LEAVE), (PIPELINE_LOAD, "crash ended")])
def test_metadata_of_a_commit_that_is_gone_is_a_lost_position(
    monkeypatch: pytest.MonkeyPatch, load: Mapping[str, Any], does: str
) -> None:
    grouped = group_plan(1, [], [act(2.0, 0, does, 0.3)], time_s=6, load=load)
    assert not found(simulate(grouped))
    monkeypatch.setattr(committed_offsets, "_or_no_commit", without_metadata)
    result = simulate(grouped)
    assert (result.verdict, found(result)) == ("invalid", {"lost-position"})
