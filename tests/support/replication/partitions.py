"""Partitions in a state of interest, for unit tests: brokers 1, 2, 3, led by 1 unless said otherwise."""

from __future__ import annotations

from typing import TypeVar

from squall.broker.replication import BrokerStatuses, Effects, LeaderAndIsr, Partition, ReplicationSettings

TOPIC_ID = bytes(15) + b"\x07"
LAG_MS = 30_000
VIEW = BrokerStatuses({1: 101, 2: 102, 3: 103})
ALL = (1, 2, 3)

E = TypeVar("E")


def state(
    *,
    leader: int = 1,
    epoch: int = 5,
    partition_epoch: int = 10,
    isr: tuple[int, ...] = ALL,
    replicas: tuple[int, ...] = ALL,
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, partition_epoch, isr, replicas)


def settings(min_isr: int = 2, lag_max_messages: int = -1) -> ReplicationSettings:
    return ReplicationSettings(LAG_MS, min_isr, lag_max_messages)


def idle(*, log_end: int = 0, high_watermark: int = 0, log_start: int = 0, min_isr: int = 2) -> Partition:
    """Opened, and not yet reached by the control plane."""
    partition = Partition("t", 0, TOPIC_ID, 1, settings(min_isr), VIEW)
    partition.opened(log_start, log_end, high_watermark)
    return partition


def leader(
    *,
    log_end: int = 0,
    high_watermark: int = 0,
    isr: tuple[int, ...] = ALL,
    replicas: tuple[int, ...] = ALL,
    min_isr: int = 2,
    now_ms: int = 0,
) -> Partition:
    """Leads in epoch 5, partition epoch 10, from `log_end` on; no follower has fetched yet."""
    partition = idle(log_end=log_end, high_watermark=high_watermark, min_isr=min_isr)
    partition.become_leader(state(isr=isr, replicas=replicas), log_end, now_ms)
    return partition


def follower(*, log_end: int = 0, high_watermark: int = 0, log_start: int = 0) -> Partition:
    """Follows broker 2 in epoch 5, partition epoch 10."""
    partition = idle(log_end=log_end, high_watermark=high_watermark, log_start=log_start)
    partition.become_follower(state(leader=2), log_end, 0)
    return partition


def fetched(partition: Partition, replica: int, offset: int, now_ms: int = 0) -> Effects:
    """A fetch by the replica's present incarnation."""
    return partition.follower_fetched(replica, offset, VIEW.epochs[replica], now_ms)


def only(effects: Effects, kind: type[E]) -> E:
    """The one effect of that kind."""
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, effects
    return found[0]


def any_of(effects: Effects, kind: type[object]) -> bool:
    return any(isinstance(effect, kind) for effect in effects)
