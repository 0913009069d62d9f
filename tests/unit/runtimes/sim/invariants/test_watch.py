"""The watch sees real logs, state machines and images change, and says what is broken; and it says nothing else."""

from __future__ import annotations

import pytest

from squall.chaos.runtimes.sim.invariants import InvariantChecker, TopicGuarantees, inspection
from tests.support.clusters.watched_world import TOPIC_ID, WatchedWorld
from tests.support.disks.batches import NEWEST, batch


def replicated(records: int = 5, **settings: object) -> WatchedWorld:
    """Return a world in which all records are committed and on every node."""
    world = WatchedWorld(**settings)  # type: ignore[arg-type]
    for number in range(records):
        world.nodes[1].write(b"v%d" % number)
        world.look()
        world.replicate()
    assert world.names == []
    assert committed(world) == records
    return world


def committed(world: WatchedWorld) -> int:
    return world.watch.partitions[TOPIC_ID, 0].ledger.end


def elect(world: WatchedWorld, leader: int, isr: tuple[int, ...], **more: object) -> None:
    world.decide(leader=leader, isr=isr, **more)
    for node in world.nodes.values():
        if node.node is not None:
            node.learn()
    world.look()


def test_a_sound_life_with_a_kill_and_an_election_breaks_nothing() -> None:
    world = replicated()
    world.nodes[1].write()
    world.look()
    world.nodes[1].kill()
    world.look()
    elect(world, 2, (2, 3))
    world.nodes[2].write()
    world.replicate(3)
    assert committed(world) == 6
    world.nodes[1].start()
    world.register(1)
    world.look()
    # It has one record that no other replica has: where the logs part, it is cut off.
    world.nodes[1].learn()
    world.nodes[1].hosted.log.truncate_to(5)
    world.nodes[1].hosted.state.truncated(5)
    world.look()
    world.replicate()
    assert world.names == []
    assert committed(world) == 6


def test_what_a_node_decided_and_committed_in_the_moment_that_it_died_in_is_known() -> None:
    world = replicated(min_isr=1)
    world.nodes[1].write()
    world.look()
    assert committed(world) == 5
    world.decide(isr=(1,))
    world.nodes[1].learn()
    world.nodes[1].kill()
    world.look()
    assert committed(world) == 6
    world.nodes[2].hosted.log.increment_log_start(2)
    world.look()
    assert world.names == []


def test_segments_that_roll_are_read_on() -> None:
    world = replicated(30, segment_bytes=200)
    assert len(world.nodes[1].hosted.log.segments) > 3
    assert len(world.watch.partitions[TOPIC_ID, 0].ledger.batches) == 30


def test_retention_takes_nothing_that_counts() -> None:
    world = replicated(30, segment_bytes=200)
    for node in world.nodes.values():
        node.hosted.log.increment_log_start(20)
        node.hosted.log.delete_old_segments(0, 30)
        node.hosted.state.log_start_moved(node.hosted.log.log_start_offset)
        world.look()
    world.nodes[1].write()
    world.replicate()
    world.nodes[2].kill()
    world.look()
    assert world.names == []
    assert committed(world) == 31


def test_what_a_leader_commits_and_acknowledges_as_it_dies_counts_as_held_by_its_followers() -> None:
    """Seed 501564: its next send was its last one, and no replica has changed since."""
    world = replicated()
    world.nodes[1].write()
    for follower in (2, 3):
        world.nodes[follower].fetch_from(world.nodes[1])
    world.look()
    state, end = world.nodes[1].hosted.state, world.nodes[1].hosted.log.log_end_offset
    for follower in (2, 3):
        state.follower_fetched(follower, end, world.epochs[follower], world.now_ms)
    assert state.high_watermark == end
    world.nodes[1].kill()
    world.look()
    world.watch.acknowledged("t", 0, end - 1, None, -1, 2)
    assert (world.names, committed(world)) == ([], end)


def after_an_unclean_election() -> WatchedWorld:
    """Node 2 leads without the last 5 of 10 committed records, as is permitted; the others have not been cut yet."""
    world = replicated(5, min_isr=1, segment_bytes=200)
    world.watch._promise = TopicGuarantees(min_isr=1, unclean=True)
    world.decide(isr=(1, 3))
    world.nodes[1].learn()
    for _ in range(5):
        world.nodes[1].write()
        world.replicate(3)
    assert committed(world) == 10
    elect(world, 2, (2,), leader_recovery_state=1)
    assert (world.names, committed(world)) == ([], 5)
    return world


