"""An outage that remains after the last fault is found in every run, however early the load ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from squall.broker.apis.fetch import DelayedFetch, FetchApi
from squall.broker.log.log import Log
from squall.broker.log.results import AppendResult
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.hot import FetchResponsePartition
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.result import FailureSignature, SimResult
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.chaos.runtimes.sim.runtime import SimRuntime
from squall.checkers.history.parser import parse
from squall.checkers.history.values import AFTER_HEALING

pytestmark = pytest.mark.gate

TOPIC = "appends-0"
LIMITS = {"converge_s": 20, "final_read_s": 10, "stuck_s": 8}


def small(**load: Any) -> Plan:
    """Return a plan with eight records to two partitions on three brokers, one of which is killed; nothing is sent
    afterwards.
    """
    operations = [[-0.5 + number * 0.25, 0, TOPIC, number % 2, 100 + number] for number in range(8)]
    return make_plan(
        {
            "seed": 5,
            "runtime": "sim",
            "warmup_s": 0.5,
            "time_s": 4,
            "limits": LIMITS,
            "faults": [{"at_s": 1, "duration_s": 1.5, "action": "kill", "target": "leader:appends-0-0"}],
            "workload": {"topics": 1, "partitions": 2, "producers": 1, "readers": 1, **load},
            "operations": operations,
        }
    )


@pytest.fixture
def healed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that gets an element once the run has healed its cluster."""
    seen: list[bool] = []
    heal = SimRuntime.heal

    async def healing(self: SimRuntime) -> Any:
        done = await heal(self)
        seen.append(True)
        return done

    monkeypatch.setattr(SimRuntime, "heal", healing)
    return seen


def refuse_writes(monkeypatch: pytest.MonkeyPatch, healed: list[bool]) -> None:
    """Make brokers refuse writes to one partition after healing."""
    append = Log.append_as_leader

    def refusing(self: Log, *args: Any, **named: Any) -> AppendResult:
        if healed and (self.topic, self.partition) == (TOPIC, 1):
            return AppendResult.refused(ErrorCode.REQUEST_TIMED_OUT, "planted")
        return append(self, *args, **named)

    monkeypatch.setattr(Log, "append_as_leader", refusing)


def hang_fetches(monkeypatch: pytest.MonkeyPatch, healed: list[bool]) -> None:
    """Make brokers never answer a consumer's Fetch after healing; followers are answered."""
    handle = FetchApi.handle

    def hanging(self: FetchApi, *args: Any) -> None:
        if not healed:
            handle(self, *args)

    monkeypatch.setattr(FetchApi, "handle", hanging)


def starve(monkeypatch: pytest.MonkeyPatch, healed: list[bool], *, newcomers: bool) -> None:
    """Make brokers answer consumers without records after healing, as if the log ended at their position.

    With `newcomers` False this affects only connections that were opened before.
    """
    older: dict[Any, None] = {}
    satisfied, wake, read = FetchApi.satisfied, DelayedFetch.wake, FetchApi._read

    def starves(fetch: DelayedFetch) -> bool:
        if fetch.replica_id >= 0:
            return False
        if not healed:
            older[fetch.slot.conn] = None
        return bool(healed) and (newcomers or fetch.slot.conn in older)

    def of_some(self: FetchApi, fetch: DelayedFetch) -> bool:
        return not starves(fetch) and satisfied(self, fetch)

    def for_some(self: DelayedFetch) -> None:
        if not starves(self):
            wake(self)

    def to_some(self: FetchApi, fetch: DelayedFetch, want: Any, left: int, first: bool) -> FetchResponsePartition:
        if not starves(fetch):
            return read(self, fetch, want, left, first)
        end = want.part.offset
        nothing: Any = b""
        return FetchResponsePartition(want.part.index, 0, end, end, 0, None, -1, nothing, None, None, None)

    monkeypatch.setattr(FetchApi, "satisfied", of_some)
    monkeypatch.setattr(DelayedFetch, "wake", for_some)
    monkeypatch.setattr(FetchApi, "_read", to_some)


def info_of(result: SimResult) -> Mapping[str, Any]:
    info: Mapping[str, Any] = json.loads(result.files["run.json"])
    return info


def looked_for(verdict: Mapping[str, Any]) -> set[str]:
    (note,) = [each for each in verdict["notes"] if each.startswith("looked for: ")]
    return set(note.removeprefix("looked for: ").split(", "))


