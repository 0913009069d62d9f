"""Every default is Kafka's (4.2), as its documentation states them, but for those that say why they are not."""

from __future__ import annotations

from broker.config import BROKER_SETTINGS, TOPIC_SETTINGS
from broker.config.broker import DEVIATIONS, NO_EFFECT
from broker.config.topic import BROKER_SYNONYMS

FOREVER = 9223372036854775807
INT_MAX = 2147483647

KAFKA = {
    "background.threads": 10,
    "max.connection.creation.rate": 2**31 - 1,
    "num.io.threads": 8,
    "num.network.threads": 3,
    "num.recovery.threads.per.data.dir": 2,
    "num.replica.fetchers": 1,
    "add.partitions.to.txn.retry.backoff.max.ms": 100,
    "advertised.listeners": (),
    "auto.create.topics.enable": True,
    "auto.leader.rebalance.enable": True,
    "broker.heartbeat.interval.ms": 2000,
    "broker.rack": None,
    "broker.session.timeout.ms": 9000,
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.type": "producer",
    "compression.zstd.level": 3,
    "connections.max.idle.ms": 600000,
    "controlled.shutdown.enable": True,
    "controller.listener.names": (),
    "controller.quorum.append.linger.ms": 25,
    "controller.quorum.election.backoff.max.ms": 1000,
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 2000,
    "controller.quorum.request.timeout.ms": 2000,
    "controller.quorum.retry.backoff.ms": 20,
    "controller.quorum.voters": (),
    "controller.quota.window.num": 11,
    "controller.quota.window.size.seconds": 1,
    "default.replication.factor": 1,
    "delete.topic.enable": True,
    "fetch.max.bytes": 57671680,
    "follower.replication.throttled.rate": FOREVER,
    "leader.replication.throttled.rate": FOREVER,
    "replica.alter.log.dirs.io.max.bytes.per.second": FOREVER,
    "group.consumer.assignors": ("uniform", "range"),
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.heartbeat.interval.ms": 5000,
    "group.consumer.max.heartbeat.interval.ms": 15000,
    "group.consumer.max.session.timeout.ms": 60000,
    "group.consumer.max.size": INT_MAX,
    "group.consumer.min.heartbeat.interval.ms": 5000,
    "group.consumer.min.session.timeout.ms": 45000,
    "group.consumer.session.timeout.ms": 45000,
    "group.coordinator.rebalance.protocols": ("classic", "consumer", "streams"),
    "group.initial.rebalance.delay.ms": 3000,
    "group.max.session.timeout.ms": 1800000,
    "group.max.size": INT_MAX,
    "group.min.session.timeout.ms": 6000,
    "initial.broker.registration.timeout.ms": 60000,
    "inter.broker.listener.name": None,
    "leader.imbalance.check.interval.seconds": 300,
    "leader.imbalance.per.broker.percentage": 10,
    "listener.security.protocol.map": (),
    "log.cleaner.backoff.ms": 15000,
    "log.cleaner.dedupe.buffer.size": 134217728,
    "log.cleaner.delete.retention.ms": 86400000,
    "log.cleaner.enable": True,
    "log.cleaner.io.buffer.load.factor": 0.9,
    "log.cleaner.io.buffer.size": 524288,
    "log.cleaner.io.max.bytes.per.second": 1.7976931348623157e308,
    "log.cleaner.max.compaction.lag.ms": FOREVER,
    "log.cleaner.min.cleanable.ratio": 0.5,
    "log.cleaner.min.compaction.lag.ms": 0,
    "log.cleaner.threads": 1,
    "log.cleanup.policy": ("delete",),
    "log.dir": "/tmp/kafka-logs",
    "log.dirs": (),
    "log.flush.interval.messages": FOREVER,
    "log.flush.interval.ms": None,
    "log.flush.offset.checkpoint.interval.ms": 60000,
    "log.flush.scheduler.interval.ms": FOREVER,
    "log.flush.start.offset.checkpoint.interval.ms": 60000,
    "log.index.interval.bytes": 4096,
    "log.index.size.max.bytes": 10485760,
    "log.initial.task.delay.ms": 30000,
    "log.message.timestamp.after.max.ms": 3600000,
    "log.message.timestamp.before.max.ms": FOREVER,
    "log.message.timestamp.type": "CreateTime",
    "log.preallocate": False,
    "log.retention.bytes": -1,
    "log.retention.check.interval.ms": 300000,
    "log.retention.hours": 168,
    "log.retention.minutes": None,
    "log.retention.ms": None,
    "log.roll.hours": 168,
    "log.roll.jitter.hours": 0,
    "log.roll.jitter.ms": None,
    "log.roll.ms": None,
    "log.segment.bytes": 1073741824,
    "log.segment.delete.delay.ms": 60000,
    "max.connections.per.ip": INT_MAX,
    "max.incremental.fetch.session.cache.slots": 1000,
    "max.request.partition.size.limit": 2000,
    "message.max.bytes": 1048588,
    "metadata.log.dir": None,
    "metadata.log.max.record.bytes.between.snapshots": 20971520,
    "metadata.log.max.snapshot.interval.ms": 3600000,
    "metadata.log.segment.bytes": 1073741824,
    "metadata.max.idle.interval.ms": 500,
    "metadata.max.retention.bytes": 104857600,
    "metadata.max.retention.ms": 604800000,
    "min.insync.replicas": 1,
    "num.partitions": 1,
    "offset.metadata.max.bytes": 4096,
    "offsets.commit.timeout.ms": 5000,
    "offsets.load.buffer.size": 5242880,
    "offsets.retention.check.interval.ms": 600000,
    "offsets.retention.minutes": 10080,
    "offsets.topic.compression.codec": 0,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.segment.bytes": 104857600,
    "producer.id.expiration.check.interval.ms": 600000,
    "producer.id.expiration.ms": 86400000,
    "quota.window.num": 11,
    "quota.window.size.seconds": 1,
    "replica.fetch.backoff.ms": 1000,
    "replica.fetch.max.bytes": 1048576,
    "replica.fetch.min.bytes": 1,
    "replica.fetch.response.max.bytes": 10485760,
    "replica.fetch.wait.max.ms": 500,
    "replica.high.watermark.checkpoint.interval.ms": 5000,
    "replica.lag.max.messages": -1,
    "replica.lag.time.max.ms": 30000,
    "replica.socket.timeout.ms": 30000,
    "request.timeout.ms": 30000,
    "socket.listen.backlog.size": 50,
    "socket.request.max.bytes": 104857600,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10000,
    "transaction.max.timeout.ms": 900000,
    "transaction.partition.verification.enable": True,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 3600000,
    "transaction.state.log.load.buffer.size": 5242880,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 50,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.segment.bytes": 104857600,
    "transaction.two.phase.commit.enable": False,
    "transactional.id.expiration.ms": 604800000,
    "unclean.leader.election.enable": False,
}

