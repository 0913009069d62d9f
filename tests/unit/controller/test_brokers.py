"""Registration, heartbeats, fencing, controlled shutdown."""

from __future__ import annotations

import pytest

from squall.broker.controller.features import FEATURES
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema.broker_registration import BrokerRegistrationRequest
from squall.broker.protocol.schema.metadata_records import RegisterBrokerRecord
from tests.support.brokers.controller_harness import CLUSTER_ID, SESSION_MS, ControllerHarness

# ------------------------------------------------------------------------------------------------------ registration


def test_the_broker_epoch_is_the_offset_of_the_registration() -> None:
    harness = ControllerHarness(brokers=0)
    _, epoch = harness.register(1)
    ((offset, record),) = [entry for entry in harness.log if isinstance(entry[1], RegisterBrokerRecord)]
    assert epoch == record.broker_epoch == offset == harness.image.brokers[1].epoch


def test_the_broker_epoch_is_the_offset_also_when_the_quorum_wrote_in_between() -> None:
    harness = ControllerHarness(brokers=1)
    harness.fail_over()
    _, epoch = harness.register(2)
    assert epoch == harness.log[-1][0] == harness.image.brokers[2].registered_at


def test_a_registered_broker_is_fenced_until_it_has_caught_up_to_its_own_registration() -> None:
    harness = ControllerHarness(brokers=1)
    _, epoch = harness.register(2)
    assert harness.image.brokers[2].fenced
    behind = harness.beat(2, offset=epoch - 1)
    assert (behind.is_fenced, behind.is_caught_up) == (True, False)
    caught_up = harness.beat(2, offset=epoch)
    assert (caught_up.is_fenced, caught_up.is_caught_up) == (False, True)
    assert harness.image.brokers[2].active


def test_a_broker_that_wants_to_stay_fenced_does() -> None:
    harness = ControllerHarness(brokers=1)
    harness.register(2)
    assert harness.beat(2, want_fence=True).is_fenced
    assert harness.image.brokers[2].fenced


def test_another_cluster_is_refused() -> None:
    harness = ControllerHarness(brokers=0)
    assert harness.register(1, cluster_id="other") == (ErrorCode.INCONSISTENT_CLUSTER_ID, -1)
    assert harness.image.brokers == {}


@pytest.mark.parametrize("broker_id", [-1, -(2**31)])
def test_nobody_registers_as_nobody(broker_id: int) -> None:
    """The id -1 means "no leader": a replica on such a broker would lead and not lead."""
    harness = ControllerHarness()
    request = BrokerRegistrationRequest(broker_id=broker_id, cluster_id=CLUSTER_ID, incarnation_id=bytes(16))
    assert harness.do(ApiKey.BROKER_REGISTRATION, request).error_code == ErrorCode.INVALID_REQUEST
    assert broker_id not in harness.image.brokers


def test_a_broker_without_a_finalized_feature_level_is_refused() -> None:
    harness = ControllerHarness(brokers=0)
    assert harness.register(1, features={})[0] == ErrorCode.UNSUPPORTED_VERSION
    assert harness.register(1, features={"metadata.version": (1, 28)})[0] == ErrorCode.UNSUPPORTED_VERSION


def test_another_incarnation_is_refused_while_the_session_lasts() -> None:
    harness = ControllerHarness()
    harness.now_ms += SESSION_MS
    assert harness.register(1, incarnation=2)[0] == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    harness.now_ms += 1
    assert harness.register(1, incarnation=2)[0] == ErrorCode.NONE


def test_another_incarnation_of_a_fenced_broker_is_taken_at_once() -> None:
    harness = ControllerHarness()
    harness.lose(1)
    before = harness.image.brokers[1].epoch
    error, epoch = harness.register(1, incarnation=2)
    assert error == ErrorCode.NONE
    assert epoch > before


def test_another_incarnation_of_a_stopping_broker_is_taken_at_once() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.beat(1, stop=True)
    assert harness.image.brokers[1].in_controlled_shutdown
    assert harness.register(1, incarnation=2)[0] == ErrorCode.NONE
    assert not harness.image.brokers[1].in_controlled_shutdown


def test_the_same_incarnation_amends_its_registration_and_keeps_epoch_and_state() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    before = harness.image.brokers[1]
    assert harness.register(1) == (ErrorCode.NONE, before.epoch)
    after = harness.image.brokers[1]
    assert (after.epoch, after.fenced) == (before.epoch, False)
    assert after.registered_at > before.registered_at
    assert harness.partition("t").leader == 1


def test_a_new_incarnation_leaves_the_isrs_of_the_old_one() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.topic("alone", [1])
    harness.now_ms += SESSION_MS + 1
    harness.register(1, incarnation=2)
    assert (harness.partition("t").leader, harness.partition("t").isr) == (2, (2, 3))
    assert (harness.partition("alone").leader, harness.partition("alone").isr) == (NO_NODE, (1,))


