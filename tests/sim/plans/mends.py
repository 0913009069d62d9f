"""Undoes the fix of a bug of ours, for as long as a test lasts: then the bug is back.

A plan that is "broken by: nothing" has no setting and no planted bug that could show that it still tests what it was
kept for. With the fix undone it must fail as it did before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from squall.broker.coordinators.groups.consumer import coordination
from squall.broker.coordinators.groups.consumer.coordination import ConsumerCoordination
from squall.broker.log.high_watermarks import HighWatermarkCheckpoint
from squall.broker.replicas.coordinators.coordinator_log import CoordinatorLog
from squall.broker.replicas.flushes import FlushScheduler
from squall.broker.replication.partition import Partition
from squall.chaos.runtimes.sim import disk_faults
from squall.chaos.runtimes.sim.invariants import quorum_watch
from squall.chaos.runtimes.sim.invariants.batches import CommittedBatches
from squall.chaos.runtimes.sim.invariants.image_watch import ImageWatch
from squall.chaos.runtimes.sim.invariants.models import PartitionModel
from squall.chaos.runtimes.sim.invariants.txn_watch import TransactionWatch
from squall.chaos.runtimes.sim.invariants.watch import InvariantChecker
from squall.checkers import guarantees, nemesis_log, reasons
from squall.checkers.anomalies import send_reorder
from squall.checkers.history.groups import GroupTableBuilder
from squall.workloads.client import admin
from squall.workloads.client.groups.base_member import BaseGroupMember
from squall.workloads.client.groups.member import GroupMember
from squall.workloads.control import AdminLog, ClientHandle

if TYPE_CHECKING:
    from squall.broker.protocol.schema.join_group import JoinGroupResponse
    from squall.chaos.runtimes.sim.invariants.decision_log import PartitionDecision
    from squall.chaos.runtimes.sim.invariants.log_replay import WrittenMarker
    from squall.workloads.client.client import Client
    from squall.workloads.client.groups.membership import ResponseAction
    from squall.workloads.client.new_topic import NewTopic

Undo = Callable[[pytest.MonkeyPatch], None]


def heartbeats_prove_ownership_always(undone: pytest.MonkeyPatch) -> None:
    """Let heartbeats prove that a partition has two owners even while a fault separates brokers."""
    undone.setattr(nemesis_log, "apart", lambda _: [])


def who_is_hosted_last_has_the_name(undone: pytest.MonkeyPatch) -> None:
    """Let the invariants take a topic for the present one of its name as soon as a node hosts it, even if it is deleted
    already.
    """
    sound = InvariantChecker._known

    def known(watch: InvariantChecker, topic_id: bytes, topic: str, index: int) -> PartitionModel:
        is_new = (topic_id, index) not in watch.partitions
        found = sound(watch, topic_id, topic, index)
        if is_new:
            watch._by_name[topic, index] = found
        return found

    undone.setattr(InvariantChecker, "_known", known)


def topics_are_deleted_by_name(undone: pytest.MonkeyPatch) -> None:
    """Let the client delete a topic by name instead of by id: a late request then deletes the next topic of that name.
    """
    make, names = admin.create_topics, list[str]()

    async def create_topics(client: Client, topics: Sequence[NewTopic], timeout_ms: int = 10_000) -> dict[str, str]:
        names.extend(topic.name for topic in topics)
        return await make(client, topics, timeout_ms)

    async def delete_topic(client: Client, _: bytes, timeout_ms: int = 10_000) -> str:
        answer = (await admin.delete_topics(client, names[-1:], timeout_ms))[names[-1]]
        return "UNKNOWN_TOPIC_ID" if answer == "UNKNOWN_TOPIC_OR_PARTITION" else answer

    undone.setattr(admin, "create_topics", create_topics)
    undone.setattr(admin, "delete_topic", delete_topic)


def later_copies_are_not_looked_at(undone: pytest.MonkeyPatch) -> None:
    """Let the check of the order of sends use the first remaining copy of a record only."""
    undone.setattr(send_reorder, "_last_copy", lambda _: -1)


def the_dying_delete_nothing(undone: pytest.MonkeyPatch) -> None:
    """Let the invariants miss the records that a broker deletes at the moment of its death."""
    _nobody_hears_the_dying(undone, CommittedBatches, "deleted")


def the_dying_decide_nothing(undone: pytest.MonkeyPatch) -> None:
    """Let the invariants miss what a controller decides at the moment of its death."""
    _nobody_hears_the_dying(undone, InvariantChecker, "_image_moved")


def _nobody_hears_the_dying(undone: pytest.MonkeyPatch, owner: type[Any], what: str) -> None:
    died = InvariantChecker._died

    def unseen(watch: InvariantChecker, seen: Any) -> None:
        with pytest.MonkeyPatch.context() as dying:
            dying.setattr(owner, what, lambda *_: None)
            died(watch, seen)

    undone.setattr(InvariantChecker, "_died", unseen)


def a_dead_voter_has_its_log_alone(undone: pytest.MonkeyPatch) -> None:
    """Let the invariants ignore the snapshot of a dead voter: they see its log alone."""
    undone.setattr(quorum_watch, "newest_snapshot_end", lambda *_: -1)


def only_what_is_committed_is_durable(undone: pytest.MonkeyPatch) -> None:
    """Let the invariants count only committed records as durable on a damaged or dead node."""
    undone.setattr(PartitionModel, "has_uncommitted", lambda *_: False)


def all_bits_rot(undone: pytest.MonkeyPatch) -> None:
    """Let the fault flip bits that no checksum covers, too."""

    def rotten_bits(_: str, content: bytes | bytearray, bits: int, __: str, rng: Random) -> list[int]:
        return sorted(rng.sample(range(len(content) * 8), min(bits, len(content) * 8)))

    undone.setattr(disk_faults, "rotten_bits", rotten_bits)


def the_last_decision_of_an_event_counts(undone: pytest.MonkeyPatch) -> None:
    """Let the invariants check only the last of several decisions that one event makes about a partition."""
    read_on = ImageWatch._read_on

    def read(images: ImageWatch, *args: Any) -> None:
        last: dict[tuple[bytes, int], PartitionDecision] = {}
        judge = images._decided

        def keep(decided: PartitionDecision) -> None:
            last[decided[0].id, decided[1]] = decided

        images._decided = keep
        try:
            read_on(images, *args)
        finally:
            images._decided = judge
        for decided in last.values():
            judge(decided)

    undone.setattr(ImageWatch, "_read_on", read)


def whoever_joins_was_a_member(undone: pytest.MonkeyPatch) -> None:
    """Let a SyncGroup count as a heartbeat of the member, and a commit in any generation, too."""
    synchronize = GroupMember._synchronize

    async def synchronized(member: GroupMember, answer: JoinGroupResponse) -> ResponseAction:
        member.beat_sent = member.beat_answered = member._env.mono()
        return await synchronize(member, answer)

    undone.setattr(GroupMember, "_synchronize", synchronized)
    undone.setattr(GroupTableBuilder, "_assigned", lambda *_: None)


def the_woken_ask_even_if_they_have_ended(undone: pytest.MonkeyPatch) -> None:
    """Let a group member that is woken send a request although its process has ended."""

    async def until_woken(member: BaseGroupMember[Any], most_s: float) -> None:
        await member._wake.wait(most_s)

    undone.setattr(BaseGroupMember, "_until_woken", until_woken)


def min_isr_holds_before_it_is_known(undone: pytest.MonkeyPatch) -> None:
    """Let the invariants apply a new min ISR before the leader has learnt of it."""
    undone.setattr(PartitionModel, "least_min_isr", lambda known, _: known.promise.min_isr)


def every_transaction_ends(undone: pytest.MonkeyPatch) -> None:
    """Let the verdict demand that a transaction ends even if no log has it any more."""
    undone.setattr(reasons, "LEFT_UNSTABLE", {})


def every_producer_goes_on(undone: pytest.MonkeyPatch) -> None:
    """Let the verdict demand that a producer continues even if its coordinator has lost its epochs."""
    undone.delitem(reasons.LOST_IN_TRANSACTIONS, "stuck-producer/load")


def a_log_is_lost_from_its_end(undone: pytest.MonkeyPatch) -> None:
    """Let the verdict assume that a damaged log loses records only at its end."""
    for row in guarantees.BASE:
        for permits in (row.d.permits, row.dm.permits):
            undone.delitem(permits, "poll-skip", raising=False)


def the_isr_comes_before_the_settings(undone: pytest.MonkeyPatch) -> None:
    """Let a broker apply an image's ISR before its settings, so that the former settings are briefly in force."""
    undone.setattr(Partition, "expect", lambda *_: None)


