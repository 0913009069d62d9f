"""Replicas of one broker: metadata in, logs and fetchers changed."""

from __future__ import annotations

from typing import Any

from squall.broker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, ImageDelta, PartitionImage
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replication.values import ProposeIsr, TruncateTo
from tests.support.brokers.in_memory import EPOCHS, MemoryBroker, answers, produced
from tests.support.disks.batches import NEWEST, batch

OTHER_ID = bytes(14) + b"\xbb\x01"


def events(broker: MemoryBroker) -> list[str]:
    return [event for event, _ in broker.env.traces]


def test_a_partition_of_this_broker_is_taken_up_with_a_log_of_its_own() -> None:
    broker = MemoryBroker()
    h = broker.give()
    assert h.state.is_leader
    assert broker.fs.exists("data/t-0")
    assert broker.replicas.by_name[b"t"][0] is h
    assert "became_leader" in events(broker)


def test_a_partition_of_others_is_not_taken_up() -> None:
    broker = MemoryBroker()
    broker.give(leader=2, isr=(2, 3), replicas=(2, 3))
    assert not broker.replicas.hosted()


def test_a_follower_fetches_anew_in_each_leader_epoch_and_a_leader_not_at_all() -> None:
    broker = MemoryBroker()
    broker.give(leader=2, epoch=5)
    broker.give(leader=3, epoch=6, partition_epoch=11)
    broker.give(leader=3, epoch=6, partition_epoch=12)
    assert broker.orders.followed == [("t", 2), ("t", 3)]
    broker.give(leader=1, epoch=7, partition_epoch=13)
    assert broker.orders.unfollowed == ["t"]


def test_a_new_leader_notes_where_its_epoch_begins_though_nothing_is_written() -> None:
    broker = MemoryBroker()
    h = broker.give()
    broker.produce(broker.client(), acks=1)
    broker.give(epoch=9, partition_epoch=11)
    assert h.log.epochs.entries == [(5, 0), (9, 1)]


def test_a_deleted_topic_leaves_neither_replica_nor_log() -> None:
    broker = MemoryBroker()
    broker.give()
    broker.remove("t")
    assert not broker.replicas.hosted()
    assert not broker.replicas.by_name
    assert not broker.fs.exists("data/t-0")


def test_a_replica_that_moved_away_is_dropped() -> None:
    broker = MemoryBroker()
    broker.give()
    broker.give(leader=2, epoch=6, partition_epoch=11, isr=(2, 3), replicas=(2, 3))
    assert not broker.replicas.hosted()
    assert not broker.fs.exists("data/t-0")


def test_a_topic_made_again_by_the_same_name_begins_empty() -> None:
    broker = MemoryBroker()
    broker.give(isr=(1,), replicas=(1,))
    broker.produce(broker.client())
    broker.logs.high_watermarks.write(broker.replicas.high_watermarks())
    broker.remove("t")
    h = broker.give(topic_id=OTHER_ID, isr=(1,), replicas=(1,))
    assert h.log.log_end_offset == h.state.high_watermark == 0
    assert broker.replicas.by_name[b"t"][0] is h
    assert h.log.topic_id == OTHER_ID


def test_a_topics_settings_reach_its_log_and_its_state_machine() -> None:
    broker = MemoryBroker()
    h = broker.give()
    broker.alter(TOPIC_RESOURCE, "t", min_insync_replicas="2", max_message_bytes="5000")
    assert h.state.settings.min_insync_replicas == 2
    assert h.log.config.max_message_bytes == 5000


def leads_alone_as_min_isr_changes(before: str, after: str) -> HostedPartition:
    """It has a record that no other replica has. One image says that it leads alone, and that min ISR is another."""
    broker = MemoryBroker()
    broker.alter(TOPIC_RESOURCE, "t", min_insync_replicas=before)
    h = broker.give()
    broker.produce(broker.client(), acks=1)
    assert (h.state.log_end_offset, h.state.high_watermark) == (1, 0)
    topic = broker.image.topics_by_id[h.state.topic_id]
    was, topic.partitions[0] = topic.partitions[0], PartitionImage((1, 2, 3), (1,), 1, 6, 11)
    broker.image.configs[TOPIC_RESOURCE, "t"] = {"min.insync.replicas": after}
    broker.learn(ImageDelta(partitions={(topic.id, 0): was}, configs={(TOPIC_RESOURCE, "t"): None}))
    assert h.state.settings.min_insync_replicas == int(after)
    return h


