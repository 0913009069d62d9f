"""Registration, heartbeats, fencing, controlled shutdown."""

from __future__ import annotations

import pytest

from broker.controller.features import FEATURES
from broker.protocol.apis import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.ids import NO_NODE
from broker.protocol.schema.broker_registration import BrokerRegistrationRequest
from broker.protocol.schema.metadata_records import RegisterBrokerRecord
from tests.support.brokers.controller_harness import CLUSTER_ID, SESSION_MS, ControllerHarness

# ------------------------------------------------------------------------------------------------------ registration


def test_the_broker_epoch_is_the_offset_of_the_registration() -> None:
    room = ControllerHarness(brokers=0)
    _, epoch = room.register(1)
    ((offset, record),) = [entry for entry in room.log if isinstance(entry[1], RegisterBrokerRecord)]
    assert epoch == record.broker_epoch == offset == room.image.brokers[1].epoch


def test_the_broker_epoch_is_the_offset_also_when_the_quorum_wrote_in_between() -> None:
    room = ControllerHarness(brokers=1)
    room.fail_over()
    _, epoch = room.register(2)
    assert epoch == room.log[-1][0] == room.image.brokers[2].registered_at


def test_a_registered_broker_is_fenced_until_it_has_caught_up_to_its_own_registration() -> None:
    room = ControllerHarness(brokers=1)
    _, epoch = room.register(2)
    assert room.image.brokers[2].fenced
    behind = room.beat(2, offset=epoch - 1)
    assert (behind.is_fenced, behind.is_caught_up) == (True, False)
    caught_up = room.beat(2, offset=epoch)
    assert (caught_up.is_fenced, caught_up.is_caught_up) == (False, True)
    assert room.image.brokers[2].active


def test_a_broker_that_wants_to_stay_fenced_does() -> None:
    room = ControllerHarness(brokers=1)
    room.register(2)
    assert room.beat(2, want_fence=True).is_fenced
    assert room.image.brokers[2].fenced


def test_another_cluster_is_refused() -> None:
    room = ControllerHarness(brokers=0)
    assert room.register(1, cluster_id="other") == (ErrorCode.INCONSISTENT_CLUSTER_ID, -1)
    assert room.image.brokers == {}


@pytest.mark.parametrize("broker_id", [-1, -(2**31)])
def test_nobody_registers_as_nobody(broker_id: int) -> None:
    """-1 stands for no leader: a replica of that broker would lead and not lead."""
    room = ControllerHarness()
    request = BrokerRegistrationRequest(broker_id=broker_id, cluster_id=CLUSTER_ID, incarnation_id=bytes(16))
    assert room.do(ApiKey.BROKER_REGISTRATION, request).error_code == ErrorCode.INVALID_REQUEST
    assert broker_id not in room.image.brokers


def test_a_broker_without_a_finalized_feature_level_is_refused() -> None:
    room = ControllerHarness(brokers=0)
    assert room.register(1, features={})[0] == ErrorCode.UNSUPPORTED_VERSION
    assert room.register(1, features={"metadata.version": (1, 28)})[0] == ErrorCode.UNSUPPORTED_VERSION


def test_another_incarnation_is_refused_while_the_session_lasts() -> None:
    room = ControllerHarness()
    room.now_ms += SESSION_MS
    assert room.register(1, incarnation=2)[0] == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    room.now_ms += 1
    assert room.register(1, incarnation=2)[0] == ErrorCode.NONE


def test_another_incarnation_of_a_fenced_broker_is_taken_at_once() -> None:
    room = ControllerHarness()
    room.lose(1)
    before = room.image.brokers[1].epoch
    error, epoch = room.register(1, incarnation=2)
    assert error == ErrorCode.NONE
    assert epoch > before


def test_another_incarnation_of_a_stopping_broker_is_taken_at_once() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    room.beat(1, stop=True)
    assert room.image.brokers[1].in_controlled_shutdown
    assert room.register(1, incarnation=2)[0] == ErrorCode.NONE
    assert not room.image.brokers[1].in_controlled_shutdown


def test_the_same_incarnation_amends_its_registration_and_keeps_epoch_and_state() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    before = room.image.brokers[1]
    assert room.register(1) == (ErrorCode.NONE, before.epoch)
    after = room.image.brokers[1]
    assert (after.epoch, after.fenced) == (before.epoch, False)
    assert after.registered_at > before.registered_at
    assert room.partition("t").leader == 1


def test_a_new_incarnation_leaves_the_isrs_of_the_old_one() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    room.topic("alone", [1])
    room.now_ms += SESSION_MS + 1
    room.register(1, incarnation=2)
    assert (room.partition("t").leader, room.partition("t").isr) == (2, (2, 3))
    assert (room.partition("alone").leader, room.partition("alone").isr) == (NO_NODE, (1,))


