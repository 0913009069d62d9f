"""Each function here breaks a rule of leaders in a broker. A simulation must see the invariant of it broken."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import trio

from squall.broker.apis.offsets import OffsetApis
from squall.broker.controller.sessions import BrokerSessions
from squall.broker.log.manager import LogManager
from squall.broker.protocol.timestamps import LATEST
from squall.broker.replicas.isr_proposals import IsrProposals, _asked
from squall.broker.replicas.replica_manager import ReplicaManager
from squall.broker.replication.rules import PartitionRules
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import simulate
from squall.workloads.registry import SCENARIOS

pytestmark = pytest.mark.gate

PAUSES = [{"at_s": 2.0, "duration_s": 2.0, "action": "pause", "target": "follower"}]
ALTERED = [{"at_s": 2.0, "duration_s": 2.0, "action": "topics", "params": {"how": "segment", "value": 65536}}]
DELETED = [
    {"at_s": 2.0, "duration_s": 1.0, "action": "topics", "params": {"how": "delete_records"}},
    *({"at_s": 3.5 + node, "duration_s": 0.5, "action": "kill", "target": f"node:{node}"} for node in (1, 2, 3)),
]
ALONE = [{"at_s": 2.0, "duration_s": 10.0, "action": "kill", "target": f"node:{node}"} for node in (2, 3)]
"""Kills two of three nodes for longer than a broker waits for an answer of the controller."""
REPLACED = [{"at_s": 2.0, "duration_s": 2.0, "action": "pause", "target": "controller"}]
SEEDS = range(3)


def plan(seed: int, faults: list[dict[str, Any]]) -> Plan:
    load = {"name": "groups", "rate": 40, "partitions": 2, "churn": 30}
    cluster = {"settings": {**SCENARIOS["groups"].BROKERS, "replica.lag.time.max.ms": "1500"}}
    time_s = max([8.0, *(fault["at_s"] + fault["duration_s"] + 4 for fault in faults)])
    values = {"seed": seed, "runtime": "sim", "time_s": time_s, "workload": load, "faults": faults, "cluster": cluster}
    return make_plan(values)


def behind_at_all(rule: Callable[..., bool]) -> Callable[..., bool]:
    """Treat a follower as out of sync as soon as it lacks a record."""
    return lambda self, replica, now_ms: bool(replica.log_end_offset != self.log_end_offset)


def up_to_the_log_end(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Answer consumers' ListOffsets with the log end offset, even above the high watermark."""

    def list_one(self: OffsetApis, name: str, asked: Any, *more: Any) -> Any:
        part = rule(self, name, asked, *more)
        hosted = self._find(name, asked.partition_index)
        if hosted is not None and asked.timestamp == LATEST and not part.error_code:
            part.offset = hosted.state.log_end_offset
        return part

    return list_one


def sent_once(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A proposal is not sent again after a request that reached no controller."""

    async def run(self: IsrProposals) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            sent = dict(self._open)
            with suppress(OSError):
                self._take(await self._authority.alter_isr([_asked(*found) for found in sent.values()]), sent)

    return run


def dropped(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Forget all proposals when a request is sent, whatever becomes of it."""

    async def run(self: IsrProposals) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            sent, self._open = self._open, {}
            with suppress(OSError):
                answers = await self._authority.alter_isr([_asked(*found) for found in sent.values()])
                self._open = sent
                self._take(answers, sent.copy())

    return run


def a_quarter_of_it(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Treat followers as out of sync after a quarter of the lag time."""

    def settings_of(self: ReplicaManager, name: str) -> Any:
        log, settings = rule(self, name)
        return log, replace(settings, replica_lag_time_max_ms=settings.replica_lag_time_max_ms // 4)

    return settings_of


def ended_already(rule: Callable[..., None]) -> Callable[..., None]:
    """End the session of the previous controller as soon as the next one is elected."""

    def inherit(self: BrokerSessions, broker_id: int, heard_ms: int, now_ms: int, grace_ms: int) -> None:
        if broker_id in self.sessions:
            self.sessions[broker_id].contact_ms = now_ms - self.timeout_ms - 1

    return inherit


def heartbeats_missed(rule: Callable[..., None]) -> Callable[..., None]:
    """A heartbeat does not extend the session of a broker."""
    return lambda self, change, now_ms, offset: None


def sessions_never_end(rule: Callable[..., Any]) -> Callable[..., Any]:
    """No session expires."""
    return lambda self, image, now_ms: None


def settings_stay(rule: Callable[..., None]) -> Callable[..., None]:
    """Ignore settings that are altered at run time."""
    return lambda self, kind, name, now_ms: None


def no_checkpoint(rule: Callable[..., None]) -> Callable[..., None]:
    """Write no checkpoint of log start offsets."""
    return lambda self: None


BROKEN: list[tuple[str, Any, str, Callable[..., Any], list[dict[str, Any]]]] = [
    ("removed-after-the-lag-time", PartitionRules, "is_out_of_sync", behind_at_all, PAUSES),
    ("listed-offset-is-committed", OffsetApis, "_list_one", up_to_the_log_end, PAUSES),
    ("fenced-after-its-session", BrokerSessions, "apply", heartbeats_missed, PAUSES),
    ("fenced-after-its-session", BrokerSessions, "inherit", ended_already, REPLACED),
    ("silent-broker-is-fenced", BrokerSessions, "expired", sessions_never_end, ALONE[:1]),
    ("proposal-is-sent-again", IsrProposals, "run", sent_once, ALONE),
    ("proposal-is-sent-again", IsrProposals, "run", dropped, ALONE),
    ("log-start-is-kept", LogManager, "checkpoint_log_starts", no_checkpoint, DELETED),
    ("settings-in-force", ReplicaManager, "_settings_changed", settings_stay, ALTERED),
    ("settings-in-force", ReplicaManager, "_settings_of", a_quarter_of_it, []),
]


@pytest.mark.parametrize(("name", "owner", "attribute", "made", "faults"), BROKEN)
def test_what_breaks_leaders_is_seen_by_its_invariant(
    name: str, owner: Any, attribute: str, made: Any, faults: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, made(getattr(owner, attribute)))
    found: set[str] = set()
    for seed in SEEDS:
        found |= {each.name for each in simulate(plan(seed, faults), stop_at_first=False).violations}
        if name in found:
            return
    raise AssertionError(f"{name} was not broken, but {sorted(found)}")
