"""The table's rows of P4 to P6: consumer groups, the offsets that they commit, and offsets inside transactions."""

from __future__ import annotations

from tests.mechanisms import consumer_groups
from tests.mechanisms import places as at
from tests.mechanisms.mechanism import Mechanism, Removal

LOG = "broker/replicas/coordinators/coordinator_log.py"
RULES, CLASSIC = "broker/coordinators/groups/rules.py", "broker/coordinators/groups/classic.py"
LEDGER, SHARD = "broker/coordinators/groups/ledger.py", "broker/coordinators/groups/shard.py"
RUNTIME = "broker/replicas/coordinators/group_coordinator.py"

GROUPS = (
    Mechanism(
        id="P4",
        rule="Offsets that are committed in a transaction are pending until its marker: they count from a commit on,"
        " never after an abort, and the marker is answered after that.",
        source="KIP-98; KIP-447; KIP-890; KAFKA-5547; KAFKA-5600",
        tests={
            at.GROUP_OFFSETS: (
                "test_offsets_of_a_transaction_count_once_it_is_committed",
                "test_an_offset_that_was_committed_after_the_transactions_own_is_the_later_word",
                "test_each_transaction_ends_for_itself",
                "test_a_member_that_was_replaced_cannot_commit_in_a_transaction_either",
                "test_a_group_that_is_deleted_takes_its_pending_offsets_along",
            ),
            at.GROUP_COORDINATOR: (
                "test_offsets_count_from_the_marker_on_which_is_answered_after_that",
                "test_the_next_coordinator_knows_what_is_pending",
                "test_a_marker_that_comes_while_the_log_is_loaded_is_not_missed",
                "test_a_transaction_of_which_its_coordinator_has_not_heard_commits_nothing",
                "test_what_a_transactions_coordinator_said_before_a_marker_is_of_no_use_after_it",
            ),
        },
        removals=(
            Removal(
                "counts offsets before their transaction is committed",
                LEDGER,
                "ReplayedGroupState.replay",
                piece="if producer_id >= 0:",
                by="if False:",
            ),
            Removal(
                "counts offsets of aborted transactions",
                LEDGER,
                "ReplayedGroupState.end_transaction",
                piece="if commit:",
                by="if True:",
            ),
            Removal(
                "puts the offset of a transaction over a later one",
                LEDGER,
                "ReplayedGroupState._materialize",
                piece="if present is None or present.written_at < committed.written_at:",
                by="if True:",
            ),
            Removal(
                "tells of no offset that it is pending", LEDGER, "ReplayedGroupState.is_pending", body="return False"
            ),
            Removal(
                "hears of no marker",
                RUNTIME,
                "GroupCoordinator.transaction_ended",
                body="return",
            ),
            Removal(
                "forgets on loading to which transaction offsets belong",
                RUNTIME,
                "GroupCoordinator._replay",
                piece="producer_id = header.producer_id if header.is_transactional else -1",
                by="producer_id = -1",
            ),
            Removal(
                "reads the log once, and misses what came meanwhile",
                RUNTIME,
                "GroupCoordinator.transaction_ended",
                piece="shard.replayed",
                by="shard.serves",
            ),
            Removal(
                "takes offsets of whoever commits in a transaction",
                RULES,
                "ClassicGroupRules.refusal_of_commit",
                piece="if request.generation < 0",
                by="if in_transaction or request.generation < 0",
            ),
            Removal(
                "asks nobody whether the transaction exists",
                LOG,
                "CoordinatorLog.is_transaction_verified",
                body="return True",
            ),
        ),
    ),
    Mechanism(
        id="P5",
        rule="A group's offsets stand in a replicated log. Its coordinator takes them from the members of the current"
        " generation alone, answers once they are committed, tells none that a successor may have replaced to whoever"
        " asks for stable ones, forgets none that a live group reads, and none outlives its topic.",
        source="KIP-211; KIP-848; KAFKA-5154; Kafka's group coordinator",
        tests={
            at.GROUP_OFFSETS: (
                "test_somebody_who_is_no_member_commits_for_a_group_without_members",
                "test_members_commit_in_their_own_generation_only",
                "test_nobody_commits_in_a_generation_whose_assignments_are_not_known",
                "test_a_static_member_that_was_replaced_commits_nothing",
                "test_offsets_of_topics_that_members_read_are_not_deleted",
                "test_only_a_group_without_members_is_deleted",
                "test_offsets_of_a_live_group_are_spared_however_old_they_are",
                "test_offsets_expire_a_week_after_the_last_member_went",
                "test_an_offset_goes_with_its_topic",
                "test_a_pending_offset_of_the_next_topic_outlives_the_offset_of_the_one_before",
                "test_what_is_told_rests_on_the_groups_last_record",
            ),
            at.GROUP_COORDINATOR: (
                "test_a_commit_is_answered_once_it_is_below_the_high_watermark",
                "test_below_min_isr_nothing_is_committed",
                "test_a_lost_leadership_is_told_to_everybody_who_waits",
                "test_a_new_epoch_loads_the_log_again_and_serves_once_all_of_it_is_committed",
                "test_committed_offsets_go_with_their_topic",
            ),
            at.STABLE_POSITIONS: (
                "test_a_coordinator_that_its_followers_have_left_tells_no_stable_positions",
                "test_a_fetch_that_lay_in_a_socket_does_not_say_that_its_follower_follows_now",
            ),
        },
        removals=(
            Removal(
                "takes offsets of a generation that is over",
                RULES,
                "ClassicGroupRules.refusal_of_commit",
                piece="if not self.is_current(request.generation):",
                by="if False:",
            ),
            Removal(
                "takes offsets of nobody while the group has members",
                RULES,
                "ClassicGroupRules.refusal_of_commit",
                piece="elif not in_transaction:",
                by="elif False:",
            ),
            Removal(
                "takes offsets of a static member that was replaced",
                RULES,
                "ClassicGroupRules.refusal_of_commit",
                piece="if refused:",
                by="if refused and refused != ErrorCode.FENCED_INSTANCE_ID:",
            ),
            Removal(
                "takes offsets before anybody owns the partitions",
                RULES,
                "ClassicGroupRules.refusal_of_commit",
                piece="if not in_transaction and self.state == GroupState.COMPLETING:",
                by="if False:",
            ),
            Removal(
                "tells of offsets that are not committed",
                RUNTIME,
                "GroupCoordinator._answer_when_committed",
                body="reply.token(reply.answer)",
            ),
            Removal(
                "tells that a group is gone before that is committed",
                LEDGER,
                "ReplayedGroupState.required_offset",
                piece="self._forgotten",
                by="NOTHING_WRITTEN",
            ),
            Removal(
                "takes offsets below min.insync.replicas",
                LOG,
                "CoordinatorLog.append",
                piece="if h.state.under_min_isr_before_append():",
                by="if False:",
            ),
            Removal(
                "tells stable offsets that a successor may have replaced",
                RUNTIME,
                "GroupCoordinator._is_confirmed",
                body="return True",
            ),
            Removal(
                "takes a fetch for a sign that its follower follows, whenever it was sent",
                at.RULES,
                "PartitionRules.is_followed",
                piece="each.followed_s >= since_s",
                by="each.last_fetch_ms >= since_s * 1000",
            ),
            Removal(
                "answers commits that are not committed",
                RUNTIME,
                "GroupCoordinator._append",
                piece="shard.log.when_committed(last, lambda error: self._settle(shard, effect, error))",
                by="self._settle(shard, effect, error)",
            ),
            Removal(
                "serves before all that it has loaded is committed",
                RUNTIME,
                "GroupCoordinator._load",
                piece="shard.log.when_committed(end - 1, lambda _: self._serve(shard))",
                by="self._serve(shard)",
            ),
            Removal(
                "forgets old offsets of a group that lives",
                SHARD,
                "GroupCoordinatorShard._subscribed",
                body="return frozenset()",
            ),
            Removal(
                "counts the age of an offset from its commit though the group lived on",
                RULES,
                "is_expired",
                piece="if group is not None and group.protocol_type and group.since_ms != NO_TIME:",
                by="if False:",
            ),
            Removal("keeps offsets of deleted topics", SHARD, "GroupCoordinatorShard._is_orphan", body="return False"),
            Removal("writes no tombstone when a topic goes", RUNTIME, "GroupCoordinator.image_changed", body="return"),
            Removal(
                "takes a pending offset of the next topic along with that of the one before",
                LEDGER,
                "ReplayedGroupState.orphans",
                piece="all(is_orphan(where, each) for each in here)",
                by="any(is_orphan(where, each) for each in here)",
            ),
            Removal(
                "deletes a group with members",
                SHARD,
                "GroupCoordinatorShard._delete_group",
                piece="elif self.state_of(group_id) != GroupState.EMPTY:",
                by="elif False:",
            ),
        ),
    ),
    Mechanism(
        id="P6",
        rule="In each generation of a group a partition has one owner. Members join the next generation together, who"
        " is not heard of is none any more, and a static member that is back within its session keeps what it owned,"
        " while whoever had its instance id before is fenced. In a consumer group a partition goes to its next owner"
        " once the one before has given it up.",
        source="KIP-62; KIP-134; KIP-345; KIP-394; KIP-814; KIP-848; KIP-1251",
        tests={
            at.CLASSIC_GROUPS: (
                "test_a_new_dynamic_member_is_given_its_id_before_it_joins",
                "test_the_leader_gets_all_members_and_the_others_none",
                "test_assignments_are_told_once_they_are_in_the_log",
                "test_assignments_that_cannot_be_written_are_told_to_nobody",
                "test_a_first_rebalance_waits_for_members_that_start_together",
                "test_members_that_do_not_join_in_time_are_no_members_any_more",
                "test_the_protocol_that_all_know_and_most_prefer_is_chosen",
                "test_a_join_whose_answer_got_lost_is_answered_again_and_causes_no_rebalance",
                "test_a_member_that_is_not_heard_of_for_a_session_is_gone",
                "test_a_member_that_never_asks_for_its_assignment_is_gone_after_the_rebalance_time_out",
                "test_requests_of_another_generation_are_refused",
                "test_a_static_member_that_is_back_within_its_session_causes_no_rebalance",
                "test_who_has_the_id_of_before_is_fenced",
                "test_a_second_consumer_with_the_instance_id_of_one_that_waits_fences_it",
                "test_a_static_leader_that_is_back_assigns_nothing",
                "test_a_static_member_that_changes_its_protocols_causes_a_rebalance",
                "test_the_next_coordinator_goes_on_with_the_generation_and_gives_everybody_a_session",
                "test_a_lost_coordinator_tells_everybody_who_waits",
            ),
            at.CONSUMER_GROUPS: consumer_groups.TESTS,
            at.MIXED_GROUPS: consumer_groups.MIXED_TESTS,
        },
        removals=(
            Removal(
                "begins a generation before all have joined",
                RULES,
                "ClassicGroupRules.all_joined",
                body="return True",
            ),
            Removal(
                "begins the first generation without waiting for members that start together",
                CLASSIC,
                "ClassicGroup._rebalance",
                piece="if first and self._settings.initial_delay_ms > 0:",
                by="if False:",
            ),
            Removal("takes requests of any generation", RULES, "ClassicGroupRules.is_current", body="return True"),
            Removal(
                "fences nobody whose instance id another one has",
                RULES,
                "refusal",
                piece="if current != member_id:",
                by="if False:",
            ),
            Removal(
                "leaves a static member waiting whose instance id another one has taken",
                CLASSIC,
                "ClassicGroup._take_over",
                piece="self._answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID)",
                by="pass",
            ),
            Removal(
                "rebalances when a static member is back",
                RULES,
                "ClassicGroupRules.needs_no_rebalance",
                body="return False",
            ),
            Removal(
                "rebalances for no static member that is back",
                RULES,
                "ClassicGroupRules.needs_no_rebalance",
                body="return self.state == State.STABLE",
            ),
            Removal(
                "begins a rebalance for each Join that is repeated",
                RULES,
                "ClassicGroupRules.asks_for_rebalance",
                body="return True",
            ),
            Removal(
                "chooses a protocol that some do not know",
                RULES,
                "ClassicGroupRules.common_protocols",
                piece=" if all(member.knows(name) for member in members)",
                by="",
            ),
            Removal(
                "lets members in without an id of their own",
                CLASSIC,
                "ClassicGroup._join_new",
                piece="elif request.needs_id:",
                by="elif False:",
            ),
            Removal(
                "tells assignments before they are committed",
                CLASSIC,
                "ClassicGroup.sync",
                piece="self._append(now, AppendCompletion(group=self, generation=self.generation))",
                by="self._append(now, AppendCompletion()); self.assigned(self.generation, ErrorCode.NONE, now)",
            ),
            Removal(
                "tells assignments that are not in the log",
                CLASSIC,
                "ClassicGroup.assigned",
                piece="if error:",
                by="if False:",
            ),
            Removal(
                "keeps members that never ask for their assignment",
                CLASSIC,
                "ClassicGroup.expire",
                piece="for member in [m for m in self.members.values() if m.unsynced]:",
                by="for member in list[Member]():",
            ),
            Removal(
                "leaves a static member that is back with the id of before in the log",
                CLASSIC,
                "ClassicGroup._take_over",
                piece="self._append(now, AppendCompletion(token, answer))",
                by="self.effects.append(SendResponse(token, answer))",
            ),
            Removal(
                "leaves everybody waiting who waits for a lost coordinator",
                CLASSIC,
                "ClassicGroup.fail_waiting_requests",
                body="self.state = State.DEAD",
            ),
            *consumer_groups.REMOVALS,
        ),
    ),
)