def test_a_replaced_incarnation_is_told_so() -> None:
    room = ControllerHarness()
    old = room.image.brokers[1].epoch
    room.now_ms += SESSION_MS + 1
    room.register(1, incarnation=2)
    assert room.beat(1, epoch=old).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert room.image.brokers[1].fenced


def test_an_unknown_broker_is_told_so() -> None:
    room = ControllerHarness()
    assert room.beat(9, epoch=1).error_code == ErrorCode.STALE_BROKER_EPOCH


def with_elr() -> ControllerHarness:
    """Partition "t" has ISR (2,) led by 2, below its minimum of 2, with 1 eligible."""
    room = ControllerHarness(min_insync_replicas="2")
    room.image.features["eligible.leader.replicas.version"] = 1
    room.topic("t", [1, 2])
    room.lose(1)
    assert (room.partition("t").isr, room.partition("t").elr) == ((2,), (1,))
    return room


def features() -> dict[str, tuple[int, int]]:
    return {feature.name: (feature.low, feature.high) for feature in FEATURES}


def test_a_clean_restart_stays_eligible() -> None:
    room = with_elr()
    room.register(1, incarnation=2, previous_epoch=room.image.brokers[1].epoch, features=features())
    assert room.partition("t").elr == (1,)


def test_an_unclean_restart_is_no_longer_eligible() -> None:
    room = with_elr()
    room.register(1, incarnation=2, previous_epoch=-1, features=features())
    assert room.partition("t").elr == ()


def test_a_marker_of_an_earlier_life_is_an_unclean_restart() -> None:
    room = with_elr()
    room.register(1, incarnation=2, previous_epoch=room.image.brokers[1].epoch - 1, features=features())
    assert room.partition("t").elr == ()


# ---------------------------------------------------------------------------------------------------------- sessions


def test_a_silent_broker_is_fenced_after_its_session_and_not_before() -> None:
    room = ControllerHarness()
    for _ in range(10):
        room.now_ms += SESSION_MS // 10
        room.beat(2)
        room.beat(3)
        assert room.tick() == 0
    room.now_ms += 1
    assert room.tick() == 1
    assert [broker.id for broker in room.image.brokers.values() if broker.fenced] == [1]


def test_fencing_moves_leaderships_and_isrs() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3], [2, 1, 3], [3, 2, 1])
    room.lose(1)
    leaders = [(room.partition("t", i).leader, room.partition("t", i).isr) for i in range(3)]
    assert leaders == [(2, (2, 3)), (2, (2, 3)), (3, (3, 2))]
    assert [room.partition("t", i).leader_epoch for i in range(3)] == [1, 0, 0]


def test_a_fenced_broker_that_returns_leads_what_has_no_leader() -> None:
    room = ControllerHarness()
    room.topic("t", [1])
    room.topic("u", [1, 2])
    room.lose(1)
    assert room.partition("t").leader == NO_NODE
    assert not room.beat(1).is_fenced
    assert (room.partition("t").leader, room.partition("t").leader_epoch) == (1, 2)
    assert room.partition("u").leader == 2


def test_the_last_of_an_isr_to_fall_is_the_one_to_lead_again() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    room.lose(1)
    room.lose(2)
    room.lose(3)
    assert (room.partition("t").leader, room.partition("t").isr) == (NO_NODE, (3,))
    assert not room.beat(1).is_fenced
    assert room.partition("t").leader == NO_NODE
    assert not room.beat(3).is_fenced
    assert (room.partition("t").leader, room.partition("t").isr) == (3, (3,))


def test_all_sessions_may_end_at_once() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    room.tick(SESSION_MS + 1000)
    assert all(broker.fenced for broker in room.image.brokers.values())
    partition = room.partition("t")
    assert partition.leader == NO_NODE
    assert len(partition.isr) == 1


def test_a_new_controller_gives_every_broker_a_fresh_session() -> None:
    room = ControllerHarness()
    room.now_ms += SESSION_MS
    room.fail_over()
    room.now_ms += SESSION_MS
    assert room.tick() == 0
    assert room.register(1, incarnation=2)[0] == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_controller_that_stood_still_counts_it_against_nobody() -> None:
    room = ControllerHarness()
    room.tick(SESSION_MS // 10)
    room.now_ms += 2 * SESSION_MS
    assert room.tick() == 0
    assert room.tick(SESSION_MS // 2) == 0
    room.tick(SESSION_MS)
    assert all(broker.fenced for broker in room.image.brokers.values())


def test_a_heartbeat_without_news_writes_nothing() -> None:
    room = ControllerHarness()
    before = len(room.log)
    room.beat(1)
    assert len(room.log) == before


def test_an_unfenced_broker_may_ask_to_be_fenced() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2])
    assert room.beat(1, want_fence=True).is_fenced
    assert (room.partition("t").leader, room.partition("t").isr) == (2, (2,))