def test_what_a_replica_deletes_beyond_the_end_of_a_permitted_loss_it_deletes_up_to_there() -> None:
    """Seed 602840: its own high watermark is from before the loss, and so retention reaches further than the leader."""
    world = after_an_unclean_election()
    log = world.nodes[3].hosted.log
    log.increment_log_start(8)
    world.look()
    assert world.watch.partitions[TOPIC_ID, 0].ledger.low == 5
    log.truncate_fully_and_start_at(5)
    world.nodes[3].hosted.state.truncated(5)
    world.look()
    world.nodes[2].write()
    world.replicate(3)
    assert (world.names, committed(world)) == ([], 6)


def test_who_holds_nothing_of_what_is_committed_loses_nothing_by_a_truncation() -> None:
    world = after_an_unclean_election()
    h = world.nodes[3].hosted
    h.log.truncate_fully_and_start_at(10)
    h.state.truncated(10)
    world.look()
    for _ in range(3):
        world.nodes[2].write()
    world.look()
    assert committed(world) == 8
    h.log.truncate_fully_and_start_at(5)
    h.state.truncated(5)
    world.look()
    assert world.names == []


def test_a_truncation_of_what_is_committed_is_seen_at_once() -> None:
    world = replicated()
    world.nodes[3].hosted.log.truncate_to(3)
    world.nodes[3].hosted.state.truncated(3)
    world.look()
    assert world.names[0] == "truncation-keeps-committed"
    (isr,) = [str(each) for each in world.violations if each.name == "strong-isr"]
    assert "the log of node 3 ends at 3, and the " in isr and isr.endswith(" is committed"), isr
    assert world.violations[0].node == 3
    assert world.violations[0].details["committed"] == 5


@pytest.mark.parametrize("rotten", [False, True])
def test_another_batch_in_the_place_of_a_committed_one_is_seen_but_where_bits_rot(rotten: bool) -> None:
    world = replicated()
    world.watch.damaged(3, rotten=rotten)
    log = world.nodes[3].hosted.log
    log.truncate_to(4)
    log.append_as_follower(batch(1, base=4, leader_epoch=0, key=b"other"), NEWEST)
    world.look()
    assert "log-matching" in world.names
    assert ("committed-prefix" in world.names) is not rotten


def test_a_leader_elected_without_what_is_committed_is_seen() -> None:
    world = replicated()
    world.nodes[1].write()
    world.replicate(2)
    assert committed(world) == 5, "node 3 is in the ISR, and does not have it"
    world.decide(isr=(1, 2))
    world.nodes[1].learn()
    world.nodes[1].write()
    world.replicate(2)
    assert committed(world) == 7
    elect(world, 3, (3,))
    assert "leader-completeness" in world.names


@pytest.mark.parametrize(("elr", "expected"), [(False, []), (True, ["leader-completeness"])])
def test_the_last_one_may_lose_with_the_power_what_only_it_had(elr: bool, expected: list[str]) -> None:
    world = replicated(min_isr=1)
    world.watch._promise = TopicGuarantees(min_isr=1, elr=elr)
    world.decide(isr=(1,))
    world.nodes[1].learn()
    for _ in range(9):
        world.nodes[1].write()
    world.look()
    assert committed(world) == 14
    world.nodes[1].kill(power=True)
    world.look()
    assert world.watch.partitions[TOPIC_ID, 0].lost.keys() == {1}, "this seed loses something"
    world.decide(leader=-1)
    for node in (2, 3):
        world.nodes[node].learn()
    world.look()
    world.register(1)
    world.nodes[1].start()
    world.look()
    elect(world, 1, (1,))
    assert [name for name in world.names if name == "leader-completeness"] == expected
    assert committed(world) < 14


def test_a_kill_loses_nothing_and_a_recovery_that_does_is_seen() -> None:
    world = replicated()
    world.nodes[2].kill()
    world.look()
    assert world.watch.partitions[TOPIC_ID, 0].copies[2].matched == 5
    files = world.nodes[2].disk.files()
    name = next(name for name in files if name.startswith("data/t-0/") and name.endswith(".log"))
    world.nodes[2].disk.restore({**files, name: files[name][:-10]})
    world.nodes[2].start()
    world.look()
    assert "recovery-keeps-committed" in world.names


