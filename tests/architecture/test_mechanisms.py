"""Every mechanism of replication has tests that say it: the ids of the project's list of mechanisms, and their tests.

The list itself, each id a requirement, is kept beside the issues; what an id stands for is said here in a few words.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.architecture.source import functions, sources

ISR = "tests/unit/replication/test_isr.py"
WATERMARK = "tests/unit/replication/test_high_watermark.py"
FOLLOWER = "tests/unit/replication/test_follower.py"
ROLES = "tests/unit/replication/test_roles.py"
WALKS = "tests/property/replication/test_partition.py"
FETCH, PRODUCE = "tests/unit/apis/test_fetch.py", "tests/unit/apis/test_produce.py"
FETCHER, OFFSETS = "tests/unit/replicas/test_fetcher.py", "tests/unit/apis/test_offsets.py"
EPOCHS, NODES = "tests/unit/log/test_epochs.py", "tests/sim/data_plane/test_replicas_of_whole_nodes.py"

MECHANISMS: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "R1": (
        "the leader is in the ISR, and only it serves",
        {
            ROLES: ("test_leader_must_be_in_the_isr_that_it_is_given",),
            "tests/unit/controller/test_topics.py": ("test_a_topic_is_made_with_leaders_in_their_isrs_at_epoch_zero",),
            "tests/unit/replication/test_fencing.py": ("test_request_without_an_epoch_is_served_by_the_leader_only",),
        },
    ),
    "R2": (
        "who has not caught up within the lag time leaves the ISR",
        {
            ISR: (
                "test_member_that_has_not_fetched_for_the_lag_time_leaves",
                "test_member_that_fetches_but_never_catches_up_leaves",
                "test_member_that_reaches_at_each_fetch_what_was_the_end_at_its_previous_one_stays",
                "test_idle_member_at_the_end_of_the_log_stays_for_ever",
            ),
            FETCH: ("test_fetches_that_name_nothing_keep_a_follower_in_the_isr",),
        },
    ),
    "R3": (
        "who reaches the high watermark and the epoch's start joins",
        {
            ISR: (
                "test_follower_below_the_high_watermark_is_not_proposed",
                "test_follower_at_a_new_leaders_high_watermark_but_below_its_epoch_start_is_not_proposed",
                "test_follower_that_the_controller_would_refuse_is_not_proposed",
            ),
        },
    ),
    "R4": (
        "the high watermark is the smallest log end of the ISR, and bounds what consumers read",
        {
            WATERMARK: (
                "test_high_watermark_is_the_smallest_log_end_of_the_isr",
                "test_high_watermark_never_goes_back",
                "test_high_watermark_is_frozen_while_the_committed_isr_is_below_min_isr",
                "test_member_to_be_removed_counts_until_the_controller_has_agreed",
                "test_member_to_be_added_counts_at_once",
            ),
            FOLLOWER: ("test_high_watermark_is_the_leaders_as_far_as_the_own_log_goes",),
            FETCH: ("test_a_follower_reads_to_the_logs_end_and_a_consumer_to_the_high_watermark",),
        },
    ),
    "R5": (
        "the last stable offset",
        {
            "tests/unit/replication/test_writes_and_reads.py": (
                "test_last_stable_offset_is_the_high_watermark_where_no_transaction_is_open",
                "test_last_stable_offset_is_where_the_oldest_open_transaction_began",
                "test_last_stable_offset_never_passes_the_high_watermark",
            ),
        },
    ),
    "R6": (
        "lag, by ListOffsets",
        {
            OFFSETS: (
                "test_consumers_see_the_high_watermark_and_followers_the_logs_end",
                "test_latest_is_not_available_before_the_high_watermark_reaches_the_epochs_start",
            ),
            "tests/unit/apis/test_delete_records.py": ("test_what_is_deleted_is_out_of_range_and_not_found_by_time",),
        },
    ),
    "R7": (
        "acks 0, 1 and all; min ISR before and after the append",
        {
            PRODUCE: (
                "test_acks_0_is_appended_and_never_answered",
                "test_acks_1_is_answered_without_the_followers",
                "test_acks_all_waits_for_the_whole_isr",
                "test_acks_all_is_refused_before_the_append_below_min_isr",
                "test_what_is_committed_while_too_few_are_left_is_answered_not_enough_after_append",
            ),
        },
    ),
    "R8": (
        "who waits is answered by what it waits for, or by the clock",
        {
            PRODUCE: (
                "test_a_time_out_is_told_and_the_records_stay",
                "test_who_hung_up_is_not_waited_for_whatever_time_out_was_asked_for",
            ),
            FETCH: (
                "test_a_followers_long_poll_is_answered_by_an_append",
                "test_a_consumers_long_poll_is_answered_by_the_high_watermark_and_not_by_the_append",
                "test_a_long_poll_ends_empty_when_its_time_is_over",
                "test_a_fetch_waits_until_min_bytes_are_there",
            ),
        },
    ),
    "R9": (
        "followers truncate where they must, fetch, and acknowledge by fetching on",
        {
            FETCHER: (
                "test_what_is_fetched_is_appended_and_the_next_fetch_acknowledges_it",
                "test_a_diverging_answer_truncates_and_asks_again_from_there",
                "test_a_refused_partition_pauses_and_the_others_go_on",
                "test_a_log_that_ends_before_the_leaders_begins_is_begun_anew_there",
            ),
            NODES: (
                "test_a_follower_that_was_away_while_its_records_were_deleted_begins_where_the_leaders_log_does",
                "test_retention_on_the_leader_moves_the_followers_log_start_too",
            ),
        },
    ),
    "R10": (
        "what is committed survives while one member of the ISR lives",
        {WALKS: ("test_no_random_walk_breaks_an_invariant", "test_random_walks_find_a_broken_rule")},
    ),
    "R11": (
        "unclean election: off, or the first live replica",
        {
            "tests/unit/controller/test_elections.py": (
                "test_a_live_replica_outside_the_isr_is_not_elected",
                "test_an_unclean_election_takes_any_live_replica_alone_and_recovering",
            ),
            NODES: ("test_after_an_unclean_election_the_former_leader_gives_up_what_only_it_had",),
            "tests/sim/plans/test_plans.py": ("test_is_broken_by_what_it_says", "test_is_clean_without"),
        },
    ),
    "R12": (
        "ISR by message count, with its churn",
        {
            ISR: (
                "test_lag_in_messages_counts_only_where_the_old_switch_is_set",
                "test_the_high_watermark_does_not_wait_for_a_follower_that_is_out_for_too_many_messages",
            ),
            "tests/unit/replicas/test_replica_manager.py": (
                "test_an_isr_by_message_count_churns_and_the_traces_count_it",
            ),
            "tests/sim/plans/test_churn.py": (
                "test_every_burst_throws_followers_out_where_lag_is_a_count_and_none_does_where_it_is_a_time",
            ),
            WALKS: ("test_no_random_walk_with_an_isr_by_message_count_breaks_an_invariant",),
        },
    ),
    "R13": (
        "liveness: a session with the controller, and not too far behind",
        {
            "tests/unit/controller/test_brokers.py": (
                "test_a_silent_broker_is_fenced_after_its_session_and_not_before",
                "test_fencing_moves_leaderships_and_isrs",
            ),
            WATERMARK: ("test_follower_outside_the_isr_that_is_fenced_is_not_waited_for",),
        },
    ),
    "R14": (
        "rejoining means catching up; fsync by policy only",
        {
            "tests/unit/log/test_append_as_leader.py": ("test_one_append_is_one_write_and_no_fsync",),
            "tests/unit/log/test_flush_and_retention.py": ("test_flush_is_due_by_messages_or_time",),
            "tests/unit/replicas/test_flushes.py": (
                "test_nobody_hears_of_an_append_before_its_fsync",
                "test_one_fsync_covers_all_that_came_before_it_began_and_answers_keep_their_order",
                "test_a_quiet_log_is_flushed_when_its_flush_ms_is_over",
            ),
            FETCHER: ("test_what_has_to_be_flushed_is_acknowledged_once_it_is_on_disk",),
        },
    ),
    "E1": (
        "leader epochs, stamped on every batch",
        {
            "tests/unit/controller/test_elections.py": ("test_a_valid_leader_stays_and_keeps_its_epoch",),
            ROLES: ("test_leader_that_is_elected_again_begins_a_new_epoch_where_its_log_ends",),
            "tests/unit/log/test_layouts.py": (
                "test_the_log_file_holds_the_batch_as_it_came_but_for_base_offset_and_leader_epoch",
            ),
        },
    ),
    "E2": (
        "leader-epoch-checkpoint",
        {
            EPOCHS: (
                "test_the_file_changes_only_at_a_flush_and_is_durable_then",
                "test_truncating_from_the_end_drops_epochs_that_begin_there",
                "test_truncating_from_the_start_moves_the_epoch_in_force_there",
            ),
            ROLES: ("test_new_leader_records_where_its_epoch_begins_even_if_it_writes_nothing",),
            "tests/unit/log/test_append_as_leader.py": (
                "test_a_new_leader_epoch_is_durable_before_its_first_batch_is_written",
            ),
        },
    ),
    "E3": (
        "truncation by epoch, fencing of stale epochs",
        {
            "tests/unit/replication/test_truncation.py": (
                "test_repeated_answers_end_at_a_common_prefix_and_keep_all_of_the_longest",
                "test_epoch_above_the_leaders_latest_is_unknown_to_it_and_not_its_log_end",
            ),
            FETCH: (
                "test_epochs_are_fenced_both_ways_for_consumers_and_followers",
                "test_a_diverging_fetch_is_told_where_and_acknowledges_nothing",
            ),
            OFFSETS: ("test_an_epoch_ends_where_the_next_begins_and_the_last_at_the_logs_end",),
        },
    ),
    "E4": (
        "truncation to the high watermark instead: loss and divergence, and neither with epochs",
        {
            NODES: (
                "test_two_leaders_die_quickly_and_only_epochs_keep_what_was_acknowledged",
                "test_both_lose_power_the_shorter_one_leads_and_only_epochs_make_them_agree",
            ),
            "tests/scripts/replication/test_scripts.py": ("test_the_same_story_with_leader_epochs_goes_well",),
            WALKS: ("test_random_walks_find_what_truncating_to_the_high_watermark_loses",),
            FETCHER: ("test_before_kip_101_a_follower_cut_its_log_at_its_high_watermark_and_sent_no_epoch",),
        },
    ),
}


@cache
def known_tests(file: str) -> frozenset[str]:
    trees = [source.tree for source in sources("tests") if source.name == file]
    return frozenset(name for tree in trees for name, _ in functions(tree))


def test_every_mechanism_of_replication_is_in_the_table() -> None:
    assert list(MECHANISMS) == [f"R{n}" for n in range(1, 15)] + [f"E{n}" for n in range(1, 5)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_test_that_a_mechanism_names_exists(mechanism: str) -> None:
    _, named = MECHANISMS[mechanism]
    missing = [f"{file}: {name}" for file, names in named.items() for name in names if name not in known_tests(file)]
    assert not missing, f"{mechanism} is told by tests that are not there:\n" + "\n".join(missing)
