"""Brokers with one small bug each, in short simulations without faults: none of these runs may be valid.

Each bug once went unnoticed: its effect was not checked, or was measured but did not change the verdict.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from squall.broker.apis import produce
from squall.broker.apis.fetch import FetchApi
from squall.broker.apis.produce import ProduceApi
from squall.broker.coordinators.groups.classic import ClassicGroup
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.purgatory import ProduceResult
from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.figures import figures_of_history
from squall.chaos.runs.simulation import simulate
from squall.checkers.history.parser import parse
from squall.checkers.in_memory import judge_bytes
from squall.checkers.verdict import INVALID, UNKNOWN, VALID, Verdict

READ_COMMITTED = 1
APPENDS = {"name": "appends", "rate": 20, "partitions": 1, "topics": 1, "readers": 2}
SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}
GROUPS = {"name": "groups", "rate": 20, "partitions": 2, "members": 2}
Rule = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Harm:
    """A method of the broker, and its replacement with the bug.

    `anomaly` is the finding that must not be permitted. If it is empty, the verdict is unknown for the reason `says`.
    """

    owner: Any
    rule: str
    instead: Callable[[Rule], Rule]
    anomaly: str = ""
    says: str = ""
    load: dict[str, Any] = field(default_factory=dict)
    time_s: float = 6.0


def starved_at(isolation: int, limit: int) -> Callable[[Rule], Rule]:
    """Give readers at this isolation level no record from the offset `limit` on, and no error."""

    def harmed(sound: Rule) -> Rule:
        def read(self: Any, fetch: Any, want: Any, left: int, first: bool) -> Any:
            answer = sound(self, fetch, want, left, first)
            starved = fetch.replica_id < 0 and fetch.isolation == isolation and want.part.offset >= limit
            return answer._replace(records=b"") if starved else answer

        return read

    return harmed


def without_offsets(sound: Rule) -> Rule:
    """Acknowledge records without an offset."""

    def on_the_wire(result: ProduceResult) -> Any:
        index, error, _, *rest = sound(result)
        return (index, error, -1, *rest)

    return on_the_wire


def refusing(share: int) -> Callable[[Rule], Rule]:
    """Refuse `share` of every ten batches for good."""

    def harmed(sound: Rule) -> Rule:
        seen = 0

        def append(self: Any, h: Any, index: int, *rest: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen % 10 < share:
                return ProduceResult(index, int(ErrorCode.INVALID_RECORD), message="refused"), None
            return sound(self, h, index, *rest)

        return append

    return harmed


def closed_between(begin_ms: int, end_ms: int) -> Callable[[Rule], Rule]:
    """Refuse all batches between these times, counted from the first batch."""

    def harmed(sound: Rule) -> Rule:
        first: int | None = None

        def append(
            self: Any, h: Any, index: int, records: Any, version: int, acks: int, now_ms: int, *rest: Any
        ) -> Any:
            nonlocal first
            first = now_ms if first is None else first
            if begin_ms <= now_ms - first < end_ms:
                return ProduceResult(index, int(ErrorCode.NOT_ENOUGH_REPLICAS)), None
            return sound(self, h, index, records, version, acks, now_ms, *rest)

        return append

    return harmed


def up_to_the_log_end(sound: Rule) -> Rule:
    """Give readers uncommitted records, too."""

    def read_limit(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
        return self.log_end_offset if isolation == 0 else sound(self, isolation, first_unstable_offset)

    return read_limit


def nothing(sound: Rule) -> Rule:
    return sound


def no_commit(sound: Rule) -> Rule:
    """Commit no offset of a group."""

    def refusal(self: Any, request: Any) -> ErrorCode:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE

    return refusal


HARMS = {
    "readers at read_committed are starved": Harm(
        FetchApi, "_read", starved_at(READ_COMMITTED, 20), "stuck-consumer"
    ),
    "everything is deleted at once": Harm(
        FetchApi, "_read", nothing, says="no final read at",
        load={"topic_settings": {"retention.ms": "1", "segment.bytes": "16384", "segment.ms": "100"}},
    ),
    "acknowledgements name no offset": Harm(produce, "_on_the_wire", without_offsets, "wrong-offset"),
    "most batches are refused": Harm(ProduceApi, "_append", refusing(7), says="sends outside of faults were refused"),
    "no batch is taken for 20 s": Harm(
        ProduceApi, "_append", closed_between(4_000, 24_000), "stuck-producer", time_s=32.0
    ),
    "no commit of a position is taken": Harm(
        ClassicGroup, "refusal_of_commit", no_commit,
        says="commits of positions outside of faults were refused", load=GROUPS,
    ),
    "readers get what is not committed": Harm(PartitionRules, "read_limit", up_to_the_log_end, "lso-violation"),
}  # fmt: skip


def plan_of(harm: Harm) -> Plan:
    load = harm.load if "name" in harm.load else {**APPENDS, **harm.load}
    cluster = {"nodes": 3, "settings": SETTINGS}
    table = {"runtime": "sim", "seed": 4, "time_s": harm.time_s, "cluster": cluster, "workload": load, "faults": []}
    return make_plan(table)


def judged(plan: Plan) -> Verdict:
    """Judge the run by its history alone, without invariants, as a run on a real cluster is judged."""
    files = simulate(plan, stop_at_first=False).files
    history, told = files["history.jsonl"], json.loads(files["run.json"])
    own = figures_of_history(plan.workload, lambda: parse(history.splitlines(keepends=True)), [], [])
    table = tomllib.loads(files["plan.toml"].decode())
    return judge_bytes("r", history, files["nemesis.jsonl"], table, info=told, workload=own).verdict


@pytest.mark.parametrize("name", HARMS)
def test_no_harm_is_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harm = HARMS[name]
    monkeypatch.setattr(harm.owner, harm.rule, harm.instead(getattr(harm.owner, harm.rule)))
    verdict = judged(plan_of(harm))
    if harm.anomaly:
        forbidden = {each.name for each in verdict.anomalies if each.permitted is False}
        assert verdict.verdict == INVALID and harm.anomaly in forbidden, verdict.reasons
    else:
        assert verdict.verdict == UNKNOWN, verdict.reasons
        assert any(harm.says in each for each in verdict.reasons), verdict.reasons


@pytest.mark.parametrize("time_s", sorted({harm.time_s for harm in HARMS.values()}))
def test_without_a_harm_the_run_is_valid(time_s: float) -> None:
    verdict = judged(plan_of(Harm(FetchApi, "_read", nothing, time_s=time_s)))
    assert verdict.verdict == VALID, verdict.reasons