def high_watermarks_outlive_their_records(undone: pytest.MonkeyPatch) -> None:
    """Let a broker keep the high watermark of a deleted partition until the next checkpoint."""
    undone.setattr(HighWatermarkCheckpoint, "cut", lambda *_: None)


def a_marker_is_held_against_what_any_log_knows(undone: pytest.MonkeyPatch) -> None:
    """Let the invariants compare a marker with the producer state of any log, even a follower's, after a permitted
    loss.
    """
    sound = TransactionWatch._marker

    def marker(watch: TransactionWatch, node: int, known: PartitionModel, marked: WrittenMarker) -> None:
        with pytest.MonkeyPatch.context() as asking:
            asking.setattr(known, "leaders", dict.fromkeys([*known.leaders, marked.batch.epoch], node))
            sound(watch, node, known, marked)

    undone.setattr(TransactionWatch, "_marker", marker)


def nobody_waits_for_less_than_others(undone: pytest.MonkeyPatch) -> None:
    """Let the coordinator assume that a later wait is always for a higher offset."""
    sound = CoordinatorLog._wait_for

    def wait_for(log: CoordinatorLog, end_offset: int) -> Any:
        waiting = [each for each in log._awaited if not log.is_committed(each.end_offset - 1)]
        assert all(each.end_offset <= end_offset for each in waiting)
        return sound(log, end_offset)

    undone.setattr(CoordinatorLog, "_wait_for", wait_for)


