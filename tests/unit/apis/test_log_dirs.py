"""DescribeLogDirs."""

from __future__ import annotations

import pytest

from squall.broker.apis.log_dirs import describe_log_dirs
from squall.broker.env import DiskSpace
from squall.broker.protocol.schema.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.support.brokers.in_memory import MemoryBroker


def asked(broker: MemoryBroker, topics: list[DescribableLogDirTopic] | None) -> dict[str, list[tuple[int, int, int]]]:
    [result] = describe_log_dirs(broker.replicas, DescribeLogDirsRequest(topics=topics)).results
    assert result.error_code == 0
    assert result.log_dir == broker.replicas.log_dir
    return {
        topic.name: [(each.partition_index, each.partition_size, each.offset_lag) for each in topic.partitions]
        for topic in result.topics
    }


def test_every_replica_is_told_with_the_bytes_of_its_log() -> None:
    broker = MemoryBroker()
    broker.give()
    assert asked(broker, None) == {"t": [(0, 0, 0)]}
    broker.produce(broker.client(), acks=1)
    ((_, size, lag),) = asked(broker, None)["t"]
    assert size == broker.replicas.hosted()[0].log.size > 0
    assert lag == 0


def test_only_what_is_asked_for_and_hosted_here_is_told() -> None:
    broker = MemoryBroker()
    broker.give()
    assert asked(broker, [DescribableLogDirTopic(topic="t", partitions=[0, 7])]) == {"t": [(0, 0, 0)]}
    assert asked(broker, [DescribableLogDirTopic(topic="t", partitions=[7])]) == {}
    assert asked(broker, [DescribableLogDirTopic(topic="other", partitions=[0])]) == {}
    assert asked(broker, []) == {}


def test_the_volumes_size_is_told_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    broker.give()

    def told() -> tuple[int, int]:
        [result] = describe_log_dirs(broker.replicas, DescribeLogDirsRequest(topics=[])).results
        return result.total_bytes, result.usable_bytes

    assert told() == broker.fs.space("/") != (-1, -1)

    def unknown(path: str) -> DiskSpace:
        raise OSError(path)

    monkeypatch.setattr(broker.fs, "space", unknown)
    assert told() == (-1, -1)
