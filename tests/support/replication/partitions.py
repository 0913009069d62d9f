"""Partitions in various states for unit tests: replicas on brokers 1, 2, 3, led by broker 1 unless said otherwise."""

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
    """Return a partition that is open and has no orders of the control plane yet."""
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
    """Return a leader in leader epoch 5 (which begins at `log_end`) and partition epoch 10. No follower has fetched
    yet.
    """
    partition = idle(log_end=log_end, high_watermark=high_watermark, min_isr=min_isr)
    partition.become_leader(state(isr=isr, replicas=replicas), log_end, now_ms)
    return partition


def follower(*, log_end: int = 0, high_watermark: int = 0, log_start: int = 0) -> Partition:
    """Return a follower of broker 2 in leader epoch 5 and partition epoch 10."""
    partition = idle(log_end=log_end, high_watermark=high_watermark, log_start=log_start)
    partition.become_follower(state(leader=2), log_end, 0)
    return partition


def fetched(partition: Partition, replica: int, offset: int, now_ms: int = 0) -> Effects:
    """Let a replica's present incarnation fetch from `offset`."""
    return partition.follower_fetched(replica, offset, VIEW.epochs[replica], now_ms)


def only(effects: Effects, kind: type[E]) -> E:
    """Return the effect of that kind. Fails unless there is exactly one."""
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, effects
    return found[0]


def any_of(effects: Effects, kind: type[object]) -> bool:
    return any(isinstance(effect, kind) for effect in effects)
