"""The table's rows of E (leader epochs) and C (the control plane)."""

from __future__ import annotations

from tests.mechanisms import places as at
from tests.mechanisms.mechanism import Mechanism, Removal

CONTROL = "tests/unit/controller"
QUORUM = "tests/unit/quorum"
RAFT, LEADERSHIP = "broker/quorum/raft.py", "broker/quorum/leadership.py"

EPOCHS = (
    Mechanism(
        id="E1",
        rule="Each change of leaders begins a new leader epoch, and each batch carries the epoch that wrote it.",
        source="KIP-101",
        tests={
            at.ELECTING: (
                "test_a_valid_leader_stays_and_keeps_its_epoch",
                "test_the_first_live_isr_member_in_replica_order_is_elected",
            ),
            at.ROLES: ("test_leader_that_is_elected_again_begins_a_new_epoch_where_its_log_ends",),
            at.LAYOUTS: ("test_the_log_file_holds_the_batch_as_it_came_but_for_base_offset_and_leader_epoch",),
        },
        removals=(
            Removal(
                "keeps the epoch when the leader changes",
                "broker/cluster/replay.py",
                "changed",
                piece="leader_epoch=partition.leader_epoch + 1 if named else partition.leader_epoch",
                by="leader_epoch=partition.leader_epoch",
            ),
            Removal(
                "begins an epoch with every change of a partition",
                at.ELECTIONS,
                "PartitionChange.plan",
                piece="if leader != before.leader:",
                by="if True:",
            ),
            Removal(
                "notes no epoch's start",
                at.PARTITION,
                "Partition.become_leader",
                piece="effects.append(WriteLeaderEpoch(state.leader_epoch, log_end_offset))",
                by="pass",
            ),
            Removal(
                "leaves the client's epoch in a batch",
                at.LOG,
                "Log.append_as_leader",
                piece="PLACE.pack_into(records, 0, base, length, leader_epoch)",
                by="PLACE.pack_into(records, 0, base, length, header[2])",
            ),
        ),
    ),
    Mechanism(
        id="E2",
        rule="Where each epoch begins is kept in memory and in `leader-epoch-checkpoint`, through appends, truncations"
        " and deletions.",
        source="KIP-101; KAFKA-16541; KAFKA-17142",
        tests={
            at.EPOCHS: (
                "test_the_file_changes_only_at_a_flush_and_is_durable_then",
                "test_truncating_from_the_end_drops_epochs_that_begin_there",
                "test_truncating_from_the_start_moves_the_epoch_in_force_there",
            ),
            at.ROLES: ("test_new_leader_records_where_its_epoch_begins_even_if_it_writes_nothing",),
            at.LEADER_APPENDS: ("test_a_new_leader_epoch_is_durable_before_its_first_batch_is_written",),
        },
        removals=(
            Removal("writes no file", at.EPOCH_CACHE, "EpochCache.flush", body="self.dirty = False"),
            Removal("keeps epochs of truncated records", at.EPOCH_CACHE, "EpochCache.truncate_from_end", body="return"),
            Removal("keeps epochs of deleted records", at.EPOCH_CACHE, "EpochCache.truncate_from_start", body="return"),
            Removal(
                "notes no epoch's start",
                at.PARTITION,
                "Partition.become_leader",
                piece="effects.append(WriteLeaderEpoch(state.leader_epoch, log_end_offset))",
                by="pass",
            ),
        ),
    ),
    Mechanism(
        id="E3",
        rule="Followers truncate where the leader's epochs and their own part; requests of other epochs are refused.",
        source="KIP-101; KIP-279; KIP-320; KIP-595; KAFKA-6857",
        tests={
            "tests/unit/replication/test_truncation.py": (
                "test_repeated_answers_end_at_a_common_prefix_and_keep_all_of_the_longest",
                "test_epoch_above_the_leaders_latest_is_unknown_to_it_and_not_its_log_end",
            ),
            at.FETCH: (
                "test_epochs_are_fenced_both_ways_for_consumers_and_followers",
                "test_a_diverging_fetch_is_told_where_and_acknowledges_nothing",
            ),
            at.OFFSETS: ("test_an_epoch_ends_where_the_next_begins_and_the_last_at_the_logs_end",),
        },
        removals=(
            Removal(
                "truncates to the offset answered, whatever its epoch",
                "broker/replication/truncation.py",
                "truncation_target",
                body="return min(diverging_end, log_end_offset)",
            ),
            Removal(
                "answers for an unknown epoch with its log's end",
                at.EPOCH_CACHE,
                "EpochCache.end_offset_for",
                piece="return UNDEFINED",
                by="return epoch, log_end_offset",
            ),
            Removal(
                "takes an epoch that it does not know for one that agrees",
                "broker/replication/truncation.py",
                "divergence",
                piece="return Divergence(UNDEFINED, UNDEFINED)",
                by="return None",
            ),
            Removal(
                "serves requests of every epoch",
                at.RULES,
                "PartitionRules.check_leader_epoch",
                body="return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER",
            ),
            Removal("never sees that logs part", at.RULES, "PartitionRules.divergence", body="return None"),
            Removal(
                "takes the log's end for the end of every epoch",
                at.RULES,
                "PartitionRules.end_of_epoch",
                body="return epoch, self.log_end_offset",
            ),
        ),
    ),
    Mechanism(
        id="E4",
        rule="`squall.replication.truncation=high-watermark` truncates as before KIP-101: records are lost and logs"
        " differ, which leader epochs prevent.",
        source="KIP-101; KAFKA-1211",
        tests={
            at.NODES: (
                "test_two_leaders_die_quickly_and_only_epochs_keep_what_was_acknowledged",
                "test_both_lose_power_the_shorter_one_leads_and_only_epochs_make_them_agree",
            ),
            at.SCRIPTS: ("test_the_same_story_with_leader_epochs_goes_well",),
            at.WALKS: ("test_random_walks_find_what_truncating_to_the_high_watermark_loses",),
            at.FETCHER: ("test_before_kip_101_a_follower_cut_its_log_at_its_high_watermark_and_sent_no_epoch",),
        },
        removals=(
            Removal(
                "truncates by epoch, whatever is set",
                "broker/replication/truncation.py",
                "",
                piece="rule.name: rule for rule in (BY_EPOCH, HighWatermarkTruncation())",
                by="name: BY_EPOCH for name in (BY_EPOCH.name, HighWatermarkTruncation.name)",
            ),
            Removal(
                "truncates to the high watermark, whatever is set",
                at.RULES,
                "PartitionRules.first_truncation",
                body="return self.high_watermark",
            ),
        ),
    ),
)