KAFKA_TOPIC = {
    "cleanup.policy": ("delete",),
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.type": "producer",
    "compression.zstd.level": 3,
    "delete.retention.ms": 86400000,
    "file.delete.delay.ms": 60000,
    "flush.messages": FOREVER,
    "flush.ms": FOREVER,
    "follower.replication.throttled.replicas": (),
    "index.interval.bytes": 4096,
    "leader.replication.throttled.replicas": (),
    "max.compaction.lag.ms": FOREVER,
    "max.message.bytes": 1048588,
    "message.timestamp.after.max.ms": 3600000,
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "min.insync.replicas": 1,
    "preallocate": False,
    "retention.bytes": -1,
    "retention.ms": 604800000,
    "segment.bytes": 1073741824,
    "segment.index.bytes": 10485760,
    "segment.jitter.ms": 0,
    "segment.ms": 604800000,
    "unclean.leader.election.enable": False,
}


def test_every_default_of_a_node_is_kafkas_or_says_why_not() -> None:
    ours = {
        name: setting.default
        for name, setting in BROKER_SETTINGS.items()
        if not name.startswith("squall.") and name not in DEVIATIONS
    }
    ours["log.segment.bytes"] = BROKER_SETTINGS["log.segment.bytes"].default
    # Kafka's listener is written as an empty host, which here means loopback: see BrokerConfig.bind_listeners.
    assert [str(endpoint) for endpoint in ours.pop("listeners")] == ["PLAINTEXT://:9092"]
    assert ours == KAFKA


def test_every_default_of_a_topic_is_kafkas() -> None:
    ours = {name: s.default for name, s in TOPIC_SETTINGS.items() if not name.startswith("squall.")}
    assert ours == KAFKA_TOPIC


def test_every_deviation_is_of_a_setting_that_exists() -> None:
    assert set(DEVIATIONS) <= set(BROKER_SETTINGS)
    assert not set(NO_EFFECT) & set(BROKER_SETTINGS)


def test_every_topic_setting_has_the_brokers_as_its_default() -> None:
    without = {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
    assert set(TOPIC_SETTINGS) - set(BROKER_SYNONYMS) == without
    for broker_name, _ in BROKER_SYNONYMS.values():
        assert broker_name in BROKER_SETTINGS


def test_every_default_is_within_its_own_range_and_can_be_written_and_read_again() -> None:
    for setting in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]:
        text = setting.render(setting.default)
        if text is not None and not setting.required:
            assert setting.parse(text) == setting.default, setting.name
