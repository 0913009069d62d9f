"""Replicas of one broker: metadata in, logs and fetchers told."""

from __future__ import annotations

from typing import Any

from broker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, ImageDelta, PartitionImage
from broker.protocol.errors import ErrorCode
from broker.replicas.hosted import Hosted
from broker.replication.values import ProposeIsr, TruncateTo
from tests.support.brokers.in_memory import EPOCHS, MemoryBroker, answers, produced
from tests.support.disks.batches import NEWEST, batch

OTHER_ID = bytes(14) + b"\xbb\x01"


def events(room: MemoryBroker) -> list[str]:
    return [event for event, _ in room.env.traces]


def test_a_partition_of_this_broker_is_taken_up_with_a_log_of_its_own() -> None:
    room = MemoryBroker()
    h = room.give()
    assert h.state.is_leader
    assert room.fs.exists("data/t-0")
    assert room.replicas.by_name[b"t"][0] is h
    assert "became_leader" in events(room)


def test_a_partition_of_others_is_not_taken_up() -> None:
    room = MemoryBroker()
    room.give(leader=2, isr=(2, 3), replicas=(2, 3))
    assert not room.replicas.hosted()


def test_a_follower_fetches_anew_in_each_leader_epoch_and_a_leader_not_at_all() -> None:
    room = MemoryBroker()
    room.give(leader=2, epoch=5)
    room.give(leader=3, epoch=6, partition_epoch=11)
    room.give(leader=3, epoch=6, partition_epoch=12)
    assert room.orders.followed == [("t", 2), ("t", 3)]
    room.give(leader=1, epoch=7, partition_epoch=13)
    assert room.orders.unfollowed == ["t"]


def test_a_new_leader_notes_where_its_epoch_begins_though_nothing_is_written() -> None:
    room = MemoryBroker()
    h = room.give()
    room.produce(room.client(), acks=1)
    room.give(epoch=9, partition_epoch=11)
    assert h.log.epochs.entries == [(5, 0), (9, 1)]


def test_a_deleted_topic_leaves_neither_replica_nor_log() -> None:
    room = MemoryBroker()
    room.give()
    room.remove("t")
    assert not room.replicas.hosted()
    assert not room.replicas.by_name
    assert not room.fs.exists("data/t-0")


def test_a_replica_that_moved_away_is_dropped() -> None:
    room = MemoryBroker()
    room.give()
    room.give(leader=2, epoch=6, partition_epoch=11, isr=(2, 3), replicas=(2, 3))
    assert not room.replicas.hosted()
    assert not room.fs.exists("data/t-0")


def test_a_topic_made_again_by_the_same_name_begins_empty() -> None:
    room = MemoryBroker()
    room.give(isr=(1,), replicas=(1,))
    room.produce(room.client())
    room.logs.high_watermarks.write(room.replicas.high_watermarks())
    room.remove("t")
    h = room.give(topic_id=OTHER_ID, isr=(1,), replicas=(1,))
    assert h.log.log_end_offset == h.state.high_watermark == 0
    assert room.replicas.by_name[b"t"][0] is h
    assert h.log.topic_id == OTHER_ID


def test_a_topics_settings_reach_its_log_and_its_state_machine() -> None:
    room = MemoryBroker()
    h = room.give()
    room.alter(TOPIC_RESOURCE, "t", min_insync_replicas="2", max_message_bytes="5000")
    assert h.state.settings.min_insync_replicas == 2
    assert h.log.config.max_message_bytes == 5000


def leads_alone_as_min_isr_changes(before: str, after: str) -> Hosted:
    """It has a record that nobody else has. One image says that it leads alone, and that min ISR is another."""
    room = MemoryBroker()
    room.alter(TOPIC_RESOURCE, "t", min_insync_replicas=before)
    h = room.give()
    room.produce(room.client(), acks=1)
    assert (h.state.log_end_offset, h.state.high_watermark) == (1, 0)
    topic = room.image.topics_by_id[h.state.topic_id]
    was, topic.partitions[0] = topic.partitions[0], PartitionImage((1, 2, 3), (1,), 1, 6, 11)
    room.image.configs[TOPIC_RESOURCE, "t"] = {"min.insync.replicas": after}
    room.learn(ImageDelta(partitions={(topic.id, 0): was}, configs={(TOPIC_RESOURCE, "t"): None}))
    assert h.state.settings.min_insync_replicas == int(after)
    return h


