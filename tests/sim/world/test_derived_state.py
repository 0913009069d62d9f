"""Bugs planted in the code that derives state from other state (indexes, caches, images): a simulation sees each at
once.

Each bug replaces a method of the broker. The same plan without it breaks nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest

from squall.broker.cluster import replay
from squall.broker.cluster.names import METADATA_TOPIC
from squall.broker.control.kraft.quorum_storage import QuorumStorage
from squall.broker.controller.elections import _PlannedPartition
from squall.broker.log import recovery
from squall.broker.log.durability import FlushJob
from squall.broker.log.indexes import OffsetIndex, TimeIndex
from squall.broker.log.segment import Segment
from squall.broker.protocol.schema import metadata_records as records
from squall.broker.quorum.leadership import LeaderState
from squall.broker.replication import Partition
from squall.chaos.mutants.hunt_plans import Values, draw, fault, hunt_plan, killings
from squall.chaos.plans.plan import Plan
from squall.chaos.runs.simulation import simulate


class Mistake(NamedTuple):
    """A planted bug, the plan that shows it, and the names of the invariants that see it, separated by blanks."""

    invariants: str
    plan: Callable[[], Plan]
    owner: Any
    """The class, module or dict whose attribute is replaced."""
    name: Any
    by: Callable[[Any], Callable[..., Any]]
    """Makes the replacement from the original."""


def failover(*more: Values, **plan: Any) -> Plan:
    """Return a plan in which two brokers die one after the other under load."""
    return hunt_plan(1, [*killings(draw(1, "derived"), rounds=2), *more], **plan)


def leaves_fencing_out(rule: Callable[..., Any]) -> Callable[..., Any]:
    def change(image: Any, record: Any) -> None:
        rule(image, record.replace(fenced=0))

    return change


def believes_too_much(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Let a leader believe that a follower that fetches has its whole log."""

    def follower_fetched(self: Any, replica_id: int, fetch_offset: int, *rest: Any) -> Any:
        return rule(self, replica_id, self.log_end_offset, *rest)

    return follower_fetched


def believes_voters_too_much(rule: Callable[..., Any]) -> Callable[..., Any]:
    def heard(self: Any, message: Any, fetch: Any, log: Any, *rest: Any) -> Any:
        reply = rule(self, message, fetch, log, *rest)
        if reply is None and message.sender in self.voters:
            self.voters[message.sender].end_offset = log.end_offset
        return reply

    return heard