def test_an_acknowledgement_is_held_against_what_is_there() -> None:
    world = replicated()
    watch: InvariantChecker = world.watch
    watch.acknowledged("t", 0, 4, None, -1, 2)
    watch.acknowledged("t", 0, 4, b"A" * 20, -1, 2)
    watch.acknowledged("t", 0, 4, b"A" * 7, -1, 2)
    watch.acknowledged("t", 0, 7, None, 1, 2)
    watch.acknowledged("elsewhere", 0, 7, None, -1, 2)
    assert world.names == []
    watch.acknowledged("t", 0, 5, None, -1, 2)
    watch.acknowledged("t", 0, 4, b"something else", -1, 2)
    assert world.names == ["acknowledged-is-committed", "acknowledged-offset"]


def test_after_a_permitted_loss_acknowledgements_of_later_leaders_count_again() -> None:
    world = after_an_unclean_election()
    follower = world.nodes[3].hosted
    follower.log.truncate_to(5)
    follower.state.truncated(5)
    world.nodes[2].write(b"v")
    world.replicate(3)
    world.decide(isr=(2, 3))
    world.nodes[2].learn()
    world.nodes[2].write(b"newer")
    world.look()
    assert committed(world) == 6, "node 3 is in the ISR, and does not have the newest"
    newer = inspection.record_at(world.nodes[2].hosted.log, world.nodes[2].disk, 6)
    assert newer is not None
    world.watch.acknowledged("t", 0, 6, b"sent to node 1", -1, 1)
    world.watch.acknowledged("t", 0, 7, newer, -1, 1)
    assert world.names == [], "the answer of the leader before the loss comes late"
    world.watch.acknowledged("t", 0, 6, newer, -1, 1)
    assert world.names == ["acknowledged-is-committed"]


def test_after_a_permitted_loss_an_acknowledgement_behind_all_that_was_ever_there_counts() -> None:
    world = after_an_unclean_election()
    world.watch.acknowledged("t", 0, 9, b"who knows", -1, 1)
    assert world.names == [], "node 1 of the epoch before had ten records"
    world.watch.acknowledged("t", 0, 10, b"who knows", -1, 1)
    assert world.names == ["acknowledged-is-committed"]


def test_after_a_permitted_loss_what_is_committed_and_acknowledged_must_be_replicated_again() -> None:
    world = after_an_unclean_election()
    world.nodes[2].write()
    world.look()
    assert committed(world) == 6
    world.watch.acknowledged("t", 0, 4, b"v4", -1, 3)
    assert world.names == [], "node 3 may have lost what was committed before"
    world.watch.acknowledged("t", 0, 5, None, -1, 1)
    assert world.names == []
    world.watch.acknowledged("t", 0, 5, None, -1, 2)
    assert world.names == ["acknowledged-is-replicated"]


def test_two_nodes_lose_the_ends_of_their_files_and_only_the_undamaged_one_is_to_blame() -> None:
    for node, expected in ((2, False), (3, True)):
        world = replicated()
        world.watch.damaged(2, rotten=True)
        world.nodes[node].kill()
        world.look()
        files = world.nodes[node].disk.files()
        name = next(name for name in files if name.startswith("data/t-0/") and name.endswith(".log"))
        world.nodes[node].disk.restore({**files, name: files[name][:-10]})
        world.nodes[node].start()
        world.look()
        assert ("recovery-keeps-committed" in world.names) is expected


def test_an_eligible_replica_that_the_leader_does_not_wait_for_is_seen_before_it_lacks_anything() -> None:
    world = replicated()
    world.decide(isr=(1, 3))
    world.nodes[1].learn()
    world.look()
    assert world.names == []
    world.decide(elr=(2,))
    world.nodes[1].learn()
    world.look()
    assert world.names == ["elr-superset"]


def test_what_a_reader_was_served_stays_as_it_is_over_all_leaders() -> None:
    world = replicated()
    watch: InvariantChecker = world.watch
    watch.served("t", 0, 0, [(0, 70), (1, 71), (2, -1)])
    elect(world, 2, (2, 3))
    watch.served("t", 0, 1, [(0, 70), (1, 71), (2, 72)])
    watch.served("t", 0, 0, [(2, 72)])
    watch.served("elsewhere", 0, 1, [(0, 99)])
    assert world.names == []
    watch.served("t", 0, 1, [(1, 99)])
    assert world.names == ["consistent-read"], "all logs are sound"
    assert "offset 1 was served as value 71 in epoch 0, and as value 99 in epoch 1" in str(world.violations[0])


def test_a_reader_is_served_nothing_that_is_not_committed() -> None:
    world = replicated()
    world.nodes[1].write()
    world.look()
    world.watch.served("t", 0, 0, [(4, 74)])
    assert world.names == []
    world.watch.served("t", 0, 0, [(5, 75)])
    assert world.names == ["served-is-committed"]