def test_a_leader_that_learns_of_a_larger_min_isr_with_its_leadership_commits_nothing_by_the_smaller_one() -> None:
    """Swarm seed 1211655."""
    assert leads_alone_as_min_isr_changes("1", "2").state.high_watermark == 0


def test_a_leader_commits_by_a_smaller_min_isr_once_it_is_in_force() -> None:
    assert leads_alone_as_min_isr_changes("2", "1").state.high_watermark == 1


def test_a_log_takes_its_topics_settings_when_it_is_taken_up() -> None:
    room = MemoryBroker()
    room.image.configs[TOPIC_RESOURCE, "t"] = {"max.message.bytes": "5000"}
    assert room.give().log.config.max_message_bytes == 5000


def test_settings_altered_for_all_brokers_or_this_one_are_in_force_unless_the_topic_has_its_own() -> None:
    room = MemoryBroker()
    t, u = room.give("t"), room.give("u")
    room.alter(TOPIC_RESOURCE, "u", min_insync_replicas="1")
    room.alter(BROKER_RESOURCE, "", min_insync_replicas="2")
    assert (t.state.settings.min_insync_replicas, u.state.settings.min_insync_replicas) == (2, 1)
    room.alter(BROKER_RESOURCE, "1", min_insync_replicas="3")
    assert (t.state.settings.min_insync_replicas, u.state.settings.min_insync_replicas) == (3, 1)
    assert room.give("w").state.settings.min_insync_replicas == 3
    room.alter(BROKER_RESOURCE, "1")
    assert t.state.settings.min_insync_replicas == 2


def test_settings_of_a_whole_broker_that_are_altered_reach_its_logs() -> None:
    room = MemoryBroker()
    hosted = room.give()
    room.alter(BROKER_RESOURCE, "", producer_id_expiration_ms="5", transaction_partition_verification_enable="false")
    assert hosted.log.config.producer_id_expiration_ms == 5
    assert not hosted.log.config.transaction_partition_verification_enable
    room.alter(BROKER_RESOURCE, "")
    assert hosted.log.config.producer_id_expiration_ms == 86_400_000
    assert hosted.log.config.transaction_partition_verification_enable


def test_what_was_altered_for_another_broker_is_not_in_force_here() -> None:
    room = MemoryBroker()
    h = room.give()
    room.alter(BROKER_RESOURCE, "2", min_insync_replicas="2")
    assert h.state.settings.min_insync_replicas == 1


def test_retention_moves_the_start_that_the_state_machine_knows() -> None:
    room = MemoryBroker()
    h = room.give(isr=(1,), replicas=(1,))
    room.produce(room.client())
    h.log.roll()
    room.produce(room.client())
    room.alter(TOPIC_RESOURCE, "t", retention_bytes="10")
    list(room.replicas.retain(room.env.wall_ms()))
    assert h.log.log_start_offset == h.state.log_start_offset > 0


def test_retention_keeps_what_is_not_committed() -> None:
    room = MemoryBroker()
    h = room.give()
    room.produce(room.client(), acks=1)
    h.log.roll()
    room.produce(room.client(), acks=1)
    room.alter(TOPIC_RESOURCE, "t", retention_bytes="0")
    list(room.replicas.retain(room.env.wall_ms()))
    assert h.log.log_start_offset == h.state.log_start_offset == 0