def test_a_replaced_incarnation_is_told_so() -> None:
    harness = ControllerHarness()
    old = harness.image.brokers[1].epoch
    harness.now_ms += SESSION_MS + 1
    harness.register(1, incarnation=2)
    assert harness.beat(1, epoch=old).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert harness.image.brokers[1].fenced


def test_an_unknown_broker_is_told_so() -> None:
    harness = ControllerHarness()
    assert harness.beat(9, epoch=1).error_code == ErrorCode.STALE_BROKER_EPOCH


def with_elr() -> ControllerHarness:
    """Partition "t" has ISR (2,) led by 2, below its minimum of 2, with 1 eligible."""
    harness = ControllerHarness(min_insync_replicas="2")
    harness.image.features["eligible.leader.replicas.version"] = 1
    harness.topic("t", [1, 2])
    harness.lose(1)
    assert (harness.partition("t").isr, harness.partition("t").elr) == ((2,), (1,))
    return harness


def features() -> dict[str, tuple[int, int]]:
    return {feature.name: (feature.low, feature.high) for feature in FEATURES}


def test_a_clean_restart_stays_eligible() -> None:
    harness = with_elr()
    harness.register(1, incarnation=2, previous_epoch=harness.image.brokers[1].epoch, features=features())
    assert harness.partition("t").elr == (1,)


def test_an_unclean_restart_is_no_longer_eligible() -> None:
    harness = with_elr()
    harness.register(1, incarnation=2, previous_epoch=-1, features=features())
    assert harness.partition("t").elr == ()


def test_a_marker_of_an_earlier_life_is_an_unclean_restart() -> None:
    harness = with_elr()
    harness.register(1, incarnation=2, previous_epoch=harness.image.brokers[1].epoch - 1, features=features())
    assert harness.partition("t").elr == ()


# ---------------------------------------------------------------------------------------------------------- sessions


def test_a_silent_broker_is_fenced_after_its_session_and_not_before() -> None:
    harness = ControllerHarness()
    for _ in range(10):
        harness.now_ms += SESSION_MS // 10
        harness.beat(2)
        harness.beat(3)
        assert harness.tick() == 0
    harness.now_ms += 1
    assert harness.tick() == 1
    assert [broker.id for broker in harness.image.brokers.values() if broker.fenced] == [1]


def test_fencing_moves_leaderships_and_isrs() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3], [2, 1, 3], [3, 2, 1])
    harness.lose(1)
    leaders = [(harness.partition("t", i).leader, harness.partition("t", i).isr) for i in range(3)]
    assert leaders == [(2, (2, 3)), (2, (2, 3)), (3, (3, 2))]
    assert [harness.partition("t", i).leader_epoch for i in range(3)] == [1, 0, 0]


def test_a_fenced_broker_that_returns_leads_what_has_no_leader() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1])
    harness.topic("u", [1, 2])
    harness.lose(1)
    assert harness.partition("t").leader == NO_NODE
    assert not harness.beat(1).is_fenced
    assert (harness.partition("t").leader, harness.partition("t").leader_epoch) == (1, 2)
    assert harness.partition("u").leader == 2


def test_the_last_of_an_isr_to_fall_is_the_one_to_lead_again() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.lose(1)
    harness.lose(2)
    harness.lose(3)
    assert (harness.partition("t").leader, harness.partition("t").isr) == (NO_NODE, (3,))
    assert not harness.beat(1).is_fenced
    assert harness.partition("t").leader == NO_NODE
    assert not harness.beat(3).is_fenced
    assert (harness.partition("t").leader, harness.partition("t").isr) == (3, (3,))


def test_all_sessions_may_end_at_once() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.tick(SESSION_MS + 1000)
    assert all(broker.fenced for broker in harness.image.brokers.values())
    partition = harness.partition("t")
    assert partition.leader == NO_NODE
    assert len(partition.isr) == 1


def test_a_new_controller_gives_every_broker_a_fresh_session() -> None:
    harness = ControllerHarness()
    harness.now_ms += SESSION_MS
    harness.fail_over()
    harness.now_ms += SESSION_MS
    assert harness.tick() == 0
    assert harness.register(1, incarnation=2)[0] == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_controller_that_stood_still_counts_it_against_nobody() -> None:
    harness = ControllerHarness()
    harness.tick(SESSION_MS // 10)
    harness.now_ms += 2 * SESSION_MS
    assert harness.tick() == 0
    assert harness.tick(SESSION_MS // 2) == 0
    harness.tick(SESSION_MS)
    assert all(broker.fenced for broker in harness.image.brokers.values())


def test_a_heartbeat_without_news_writes_nothing() -> None:
    harness = ControllerHarness()
    before = len(harness.log)
    harness.beat(1)
    assert len(harness.log) == before


def test_an_unfenced_broker_may_ask_to_be_fenced() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2])
    assert harness.beat(1, want_fence=True).is_fenced
    assert (harness.partition("t").leader, harness.partition("t").isr) == (2, (2,))