def test_only_what_a_permitted_loss_took_may_be_served_anew_and_overtaken_leaders_do_not_count() -> None:
    world = after_an_unclean_election()
    watch: InvariantChecker = world.watch
    known = watch.partitions[TOPIC_ID, 0]
    known.served.clear()
    world.nodes[2].write()
    world.look()
    watch.served("t", 0, 0, [(5, 75), (9, 79)])
    assert (world.names, known.served) == ([], {}), "of the leader before the loss"
    watch.served("t", 0, 1, [(4, 74), (5, 85)])
    assert world.names == []
    watch.served("t", 0, 1, [(5, 75)])
    assert world.names == ["consistent-read"]


def test_a_permitted_loss_keeps_what_was_served_below_it() -> None:
    world = replicated(min_isr=1)
    world.watch._promise = TopicGuarantees(min_isr=1, unclean=True)
    world.decide(isr=(1, 3))
    world.nodes[1].learn()
    world.nodes[1].write()
    world.replicate(3)
    world.watch.served("t", 0, 0, [(4, 74), (5, 75)])
    elect(world, 2, (2,), leader_recovery_state=1)
    world.nodes[2].write()
    world.look()
    world.watch.served("t", 0, 1, [(5, 85)])
    assert world.names == []
    world.watch.served("t", 0, 1, [(4, 84)])
    assert world.names == ["consistent-read"]


@pytest.mark.parametrize("rotten", [1, 2])
def test_a_rotten_leader_may_serve_anything_and_no_other(rotten: int) -> None:
    world = replicated()
    world.watch.damaged(rotten, rotten=True)
    world.watch.served("t", 0, 0, [(0, 70)])
    world.watch.served("t", 0, 0, [(0, 99)])
    assert world.names == ([] if rotten == 1 else ["consistent-read"])


def test_two_images_at_one_offset_must_agree() -> None:
    world = replicated()
    world.nodes[2].node.feed.image.features["group.version"] = 1
    world.nodes[2].node.feed.image.offset += 1
    world.nodes[3].node.feed.image.offset += 1
    world.look()
    assert world.names == ["image-is-a-replay"]


def test_a_quorum_leader_to_which_nothing_happens_is_looked_at_all_the_same() -> None:
    world = replicated()
    quorum = world.nodes[2].node.control.quorum
    quorum.now_ms = lambda: int(world.kernel.now * 1000)
    quorum.is_leader = True
    for world.kernel.now in (0.1, 1.0, 1.7, 2.0):
        world.look()
        assert world.names == [], "its patience is not over, or it may not know yet"
    world.nodes[2].env.paused = True
    world.kernel.now = 9.0
    world.look()
    assert world.names == [], "it is held"
    world.nodes[2].env.paused = False
    world.look()
    assert world.names == ["metadata-leader-is-followed"]


def test_one_broken_promise_is_told_once() -> None:
    world = replicated()
    for end in (4, 3, 2):
        world.nodes[3].hosted.log.truncate_to(end)
        world.nodes[3].hosted.state.truncated(end)
        world.look()
    assert len(world.names) == len(set(world.names))


def test_what_lacks_is_told_in_lines() -> None:
    world = replicated()
    assert [line for line in world.watch.stuck() if "quorum" not in line] == []
    world.nodes[1].write()
    world.look()
    world.nodes[3].kill()
    world.look()
    world.decide(isr=(1, 2))
    world.nodes[1].learn()
    world.look()
    lines = "\n".join(world.watch.stuck())
    assert "node 3 is down" in lines
    assert "t-0: not in the ISR: [3]" in lines
    assert "node 1, leader, ends at 6, high watermark 5" in lines


def test_the_end_asks_for_agreement() -> None:
    world = replicated()
    assert world.watch.final() == []
    world.nodes[1].write()
    assert [violation.name for violation in world.watch.final()] == ["replicas-agree"]


def test_who_was_elected_uncleanly_says_what_is_committed_from_then_on() -> None:
    world = replicated(min_isr=1)
    world.watch._promise = TopicGuarantees(min_isr=1, unclean=True)
    for end in (4, 3):
        world.nodes[3].hosted.log.truncate_to(end)
        world.nodes[3].hosted.state.truncated(end)
    # A replica that lags, made by hand: that it does is no part of this story.
    world.decide(isr=(1, 2))
    elect(world, 3, (3,), leader_recovery_state=1)
    assert committed(world) == 3
    world.nodes[3].write()
    world.look()
    assert committed(world) == 4
    assert "leader-completeness" not in world.names
    assert "committed-prefix" not in world.names