def test_a_lagging_follower_is_proposed_to_leave_and_the_producer_waits_until_that_is_confirmed() -> None:
    room = MemoryBroker()
    h = room.give()
    conn = room.client()
    room.produce(conn, timeout_ms=100_000)
    room.pass_ms(20_000)
    room.follower_has(2, 1)
    room.pass_ms(20_000)
    room.follower_has(2, 1)
    room.replicas.check_isr()
    [proposal] = room.orders.proposed
    assert proposal.members == (1, 2)
    assert answers(conn) == []
    effects = h.state.isr_accepted(proposal, 5, 11, (1, 2), room.env.now_ms)
    room.replicas.apply_effects(h, effects)
    room.server.settle()
    assert produced(conn)[0].error_code == ErrorCode.NONE


def test_an_isr_by_message_count_churns_and_the_traces_count_it() -> None:
    room = MemoryBroker(replica_lag_max_messages="3")
    h = room.give()

    def controller_agrees() -> None:
        proposal = room.orders.proposed[-1]
        epoch = h.state.partition_epoch + 1
        room.replicas.apply_effects(h, h.state.isr_accepted(proposal, 5, epoch, proposal.members, 0))

    for replica in (2, 3):
        room.follower_has(replica, 0)
    for _ in range(3):
        for _ in range(4):
            room.produce(room.client(), acks=1)
        room.replicas.check_isr()
        controller_agrees()
        assert h.state.isr == (1,)
        for replica in (2, 3):
            room.follower_has(replica, h.log.log_end_offset)
            controller_agrees()
        assert h.state.isr == (1, 2, 3)
    told = [fields for event, fields in room.env.traces if event == "isr_proposed"]
    assert sum(len(fields["out"]) for fields in told) == sum(len(fields["joining"]) for fields in told) == 6
    assert told[0]["reason"] == "2 is 4 messages behind, 3 is 4 messages behind"
    assert told[1]["reason"] == "2 has caught up"


def test_a_proposal_whose_fate_is_not_known_is_asked_again() -> None:
    room = MemoryBroker()
    h = room.give(isr=(1, 2))
    room.follower_has(3, 0)
    [proposal] = room.orders.proposed
    assert isinstance(proposal, ProposeIsr)
    assert proposal.isr == ((1, EPOCHS[1]), (2, -1), (3, EPOCHS[3]))
    room.replicas.apply_effects(h, h.state.isr_rejected(proposal, ErrorCode.UNKNOWN_SERVER_ERROR, 0))
    assert room.orders.retried == [proposal]


def test_a_truncation_reaches_log_and_state_machine_and_is_traced() -> None:
    room = MemoryBroker()
    h = room.give()
    for _ in range(3):
        room.produce(room.client(), acks=1)
    room.give(leader=2, epoch=6, partition_epoch=11)
    reader: Any = room.client()
    h.read_by(reader)
    room.replicas.apply_effects(h, (TruncateTo(1, "test"),))
    assert h.log.log_end_offset == h.state.log_end_offset == 1
    assert reader.closed
    assert "truncated" in events(room)


def test_a_truncation_into_the_batch_in_which_the_log_starts_takes_the_start_back_with_it() -> None:
    room = MemoryBroker()
    h = room.give(leader=2)
    h.log.append_as_follower(batch(5, base=0, leader_epoch=5), NEWEST)
    assert room.replicas.followed(h, 5, 3) is None
    assert h.state.log_start_offset == 3
    room.replicas.apply_effects(h, (TruncateTo(4, "test"),))
    assert (h.log.log_start_offset, h.log.log_end_offset) == (0, 0)
    assert (h.state.log_start_offset, h.state.log_end_offset, h.state.high_watermark) == (0, 0, 0)
    room.logs.checkpoint_log_starts()
    assert MemoryBroker(fs=room.fs.after_crash()).logs.logs["t", 0].log_end_offset == 0


def test_high_watermarks_are_kept_over_a_restart() -> None:
    room = MemoryBroker()
    h = room.give(isr=(1,), replicas=(1,))
    room.produce(room.client())
    assert h.state.high_watermark == 1
    room.logs.high_watermarks.write(room.replicas.high_watermarks())
    assert room.logs.high_watermarks.read() == {("t", 0): 1}