CONTROL_PLANE = (
    Mechanism(
        id="C1",
        rule="One controller decides who leads: it makes topics with leaders spread evenly, moves partitions, and gives"
        " preferred leaders their partitions back.",
        source="KIP-455; KIP-497; KIP-589",
        tests={
            f"{CONTROL}/test_placement.py": (
                "test_leaders_and_replicas_are_spread_evenly",
                "test_replicas_are_in_different_racks_while_there_are_any",
                "test_a_stopping_broker_gets_no_replica",
            ),
            f"{CONTROL}/test_isr.py": (
                "test_a_retried_request_finds_its_epoch_taken",
                "test_each_fault_has_its_error_and_writes_nothing",
            ),
            f"{CONTROL}/test_reassignments.py": (
                "test_new_replicas_are_added_first_and_the_old_ones_stay",
                "test_the_last_new_replica_in_the_isr_completes_it_and_fences_the_old_ones",
            ),
            at.ELECTING: (
                "test_the_preferred_leader_takes_over_only_when_asked_and_only_from_the_isr",
                "test_a_reassignment_that_drops_a_replica_bumps_the_leader_epoch",
            ),
            f"{CONTROL}/test_edges.py": ("test_nothing_is_answered_before_it_is_committed",),
        },
        removals=(
            Removal(
                "answers before a change is committed",
                "broker/control/kraft/controller_service.py",
                "ControllerService._after_commit",
                piece="await self._quorum.wait_committed(offset, epoch)",
                by="pass",
            ),
            Removal(
                "gives every partition the same leader",
                "broker/controller/placement.py",
                "place",
                piece="start + nth, shift",
                by="start, shift",
            ),
            Removal(
                "puts replicas where it likes, whatever the rack",
                "broker/controller/placement.py",
                "_replicas",
                piece="racks = {broker.rack for broker in chosen}",
                by="racks = {None}",
            ),
            Removal(
                "puts replicas on brokers that are stopping",
                "broker/controller/placement.py",
                "place",
                piece=" if not broker.in_controlled_shutdown]",
                by="]",
            ),
            Removal(
                "applies ISR changes made from an older state of the partition",
                "broker/controller/isr.py",
                "check_partition_epoch",
                body="return",
            ),
            Removal("takes any ISR", "broker/controller/isr.py", "ineligible", body="return []"),
            Removal(
                "takes old replicas away before the new ones have caught up",
                at.ELECTIONS,
                "_PlannedPartition.complete_reassignment",
                piece=" and set(self.adding) <= set(isr):",
                by=":",
            ),
            Removal(
                "leaves replicas that were taken away unfenced",
                at.ELECTIONS,
                "PartitionChange.plan",
                piece="elif not set(before.replicas) <= set(target.replicas):",
                by="elif False:",
            ),
            Removal(
                "never elects the preferred leader",
                at.ELECTIONS,
                "PartitionChange._elect",
                piece="if self.election is ElectionType.PREFERRED and",
                by="if False and",
            ),
        ),
    ),
    Mechanism(
        id="C2",
        rule="The controller is the leader of a replicated metadata log (Raft, as in KRaft): one vote an epoch, and"
        " nothing counts before a majority has it on disk.",
        source="KIP-595; KIP-631; KIP-996; Raft, section 5.4.2; KAFKA-15489",
        tests={
            f"{QUORUM}/test_voting.py": (
                "test_no_second_vote_in_an_epoch",
                "test_no_second_vote_in_an_epoch_after_a_restart",
                "test_vote_only_for_a_log_that_is_no_older_and_no_shorter",
                "test_pre_vote_is_refused_while_the_leader_is_heard",
                "test_leader_that_restarts_never_leads_that_epoch_again",
            ),
            f"{QUORUM}/test_committing.py": (
                "test_majority_of_records_of_an_older_epoch_commits_nothing",
                "test_minority_commits_nothing",
                "test_leader_counts_itself_only_for_what_it_has_synced",
                "test_leader_resigns_when_no_majority_has_fetched_for_one_and_a_half_fetch_timeouts",
                "test_diverging_fetcher_is_told_where_the_epochs_part",
            ),
            f"{QUORUM}/test_follower.py": ("test_voter_fetches_on_only_when_what_it_got_is_durable",),
        },
        removals=(
            Removal(
                "votes twice in an epoch",
                RAFT,
                "Raft._may_grant",
                piece="leader_id == NO_NODE and self.member.state.voted_id in (NO_NODE, candidate)",
                by="leader_id == NO_NODE",
            ),
            Removal(
                "votes for logs that lack committed records",
                RAFT,
                "Raft._may_grant",
                piece="if (vote.last_epoch, vote.end_offset) < (self.log.last_epoch, self.log.end_offset):",
                by="if False:",
            ),
            Removal("grants pre-votes though it hears its leader", RAFT, "Raft._hears_leader", body="return False"),
            Removal(
                "leads on after a restart",
                RAFT,
                "Raft._boot",
                piece="if self.member.state.leader_id == self.node_id:",
                by="if False:",
            ),
            Removal(
                "commits records of earlier epochs by counting",
                LEADERSHIP,
                "LeaderState.committed_offset",
                piece="return end if end > self.epoch_start_offset else 0",
                by="return end",
            ),
            Removal(
                "commits without a majority",
                LEADERSHIP,
                "LeaderState.committed_offset",
                piece="end = ends[self._settings.majority - 1]",
                by="end = ends[0]",
            ),
            Removal(
                "counts what the leader has not synced",
                RAFT,
                "Raft._settle",
                piece="leadership.committed_offset(self._local.synced_offset)",
                by="leadership.committed_offset(self.log.end_offset)",
            ),
            Removal("leads on without a majority", RAFT, "Raft._check_quorum", body="self.member.deadline_ms = NEVER"),
            Removal(
                "serves logs that part from the leader's",
                LEADERSHIP,
                "LeaderState.heard",
                piece="if not log.agrees(fetch.offset, fetch.last_epoch):",
                by="if False:",
            ),
            Removal(
                "acknowledges what it has not synced",
                RAFT,
                "Raft._due_request",
                piece="and (self._local.is_synced or not self._settings.is_voter)",
                by="",
            ),
        ),
    ),
)