def syncs_nothing(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: None


def takes_even_epochs_only(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda header: rule(header) and not header.leader_epoch % 2


def writes_the_offset_before(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, last_offset, position: rule(self, last_offset - 1, position)


def indexes_the_time_after(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, timestamp, relative: rule(self, timestamp + 1, relative)


def adds_every_other(rule: Callable[..., Any]) -> Callable[..., Any]:
    def add(self: Any, value: int, other: int) -> None:
        if (value + other) % 2:
            rule(self, value, other)

    return add


def of_metadata(by: Callable[..., Any]) -> Callable[..., Any]:
    """Restrict the bug `by` to the metadata log."""

    def planted(rule: Callable[..., Any]) -> Callable[..., Any]:
        wrong = by(rule)
        return lambda self, *rest: (wrong if METADATA_TOPIC in self._path else rule)(self, *rest)

    return planted


def trims_too_much(rule: Callable[..., Any]) -> Callable[..., Any]:
    def trim(self: Any, snapshot: Any, high_watermark: int) -> None:
        rule(self, snapshot, high_watermark)
        self._log.increment_log_start(min(snapshot.end_offset + 1, high_watermark))

    return trim


def snapshots() -> Plan:
    """Return a plan in which metadata logs are often deleted up to a snapshot."""
    bytes_ = {"metadata.log.max.record.bytes.between.snapshots": "200", "metadata.max.retention.bytes": "500"}
    return failover(settings=bytes_)


def crowded() -> Plan:
    """Return a plan with so many partitions that the metadata log gets an index."""
    return failover(workload={"partitions": 40})


def flushed() -> Plan:
    """Return a plan in which every record is flushed before it is acknowledged."""
    return failover(settings={"log.flush.interval.messages": "1"})


def indexed() -> Plan:
    """Return a plan in which every batch has an index entry."""
    return failover(settings={"log.index.interval.bytes": "0"})


def drained() -> Plan:
    """Return a plan in which all replicas of one of four brokers move to the others."""
    return hunt_plan(1, [fault(0.4, 3, "leadership", "node:1", how="drain")], nodes=4)


def drops_who_came(rule: Callable[..., Any]) -> Callable[..., Any]:
    def complete_reassignment(self: Any) -> None:
        came = self.adding if self.removing else ()
        rule(self)
        if not self.adding and len(self.isr) > 1:
            self.replicas = tuple(each for each in self.replicas if each not in came)
            self.isr = tuple(each for each in self.isr if each not in came)

    return complete_reassignment


def keeps_who_went(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Keep removed replicas listed as "removing" after a reassignment."""

    def complete_reassignment(self: Any) -> None:
        gone = self.removing
        rule(self)
        self.removing = gone

    return complete_reassignment


def calls_off(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Cancel a reassignment once the added replicas are in sync."""

    def complete_reassignment(self: Any) -> None:
        came, (replicas, isr) = self.adding, (self.replicas, self.isr)
        rule(self)
        if came and not self.adding and set(isr) - set(came):
            self.replicas = tuple(each for each in replicas if each not in came)
            self.isr = tuple(each for each in isr if each not in came)

    return complete_reassignment


def counts_one_too_many(rule: Callable[..., Any]) -> Callable[..., Any]:
    def register(image: Any, record: Any) -> None:
        rule(image, record)
        broker = image.brokers[record.broker_id]
        image.brokers[broker.id] = replace(broker, registered_at=broker.registered_at + 1)

    return register


def forgets_when(rule: Callable[..., Any]) -> Callable[..., Any]:
    def level(image: Any, record: Any) -> None:
        before = image.features_offset
        rule(image, record)
        image.features_offset = before

    return level


MISTAKES = {
    "all images leave the same record out": Mistake(
        "image-is-a-replay", failover, replay.APPLY, records.BrokerRegistrationChangeRecord, leaves_fencing_out
    ),
    "all images take brokers to be registered later": Mistake(
        "registration-is-a-replay", failover, replay.APPLY, records.RegisterBrokerRecord, counts_one_too_many
    ),
    "all images forget where a feature has changed": Mistake(
        "feature-offset-is-a-replay", failover, replay.APPLY, records.FeatureLevelRecord, forgets_when
    ),
    "a move that is over still removes who has gone": Mistake(
        "reassignment-within-replicas", drained, _PlannedPartition, "complete_reassignment", keeps_who_went
    ),
    "a move drops who came": Mistake(
        "reassignment-ends-as-asked", drained, _PlannedPartition, "complete_reassignment", drops_who_came
    ),
    "a move is called off, and nobody asked for that": Mistake(
        "reassignment-ends-as-asked", drained, _PlannedPartition, "complete_reassignment", calls_off
    ),
    "a leader believes too much of a follower": Mistake(
        "believed-end-is-shared", failover, Partition, "follower_fetched", believes_too_much
    ),
    "a quorum leader believes too much of a voter": Mistake(
        "metadata-believed-end-is-shared", failover, LeaderState, "heard", believes_voters_too_much
    ),
    "the quorum counts what is only in memory": Mistake(
        "metadata-held-by-majority", failover, FlushJob, "run", syncs_nothing
    ),
    "what is acknowledged, and below the recovery point, is only in memory": Mistake(
        "acknowledged-is-durable recovery-point-is-durable", flushed, FlushJob, "run", syncs_nothing
    ),
    "a loaded epoch cache lacks an epoch": Mistake(
        "epoch-cache-is-a-replay", failover, recovery, "has_epoch", takes_even_epochs_only
    ),
    "an offset index is wrong": Mistake(
        "offset-index-is-a-replay", indexed, Segment, "_index_batch", writes_the_offset_before
    ),
    "an offset index lacks batches": Mistake("offset-index-is-dense", indexed, OffsetIndex, "add", adds_every_other),
    "the offset index of metadata is wrong": Mistake(
        "offset-index-is-a-replay", crowded, Segment, "_index_batch", of_metadata(writes_the_offset_before)
    ),
    "a metadata log starts behind the end of its snapshot": Mistake(
        "metadata-log-follows-a-snapshot", snapshots, QuorumStorage, "trim", trims_too_much
    ),
    "a time index lacks batches": Mistake("time-index-is-dense", indexed, TimeIndex, "add_if_later", adds_every_other),
    "a time index is wrong": Mistake(
        "time-index-is-a-replay", indexed, TimeIndex, "add_if_later", indexes_the_time_after
    ),
}


def found(plan: Plan) -> list[str]:
    result = simulate(plan, stop_at_first=False)
    assert result.trouble is None, result.trouble
    return [violation.name for violation in result.violations]


@cache
def without(plan: Callable[[], Plan]) -> list[str]:
    """Return the invariants that break under a plan without any bug."""
    return found(plan())


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_what_is_derived_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = mistake.plan()
    assert without(mistake.plan) == []
    if isinstance(mistake.owner, dict):
        monkeypatch.setitem(mistake.owner, mistake.name, mistake.by(mistake.owner[mistake.name]))
    else:
        monkeypatch.setattr(mistake.owner, mistake.name, mistake.by(getattr(mistake.owner, mistake.name)))
    assert set(mistake.invariants.split()) <= set(found(plan))