def test_a_session_ends_in_the_millisecond_in_which_it_ends() -> None:
    harness = ControllerHarness()
    harness.now_ms += 1234
    for broker_id in (1, 2, 3):
        harness.beat(broker_id)
    assert harness.fenced_after((1, 2), 2 * SESSION_MS) == {3: SESSION_MS + 1}


def test_a_new_controller_goes_on_counting_the_session_of_the_one_before_it_and_of_nobody_else() -> None:
    harness = ControllerHarness()
    harness.now_ms += 2500
    harness.fail_over(predecessor=(3, harness.now_ms - 2100))
    assert harness.fenced_after((2,), 2 * SESSION_MS) == {3: SESSION_MS + 1 - 2100, 1: SESSION_MS + 1}


def test_a_predecessor_that_lives_has_two_heartbeats_time_to_say_so() -> None:
    harness = ControllerHarness(broker_heartbeat_interval_ms="2000")
    harness.now_ms += 10 * SESSION_MS
    harness.fail_over(predecessor=(3, harness.now_ms - 5 * SESSION_MS))
    assert harness.fenced_after((1, 2), SESSION_MS) == {3: 4001}
    harness.fail_over(predecessor=(2, harness.now_ms - 5 * SESSION_MS))
    assert harness.fenced_after((1, 2), SESSION_MS) == {}


def test_as_with_kafka_every_session_begins_anew_with_a_new_controller() -> None:
    harness = ControllerHarness(squall_controller_inherited_session="false")
    harness.fail_over(predecessor=(3, harness.now_ms - 2100))
    assert harness.fenced_after((1, 2), 2 * SESSION_MS) == {3: SESSION_MS + 1}


# ------------------------------------------------------------------------------------------------ controlled shutdown


def test_a_stopping_broker_loses_leaderships_and_isrs_before_it_may_stop() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    reply = harness.beat(1, stop=True)
    assert (reply.should_shut_down, reply.is_fenced) == (False, False)
    assert harness.image.brokers[1].in_controlled_shutdown
    assert (harness.partition("t").leader, harness.partition("t").isr) == (2, (2, 3))


def test_a_stopping_broker_waits_until_every_active_broker_has_read_of_it() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    before = harness.image.offset
    harness.beat(2)
    harness.beat(3)
    harness.beat(1, stop=True)
    assert not harness.beat(1, stop=True).should_shut_down
    harness.beat(2)
    harness.beat(3, offset=before)
    assert not harness.beat(1, stop=True).should_shut_down
    harness.beat(3)
    reply = harness.beat(1, stop=True)
    assert (reply.should_shut_down, reply.is_fenced) == (True, True)
    assert harness.image.brokers[1].fenced


def test_a_fenced_broker_is_not_waited_for() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.beat(1, stop=True)
    harness.beat(2)
    assert not harness.beat(1, stop=True).should_shut_down
    harness.beat(3, want_fence=True)
    harness.beat(2)
    assert harness.beat(1, stop=True).should_shut_down


def test_a_broker_that_leads_nothing_may_stop_at_once_and_leaves_its_isrs() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    assert harness.beat(2, stop=True).should_shut_down
    assert harness.partition("t").isr == (1, 3)
    assert harness.image.brokers[2].fenced


def test_the_only_replica_may_stop_and_leads_again_when_it_returns() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1])
    harness.beat(1, stop=True)
    assert (harness.partition("t").leader, harness.partition("t").isr) == (NO_NODE, (1,))
    harness.beat(2)
    harness.beat(3)
    assert harness.beat(1, stop=True).should_shut_down
    harness.join(1, incarnation=2)
    assert harness.partition("t").leader == 1


def test_a_fenced_broker_may_stop_at_once() -> None:
    harness = ControllerHarness()
    harness.lose(1)
    before = len(harness.log)
    assert harness.beat(1, stop=True).should_shut_down
    assert len(harness.log) == before


def test_a_stopping_broker_stays_so_for_the_next_controller() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.beat(1, stop=True)
    harness.fail_over()
    assert not harness.beat(1, stop=True).should_shut_down
    harness.beat(2)
    harness.beat(3)
    assert harness.beat(1, stop=True).should_shut_down


def test_a_stopping_broker_is_not_let_back_in_by_its_own_heartbeat() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2, 3])
    harness.beat(1, stop=True)
    harness.beat(1)
    assert harness.image.brokers[1].in_controlled_shutdown


def test_a_stopping_broker_whose_session_ended_does_not_come_back() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1])
    harness.beat(1, stop=True)
    harness.lose(1)
    reply = harness.beat(1)
    assert (reply.is_fenced, reply.should_shut_down) == (True, True)
    assert harness.partition("t").leader == NO_NODE


def test_only_what_the_controller_decides_is_decided() -> None:
    harness = ControllerHarness()
    with pytest.raises(KeyError):
        harness.controller.decide(ApiKey.METADATA, object(), harness.now_ms)