def nobody_waits_to_alter_a_setting(undone: pytest.MonkeyPatch) -> None:
    """Let two faults alter the same setting at the same time."""

    class Turns(dict[Any, Any]):
        def setdefault(self, _: Any, fresh: Any = None) -> Any:
            return fresh

    sound = AdminLog.__init__

    def init(desk: AdminLog, *args: Any) -> None:
        sound(desk, *args, Turns())

    undone.setattr(AdminLog, "__init__", init)


def groups_go_down_whatever_their_size(undone: pytest.MonkeyPatch) -> None:
    """Let the coordinator convert a consumer group to a classic one even if the records do not fit into one batch."""
    undone.setattr(ConsumerCoordination, "_downgrade_fits", lambda *_: True)
    undone.setattr(coordination, "as_many_as_fit", lambda group, member_ids, most_bytes: member_ids)


def what_is_found_counts_at_once(undone: pytest.MonkeyPatch) -> None:
    """Let a broker use the log that a crash has left without the fsync that flush.messages demands."""
    undone.setattr(FlushScheduler, "opened", lambda flushes, log, config: log.configure(config))


def a_generation_has_its_number_for_itself(undone: pytest.MonkeyPatch) -> None:
    """Let a member's assignment count for ever, even if a later generation has the same number."""
    undone.setattr(GroupTableBuilder, "_session_may_have_expired", lambda *_: False)


def whoever_gathers_goes_on(undone: pytest.MonkeyPatch) -> None:
    """Let a process that was to become a zombie become one although that is no longer wanted."""
    sound = ClientHandle.wake

    def wake(handle: ClientHandle, who: int) -> None:
        run = handle._zombie_runs.get(who)
        sound(handle, who)
        if run is not None:
            run.woken = run.zombie >= 0

    undone.setattr(ClientHandle, "wake", wake)


MENDS: dict[str, Undo] = {
    "a_controller_decides_and_commits_in_the_moment_that_it_dies": the_dying_decide_nothing,
    "a_coordinator_has_lost_epochs_that_partitions_know": every_producer_goes_on,
    "a_coordinator_that_is_cut_off_answers_its_member": heartbeats_prove_ownership_always,
    "a_generation_has_the_number_of_an_old_one": a_generation_has_its_number_for_itself,
    "a_group_waits_for_a_transaction_that_is_lost": every_transaction_ends,
    "a_late_node_hosts_a_deleted_topic_of_the_name": who_is_hosted_last_has_the_name,
    "a_late_request_deletes_the_next_topic_of_the_name": topics_are_deleted_by_name,
    "a_leader_has_lost_what_its_follower_knows_of_a_producer": a_marker_is_held_against_what_any_log_knows,
    "a_leader_has_not_learnt_of_a_larger_min_isr": min_isr_holds_before_it_is_known,
    "a_leader_dies_in_the_moment_that_it_deletes_records": the_dying_delete_nothing,
    "a_leader_learns_of_its_isr_and_of_a_larger_min_isr_at_once": the_isr_comes_before_the_settings,
    "a_member_is_woken_as_its_process_ends": the_woken_ask_even_if_they_have_ended,
    "a_member_that_stood_still_joins_again": whoever_joins_was_a_member,
    "a_topic_made_again_has_the_high_watermark_of_its_predecessor": high_watermarks_outlive_their_records,
    "a_voter_dies_as_it_installs_a_snapshot": a_dead_voter_has_its_log_alone,
    "a_segment_inside_the_log_is_gone": a_log_is_lost_from_its_end,
    "acks_1_on_a_damaged_disk": only_what_is_committed_is_durable,
    "bits_that_no_checksum_covers_are_spared": all_bits_rot,
    "copies_of_which_the_first_is_deleted": later_copies_are_not_looked_at,
    "members_of_a_group_cannot_be_written_off": groups_go_down_whatever_their_size,
    "two_faults_alter_the_same_setting": nobody_waits_to_alter_a_setting,
    "two_groups_wait_for_one_marker": nobody_waits_for_less_than_others,
    "two_decisions_of_one_event": the_last_decision_of_an_event_counts,
    "a_zombie_that_is_wanted_no_more": whoever_gathers_goes_on,
    "what_a_crash_left_without_its_fsync_counts": what_is_found_counts_at_once,
}
"""For each plan, the function that undoes the fix."""