@pytest.mark.parametrize("load", [{}, {"acks": 1, "idempotence": False}, {"acks": 0, "idempotence": False}])
def test_a_sound_broker_acknowledges_a_write_to_every_partition_and_final_readers_find_it(
    load: dict[str, Any], tmp_path: Path
) -> None:
    result = simulate(small(**load))
    assert (result.verdict, result.failure) == ("valid", None), result.reasons
    written = info_of(result)["writes_after_healing"]
    assert (written["ok"], written["lacking"], written["limit_s"]) == (True, {}, 8)
    history = parse(result.files["history.jsonl"].splitlines(keepends=True))
    (writer,) = [each for each in history.processes if AFTER_HEALING in each.settings]
    assert (writer.role, writer.settings["acks"], writer.settings["idempotence"]) == ("producer", -1, True)
    values = {record.val for record in history.records.rows() if record.val >> 40 == writer.proc and record.final}
    assert len(values) == 2
    polled = info_of(result)["reads_after_healing"]
    assert (polled["ok"], polled["behind"], polled["readers"], polled["partitions"]) == (True, [], 1, 2)
    (reader,) = [each.proc for each in history.processes if each.role == "reader"]
    assert {record.val for record in history.records.rows() if record.proc == reader} >= values
    verdict = json.loads(save(result, tmp_path, "again").verdict.read_text())
    assert {"stuck-producer", "stuck-consumer"} <= looked_for(verdict)


def test_a_broker_that_refuses_writes_once_a_fault_has_ended_is_a_stuck_producer(
    monkeypatch: pytest.MonkeyPatch, healed: list[bool], tmp_path: Path
) -> None:
    refuse_writes(monkeypatch, healed)
    result = simulate(small())
    assert result.verdict == "invalid"
    assert result.failure == FailureSignature("liveness", "stuck-producer"), result.reasons
    assert result.anomalies == ("stuck-producer",)
    written = info_of(result)["writes_after_healing"]
    assert list(written["lacking"]) == ["appends-0-1"]
    assert "leader " in written["lacking"]["appends-0-1"]
    assert "ISR [" in written["lacking"]["appends-0-1"]
    verdict = json.loads(save(result, tmp_path, "again").verdict.read_text())
    (found,) = verdict["anomalies"]
    assert (found["name"], found["evidence"], found["count"]) == ("stuck-producer", "writes", 1)
    assert found["partitions"] == {"appends-0-1": 1}
    (words,) = [note for note in verdict["notes"] if note.startswith("appends-0-1 took no write within 8 s")]
    assert "ISR [" in words


def test_a_broker_whose_fetch_hangs_after_healing_is_a_stuck_consumer(
    monkeypatch: pytest.MonkeyPatch, healed: list[bool], tmp_path: Path
) -> None:
    hang_fetches(monkeypatch, healed)
    result = simulate(small())
    assert result.verdict == "invalid"
    assert result.failure == FailureSignature("liveness", "stuck-consumer"), result.reasons
    assert info_of(result)["writes_after_healing"]["ok"]
    verdict = json.loads(save(result, tmp_path, "again").verdict.read_text())
    # Each of the four final readers, both partitions: two readers in each isolation level. The workload's own reader
    # had asked before, and was answered with the writes.
    found = [(each["name"], each["evidence"], each["count"]) for each in verdict["anomalies"]]
    assert found == [("stuck-consumer", "final", 8)]
    assert any("got nothing for" in note for note in verdict["notes"])


@pytest.mark.parametrize("newcomers", [False, True])
def test_a_broker_that_answers_fetches_with_nothing_after_healing_is_a_stuck_consumer(
    newcomers: bool, monkeypatch: pytest.MonkeyPatch, healed: list[bool], tmp_path: Path
) -> None:
    starve(monkeypatch, healed, newcomers=newcomers)
    result = simulate(small())
    assert result.verdict == "invalid"
    assert "stuck-consumer" in result.anomalies, result.reasons
    polled = info_of(result)["reads_after_healing"]
    assert [(each["place"], each["client"]) for each in polled["behind"]] == [
        ("appends-0-0", "squall"),
        ("appends-0-1", "squall"),
    ]
    verdict = json.loads(save(result, tmp_path, "again").verdict.read_text())
    # Its answers say that there is nothing: no gap of the load shows it. Fresh readers may be served well.
    evidence = {each["evidence"] for each in verdict["anomalies"] if each["name"] == "stuck-consumer"}
    assert evidence == ({"live", "final"} if newcomers else {"live"})
    # What it says of its log's end is less than what ListOffsets answered before.
    assert {each["name"] for each in verdict["anomalies"]} <= {"stuck-consumer", "offset-regression"}
    words = [note for note in verdict["notes"] if note.startswith("reader ") and "got nothing for 8." in note]
    assert len(words) == 2
    assert all("leader " in each and "ISR [" in each for each in words)