def test_a_session_ends_in_the_millisecond_in_which_it_ends() -> None:
    room = ControllerHarness()
    room.now_ms += 1234
    for broker_id in (1, 2, 3):
        room.beat(broker_id)
    assert room.fenced_after((1, 2), 2 * SESSION_MS) == {3: SESSION_MS + 1}


def test_a_new_controller_goes_on_counting_the_session_of_the_one_before_it_and_of_nobody_else() -> None:
    room = ControllerHarness()
    room.now_ms += 2500
    room.fail_over(predecessor=(3, room.now_ms - 2100))
    assert room.fenced_after((2,), 2 * SESSION_MS) == {3: SESSION_MS + 1 - 2100, 1: SESSION_MS + 1}


def test_a_predecessor_that_lives_has_two_heartbeats_time_to_say_so() -> None:
    room = ControllerHarness(broker_heartbeat_interval_ms="2000")
    room.now_ms += 10 * SESSION_MS
    room.fail_over(predecessor=(3, room.now_ms - 5 * SESSION_MS))
    assert room.fenced_after((1, 2), SESSION_MS) == {3: 4001}
    room.fail_over(predecessor=(2, room.now_ms - 5 * SESSION_MS))
    assert room.fenced_after((1, 2), SESSION_MS) == {}


def test_as_with_kafka_every_session_begins_anew_with_a_new_controller() -> None:
    room = ControllerHarness(squall_controller_inherited_session="false")
    room.fail_over(predecessor=(3, room.now_ms - 2100))
    assert room.fenced_after((1, 2), 2 * SESSION_MS) == {3: SESSION_MS + 1}


# ------------------------------------------------------------------------------------------------ controlled shutdown


def test_a_stopping_broker_loses_leaderships_and_isrs_before_it_may_stop() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    reply = room.beat(1, stop=True)
    assert (reply.should_shut_down, reply.is_fenced) == (False, False)
    assert room.image.brokers[1].in_controlled_shutdown
    assert (room.partition("t").leader, room.partition("t").isr) == (2, (2, 3))


def test_a_stopping_broker_waits_until_every_active_broker_has_read_of_it() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    before = room.image.offset
    room.beat(2)
    room.beat(3)
    room.beat(1, stop=True)
    assert not room.beat(1, stop=True).should_shut_down
    room.beat(2)
    room.beat(3, offset=before)
    assert not room.beat(1, stop=True).should_shut_down
    room.beat(3)
    reply = room.beat(1, stop=True)
    assert (reply.should_shut_down, reply.is_fenced) == (True, True)
    assert room.image.brokers[1].fenced


def test_a_fenced_broker_is_not_waited_for() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    room.beat(1, stop=True)
    room.beat(2)
    assert not room.beat(1, stop=True).should_shut_down
    room.beat(3, want_fence=True)
    room.beat(2)
    assert room.beat(1, stop=True).should_shut_down


def test_a_broker_that_leads_nothing_may_stop_at_once_and_leaves_its_isrs() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    assert room.beat(2, stop=True).should_shut_down
    assert room.partition("t").isr == (1, 3)
    assert room.image.brokers[2].fenced


def test_the_only_replica_may_stop_and_leads_again_when_it_returns() -> None:
    room = ControllerHarness()
    room.topic("t", [1])
    room.beat(1, stop=True)
    assert (room.partition("t").leader, room.partition("t").isr) == (NO_NODE, (1,))
    room.beat(2)
    room.beat(3)
    assert room.beat(1, stop=True).should_shut_down
    room.join(1, incarnation=2)
    assert room.partition("t").leader == 1


def test_a_fenced_broker_may_stop_at_once() -> None:
    room = ControllerHarness()
    room.lose(1)
    before = len(room.log)
    assert room.beat(1, stop=True).should_shut_down
    assert len(room.log) == before


def test_a_stopping_broker_stays_so_for_the_next_controller() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    room.beat(1, stop=True)
    room.fail_over()
    assert not room.beat(1, stop=True).should_shut_down
    room.beat(2)
    room.beat(3)
    assert room.beat(1, stop=True).should_shut_down


def test_a_stopping_broker_is_not_let_back_in_by_its_own_heartbeat() -> None:
    room = ControllerHarness()
    room.topic("t", [1, 2, 3])
    room.beat(1, stop=True)
    room.beat(1)
    assert room.image.brokers[1].in_controlled_shutdown


def test_a_stopping_broker_whose_session_ended_does_not_come_back() -> None:
    room = ControllerHarness()
    room.topic("t", [1])
    room.beat(1, stop=True)
    room.lose(1)
    reply = room.beat(1)
    assert (reply.is_fenced, reply.should_shut_down) == (True, True)
    assert room.partition("t").leader == NO_NODE


def test_only_what_the_controller_decides_is_decided() -> None:
    room = ControllerHarness()
    with pytest.raises(KeyError):
        room.controller.decide(ApiKey.METADATA, object(), room.now_ms)