def test_a_leader_that_learns_of_a_larger_min_isr_with_its_leadership_commits_nothing_by_the_smaller_one() -> None:
    """Swarm seed 1211655."""
    assert leads_alone_as_min_isr_changes("1", "2").state.high_watermark == 0


def test_a_leader_commits_by_a_smaller_min_isr_once_it_is_in_force() -> None:
    assert leads_alone_as_min_isr_changes("2", "1").state.high_watermark == 1


def test_a_log_takes_its_topics_settings_when_it_is_taken_up() -> None:
    broker = MemoryBroker()
    broker.image.configs[TOPIC_RESOURCE, "t"] = {"max.message.bytes": "5000"}
    assert broker.give().log.config.max_message_bytes == 5000


def test_settings_altered_for_all_brokers_or_this_one_are_in_force_unless_the_topic_has_its_own() -> None:
    broker = MemoryBroker()
    t, u = broker.give("t"), broker.give("u")
    broker.alter(TOPIC_RESOURCE, "u", min_insync_replicas="1")
    broker.alter(BROKER_RESOURCE, "", min_insync_replicas="2")
    assert (t.state.settings.min_insync_replicas, u.state.settings.min_insync_replicas) == (2, 1)
    broker.alter(BROKER_RESOURCE, "1", min_insync_replicas="3")
    assert (t.state.settings.min_insync_replicas, u.state.settings.min_insync_replicas) == (3, 1)
    assert broker.give("w").state.settings.min_insync_replicas == 3
    broker.alter(BROKER_RESOURCE, "1")
    assert t.state.settings.min_insync_replicas == 2


def test_settings_of_a_whole_broker_that_are_altered_reach_its_logs() -> None:
    broker = MemoryBroker()
    hosted = broker.give()
    broker.alter(BROKER_RESOURCE, "", producer_id_expiration_ms="5", transaction_partition_verification_enable="false")
    assert hosted.log.config.producer_id_expiration_ms == 5
    assert not hosted.log.config.transaction_partition_verification_enable
    broker.alter(BROKER_RESOURCE, "")
    assert hosted.log.config.producer_id_expiration_ms == 86_400_000
    assert hosted.log.config.transaction_partition_verification_enable


def test_what_was_altered_for_another_broker_is_not_in_force_here() -> None:
    broker = MemoryBroker()
    h = broker.give()
    broker.alter(BROKER_RESOURCE, "2", min_insync_replicas="2")
    assert h.state.settings.min_insync_replicas == 1


def test_retention_moves_the_start_that_the_state_machine_knows() -> None:
    broker = MemoryBroker()
    h = broker.give(isr=(1,), replicas=(1,))
    broker.produce(broker.client())
    h.log.roll()
    broker.produce(broker.client())
    broker.alter(TOPIC_RESOURCE, "t", retention_bytes="10")
    list(broker.replicas.retain(broker.env.wall_ms()))
    assert h.log.log_start_offset == h.state.log_start_offset > 0


def test_retention_keeps_what_is_not_committed() -> None:
    broker = MemoryBroker()
    h = broker.give()
    broker.produce(broker.client(), acks=1)
    h.log.roll()
    broker.produce(broker.client(), acks=1)
    broker.alter(TOPIC_RESOURCE, "t", retention_bytes="0")
    list(broker.replicas.retain(broker.env.wall_ms()))
    assert h.log.log_start_offset == h.state.log_start_offset == 0


