"""The table's rows of R: replicas, in-sync replicas, offsets."""

from __future__ import annotations

from tests.mechanisms import places as at
from tests.mechanisms.mechanism import Mechanism, Removal
from tests.mechanisms.transactions import READERS

REPLICAS = (
    Mechanism(
        id="R1",
        rule="The leader of a partition is in its ISR, and only the leader serves clients.",
        source="KAFKA-50; Kafka's replication design",
        tests={
            "tests/unit/controller/test_isr.py": ("test_each_fault_has_its_error_and_writes_nothing",),
            at.TOPICS: ("test_a_topic_is_made_with_leaders_in_their_isrs_at_epoch_zero",),
            "tests/unit/replication/test_fencing.py": ("test_request_without_an_epoch_is_served_by_the_leader_only",),
        },
        removals=(
            Removal(
                "takes an ISR without its leader",
                "broker/controller/isr.py",
                "check_isr",
                piece="if malformed or partition.leader not in isr:",
                by="if malformed:",
            ),
            Removal(
                "leaves live replicas out of a new topic's ISR",
                "broker/controller/topics.py",
                "_partition_records",
                piece="isr=list(isr)",
                by="isr=[isr[0]]",
            ),
            Removal(
                "serves clients on followers",
                at.RULES,
                "PartitionRules.check_leader_epoch",
                piece="return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER",
                by="return ErrorCode.NONE",
            ),
        ),
    ),
    Mechanism(
        id="R2",
        rule="A follower that has not caught up for `replica.lag.time.max.ms` leaves the ISR.",
        source="KIP-16",
        tests={
            at.ISR: (
                "test_member_that_has_not_fetched_for_the_lag_time_leaves",
                "test_member_that_fetches_but_never_catches_up_leaves",
                "test_member_that_reaches_at_each_fetch_what_was_the_end_at_its_previous_one_stays",
                "test_idle_member_at_the_end_of_the_log_stays_for_ever",
            ),
            at.FETCH: ("test_fetches_that_name_nothing_keep_a_follower_in_the_isr",),
        },
        removals=(
            Removal("keeps everybody in the ISR", at.RULES, "PartitionRules.is_out_of_sync", body="return False"),
            Removal(
                "counts a follower as caught up only at the very end of the log",
                at.PARTITION,
                "Partition._update_caught_up",
                piece="elif fetch_offset >=",
                by="elif False and fetch_offset >=",
            ),
            Removal(
                "takes idle followers for late ones",
                at.RULES,
                "PartitionRules.is_caught_up",
                piece="if replica.log_end_offset == self.log_end_offset:",
                by="if False:",
            ),
            Removal(
                "forgets the partitions that a fetch session does not name",
                at.FETCH_API,
                "FetchApi._fetch_of_session",
                piece="all_of_them = now_ms - session.looked_ms >= LOOK_EVERY_MS or called != session.called",
                by="all_of_them = False",
            ),
        ),
    ),
    Mechanism(
        id="R3",
        rule="A follower joins the ISR once it has reached the high watermark and the start of the leader's epoch.",
        source="KAFKA-7128; KIP-841; KIP-903",
        tests={
            at.ISR: (
                "test_follower_below_the_high_watermark_is_not_proposed",
                "test_follower_at_a_new_leaders_high_watermark_but_below_its_epoch_start_is_not_proposed",
                "test_follower_that_the_controller_would_refuse_is_not_proposed",
            ),
        },
        removals=(
            Removal(
                "proposes every follower that fetches", at.RULES, "PartitionRules.has_reached_isr", body="return True"
            ),
            Removal(
                "proposes followers that are fenced, stopping or of an earlier incarnation",
                at.RULES,
                "PartitionRules.is_isr_eligible",
                body="return True",
            ),
        ),
    ),
    Mechanism(
        id="R4",
        rule="The high watermark is the smallest log end of the ISR; consumers read below it, and it never goes back.",
        source="KIP-497; KAFKA-15583; KAFKA-9835",
        tests={
            at.WATERMARK: (
                "test_high_watermark_is_the_smallest_log_end_of_the_isr",
                "test_high_watermark_never_goes_back",
                "test_high_watermark_is_frozen_while_the_committed_isr_is_below_min_isr",
                "test_member_to_be_removed_counts_until_the_controller_has_agreed",
                "test_member_to_be_added_counts_at_once",
            ),
            at.FOLLOWER: ("test_high_watermark_is_the_leaders_as_far_as_the_own_log_goes",),
            "tests/unit/log/test_high_watermarks.py": (
                "test_a_topic_made_again_has_none_of_its_predecessors",
                "test_records_that_are_cut_off_are_not_taken_for_the_next_ones",
                "test_a_log_that_has_lost_its_end_has_no_more_committed_than_is_left",
                "test_a_draft_that_speaks_of_what_is_gone_since_is_dropped",
            ),
            at.FETCH: ("test_a_follower_reads_to_the_logs_end_and_a_consumer_to_the_high_watermark",),
        },
        removals=(
            Removal(
                "commits what the leader alone has",
                at.RULES,
                "PartitionRules.next_high_watermark",
                body="return self.log_end_offset",
            ),
            Removal(
                "lets the high watermark go back",
                at.RULES,
                "PartitionRules.next_high_watermark",
                piece="return lowest if lowest > self.high_watermark else self.high_watermark",
                by="self.high_watermark = min(lowest, self.high_watermark)\n        return lowest",
            ),
            Removal(
                "commits below min.insync.replicas",
                at.RULES,
                "PartitionRules.is_high_watermark_frozen",
                body="return False",
            ),
            Removal(
                "does not wait for members about to be removed",
                at.RULES,
                "PartitionRules.maximal_of",
                body="return proposed",
            ),
            Removal(
                "does not wait for members about to join",
                at.RULES,
                "PartitionRules.maximal_of",
                body="return committed",
            ),
            Removal(
                "believes the leader's high watermark beyond its own log",
                at.RULES,
                "PartitionRules.followed_high_watermark",
                body="return leader_high_watermark",
            ),
            Removal(
                "lets consumers read to the log's end",
                at.RULES,
                "PartitionRules.read_limit",
                body="return self.log_end_offset",
            ),
            Removal(
                "takes checkpointed high watermarks for those of later records",
                "broker/log/high_watermarks.py",
                "HighWatermarkCheckpoint.cut",
                body="return",
            ),
            Removal(
                "keeps high watermarks beyond a log that has lost its end",
                "broker/log/high_watermarks.py",
                "HighWatermarkCheckpoint.correct",
                piece="            self._replace({**offsets, **beyond})",
                by="            self._replace({**offsets, **beyond} if len(ends) == 1 else offsets)",
            ),
            Removal(
                "keeps a draft of high watermarks whatever was cut since",
                "broker/log/high_watermarks.py",
                "HighWatermarkCheckpoint.cut",
                piece="            self._draft = None",
                by="            pass",
            ),
        ),
    ),
    *READERS,
    Mechanism(
        id="R6",
        rule="ListOffsets answers consumers with the high watermark and the log start: what their lag is counted from.",
        source="KIP-207; KAFKA-2334",
        tests={
            at.OFFSETS: (
                "test_consumers_see_the_high_watermark_and_followers_the_logs_end",
                "test_latest_is_not_available_before_the_high_watermark_reaches_the_epochs_start",
            ),
            at.DELETE: ("test_what_is_deleted_is_out_of_range_and_not_found_by_time",),
        },
        removals=(
            Removal(
                "answers consumers with the log's end",
                at.OFFSET_API,
                "OffsetApis._list_one",
                piece="if replica_id == _CONSUMER:",
                by="if False:",
            ),
            Removal(
                "answers with a high watermark that lags behind an earlier leader's",
                at.RULES,
                "PartitionRules.latest_offset_available",
                body="return True",
            ),
            Removal(
                "looks for timestamps among deleted records",
                at.LOG,
                "Log.offset_for_timestamp",
                piece="self.log_start_offset",
                by="0",
            ),
        ),
    ),
    Mechanism(
        id="R7",
        rule="A Produce with acks=0 gets no answer, acks=1 after the append, acks=all once committed;"
        " `min.insync.replicas` is checked before the append and after it.",
        source="KAFKA-50; KAFKA-1555",
        tests={
            at.PRODUCE: (
                "test_acks_0_is_appended_and_never_answered",
                "test_acks_1_is_answered_without_the_followers",
                "test_acks_all_waits_for_the_whole_isr",
                "test_acks_all_is_refused_before_the_append_below_min_isr",
                "test_what_is_committed_while_too_few_are_left_is_answered_not_enough_after_append",
            ),
        },
        removals=(
            Removal("answers acks=0", at.PRODUCE_API, "ProduceApi._append_all", piece="if acks == 0:", by="if False:"),
            Removal(
                "has acks=1 wait for the ISR",
                at.PRODUCE_API,
                "ProduceApi._append",
                piece="if acks != -1:",
                by="if False:",
            ),
            Removal(
                "answers acks=all after the leader's append",
                at.PRODUCE_API,
                "ProduceApi._append",
                piece="if acks != -1:",
                by="if True:",
            ),
            Removal(
                "appends though the ISR is too small",
                at.RULES,
                "PartitionRules.under_min_isr_before_append",
                body="return False",
            ),
            Removal(
                "acknowledges though the ISR has shrunk",
                at.RULES,
                "PartitionRules.under_min_isr_after",
                body="return False",
            ),
        ),
    ),
    Mechanism(
        id="R8",
        rule="A request that waits is answered when what it waits for has come, or when its time is over. Requests of"
        " one connection take effect in the order in which they came.",
        source="Kafka's request purgatories",
        tests={
            at.PRODUCE: (
                "test_a_time_out_is_told_and_the_records_stay",
                "test_who_hung_up_is_not_waited_for_whatever_time_out_was_asked_for",
            ),
            at.FETCH: (
                "test_a_followers_long_poll_is_answered_by_an_append",
                "test_a_consumers_long_poll_is_answered_by_the_high_watermark_and_not_by_the_append",
                "test_a_long_poll_ends_empty_when_its_time_is_over",
                "test_a_fetch_waits_until_min_bytes_are_there",
            ),
            at.ONE_ORDER: (
                "test_of_pipelined_changes_of_a_setting_the_last_one_stays",
                "test_a_look_at_the_logs_start_behind_delete_records_sees_the_new_start",
            ),
        },
        removals=(
            Removal("lets a Produce wait for ever", at.DELAYED_APPENDS, "DelayedProduceResponse.expire", body="return"),
            Removal(
                "waits for clients that are gone", at.DELAYED_APPENDS, "DelayedProduceResponse.abandon", body="return"
            ),
            Removal(
                "takes the next request before one that waits has taken effect",
                "broker/net/server.py",
                "Server._begin",
                piece="if holds:",
                by="if False:",
            ),
            Removal(
                "moves a log's start after it has taken the next request",
                "broker/apis/delete_records.py",
                "DeleteRecordsApi._delete",
                piece="self._replicas.delete_records(h, offset)",
                by="trio.lowlevel.current_trio_token().run_sync_soon(self._replicas.delete_records, h, offset)",
            ),
            Removal("lets a Fetch wait for ever", at.FETCH_API, "DelayedFetch.expire", body="return"),
            Removal(
                "wakes no follower by an append",
                at.MANAGER,
                "ReplicaManager.appended",
                piece="self.woken.update(h.followers)",
                by="pass",
            ),
            Removal(
                "wakes no consumer by the high watermark",
                at.MANAGER,
                "ReplicaManager._high_watermark_moved",
                piece="self.woken.update(h.consumers)",
                by="pass",
            ),
            Removal(
                "answers with less than the bytes asked for",
                at.FETCH_API,
                "FetchApi.satisfied",
                piece="return available >= fetch.min_bytes",
                by="return available > 0",
            ),
        ),
    ),
    Mechanism(
        id="R9",
        rule="A follower truncates where it must, fetches, and acknowledges by its next fetch.",
        source="KIP-101; KIP-595; KAFKA-2143",
        tests={
            at.FETCHER: (
                "test_what_is_fetched_is_appended_and_the_next_fetch_acknowledges_it",
                "test_a_diverging_answer_truncates_and_asks_again_from_there",
                "test_a_refused_partition_pauses_and_the_others_go_on",
                "test_a_log_that_ends_before_the_leaders_begins_is_begun_anew_there",
            ),
            at.NODES: (
                "test_a_follower_that_was_away_while_its_records_were_deleted_begins_where_the_leaders_log_does",
                "test_retention_on_the_leader_moves_the_followers_log_start_too",
            ),
        },
        removals=(
            Removal(
                "appends nothing that it fetched",
                at.FETCHER_LOOP,
                "Fetcher._apply",
                piece="if part.records:",
                by="if part.records and self._back_off(f):",
            ),
            Removal(
                "does not truncate where the leader says that logs part",
                at.FETCHER_LOOP,
                "Fetcher._apply",
                piece="self._replicas.apply_effects(h, state.diverged(log.epochs, *part.diverging))",
                by="pass",
            ),
            Removal("does not pause after a refusal", at.FETCHER_LOOP, "Fetcher._back_off", body="f.failures += 1"),
            Removal(
                "keeps a log that ends before the leader's begins",
                at.PARTITION,
                "Partition.out_of_range",
                body="return NO_EFFECTS",
            ),
            Removal(
                "ignores where the leader's log starts",
                at.PARTITION,
                "Partition.apply_leader_offsets",
                piece="if log_start > self.log_start_offset:",
                by="if False:",
            ),
        ),
    ),
    Mechanism(
        id="R10",
        rule="A committed record is in the log of every member of the ISR, and survives while one of them lives.",
        source="KAFKA-50; Kafka's replication design",
        tests={at.WALKS: ("test_no_random_walk_breaks_an_invariant",)},
        removals=(
            Removal(
                "commits what the leader alone has",
                at.RULES,
                "PartitionRules.next_high_watermark",
                body="return self.log_end_offset",
            ),
            Removal("lets everybody into the ISR", at.RULES, "PartitionRules.has_reached_isr", body="return True"),
        ),
    ),
    Mechanism(
        id="R11",
        rule="If no member of the ISR lives, nobody leads; with unclean elections on, the first live replica does.",
        source="KIP-106; KAFKA-1028",
        tests={
            at.ELECTING: (
                "test_a_live_replica_outside_the_isr_is_not_elected",
                "test_an_unclean_election_takes_any_live_replica_alone_and_recovering",
            ),
            at.NODES: ("test_after_an_unclean_election_the_former_leader_gives_up_what_only_it_had",),
            at.PLANS: ("test_is_broken_by_what_it_says[unclean_election]",),
        },
        removals=(
            Removal(
                "elects any live replica",
                at.ELECTIONS,
                "PartitionChange._elect",
                piece="if self.election is ElectionType.UNCLEAN:",
                by="if True:",
            ),
            Removal(
                "elects nobody outside the ISR, whatever is set",
                at.ELECTIONS,
                "PartitionChange._elect",
                piece="if self.election is ElectionType.UNCLEAN:",
                by="if False:",
            ),
        ),
    ),
    Mechanism(
        id="R12",
        rule="With `replica.lag.max.messages` set, a follower that many messages behind leaves the ISR (never safe to"
        " rely on).",
        source="KAFKA-1546; KIP-16",
        tests={
            at.ISR: (
                "test_lag_in_messages_counts_only_where_the_old_switch_is_set",
                "test_the_high_watermark_does_not_wait_for_a_follower_that_is_out_for_too_many_messages",
            ),
            "tests/unit/replicas/test_replica_manager.py": (
                "test_an_isr_by_message_count_churns_and_the_traces_count_it",
            ),
            "tests/sim/plans/test_churn.py": (
                "test_every_burst_throws_followers_out_where_lag_is_a_count_and_none_does_where_it_is_a_time",
            ),
        },
        removals=(Removal("counts no messages", at.RULES, "PartitionRules.is_too_many_behind", body="return False"),),
    ),
    Mechanism(
        id="R13",
        rule="A broker lives while its session with the controller does; one without a session leads nothing and is in"
        " no ISR with others.",
        source="KIP-500; KIP-631; KIP-841",
        tests={
            at.BROKERS: (
                "test_a_silent_broker_is_fenced_after_its_session_and_not_before",
                "test_fencing_moves_leaderships_and_isrs",
            ),
            at.WATERMARK: ("test_follower_outside_the_isr_that_is_fenced_is_not_waited_for",),
        },
        removals=(
            Removal(
                "lets every session last", "broker/controller/sessions.py", "BrokerSessions.expired", body="return None"
            ),
            Removal(
                "fences brokers and leaves them their partitions",
                "broker/controller/brokers.py",
                "fence",
                body="return [_change(broker, fenced=FENCE)]",
            ),
            Removal("waits for fenced followers", at.RULES, "PartitionRules.is_in_service", body="return True"),
        ),
    ),
)