def test_a_lagging_follower_is_proposed_to_leave_and_the_producer_waits_until_that_is_confirmed() -> None:
    broker = MemoryBroker()
    h = broker.give()
    conn = broker.client()
    broker.produce(conn, timeout_ms=100_000)
    broker.pass_ms(20_000)
    broker.follower_has(2, 1)
    broker.pass_ms(20_000)
    broker.follower_has(2, 1)
    broker.replicas.check_isr()
    [proposal] = broker.orders.proposed
    assert proposal.members == (1, 2)
    assert answers(conn) == []
    effects = h.state.isr_accepted(proposal, 5, 11, (1, 2), broker.env.now_ms)
    broker.replicas.apply_effects(h, effects)
    broker.server.settle()
    assert produced(conn)[0].error_code == ErrorCode.NONE


def test_an_isr_by_message_count_churns_and_the_traces_count_it() -> None:
    broker = MemoryBroker(replica_lag_max_messages="3")
    h = broker.give()

    def controller_agrees() -> None:
        proposal = broker.orders.proposed[-1]
        epoch = h.state.partition_epoch + 1
        broker.replicas.apply_effects(h, h.state.isr_accepted(proposal, 5, epoch, proposal.members, 0))

    for replica in (2, 3):
        broker.follower_has(replica, 0)
    for _ in range(3):
        for _ in range(4):
            broker.produce(broker.client(), acks=1)
        broker.replicas.check_isr()
        controller_agrees()
        assert h.state.isr == (1,)
        for replica in (2, 3):
            broker.follower_has(replica, h.log.log_end_offset)
            controller_agrees()
        assert h.state.isr == (1, 2, 3)
    told = [fields for event, fields in broker.env.traces if event == "isr_proposed"]
    assert sum(len(fields["out"]) for fields in told) == sum(len(fields["joining"]) for fields in told) == 6
    assert told[0]["reason"] == "2 is 4 messages behind, 3 is 4 messages behind"
    assert told[1]["reason"] == "2 has caught up"


def test_a_proposal_whose_fate_is_not_known_is_asked_again() -> None:
    broker = MemoryBroker()
    h = broker.give(isr=(1, 2))
    broker.follower_has(3, 0)
    [proposal] = broker.orders.proposed
    assert isinstance(proposal, ProposeIsr)
    assert proposal.isr == ((1, EPOCHS[1]), (2, -1), (3, EPOCHS[3]))
    broker.replicas.apply_effects(h, h.state.isr_rejected(proposal, ErrorCode.UNKNOWN_SERVER_ERROR, 0))
    assert broker.orders.retried == [proposal]


def test_a_truncation_reaches_log_and_state_machine_and_is_traced() -> None:
    broker = MemoryBroker()
    h = broker.give()
    for _ in range(3):
        broker.produce(broker.client(), acks=1)
    broker.give(leader=2, epoch=6, partition_epoch=11)
    reader: Any = broker.client()
    h.read_by(reader)
    broker.replicas.apply_effects(h, (TruncateTo(1, "test"),))
    assert h.log.log_end_offset == h.state.log_end_offset == 1
    assert reader.closed
    assert "truncated" in events(broker)


def test_a_truncation_into_the_batch_in_which_the_log_starts_takes_the_start_back_with_it() -> None:
    broker = MemoryBroker()
    h = broker.give(leader=2)
    h.log.append_as_follower(batch(5, base=0, leader_epoch=5), NEWEST)
    assert broker.replicas.followed(h, 5, 3) is None
    assert h.state.log_start_offset == 3
    broker.replicas.apply_effects(h, (TruncateTo(4, "test"),))
    assert (h.log.log_start_offset, h.log.log_end_offset) == (0, 0)
    assert (h.state.log_start_offset, h.state.log_end_offset, h.state.high_watermark) == (0, 0, 0)
    broker.logs.checkpoint_log_starts()
    assert MemoryBroker(fs=broker.fs.after_crash()).logs.logs["t", 0].log_end_offset == 0


def test_high_watermarks_are_kept_over_a_restart() -> None:
    broker = MemoryBroker()
    h = broker.give(isr=(1,), replicas=(1,))
    broker.produce(broker.client())
    assert h.state.high_watermark == 1
    broker.logs.high_watermarks.write(broker.replicas.high_watermarks())
    assert broker.logs.high_watermarks.read() == {("t", 0): 1}
